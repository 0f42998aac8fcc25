//! Label trees: linear classifiers on words, found by walking down a tree of labels.
//!
//! Documents enter as TF-IDF, as an encoder's vectors, or both. Labels are put into a tree by what their documents say,
//! every node learns to tell its children apart, and a document walks down the best paths: the probability of a label is
//! that of all the turns to it, exp(−max(0, 1 − m)^power) each for a margin m, and the mean over trees where there are
//! several. What sets the known methods apart is the shape, so that their names are presets: XR-Linear (trees of
//! sixteen), Parabel (binary and deep, three trees), Bonsai (wide and shallow, three trees).
//!
//! Only labels that a training document carries are in the tree. Those that are not, and those added later, are never
//! answered with.
//!
//! Memory while fitting: rows of documents take 8 bytes a word and up to a third of the limit, those of nodes in work
//! another third, and both go to the disk past that; beside them a thread takes 64 bytes a document of a node and a word
//! of it, and 4 a word of the task; the limit does not cover these, nor the up to `label_terms` words that stand for each
//! label while trees are made (8 bytes each), the vocabulary, and the model itself, which stays in memory. The model is the same with any limit and any number of threads.

mod tree; // the shape
mod lanes; // sixteen classifiers at once
mod solve; // how they are learned
mod weights; // what they learned, for the way down
mod features; // what they see of a document
mod train; // a tree, level by level
mod explain; // which words speak for a label
mod descent; // the way down
mod model; // the predictor

pub use model::LabelTreeModel;

use polytag_nn::sentence::Overrides;
use serde::{Deserialize, Serialize};

use self::features::Features;
use self::solve::Effort;
use self::train::{Learning, Lesson, learn};
use self::tree::Tree;
use self::weights::MOST_CHILDREN;
use super::error::MethodError;
use super::seen_labels::{carriers, seen_labels};
use super::{Method, TrainContext, word_rows};
use crate::data::Dataset;
use crate::ids::DocId;
use crate::predict::Predictor;
use crate::progress::Event;
use crate::sparse::{Csr, RowStore, TfidfConfig};
use crate::storage::StorageError;
use crate::text::Language;

/// More trees than anybody has a use for.
const MOST_TREES: usize = 100;

/// Settings of `label-tree` and its presets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelTreeConfig {
    /// Whether words are looked at.
    pub words: bool,
    /// The longest run of words that counts as a term.
    pub ngrams: usize,
    /// The language whose stems stand for words; null keeps words as they are.
    pub stem: Option<Language>,
    /// Terms in fewer documents than this are left out.
    pub min_documents: u32,
    /// Only so many terms are kept, those used most often; null keeps all.
    pub max_terms: Option<usize>,
    /// Terms held in memory while counting.
    pub table_limit: usize,
    /// The encoder whose vectors are looked at: a known name, a name on the hub, or a folder; null for none.
    pub encoder: Option<String>,
    /// What such a vector weighs beside the words.
    pub encoder_weight: f32,
    /// How many tokens the encoder reads; null reads as many as it was made for.
    pub max_tokens: Option<usize>,
    /// How many trees vote.
    pub trees: usize,
    /// Children of a node, rounded up to a power of two.
    pub branching: usize,
    /// Labels below one node of the last level, at most.
    pub leaf: usize,
    /// Words that stand for a label while the tree is made: those that its documents have most of.
    pub label_terms: usize,
    /// What a document on the wrong side costs, next to large weights.
    pub cost: f32,
    /// How far from the best weights is good enough.
    pub tolerance: f32,
    /// How often documents are gone through at most.
    pub passes: usize,
    /// Weights smaller than this are dropped.
    pub smallest: f32,
    /// How steeply a turn's probability falls with its margin.
    pub power: f32,
    /// How many nodes of a level are followed; more, where many labels are wanted.
    pub beam: usize,
}

impl Default for LabelTreeConfig {
    fn default() -> LabelTreeConfig {
        LabelTreeConfig {
            words: true,
            ngrams: 1,
            stem: None,
            min_documents: 2,
            max_terms: None,
            table_limit: 20_000_000,
            encoder: None,
            encoder_weight: 1.0,
            max_tokens: None,
            trees: 2,
            branching: 256,
            leaf: 64,
            label_terms: 512,
            cost: 1.0,
            tolerance: 0.1,
            passes: 40,
            smallest: 0.1,
            power: 3.0,
            beam: 7,
        }
    }
}

impl LabelTreeConfig {
    /// The shape of XR-Linear in PECOS: one tree, nodes of sixteen.
    pub fn xr_linear() -> LabelTreeConfig {
        LabelTreeConfig { trees: 1, branching: 16, leaf: 100, ..LabelTreeConfig::default() }
    }

    /// The shape of Parabel: three binary trees.
    pub fn parabel() -> LabelTreeConfig {
        LabelTreeConfig { trees: 3, branching: 2, leaf: 100, ..LabelTreeConfig::default() }
    }

    /// The shape of Bonsai: three wide trees.
    pub fn bonsai() -> LabelTreeConfig {
        LabelTreeConfig { trees: 3, branching: 128, leaf: 100, ..LabelTreeConfig::default() }
    }

