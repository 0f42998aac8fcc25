//! From text to terms: normal form, lower case, words, stems, n-grams.
//!
//! The words of a text are laid end to end in one buffer, a space between, so that every n-gram is
//! a slice of it and no string is made for a term.

use std::ops::RangeInclusive;

use rust_stemmers::Stemmer;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

use super::stem::Language;
use super::words::{WordRule, each_word};

/// The longest n-gram that may be asked for.
const MAX_NGRAM: usize = 5;

/// How text is cut into terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnalyzerConfig {
    /// Which characters make words.
    pub words: WordRule,
    /// The least number of characters in a word. Letters of scripts without spaces are exempt.
    pub min_chars: usize,
    /// The language whose stems stand for the words; none keeps the words.
    pub stem: Option<Language>,
    /// The shortest and the longest run of words that make a term.
    pub ngrams: (usize, usize),
}

impl Default for AnalyzerConfig {
    fn default() -> AnalyzerConfig {
        AnalyzerConfig { words: WordRule::Unicode, min_chars: 2, stem: None, ngrams: (1, 1) }
    }
}

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalyzerError {
    /// The n-gram range is empty, starts at zero or goes too far.
    #[error("ngrams = [{from}, {to}] is not a range; say for example [1, 2], at most [1, {MAX_NGRAM}]")]
    Ngrams {
        /// The shortest.
        from: usize,
        /// The longest.
        to: usize,
    },
}

/// A checked configuration, ready to cut text.
///
/// ```
/// use polytag::text::{Analyzer, AnalyzerConfig, Scratch};
/// let analyzer = Analyzer::try_from(AnalyzerConfig { ngrams: (1, 2), ..AnalyzerConfig::default() })?;
/// let mut terms = Vec::new();
/// analyzer.each_term("Fair-trade tea", &mut Scratch::default(), |term| terms.push(term.to_owned()));
/// assert_eq!(terms, ["fair", "fair trade", "trade", "trade tea", "tea"]);
/// # Ok::<(), polytag::text::AnalyzerError>(())
/// ```
pub struct Analyzer {
    config: AnalyzerConfig,
    ngrams: RangeInclusive<usize>,
    stemmer: Option<Stemmer>,
}

/// Longer words are no words of a language, and stemming takes time with the square of their length.
const LONGEST_STEMMED: usize = 64;

/// Stems that a thread remembers, as the same words come again and again.
const STEM_MEMORY: usize = 1 << 16;

/// Buffers that one thread uses again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    lower: String,
    words: String,
    spans: Vec<Span>,
    stems: FxHashMap<Box<str>, Box<str>>,
}

/// A word: where it stands among the words, and where it stood in the text.
#[derive(Clone, Copy, Debug)]
struct Span {
    word: (u32, u32),
    source: (u32, u32),
}

impl TryFrom<AnalyzerConfig> for Analyzer {
    type Error = AnalyzerError;

    fn try_from(config: AnalyzerConfig) -> Result<Analyzer, AnalyzerError> {
        let (from, to) = config.ngrams;
        if from == 0 || from > to || to > MAX_NGRAM {
            return Err(AnalyzerError::Ngrams { from, to });
        }
        let stemmer = config.stem.map(Language::stemmer);
        Ok(Analyzer { config, ngrams: from..=to, stemmer })
    }
}

impl Analyzer {
    /// What the analyzer was made from.
    pub fn config(&self) -> &AnalyzerConfig {
        &self.config
    }

    /// Calls `term` with each term of `text`, in order of where it begins, shorter ones first.
    pub fn each_term(&self, text: &str, scratch: &mut Scratch, mut term: impl FnMut(&str)) {
        self.each_term_and_source(text, scratch, |found, _| term(found));
    }

    /// Calls `term` with each term of `text` and the stretch of the text, in normal form and lower case,
    /// that it stands for.
    pub fn each_term_and_source(&self, text: &str, scratch: &mut Scratch, mut term: impl FnMut(&str, &str)) {
        // Line limits keep texts far below what 32-bit spans can reach.
        debug_assert!(text.len() < 1 << 30);
        lower_into(text, self.config.words, &mut scratch.lower);
        self.cut(scratch);
        let Scratch { lower, words, spans, .. } = scratch;
        for first in 0..spans.len() {
            for last in self.ngrams.clone().map(|n| first + n - 1).take_while(|&last| last < spans.len()) {
                let (from, to) = (spans[first], spans[last]);
                term(
                    &words[from.word.0 as usize..to.word.1 as usize],
                    &lower[from.source.0 as usize..to.source.1 as usize],
                );
            }
        }
    }

    /// Cuts the lower-cased text into words.
    fn cut(&self, scratch: &mut Scratch) {
        let Scratch { lower, words, spans, stems } = scratch;
        words.clear();
        spans.clear();
        each_word(lower, self.config.words, |at, word, unspaced| {
            let long_enough = self.config.min_chars <= 1
                || unspaced
                || word.chars().nth(self.config.min_chars - 1).is_some();
            if !long_enough {
                return;
            }
            if !words.is_empty() {
                words.push(' ');
            }
            let start = words.len() as u32;
            match &self.stemmer {
                Some(stemmer) if word.len() <= LONGEST_STEMMED => push_stem(stemmer, word, stems, words),
                _ => words.push_str(word),
            }
            let source = (at as u32, (at + word.len()) as u32);
            spans.push(Span { word: (start, words.len() as u32), source });
        });
    }
}

