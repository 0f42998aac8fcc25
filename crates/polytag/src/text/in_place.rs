//! Words where they stand, for those who have to say which bytes of a text a word came from.
//!
//! An [`Analyzer`](super::Analyzer) brings a whole text into its normal form before it cuts, after which the bytes are
//! others. Here the text is cut as it is, by the same rule, and each word is brought into the same form by itself.

use std::ops::Range;

use super::analyzer::lower_into;
use super::words::{WordRule, each_word};

/// Calls `word` with each word of `text` by Unicode's rule, in normal form and lower case, and its bytes in `text`.
/// `lower` is a buffer that can be used again and again.
///
/// ```
/// use polytag::text::each_word_in_place;
/// let mut words = Vec::new();
/// each_word_in_place("Green-TEA trade", &mut String::new(), |word, bytes| words.push((word.to_owned(), bytes)));
/// assert_eq!(words, [("green".to_owned(), 0..5), ("tea".to_owned(), 6..9), ("trade".to_owned(), 10..15)]);
/// ```
pub fn each_word_in_place(text: &str, lower: &mut String, mut word: impl FnMut(&str, Range<usize>)) {
    each_word(text, WordRule::Unicode, |at, found, _| {
        lower_into(found, WordRule::Unicode, lower);
        word(lower, at..at + found.len());
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Analyzer, AnalyzerConfig, Scratch};
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<(String, Range<usize>)> {
        let mut words = Vec::new();
        each_word_in_place(text, &mut String::new(), |word, bytes| words.push((word.to_owned(), bytes)));
        words
    }

    #[test]
    fn bytes_are_those_of_the_text_and_words_are_normal() {
        let text = "İz cafe\u{301} o\u{fb03}ce";
        let found: Vec<(String, &str)> =
            words(text).into_iter().map(|(word, bytes)| (word, &text[bytes])).collect();
        let expected = [("i\u{307}z", "İz"), ("café", "cafe\u{301}"), ("office", "o\u{fb03}ce")];
        assert_eq!(found, expected.map(|(word, bytes)| (word.to_owned(), bytes)));
    }

    proptest! {
        /// Where the normal form changes nothing, these are the words of an analyzer.
        #[test]
        fn words_are_those_of_an_analyzer(text in "[a-zA-Z0-9 äÄßé'’_,.日本-]*") {
            let config = AnalyzerConfig { min_chars: 1, ..AnalyzerConfig::default() };
            let mut terms = Vec::new();
            let analyzer = Analyzer::try_from(config).unwrap();
            analyzer.each_term(&text, &mut Scratch::default(), |term| terms.push(term.to_owned()));
            prop_assert_eq!(words(&text).into_iter().map(|(word, _)| word).collect::<Vec<_>>(), terms);
        }

        #[test]
        fn any_text_is_cut_without_a_panic(text in "\\PC*") {
            for (word, bytes) in words(&text) {
                prop_assert!(!word.is_empty() && text.get(bytes).is_some());
            }
        }
    }
}
