//! Words of the document against words of the label: the TF-IDF row of papers 001 and 003.
//!
//! Nothing is learned from pairs, so it serves labels that no document ever carried. Document texts
//! teach it how rare each word is; with that,
//!
//! - a term is a word stem, or a run of up to three of them. A run is as rare as if its words met by
//!   chance, so that only words need counting and a label added later is weighed like the others;
//! - a document weighs a term by `idf · (1 + ln uses)`, uses in the title counting double;
//! - a label has forms: its name, each alias, its description (words only, no runs). A form weighs a
//!   term by `idf`, a run of words by half of it, and is scaled to length one, a description to half;
//! - a form scores as the inner product with the document, whose words make a vector of length one,
//!   times the root of the share of the form's words that the document holds; a label scores as its best
//!   form. The score compares labels and documents. It is not a probability.
//!
//! The defaults were chosen on the train split of EURLEX57K and checked on Debian's package tags;
//! `results/` says how.

mod forms;
mod model;
mod rarity;

pub use model::LexicalModel;

use serde::{Deserialize, Serialize};

use super::error::MethodError;
use super::{Method, TrainContext};
use crate::data::Dataset;
use crate::predict::Predictor;
use crate::text::{Analyzer, AnalyzerConfig, AnalyzerError, Language, WordRule};
use rarity::Rarity;

/// Settings of `lexical`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LexicalConfig {
    /// The language whose stems stand for words; null keeps words as they are.
    pub stem: Option<Language>,
    /// The longest run of words that counts as a term.
    pub ngrams: usize,
    /// What a run of words weighs in a label's form, next to a word of the same rarity.
    pub ngram_weight: f32,
    /// What a use in the title weighs, next to one in the text.
    pub title_weight: f32,
    /// What a match with the description weighs, next to one with a name.
    pub description_weight: f32,
    /// How much a form suffers from words that the document lacks: 0 not at all, 1 in proportion.
    pub coverage: f32,
    /// Terms held in memory while counting.
    pub table_limit: usize,
}

impl Default for LexicalConfig {
    fn default() -> LexicalConfig {
        LexicalConfig {
            stem: Some(Language::English),
            ngrams: 3,
            ngram_weight: 0.5,
            title_weight: 2.0,
            description_weight: 0.5,
            coverage: 0.5,
            table_limit: 20_000_000,
        }
    }
}

impl LexicalConfig {
    /// How text is cut, into runs of up to `ngrams` words.
    fn analyzer(&self, ngrams: usize) -> Result<Analyzer, AnalyzerError> {
        // Single letters matter in names: vitamin C, language R.
        let config =
            AnalyzerConfig { words: WordRule::Unicode, min_chars: 1, stem: self.stem, ngrams: (1, ngrams) };
        Analyzer::try_from(config)
    }
}

/// The method, its settings checked.
pub struct Lexical {
    config: LexicalConfig,
}

impl TryFrom<LexicalConfig> for Lexical {
    type Error = MethodError;

    fn try_from(config: LexicalConfig) -> Result<Lexical, MethodError> {
        config.analyzer(config.ngrams)?;
        let weights = [
            ("ngram_weight", config.ngram_weight),
            ("title_weight", config.title_weight),
            ("description_weight", config.description_weight),
            ("coverage", config.coverage),
        ];
        for (name, value) in weights {
            if !(0.0..=100.0).contains(&value) {
                let problem = format!("{name} = {value} is out of range; say a number from 0 to 100");
                return Err(MethodError::Config { method: "lexical", problem });
            }
        }
        if config.table_limit == 0 {
            let problem = "table_limit = 0 would keep no word; say at least 1".to_owned();
            return Err(MethodError::Config { method: "lexical", problem });
        }
        Ok(Lexical { config })
    }
}

impl Lexical {
    /// Counts the words of `dataset`, and takes in its labels.
    pub fn fit(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<LexicalModel, MethodError> {
        let rarity = Rarity::count(&self.config, dataset, context)?;
        Ok(LexicalModel::new(&self.config, rarity, dataset.label_space().clone())?)
    }
}

impl Method for Lexical {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        Ok(Box::new(self.fit(dataset, context)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused_with_a_remedy() {
        let refused = |config: LexicalConfig| Lexical::try_from(config).err().expect("refused").to_string();
        let default = LexicalConfig::default;
        assert!(refused(LexicalConfig { ngrams: 0, ..default() }).contains("[1, 0]"));
        assert!(
            refused(LexicalConfig { title_weight: f32::NAN, ..default() }).contains("title_weight = NaN")
        );
        assert!(refused(LexicalConfig { coverage: -1.0, ..default() }).contains("coverage"));
        assert!(refused(LexicalConfig { table_limit: 0, ..default() }).contains("table_limit"));
    }
}