fn push_stem(stemmer: &Stemmer, word: &str, stems: &mut FxHashMap<Box<str>, Box<str>>, out: &mut String) {
    if let Some(stem) = stems.get(word) {
        out.push_str(stem);
        return;
    }
    if stems.len() >= STEM_MEMORY {
        stems.clear();
    }
    let stem = stemmer.stem(word);
    // Some rules take all of a word, such as Greek ones a comparative's ending that stands alone.
    let stem = if stem.is_empty() { word } else { &stem };
    out.push_str(stem);
    stems.insert(word.into(), stem.into());
}

/// Lower-cases text. By Unicode's rule it is brought into its compatible normal form first (UAX #15), so
/// that an accent is the same however it was typed, and a ligature the same as its letters.
pub(super) fn lower_into(text: &str, rule: WordRule, lower: &mut String) {
    lower.clear();
    if text.is_ascii() {
        lower.push_str(text);
        lower.make_ascii_lowercase();
    } else if rule == WordRule::Unicode && is_nfkc_quick(text.chars()) != IsNormalized::Yes {
        let normal: String = text.nfkc().collect();
        lower_all(&normal, lower);
    } else {
        lower_all(text, lower);
    }
}

/// As `str::to_lowercase`, but runs of ASCII, which most text is, go at once.
fn lower_all(text: &str, lower: &mut String) {
    if text.contains('Σ') {
        // How it is lower-cased depends on where it stands.
        *lower = text.to_lowercase();
        return;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let ascii = rest.bytes().position(|byte| !byte.is_ascii()).unwrap_or(rest.len());
        let start = lower.len();
        lower.push_str(&rest[..ascii]);
        lower[start..].make_ascii_lowercase();
        let mut others = rest[ascii..].chars();
        while let Some(c) = others.clone().next().filter(|c| !c.is_ascii()) {
            lower.extend(c.to_lowercase());
            others.next();
        }
        rest = others.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms(config: AnalyzerConfig, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let analyzer = Analyzer::try_from(config).unwrap();
        analyzer.each_term(text, &mut Scratch::default(), |term| out.push(term.to_owned()));
        out
    }

    #[test]
    fn short_words_fall_out_before_ngrams_are_made() {
        let config = AnalyzerConfig { ngrams: (2, 3), ..AnalyzerConfig::default() };
        assert_eq!(terms(config, "state of a trade"), ["state of", "state of trade", "of trade"]);
    }

    #[test]
    fn stems_stand_for_words() {
        let config = AnalyzerConfig { stem: Some(Language::English), ..AnalyzerConfig::default() };
        assert_eq!(terms(config, "Taxation of imported goods"), ["taxat", "of", "import", "good"]);
    }

    #[test]
    fn a_word_that_is_all_ending_stays() {
        let config = AnalyzerConfig { stem: Some(Language::Greek), ..AnalyzerConfig::default() };
        assert_eq!(terms(config, "ύτερος"), ["ύτερος"]);
    }

    #[test]
    fn case_follows_unicode() {
        assert_eq!(terms(AnalyzerConfig::default(), "ΟΔΟΣ STRASSE İz"), ["οδος", "strasse", "i\u{307}z"]);
    }

    #[test]
    fn words_are_the_same_however_they_were_typed() {
        let config = AnalyzerConfig::default;
        assert_eq!(terms(config(), "cafe\u{301} o\u{fb03}ce"), terms(config(), "café office"));
        let python = AnalyzerConfig { words: WordRule::Python, ..config() };
        assert_eq!(terms(python, "o\u{fb03}ce"), ["o\u{fb03}ce"]);
    }

    #[test]
    fn what_is_too_long_for_a_word_is_not_stemmed() {
        let config = AnalyzerConfig { stem: Some(Language::English), ..AnalyzerConfig::default() };
        let long = "ay".repeat(500_000);
        assert_eq!(terms(config, &long), [long]);
    }

    #[test]
    fn senseless_ranges_are_refused() {
        for ngrams in [(0, 1), (2, 1), (1, 9)] {
            let config = AnalyzerConfig { ngrams, ..AnalyzerConfig::default() };
            assert!(Analyzer::try_from(config).is_err());
        }
    }

    proptest! {
        #[test]
        fn lower_case_is_that_of_the_standard_library(text in "[a-zA-Z ΑΣσßİÄé日]*|\\PC*") {
            let mut lower = String::new();
            lower_all(&text, &mut lower);
            prop_assert_eq!(lower, text.to_lowercase());
        }

        #[test]
        fn any_text_is_cut_without_a_panic(text in "\\PC*", rule in prop::bool::ANY) {
            let words = if rule { WordRule::Unicode } else { WordRule::Python };
            let config = AnalyzerConfig { words, min_chars: 1, ngrams: (1, 3), ..AnalyzerConfig::default() };
            let terms = terms(config, &text);
            prop_assert!(terms.iter().all(|term| !term.is_empty() && !term.starts_with(' ')));
        }
    }
}