    fn tfidf(&self) -> TfidfConfig {
        let config = word_rows::tfidf(self.stem, self.ngrams, self.min_documents);
        TfidfConfig { max_features: self.max_terms, table_limit: self.table_limit, ..config }
    }

    fn overrides(&self) -> Overrides {
        Overrides { max_tokens: self.max_tokens, normalise: Some(true), ..Overrides::default() }
    }

    /// What is wrong with it, if anything is.
    fn problem(&self) -> Option<String> {
        let out = |name: &str, value: &dyn std::fmt::Display, range: &str| {
            Some(format!("{name} = {value} is out of range; say {range}"))
        };
        let positive = |value: f32| value > 0.0 && value.is_finite();
        match self {
            _ if !self.words && self.encoder.is_none() => {
                Some("words = false leaves nothing to look at; name an encoder, or keep words".to_owned())
            }
            _ if !(1..=MOST_TREES).contains(&self.trees) => out("trees", &self.trees, "1 to 100"),
            _ if !(2..=MOST_CHILDREN).contains(&self.branching) => {
                out("branching", &self.branching, "2 to 256")
            }
            _ if !(2..=MOST_CHILDREN).contains(&self.leaf) => out("leaf", &self.leaf, "2 to 256"),
            _ if self.label_terms == 0 => out("label_terms", &self.label_terms, "at least 1"),
            _ if !positive(self.cost) => out("cost", &self.cost, "a number above 0"),
            _ if !positive(self.tolerance) => out("tolerance", &self.tolerance, "a number above 0"),
            _ if self.passes == 0 => out("passes", &self.passes, "at least 1"),
            _ if !(0.0..=100.0).contains(&self.smallest) => out("smallest", &self.smallest, "0 to 100"),
            _ if !positive(self.power) => out("power", &self.power, "a number above 0"),
            _ if self.beam == 0 => out("beam", &self.beam, "at least 1"),
            _ if !positive(self.encoder_weight) => {
                out("encoder_weight", &self.encoder_weight, "a number above 0")
            }
            _ if self.max_tokens.is_some_and(|tokens| !(3..=512).contains(&tokens)) => {
                out("max_tokens", &self.max_tokens.unwrap_or_default(), "3 to 512")
            }
            _ => None,
        }
    }
}

/// The method, its settings checked.
pub struct LabelTree {
    name: &'static str,
    config: LabelTreeConfig,
}

impl LabelTree {
    /// The method called `name`, one of those with a label tree.
    ///
    /// # Errors
    /// If a setting makes no sense.
    pub fn new(name: &'static str, config: LabelTreeConfig) -> Result<LabelTree, MethodError> {
        if let Some(problem) = config.problem() {
            return Err(MethodError::Config { method: name, problem });
        }
        crate::sparse::Tfidf::from_parts(&config.tfidf(), Default::default(), Vec::new())?;
        Ok(LabelTree { name, config })
    }

    fn fit(&self, dataset: &dyn Dataset, context: &TrainContext<'_>) -> Result<LabelTreeModel, MethodError> {
        let config = &self.config;
        let space = dataset.label_space().clone();
        let seen = seen_labels(&space);
        if seen.is_empty() {
            return Err(MethodError::NoPairs { method: self.name });
        }
        let mut row_of = vec![u32::MAX; space.positions()];
        seen.iter().zip(0..).for_each(|(label, row)| row_of[label.index()] = row);
        // Documents without a label never come to a node, and say nothing of how its children differ.
        let documents = word_rows::labelled(dataset, context);
        let labels: Vec<Vec<u32>> = documents
            .iter()
            .map(|&id| dataset.labels_of(DocId(id)).iter().map(|label| row_of[label.index()]).collect())
            .collect();
        let unseen = space.len() - seen.len();
        if unseen > 0 {
            let all = space.len();
            let message = format!(
                "{unseen} of {all} labels are carried by no document: a label tree never answers with them"
            );
            context.progress.report(Event::Warned(&message));
        }
        let room = word_rows::room(context);
        let features = Features::fit(config, dataset, context)?;
        let rows = features.rows(dataset, &documents, &room, context)?;
        let means = label_means(&rows, &labels, seen.len(), config.label_terms)?;
        let effort = Effort { cost: config.cost, tolerance: config.tolerance, passes: config.passes };
        let lesson = Lesson { rows: &rows, labels: &labels, room: &room };
        let mut trees = Vec::with_capacity(config.trees);
        for number in 0..config.trees as u64 {
            let seed = context.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
            let tree = Tree::grow(&means, config.branching, config.leaf, seed);
            let learning = Learning { effort, smallest: config.smallest, seed };
            let weights = learn(&tree, &lesson, &learning, context)?;
            trees.push((tree, weights));
        }
        Ok(LabelTreeModel::new(config.clone(), features, trees, seen, space))
    }
}

impl Method for LabelTree {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        Ok(Box::new(self.fit(dataset, context)?))
    }
}

/// What the documents of each label say together, as a row of length one of at most `terms` entries.
fn label_means(
    rows: &RowStore,
    labels: &[Vec<u32>],
    count: usize,
    terms: usize,
) -> Result<Csr, StorageError> {
    let mut means = rows.sums(&carriers(labels, count), terms)?;
    means.normalize_rows();
    Ok(means)
}
