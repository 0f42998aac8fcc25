//! XML entities, watched.
//!
//! Bytes enter and leave unchanged, until a declaration of an entity would let a small file grow
//! without bounds: one made of others may stand for a gigabyte, and the parser would write it out.
//! Plain ones, which shorten addresses, pass; what a reference to them may add to a record counts
//! as if it stood in the file.
//!
//! What is a declaration is up to the parser, not to the XML specification: `oxrdfxml` takes the
//! document type apart at each `<`, in quotes or not, and reads the pieces that go on with `!ENTITY`.
//! So a declaration lasts to the next `<` here as well.

use std::io::{self, BufRead, Read};

use crate::storage::{Meter, Metered};

const ENTITY: &[u8] = b"<!ENTITY";

/// The longest declaration; addresses are far shorter.
const MAX_DECLARATION: usize = 512;

/// A reader that fails with [`io::ErrorKind::InvalidInput`] on entities that grow.
pub(super) struct EntityGuard<R> {
    input: Metered<R>,
    meter: Meter,
    /// How much of [`ENTITY`] has matched.
    matched: usize,
    /// Bytes since a declaration began, where one has.
    declared: Option<usize>,
    /// The longest declaration so far; no entity stands for more.
    longest: usize,
}

impl<R: BufRead> EntityGuard<R> {
    pub(super) fn new(input: Metered<R>) -> EntityGuard<R> {
        let meter = input.meter();
        EntityGuard { input, meter, matched: 0, declared: None, longest: 0 }
    }

    fn grows(&mut self, byte: u8) -> bool {
        if byte == ENTITY[0] {
            (self.matched, self.declared) = (1, None);
            return false;
        }
        if let Some(length) = &mut self.declared {
            *length += 1;
            self.longest = self.longest.max(*length);
            return byte == b'&' || *length > MAX_DECLARATION;
        }
        if byte == b'&' {
            self.meter.grow(self.longest);
        }
        self.matched = if self.matched > 0 && byte == ENTITY[self.matched] { self.matched + 1 } else { 0 };
        if self.matched == ENTITY.len() {
            (self.matched, self.declared) = (0, Some(0));
        }
        false
    }
}

impl<R: BufRead> Read for EntityGuard<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.input.read(out)?;
        if out[..taken].iter().any(|&byte| self.grows(byte)) {
            let problem = "an entity is made of others, or too long";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        self.meter.check()?;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(xml: &str) -> io::Result<usize> {
        EntityGuard::new(Metered::new(xml.as_bytes(), 10_000)).read_to_string(&mut String::new())
    }

    #[test]
    fn only_entities_that_grow_are_stopped() {
        assert!(read("<!ENTITY a \"http://x/\"> <a b='&a;'/> &a; <<!ENTITY b 'c'>").is_ok());
        assert!(read("<<!ENTITY a '&b;&b;'>").is_err());
        assert!(read("<!ENTITY a \">&b;&b;\">").is_err());
        assert!(read("<!ENTITY a \"x\" '>&b;'>").is_err());
        assert!(read("< <!ENTITY a \">&b;&b;\">").is_err());
        assert!(read("<!ENTITY a\"b \">&b;&b;\">").is_err());
        assert!(read("<!ENTITY<!ENTITY a '&b;'>").is_err());
        assert!(read(&format!("<!ENTITY a '{}'>", "x".repeat(500))).is_ok());
        assert!(read(&format!("<!ENTITY a '{}'>", "x".repeat(520))).is_err());
        assert!(read("<!ENTIT <!E NTITY a '&b;'>").is_ok());
    }

    #[test]
    fn references_count_as_what_they_stand_for() {
        let lines =
            |entity: &str, count: usize| format!("<!ENTITY a \"{entity}\"><a>{}", "&a;\n".repeat(count));
        assert!(read(&lines(&"x".repeat(400), 20)).is_ok());
        assert!(read(&lines(&"x".repeat(400), 30)).is_err());
        assert!(read(&"&amp;\n".repeat(1000)).is_ok());
    }
}
