//! Labels that attend to a document: OF-LAN of paper 003, and LAN, which it is made from.
//!
//! Every label looks with a query of its own over the tokens of a document, and what it finds is compared
//! with its output vector (section 4.3). In `of-lan` both are learned projections of an embedding that stays
//! as it is, so that a label that no training document carries, or that was added later, has them too. In
//! `lan` they are numbers of each label's own.

mod model;
mod table;

pub use model::LabelAttentionModel;

use serde::{Deserialize, Serialize};

use super::dual_encoder::peer;
use super::error::MethodError;
use super::training::{HeadKind, LabelTower, Plan, TrainingConfig, train};
use super::{Method, TrainContext};
use crate::data::Dataset;
use crate::predict::Predictor;

/// Settings of label attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelAttentionConfig {
    /// Where the vectors of labels come from: `frozen` or `free`.
    pub labels: LabelTower,
    /// The encoder of labels; null takes the encoder of documents, as it is before training.
    pub label_encoder: Option<String>,
    /// On a CPU, how many labels attend to a document: those whose vectors are nearest to the mean of its
    /// tokens. Null for all. A GPU takes all.
    pub candidates: Option<usize>,
    /// How it is trained.
    #[serde(flatten)]
    pub training: TrainingConfig,
}

impl LabelAttentionConfig {
    /// OF-LAN: queries and output vectors are projections of an embedding that stays as it is.
    pub fn of_lan() -> LabelAttentionConfig {
        let training = TrainingConfig::default();
        LabelAttentionConfig {
            labels: LabelTower::Frozen,
            label_encoder: None,
            candidates: Some(1024),
            training,
        }
    }

    /// LAN: queries and output vectors of each label's own.
    pub fn lan() -> LabelAttentionConfig {
        let training = peer(TrainingConfig { bias: -5.0, ..TrainingConfig::default() });
        LabelAttentionConfig {
            labels: LabelTower::Free,
            candidates: None,
            training,
            ..LabelAttentionConfig::of_lan()
        }
    }
}

/// The method, its settings checked.
pub struct LabelAttention {
    name: &'static str,
    config: LabelAttentionConfig,
}

impl LabelAttention {
    /// The method called `name`.
    pub fn new(name: &'static str, config: LabelAttentionConfig) -> Result<LabelAttention, MethodError> {
        config.training.check(name)?;
        let free = config.labels == LabelTower::Free;
        let problem = if !free && config.labels != LabelTower::Frozen {
            "labels attend with vectors that are frozen or free; say labels = frozen"
        } else if free && config.training.auxiliary > 0.0 {
            "labels with numbers of their own have no texts to learn from; say auxiliary = 0"
        } else if free && config.label_encoder.is_some() {
            "labels with numbers of their own need no label_encoder; leave it"
        } else if config.candidates == Some(0) {
            "candidates = 0 leaves no label; say how many, or null for all"
        } else {
            return Ok(LabelAttention { name, config });
        };
        Err(MethodError::Config { method: name, problem: problem.to_owned() })
    }
}

impl Method for LabelAttention {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        let plan = Plan {
            method: self.name,
            config: &self.config.training,
            head: HeadKind::Attended,
            tower: self.config.labels,
            label_encoder: self.config.label_encoder.as_deref(),
            pooling: None,
            projects: true,
        };
        let trained = train(&plan, dataset, context)?;
        let space = dataset.label_space().clone();
        Ok(Box::new(LabelAttentionModel::new(self.name, self.config.clone(), space, trained)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let refused = |config| LabelAttention::new("of-lan", config).err().unwrap().to_string();
        let of_lan = LabelAttentionConfig::of_lan;
        let shared = LabelAttentionConfig { labels: LabelTower::Shared, ..of_lan() };
        assert!(refused(shared).contains("labels = frozen"));
        let none = LabelAttentionConfig { candidates: Some(0), ..of_lan() };
        assert!(refused(none).contains("candidates = 0"));
        let free = LabelAttentionConfig { labels: LabelTower::Free, ..of_lan() };
        assert!(refused(free).contains("auxiliary = 0"));
    }
}
