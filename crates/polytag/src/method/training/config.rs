//! Settings that all methods share that train an encoder on documents and their labels.

use polytag_nn::optimizer::Group;
use polytag_nn::schedule::{ScheduleConfig, Then};
use polytag_nn::train::TrainConfig;
use serde::{Deserialize, Serialize};

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
    /// How often each document is seen.
    pub epochs: u32,
    /// After how many steps to end in any case.
    pub max_steps: Option<u64>,
    /// How many documents a step sees.
    pub batch: usize,
    /// In how many parts a batch is worked on, one after the other: less memory, the same step.
    pub accumulation: usize,
    /// The learning rate of encoders; null chooses by their width: 3e-4 for 384 numbers a token, 1e-4 for 768.
    pub learning_rate: Option<f64>,
    /// The learning rate of everything else.
    pub head_learning_rate: f64,
    /// The weight decay of matrices.
    pub weight_decay: f64,
    /// How slowly the optimizer's means change.
    pub betas: (f64, f64),
    /// Over which share of the steps the learning rate goes up; then it falls in a straight line.
    pub warmup: f64,
    /// The greatest norm of a gradient; null for any.
    pub clip: Option<f32>,
    /// The rate of dropout; null leaves it as the encoder has it.
    pub dropout: Option<f32>,
    /// What a cosine is multiplied by at the beginning; it is learned.
    pub scale: f32,
    /// What is added then, at the beginning; it is learned.
    pub bias: f32,
    /// How often an epoch is measured on the dev split, if there is one; 0 for never.
    pub evaluations: u32,
    /// After how many evaluations without a better one to stop; null trains to the end.
    pub patience: Option<usize>,
    /// Which share ZSR@100 has in what the best weights are chosen by; nDCG@5 has the rest.
    pub zero_shot_share: f64,
    /// How many MiB chunks of labels may take while they are worked on.
    pub chunk_mib: usize,
    /// What label vectors are kept in.
    pub precision: Precision,
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
            epochs: 8,
            max_steps: None,
            batch: 64,
            accumulation: 1,
            learning_rate: None,
            head_learning_rate: 2e-3,
            weight_decay: 0.01,
            betas: (0.9, 0.98),
            warmup: 0.06,
            clip: Some(1.0),
            dropout: None,
            scale: 20.0,
            bias: -10.0,
            evaluations: 1,
            patience: None,
            zero_shot_share: 0.1,
            chunk_mib: 512,
            precision: Precision::F32,
        }
    }
}

impl TrainingConfig {
    /// Whether the settings make sense together.
    pub(in crate::method) fn check(&self, method: &'static str) -> Result<(), MethodError> {
        let at_least_one = |name: &str, value: usize| {
            (value == 0).then(|| format!("{name} = 0 is out of range; say at least 1"))
        };
        let tokens = |name: &str, value: usize| {
            (!(3..=512).contains(&value)).then(|| format!("{name} = {value} is out of range; say 3 to 512"))
        };
        let number = |name: &str, value: f64, most: f64| {
            let fits = (0.0..=most).contains(&value);
            (!fits).then(|| format!("{name} = {value} is out of range; say 0 to {most}"))
        };
        let parts = (self.batch > 0 && !self.batch.is_multiple_of(self.accumulation.max(1))).then(|| {
            let (batch, accumulation) = (self.batch, self.accumulation);
            format!("batch = {batch} cannot be worked on in {accumulation} parts of the same size")
        });
        let texts = self.auxiliary_texts();
        let texts = (!texts.is_multiple_of(self.accumulation.max(1))).then(|| {
            format!(
                "auxiliary_batch = {texts} cannot be worked on in {} parts of the same size",
                self.accumulation
            )
        });
        let scale = (!(self.scale > 0.0 && self.scale.is_finite() && self.bias.is_finite())).then(|| {
            format!("scale = {} and bias = {} must be numbers, the first above zero", self.scale, self.bias)
        });
        let problem = None
            .or_else(|| tokens("max_tokens", self.max_tokens))
            .or_else(|| tokens("label_tokens", self.label_tokens))
            .or_else(|| at_least_one("epochs", self.epochs as usize))
            .or_else(|| at_least_one("max_steps", self.max_steps.map_or(1, |steps| steps as usize)))
            .or_else(|| at_least_one("batch", self.batch))
            .or_else(|| at_least_one("auxiliary_batch", self.auxiliary_batch.unwrap_or(1)))
            .or_else(|| at_least_one("accumulation", self.accumulation))
            .or(parts)
            .or(texts)
            .or(scale)
            .or_else(|| number("chunk_mib", self.chunk_mib as f64, f64::from(1 << 20)))
            .or_else(|| at_least_one("chunk_mib", self.chunk_mib))
            .or_else(|| number("auxiliary", self.auxiliary.into(), 1000.0))
            .or_else(|| number("zero_shot_share", self.zero_shot_share, 1.0))
            .or_else(|| number("residual", self.residual.unwrap_or(0.0).into(), 0.9))
            .or_else(|| number("dropout", self.dropout.unwrap_or(0.0).into(), 0.9));
        match problem {
            Some(problem) => Err(MethodError::Config { method, problem }),
            None => Ok(()),
        }
    }

