//! Words of a document that call for features of a label: a sparse bilinear model, after ZestXML (Gupta et al., 2021).
//!
//! A label has features: the words of its name, aliases and description, and, where documents carry it, one of its own. A
//! document has words. What a document `x` makes of a label `z` is
//!
//! ```text
//! ln odds = Σ over links (word, feature) of weight · x[word] · z[feature]  +  same · Σ over words of x[word] · z[word]  +  bias
//! ```
//!
//! Links are few: for each feature the words that documents of labels with the feature have most of. That is the
//! step of the best sparse map from zero, cut to its greatest entries; what is left of the search for it is logistic
//! regression over the links. Labels that were never carried are reached through the words of their names, which labels
//! that were carried have, too, and by words that stand in both.
//!
//! Which labels a document is compared with is a shortlist, made by the links as they were before anything was
//! learned; the regression learns from those of it that documents carry, and answers are taken from it.
//!
//! Cost: of learning, documents × the features of a shortlist's labels × links; of an answer, the links of the document's
//! words and the labels that have their features; of a change of labels, reading all of them. Memory: 12 bytes a link, 8 a
//! feature of a label, and 8 a word of a document, beyond a third of `fit --memory` on the disk. What follows is not in that
//! limit: while links are chosen up to 16 KB a label, twice for a moment; while they are learned 24 bytes a link, 4 a label of a
//! shortlist, and 36 a feature and a word for each thread. The model is the same with any limit and any number of threads.

mod labels; // what labels are made of
mod links; // which words call for which features
mod learn; // what each link weighs
mod model; // the predictor

pub use model::ZestModel;

use serde::{Deserialize, Serialize};

use self::labels::LabelFeatures;
use self::learn::{Learning, Lesson, learn};
use self::links::{Links, Sums};
use super::error::MethodError;
use super::label_text::LabelText;
use super::seen_labels::seen_labels;
use super::{Method, TrainContext, word_rows};
use crate::data::Dataset;
use crate::ids::DocId;
use crate::predict::Predictor;
use crate::progress::Event;
use crate::sparse::TfidfConfig;
use crate::text::Language;

/// Settings of `zest`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZestConfig {
    /// The language whose stems stand for words; null keeps words as they are.
    pub stem: Option<Language>,
    /// The longest run of words that counts as a term.
    pub ngrams: usize,
    /// Terms in fewer documents than this are left out.
    pub min_documents: u32,
    /// Terms held in memory while counting.
    pub table_limit: usize,
    /// What of a label is read.
    pub label_text: LabelText,
    /// What a label's own feature weighs beside its words, which are of length one together; 0 for none.
    pub own: f32,
    /// How many words of documents call for a word of labels. Few: what a name's words stand for in labels that
    /// documents carry is not all that they stand for in others.
    pub links: usize,
    /// How many call for a label's own feature.
    pub own_links: usize,
    /// How many labels a document is compared with: of those that documents carry, and in an answer as many of the others,
    /// and no fewer than are wanted.
    pub shortlist: usize,
    /// How much of a score is the cosine of the label's words with the document's, from 0 to 1; the rest is the
    /// probability that was learned.
    pub alike: f32,
    /// How often documents are gone through.
    pub passes: usize,
    /// How many documents are learned from at once.
    pub batch: usize,
    /// The size of the steps.
    pub rate: f32,
    /// What keeps weights small.
    pub decay: f32,
}

impl Default for ZestConfig {
    fn default() -> ZestConfig {
        ZestConfig {
            stem: Some(Language::English),
            ngrams: 1,
            min_documents: 2,
            table_limit: 20_000_000,
            label_text: LabelText::Full,
            own: 1.0,
            links: 32,
            own_links: 256,
            shortlist: 150,
            alike: 0.5,
            passes: 10,
            batch: 64,
            rate: 0.2,
            decay: 1e-4,
        }
    }
}

impl ZestConfig {
    fn tfidf(&self) -> TfidfConfig {
        let config = word_rows::tfidf(self.stem, self.ngrams, self.min_documents);
        TfidfConfig { table_limit: self.table_limit, ..config }
    }

    /// What is wrong with it, if anything is.
    fn problem(&self) -> Option<String> {
        let out = |name: &str, value: &dyn std::fmt::Display, range: &str| {
            Some(format!("{name} = {value} is out of range; say {range}"))
        };
        match self {
            _ if !(0.0..=100.0).contains(&self.own) => out("own", &self.own, "0 to 100"),
            _ if self.links == 0 => out("links", &self.links, "at least 1"),
            _ if self.own_links == 0 => out("own_links", &self.own_links, "at least 1"),
            _ if self.shortlist == 0 => out("shortlist", &self.shortlist, "at least 1"),
            _ if !(0.0..=1.0).contains(&self.alike) => out("alike", &self.alike, "0 to 1"),
            _ if self.passes == 0 => out("passes", &self.passes, "at least 1"),
            _ if self.batch == 0 => out("batch", &self.batch, "at least 1"),
            _ if !(self.rate > 0.0 && self.rate <= 100.0) => out("rate", &self.rate, "above 0, up to 100"),
            _ if !(0.0..=1.0).contains(&self.decay) => out("decay", &self.decay, "0 to 1"),
            _ => None,
        }
    }
}

/// The method, its settings checked.
pub struct Zest {
    config: ZestConfig,
}

impl TryFrom<ZestConfig> for Zest {
    type Error = MethodError;

    fn try_from(config: ZestConfig) -> Result<Zest, MethodError> {
        if let Some(problem) = config.problem() {
            return Err(MethodError::Config { method: "zest", problem });
        }
        crate::sparse::Tfidf::from_parts(&config.tfidf(), Default::default(), Vec::new())?;
        Ok(Zest { config })
    }
}

impl Zest {
    fn fit(&self, dataset: &dyn Dataset, context: &TrainContext<'_>) -> Result<ZestModel, MethodError> {
        let config = &self.config;
        let space = dataset.label_space().clone();
        let seen = seen_labels(&space);
        if seen.is_empty() {
            return Err(MethodError::NoPairs { method: "zest" });
        }
        let documents = word_rows::labelled(dataset, context);
        let labels: Vec<Vec<u32>> = documents
            .iter()
            .map(|&id| dataset.labels_of(DocId(id)).iter().map(|label| label.0).collect())
            .collect();
        let words = word_rows::count(&config.tfidf(), dataset, context)?.commonest_first();
        let words = labels::with_words_of(words, config.label_text, &space)?;
        let columns = words.vocabulary().len();
        let rows = word_rows::rows(
            (dataset, &documents),
            (columns, &word_rows::room(context)),
            context,
            |passages| Ok(word_rows::weigh(&words, passages)),
        )?;
        let features = LabelFeatures::new((config.label_text, config.own), &words, &space);
        let links = {
            let sums = Sums::of(&rows, &labels, &features)?;
            Links::choose(&sums, &features, (config.links, config.own_links))
        };
        context.progress.report(Event::Measured { name: "links:", value: links.len() as f64 });
        let learning = Learning {
            shortlist: config.shortlist,
            passes: config.passes,
            batch: config.batch,
            rate: config.rate,
            decay: config.decay,
            seed: context.seed,
        };
        let lesson = Lesson { rows: &rows, labels: &labels, features: &features };
        let learned = learn(&links, &lesson, &learning, context)?;
        Ok(ZestModel::new(config.clone(), words, links.with_weights(learned), features, space))
    }
}

impl Method for Zest {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        Ok(Box::new(self.fit(dataset, context)?))
    }
}
