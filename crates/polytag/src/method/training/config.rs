//! Settings that all methods share that train an encoder on documents and their labels.

use polytag_nn::optimizer::Group;
use serde::{Deserialize, Serialize};

use super::steps::{Steps, at_least_one, number, tokens};
use crate::index::Precision;
use crate::method::error::MethodError;
use crate::method::label_text::LabelText;

/// What is minimised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Binary cross-entropy, summed over labels: every label is a question of its own.
    #[default]
    Bce,
    /// A document's labels share the mass of all labels.
    Softmax,
    /// Each label of a document stands against all that the document does not carry.
    DecoupledSoftmax,
}

/// What training makes of labels that no training document carries (paper 003, section 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unseen {
    /// They are negatives of every document.
    In,
    /// Training knows nothing of them.
    Out,
    /// Documents say nothing about them, but their texts take part in the auxiliary loss.
    #[default]
    Masked,
}

/// Settings of a training. All methods that train take them; what a method's name stands for differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainingConfig {
    /// The encoder of documents: a known name, a name on the hub, or a folder.
    pub encoder: String,
    /// How many tokens of a document are read; at most as many as the encoder takes.
    pub max_tokens: usize,
    /// How many tokens of a label are read.
    pub label_tokens: usize,
    /// What of a label is read.
    pub label_text: LabelText,
    /// What is minimised.
    pub loss: Loss,
    /// The weight of the auxiliary loss, in which the label texts are documents (paper 003, eq. 4); 0 does
    /// without.
    pub auxiliary: f32,
    /// How many label texts a step sees; null means as many as documents.
    pub auxiliary_batch: Option<usize>,
    /// What training makes of labels that no document carries.
    pub unseen: Unseen,
    /// Where label embeddings stay as they are: how often a label with training documents has to do without a
    /// vector of its own that is added to what its text gives it; null for no such vector. Doing without it
    /// is what teaches a model to score labels that have none.
    pub residual: Option<f32>,
    /// The learning rate of everything else.
    pub head_learning_rate: f64,
    /// What a cosine is multiplied by at the beginning; it is learned.
    pub scale: f32,
    /// What is added then, at the beginning; it is learned.
    pub bias: f32,
    /// Which share ZSR@100 has in what the best weights are chosen by; nDCG@5 has the rest.
    pub zero_shot_share: f64,
    /// What label vectors are kept in.
    pub precision: Precision,
    /// How many steps of what size, at what rates.
    #[serde(flatten)]
    pub steps: Steps,
}

impl Default for TrainingConfig {
    fn default() -> TrainingConfig {
        TrainingConfig {
            encoder: "minilm".to_owned(),
            max_tokens: 512,
            label_tokens: 64,
            label_text: LabelText::Full,
            loss: Loss::Bce,
            auxiliary: 1.0,
            auxiliary_batch: None,
            unseen: Unseen::Masked,
            residual: Some(0.3),
            head_learning_rate: 2e-3,
            scale: 20.0,
            bias: -10.0,
            zero_shot_share: 0.1,
            precision: Precision::F32,
            steps: Steps::default(),
        }
    }
}

impl TrainingConfig {
    /// Whether the settings make sense together.
    pub(in crate::method) fn check(&self, method: &'static str) -> Result<(), MethodError> {
        let texts = self.auxiliary_texts();
        let texts = (!texts.is_multiple_of(self.steps.accumulation.max(1))).then(|| {
            format!(
                "auxiliary_batch = {texts} cannot be worked on in {} parts of the same size",
                self.steps.accumulation
            )
        });
        let scale = (!(self.scale > 0.0 && self.scale.is_finite() && self.bias.is_finite())).then(|| {
            format!("scale = {} and bias = {} must be numbers, the first above zero", self.scale, self.bias)
        });
        let problem = None
            .or_else(|| tokens("max_tokens", self.max_tokens))
            .or_else(|| tokens("label_tokens", self.label_tokens))
            .or_else(|| self.steps.problem())
            .or_else(|| at_least_one("auxiliary_batch", self.auxiliary_batch.unwrap_or(1)))
            .or(texts)
            .or(scale)
            .or_else(|| number("auxiliary", self.auxiliary.into(), 1000.0))
            .or_else(|| number("zero_shot_share", self.zero_shot_share, 1.0))
            .or_else(|| number("residual", self.residual.unwrap_or(0.0).into(), 0.9));
        match problem {
            Some(problem) => Err(MethodError::Config { method, problem }),
            None => Ok(()),
        }
    }

    /// The same training on so many devices.
    ///
    /// # Errors
    /// What cannot be shared evenly.
    pub(super) fn shared_by(
        &self,
        method: &'static str,
        devices: usize,
    ) -> Result<TrainingConfig, MethodError> {
        let shared = self.steps.shared_by(devices).map(|steps| TrainingConfig { steps, ..self.clone() });
        let shared = shared.map_err(|problem| MethodError::Config { method, problem })?;
        shared.check(method)?;
        Ok(shared)
    }

    /// How many label texts a step sees.
    pub(super) fn auxiliary_texts(&self) -> usize {
        self.auxiliary_batch.unwrap_or(self.steps.batch)
    }

    /// The optimizer's settings: encoders, then everything else.
    pub(super) fn groups(&self, hidden: usize) -> Vec<Group> {
        self.steps.groups(hidden, &[self.head_learning_rate])
    }
}

/// The group of weights that are not of an encoder.
pub(super) const HEADS: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused() {
        let refused = |change: fn(&mut TrainingConfig)| {
            let mut config = TrainingConfig::default();
            change(&mut config);
            config.check("of-de").unwrap_err().to_string()
        };
        assert!(TrainingConfig::default().check("of-de").is_ok());
        assert!(refused(|config| config.max_tokens = 513).contains("max_tokens = 513"));
        assert!(refused(|config| config.steps.batch = 0).contains("batch = 0"));
        assert!(refused(|config| config.steps.accumulation = 7).contains("7 parts"));
        assert!(refused(|config| config.zero_shot_share = f64::NAN).contains("zero_shot_share"));
        assert!(refused(|config| config.steps.max_steps = Some(0)).contains("max_steps"));
    }
}
