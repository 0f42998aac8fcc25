//! Lines of Annif's corpora and subject files.
//!
//! A line enters; an address, a name or a document's parts leave. Nothing here opens files.

use crate::data::error::{DataError, Place};
use crate::data::import::intake::malformed;

/// Reads a line of a short-text corpus: the text, a tab, and addresses of subjects in angle brackets
/// with blanks between.
pub fn parse_document(line: &str, place: impl Fn() -> Place) -> Result<(&str, Vec<String>), DataError> {
    let remedy = "write the text, a tab, and addresses like <http://example.org/1> <http://example.org/2>";
    let Some((text, subjects)) = line.split_once('\t') else {
        return Err(malformed(place(), "no tab between text and subjects", remedy));
    };
    let subjects = subjects.split_whitespace().map(|word| match parse_address(word) {
        Some(address) => Ok(address.to_owned()),
        None => Err(malformed(place(), format!("{word:?} is no address"), remedy)),
    });
    Ok((text.trim(), subjects.collect::<Result<_, _>>()?))
}

/// Reads a line of a subject file or a vocabulary: an address, and perhaps a tab and a name.
pub fn parse_subject(line: &str, place: impl Fn() -> Place) -> Result<(String, Option<String>), DataError> {
    let mut fields = line.split('\t').map(str::trim);
    let address = fields.next().unwrap_or_default();
    match parse_address(address) {
        Some(address) => {
            let name = fields.next().filter(|name| !name.is_empty());
            Ok((address.to_owned(), name.map(str::to_owned)))
        }
        None => Err(malformed(
            place(),
            format!("{address:?} is no address"),
            "write an address like <http://example.org/1>, a tab, and a name",
        )),
    }
}

/// What is in the brackets; an address without brackets has at least a colon.
pub fn parse_address(word: &str) -> Option<&str> {
    let address = match word.strip_prefix('<') {
        Some(rest) => rest.strip_suffix('>')?.trim(),
        None if word.contains(':') => word,
        None => return None,
    };
    (!address.is_empty() && !address.contains(['<', '>'])).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn place() -> Place {
        Place::line(Path::new("t.tsv"), 3)
    }

    #[test]
    fn lines_are_taken_apart() {
        let (text, subjects) = parse_document("a text\t<http://x/1> urn:2\t<http://x/3>", place).unwrap();
        assert_eq!(text, "a text");
        assert_eq!(subjects, ["http://x/1", "urn:2", "http://x/3"]);
        assert_eq!(parse_document("none\t", place).unwrap(), ("none", vec![]));
        assert_eq!(
            parse_subject("<urn:1>\tone\t", place).unwrap(),
            ("urn:1".to_owned(), Some("one".to_owned()))
        );
        assert_eq!(parse_subject("urn:1", place).unwrap(), ("urn:1".to_owned(), None));
    }

    #[test]
    fn complaints_name_file_and_line() {
        let complaint = |line: &str| parse_document(line, place).unwrap_err().to_string();
        assert!(complaint("no tab").starts_with("t.tsv, line 3: no tab between text and subjects; "));
        assert!(complaint("x\t<http://x/1").starts_with("t.tsv, line 3: \"<http://x/1\" is no address; "));
        assert!(complaint("x\tword").contains("\"word\" is no address"));
        assert!(complaint("x\t<>").contains("is no address"));
        assert!(parse_subject("cat", place).unwrap_err().to_string().starts_with("t.tsv, line 3: \"cat\""));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "\\PC{0,60}", near in "[<>:a\t ]{0,40}") {
            for line in [line, near] {
                let _ = parse_subject(&line, place);
                if let Ok((_, subjects)) = parse_document(&line, place) {
                    prop_assert!(subjects.iter().all(|subject| !subject.is_empty()));
                }
            }
        }
    }
}
