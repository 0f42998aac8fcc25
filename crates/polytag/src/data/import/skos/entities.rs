//! XML entities, watched.
//!
//! Bytes enter and leave unchanged, until a declaration of an entity would let a small file grow:
//! one made of others may stand for a gigabyte, and the parser would write it out. Plain ones, which
//! shorten addresses, pass.

use std::io::{self, Read};

const ENTITY: &[u8] = b"<!ENTITY";

/// The longest declaration, with what follows it up to the next `<`; addresses are far shorter.
const MAX_DECLARATION: usize = 1024;

/// A reader that fails with [`io::ErrorKind::InvalidInput`] on entities that grow.
pub(super) struct EntityGuard<R> {
    input: R,
    /// How much of [`ENTITY`] has matched.
    matched: usize,
    /// Bytes since a declaration began, where one has.
    declared: Option<usize>,
}

impl<R> EntityGuard<R> {
    pub(super) fn new(input: R) -> EntityGuard<R> {
        EntityGuard { input, matched: 0, declared: None }
    }

    fn grows(&mut self, byte: u8) -> bool {
        // The parser cuts declarations apart at `<` alone; a `>` may stand in the middle of one.
        if let Some(length) = self.declared.filter(|_| byte != b'<') {
            self.declared = Some(length + 1);
            return byte == b'&' || length > MAX_DECLARATION;
        }
        self.declared = None;
        self.matched =
            if byte == ENTITY[self.matched] { self.matched + 1 } else { usize::from(byte == ENTITY[0]) };
        if self.matched == ENTITY.len() {
            (self.matched, self.declared) = (0, Some(0));
        }
        false
    }
}

impl<R: Read> Read for EntityGuard<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.input.read(out)?;
        if out[..taken].iter().any(|&byte| self.grows(byte)) {
            let problem = "an entity is made of others, or too long";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entities_that_grow_are_stopped() {
        let read = |xml: &str| EntityGuard::new(xml.as_bytes()).read_to_string(&mut String::new());
        assert!(read("<!ENTITY a \"http://x/\"> <a b='&a;'/> &a; <<!ENTITY b 'c'>").is_ok());
        assert!(read("<<!ENTITY a '&b;&b;'>").is_err());
        assert!(read("< <!ENTITY a \">&b;&b;\">").is_err());
        assert!(read("<!ENTITY a\"b \">&b;&b;\">").is_err());
        assert!(read("<!ENTITY<!ENTITY a '&b;'>").is_err());
        assert!(read(&format!("<!ENTITY a '{}'>", "x".repeat(2000))).is_err());
    }
}
