//! Where sentences begin and end.
//!
//! A sentence ends with a full stop, a question mark or an exclamation mark that is followed by a space and something
//! that may begin a sentence, with such a mark of a script that puts no space after it, or with an empty line.
//! Abbreviations are not known: "Reg. No 5" stays whole because a digit or a small letter begins no sentence.

/// The sentences of a text, without the spaces around them; none is empty.
///
/// ```
/// use polytag::text::sentences;
/// let text = "A ping utility. It measures loss, e.g. in one direction!\n\nMore";
/// let found: Vec<&str> = sentences(text).collect();
/// assert_eq!(found, ["A ping utility.", "It measures loss, e.g. in one direction!", "More"]);
/// ```
pub fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (sentence, after) = rest.split_at(end_of_first(rest));
            rest = after;
            let sentence = sentence.trim();
            if !sentence.is_empty() {
                return Some(sentence);
            }
        }
        None
    })
}

/// Where the first sentence of a text ends.
fn end_of_first(text: &str) -> usize {
    for (at, character) in text.char_indices() {
        let after = at + character.len_utf8();
        match character {
            // Scripts that put no space after a sentence have marks of their own for its end.
            '。' | '！' | '？' => return after,
            '.' | '!' | '?' | '…' => {
                if let Some(closing) = closes(&text[after..]) {
                    return after + closing;
                }
            }
            '\n' if text[after..].trim_start_matches([' ', '\t', '\r']).starts_with('\n') => return after,
            _ => {}
        }
    }
    text.len()
}

/// If what follows a mark makes it the end of a sentence: how many bytes of quotation marks and brackets close with it.
fn closes(after: &str) -> Option<usize> {
    let trimmed = after.trim_start_matches(['"', '\'', ')', ']', '»', '”', '’']);
    let next = trimmed.trim_start();
    let ends = next.len() < trimmed.len() && next.chars().next().is_some_and(begins_sentence);
    ends.then_some(after.len() - trimmed.len())
}

fn begins_sentence(character: char) -> bool {
    !(character.is_lowercase() || character.is_numeric() || matches!(character, ',' | ';' | ':' | '.' | ')'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<&str> {
        sentences(text).collect()
    }

    #[test]
    fn marks_end_a_sentence_only_where_another_begins() {
        assert_eq!(of("One. Two? Three!"), ["One.", "Two?", "Three!"]);
        assert_eq!(of("Regulation No. 15 of v1.2.3 e.g. this"), ["Regulation No. 15 of v1.2.3 e.g. this"]);
        assert_eq!(of("He said \"no.\" She left."), ["He said \"no.\"", "She left."]);
    }

    #[test]
    fn empty_lines_and_marks_of_other_scripts_end_one() {
        assert_eq!(of("a list\n\n- of things\n- more"), ["a list", "- of things\n- more"]);
        assert_eq!(of("一。二！三"), ["一。", "二！", "三"]);
    }

    #[test]
    fn nothing_has_no_sentences() {
        assert!(of("").is_empty() && of(" \n\n \t").is_empty());
        assert_eq!(of("..."), ["..."]);
    }
}
