//! A document and a label as vectors, compared: OF-DE of paper 003 and the methods it is measured against.
//!
//! The document's vector comes from an encoder that is trained. Where the label's comes from is a setting:
//! from an encoder that stays as it is (`of-de`: what the encoder knew of labels nobody trained it on, it
//! still knows afterwards), from one that is trained too (`dpr`), from the document's own (`dexml`), or from
//! numbers of each label's own, which no unseen label has (`ova`).

mod model;

pub use model::DualEncoderModel;

use polytag_nn::op;
use serde::{Deserialize, Serialize};

use super::error::MethodError;
use super::label_vectors::IndexKind;
use super::training::{HeadKind, LabelTower, Loss, Plan, TrainingConfig, Unseen, train};
use super::{Method, TrainContext};
use crate::data::Dataset;
use crate::predict::Predictor;

/// How the tokens of a text become its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The first token, which is there for that.
    Cls,
    /// The mean of all.
    Mean,
}

impl From<Pooling> for op::Pooling {
    fn from(pooling: Pooling) -> op::Pooling {
        match pooling {
            Pooling::Cls => op::Pooling::Cls,
            Pooling::Mean => op::Pooling::Mean,
        }
    }
}

/// Settings of dual encoders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DualEncoderConfig {
    /// Where the vectors of labels come from.
    pub labels: LabelTower,
    /// The encoder of labels where it stays as it is; null takes the encoder of documents.
    pub label_encoder: Option<String>,
    /// How tokens become a vector; null leaves it as the encoder has it.
    pub pooling: Option<Pooling>,
    /// Whether embeddings that stay as they are go through a learned matrix (paper 003, between eq. 2 and 3).
    /// Where their length is not the documents', they do in any case.
    pub project: bool,
    /// How label vectors are searched: auto, exact or hnsw.
    #[serde(default)]
    pub index: IndexKind,
    /// How it is trained.
    #[serde(flatten)]
    pub training: TrainingConfig,
}

impl DualEncoderConfig {
    /// OF-DE: the encoder of labels stays as it is.
    pub fn of_de() -> DualEncoderConfig {
        let training = TrainingConfig::default();
        let labels = LabelTower::Frozen;
        let index = IndexKind::Auto;
        DualEncoderConfig { labels, label_encoder: None, pooling: None, project: true, index, training }
    }

    /// DPR: an encoder for documents and one for labels, both trained.
    pub fn dpr() -> DualEncoderConfig {
        let training = peer(TrainingConfig::default());
        DualEncoderConfig { labels: LabelTower::Separate, training, ..DualEncoderConfig::of_de() }
    }

    /// DEXML: one encoder for both, and each label of a document against all others.
    pub fn dexml() -> DualEncoderConfig {
        let training = peer(TrainingConfig { loss: Loss::DecoupledSoftmax, ..TrainingConfig::default() });
        DualEncoderConfig { labels: LabelTower::Shared, training, ..DualEncoderConfig::of_de() }
    }

    /// One-versus-all: a vector of each label's own.
    pub fn ova() -> DualEncoderConfig {
        let training = peer(TrainingConfig { bias: -5.0, ..TrainingConfig::default() });
        DualEncoderConfig { labels: LabelTower::Free, training, ..DualEncoderConfig::of_de() }
    }
}

/// As the peers of paper 003 are trained: unseen labels are negatives, and label texts are no documents.
pub(super) fn peer(training: TrainingConfig) -> TrainingConfig {
    TrainingConfig { auxiliary: 0.0, unseen: Unseen::In, residual: None, ..training }
}

/// The method, its settings checked.
pub struct DualEncoder {
    name: &'static str,
    config: DualEncoderConfig,
}

impl DualEncoder {
    /// The method called `name`.
    pub fn new(name: &'static str, config: DualEncoderConfig) -> Result<DualEncoder, MethodError> {
        config.training.check(name)?;
        if config.labels == LabelTower::Free && config.training.auxiliary > 0.0 {
            let problem = "labels with numbers of their own have no texts to learn from; say auxiliary = 0";
            return Err(MethodError::Config { method: name, problem: problem.to_owned() });
        }
        if config.labels != LabelTower::Frozen && config.label_encoder.is_some() {
            let problem =
                "label_encoder names an encoder that stays as it is; say labels = frozen, or leave it";
            return Err(MethodError::Config { method: name, problem: problem.to_owned() });
        }
        Ok(DualEncoder { name, config })
    }
}

impl Method for DualEncoder {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        let plan = Plan {
            method: self.name,
            config: &self.config.training,
            head: HeadKind::Pooled,
            tower: self.config.labels,
            label_encoder: self.config.label_encoder.as_deref(),
            pooling: self.config.pooling.map(op::Pooling::from),
            projects: self.config.project,
        };
        let trained = train(&plan, dataset, context)?;
        let space = dataset.label_space().clone();
        let model = DualEncoderModel::new(self.name, self.config.clone(), space, trained)?;
        Ok(Box::new(model.indexed(self.name, dataset, context)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_one_tower_and_one_loss() {
        let [of_de, dpr, dexml, ova] = [
            DualEncoderConfig::of_de,
            DualEncoderConfig::dpr,
            DualEncoderConfig::dexml,
            DualEncoderConfig::ova,
        ]
        .map(|preset| preset());
        assert_eq!((of_de.labels, of_de.training.auxiliary), (LabelTower::Frozen, 1.0));
        assert_eq!((dpr.labels, dpr.training.unseen), (LabelTower::Separate, Unseen::In));
        assert_eq!((dexml.labels, dexml.training.loss), (LabelTower::Shared, Loss::DecoupledSoftmax));
        assert_eq!((ova.labels, ova.training.auxiliary), (LabelTower::Free, 0.0));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let mut config = DualEncoderConfig::ova();
        config.training.auxiliary = 1.0;
        let error = DualEncoder::new("ova", config).err().unwrap().to_string();
        assert!(error.contains("auxiliary = 0"), "{error}");
        let config = DualEncoderConfig { label_encoder: Some("mpnet".into()), ..DualEncoderConfig::dpr() };
        let error = DualEncoder::new("dpr", config).err().unwrap().to_string();
        assert!(error.contains("labels = frozen"), "{error}");
    }
}
