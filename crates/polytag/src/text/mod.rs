//! Words, and sentences, out of text.
//!
//! Text enters; what leaves are terms: words by Unicode's rules, lower-cased, stemmed where asked,
//! and runs of up to n of them. Everything that compares words, from TF-IDF to explanations, cuts
//! text here, so that a document and a label agree on what a word is.

mod words; // where words begin and end
mod stem; // what is left of them
mod analyzer; // terms out of text
mod in_place; // words, and which bytes they came from
mod sentences; // where sentences begin and end

pub use analyzer::{Analyzer, AnalyzerConfig, AnalyzerError, Scratch};
pub use in_place::each_word_in_place;
pub use sentences::sentences;
pub use stem::Language;
pub use words::WordRule;
