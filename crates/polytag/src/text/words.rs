//! Where words begin and end.
//!
//! A word is a run of word characters. Which characters those are is a table of one bit a
//! character, built once from Unicode's general categories, so that the inner loop is a look-up.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Which characters make words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WordRule {
    /// Letters, marks, numbers and connectors (UTS #18, Annex C). In scripts that are written
    /// without spaces, every letter with its marks is a word.
    #[default]
    Unicode,
    /// What `\w` matches in Python: letters, numbers and the underscore. Marks end a word. For
    /// comparing with scikit-learn.
    Python,
}

const PLANES: usize = 0x11_0000;

/// One bit a character.
struct CharSet(Vec<u64>);

impl CharSet {
    fn new(contains: impl Fn(char) -> bool) -> CharSet {
        let mut bits = vec![0u64; PLANES / 64];
        for c in (0..PLANES as u32).filter_map(char::from_u32) {
            if contains(c) {
                bits[c as usize / 64] |= 1 << (c as usize % 64);
            }
        }
        CharSet(bits)
    }

    fn contains(&self, c: char) -> bool {
        self.0[c as usize / 64] >> (c as usize % 64) & 1 == 1
    }
}

static UNICODE: LazyLock<CharSet> = LazyLock::new(|| {
    use GeneralCategoryGroup::{Letter, Mark, Number};
    CharSet::new(|c| {
        matches!(c.general_category_group(), Letter | Mark | Number)
            || c.general_category() == unicode_properties::GeneralCategory::ConnectorPunctuation
            || matches!(c, '\u{200c}' | '\u{200d}')
    })
});

static PYTHON: LazyLock<CharSet> = LazyLock::new(|| {
    use GeneralCategoryGroup::{Letter, Number};
    CharSet::new(|c| matches!(c.general_category_group(), Letter | Number) || c == '_')
});

static MARKS: LazyLock<CharSet> =
    LazyLock::new(|| CharSet::new(|c| c.general_category_group() == GeneralCategoryGroup::Mark));

/// Calls `word` with where each word of `text` begins, the word, and whether it is a letter of a script
/// without spaces.
pub(super) fn each_word<'a>(text: &'a str, rule: WordRule, mut word: impl FnMut(usize, &'a str, bool)) {
    let set = match rule {
        WordRule::Unicode => &UNICODE,
        WordRule::Python => &PYTHON,
    };
    let bytes = text.as_bytes();
    let mut start = None;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte < 0x80 {
            let inside = byte.is_ascii_alphanumeric() || byte == b'_';
            match (inside, start) {
                (true, None) => start = Some(at),
                (false, Some(from)) => {
                    word(from, &text[from..at], false);
                    start = None;
                }
                _ => {}
            }
            at += 1;
            continue;
        }
        let c = text[at..].chars().next().expect("a byte over 0x7f begins a character here");
        let next = at + c.len_utf8();
        if rule == WordRule::Unicode && is_unspaced(c) {
            if let Some(from) = start.take() {
                word(from, &text[from..at], false);
            }
            let end = next + marks_at(&text[next..]);
            word(at, &text[at..end], true);
            at = end;
            continue;
        }
        match (set.contains(c), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                word(from, &text[from..at], false);
                start = None;
            }
            _ => {}
        }
        at = next;
    }
    if let Some(from) = start {
        word(from, &text[from..], false);
    }
}

/// How many bytes of marks `text` begins with.
fn marks_at(text: &str) -> usize {
    text.chars().take_while(|&c| MARKS.contains(c)).map(char::len_utf8).sum()
}

/// Whether `c` is a letter of a script that puts no spaces between words.
fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0e01..=0x0e30 | 0x0e32..=0x0e33 | 0x0e40..=0x0e46 // Thai
        | 0x0e81..=0x0eb0 | 0x0eb2..=0x0eb3 | 0x0ebd..=0x0ec6 | 0x0edc..=0x0edf // Lao
        | 0x1000..=0x102a | 0x1780..=0x17b3 // Burmese, Khmer
        | 0x3041..=0x3096 // Hiragana; Katakana mostly spells single loan words and stays whole
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x2_0000..=0x3_ffff) // Han
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, rule: WordRule) -> Vec<&str> {
        let mut out = Vec::new();
        each_word(text, rule, |_, word, _| out.push(word));
        out
    }

    #[test]
    fn words_are_runs_of_word_characters() {
        assert_eq!(
            words("Don't, e.g. x_1 2003/03!", WordRule::Unicode),
            ["Don", "t", "e", "g", "x_1", "2003", "03"]
        );
        assert_eq!(words("Größe naïve Ελλάδα", WordRule::Unicode), ["Größe", "naïve", "Ελλάδα"]);
        assert_eq!(words("", WordRule::Unicode), [""; 0]);
        assert_eq!(words("… – ", WordRule::Unicode), [""; 0]);
    }

    #[test]
    fn a_combining_mark_stays_in_its_word() {
        assert_eq!(words("cafe\u{301} हिन्दी", WordRule::Unicode), ["cafe\u{301}", "हिन्दी"]);
        assert_eq!(words("cafe\u{301}x", WordRule::Python), ["cafe", "x"]);
    }

    #[test]
    fn scripts_without_spaces_are_cut_by_letter() {
        assert_eq!(words("日本語text カタカナ", WordRule::Unicode), ["日", "本", "語", "text", "カタカナ"]);
        assert_eq!(words("น้ำ", WordRule::Unicode), ["น้", "ำ"]);
        assert_eq!(words("日本語", WordRule::Python), ["日本語"]);
    }
}