    /// How many label texts a step sees.
    pub(super) fn auxiliary_texts(&self) -> usize {
        self.auxiliary_batch.unwrap_or(self.batch)
    }

    /// The engine's settings for a training on so many documents.
    pub(super) fn loop_config(&self, documents: usize, seed: u64, measured: bool) -> TrainConfig {
        let epoch = (documents as u64).div_ceil(self.batch as u64);
        let all = epoch * u64::from(self.epochs);
        let steps = self.max_steps.map_or(all, |most| most.min(all));
        let measured = measured && self.evaluations > 0;
        TrainConfig {
            steps,
            accumulation: self.accumulation,
            clip: self.clip,
            schedule: ScheduleConfig { warmup: self.warmup, then: Then::Linear },
            note_every: NOTE_EVERY,
            evaluate_every: measured.then(|| epoch.div_ceil(u64::from(self.evaluations))),
            patience: self.patience,
            checkpoint_every: epoch,
            checkpoint_seconds: CHECKPOINT_SECONDS,
            seed,
        }
    }

    /// The optimizer's settings: encoders, then everything else.
    pub(super) fn groups(&self, hidden: usize) -> Vec<Group> {
        let by_width = || rate_by_width(3e-4, hidden);
        let group = |learning_rate| Group {
            learning_rate,
            weight_decay: self.weight_decay,
            betas: self.betas,
            ..Group::default()
        };
        vec![group(self.learning_rate.unwrap_or_else(by_width)), group(self.head_learning_rate)]
    }
}

/// The learning rate of an encoder of so many numbers a token, by that of one with 384: wider ones want smaller steps,
/// three times smaller for twice the width.
pub(in crate::method) fn rate_by_width(of_384: f64, hidden: usize) -> f64 {
    of_384 * (384.0 / hidden as f64).powf(3f64.log2())
}

/// Steps between two points of the curve: each makes the host wait for the device.
const NOTE_EVERY: u64 = 50;

/// Seconds between two checkpoints at least: what a crash may cost.
const CHECKPOINT_SECONDS: u64 = 120;

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
        assert!(refused(|config| config.batch = 0).contains("batch = 0"));
        assert!(refused(|config| config.accumulation = 7).contains("7 parts"));
        assert!(refused(|config| config.zero_shot_share = f64::NAN).contains("zero_shot_share"));
        assert!(refused(|config| config.max_steps = Some(0)).contains("max_steps"));
    }

    #[test]
    fn wider_encoders_learn_in_smaller_steps() {
        let rate = |hidden| TrainingConfig::default().groups(hidden)[0].learning_rate;
        assert!((rate(384) - 3e-4).abs() < 1e-9 && (rate(768) - 1e-4).abs() < 1e-9);
        let given = TrainingConfig { learning_rate: Some(7e-5), ..TrainingConfig::default() };
        assert_eq!(given.groups(384)[0].learning_rate, 7e-5);
    }

    #[test]
    fn steps_are_counted_by_the_whole_batch() {
        let config = TrainingConfig { accumulation: 4, max_steps: Some(1500), ..TrainingConfig::default() };
        let steps = config.loop_config(45_000, 0, true);
        assert_eq!((steps.steps, steps.evaluate_every), (1500, Some(704)));
        let steps = TrainingConfig::default().loop_config(45_000, 0, false);
        assert_eq!((steps.steps, steps.evaluate_every), (8 * 704, None));
    }
}
