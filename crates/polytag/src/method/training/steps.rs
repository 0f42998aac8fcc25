//! Settings of a training's course: how many steps of what size, at what rates. All methods share them that train on
//! documents and their labels.

use polytag_nn::optimizer::Group;
use polytag_nn::schedule::{ScheduleConfig, Then};
use polytag_nn::train::{Order, Place, TrainConfig};
use serde::{Deserialize, Serialize};

/// How many steps of what size, at what rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steps {
    /// How often each document is seen.
    pub epochs: u32,
    /// After how many steps to end in any case.
    pub max_steps: Option<u64>,
    /// How many documents a step sees.
    pub batch: usize,
    /// In how many parts a batch, or where several devices train together the share of each, is worked on, one after the
    /// other: less memory, the same step.
    pub accumulation: usize,
    /// The learning rate of encoders; null chooses by their width: 3e-4 for 384 numbers a token, 1e-4 for 768.
    pub learning_rate: Option<f64>,
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
    /// How often an epoch is measured on the dev split, if there is one; 0 for never.
    pub evaluations: u32,
    /// After how many evaluations without a better one to stop; null trains to the end.
    pub patience: Option<usize>,
    /// How many MiB chunks of labels may take while they are worked on.
    pub chunk_mib: usize,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps {
            epochs: 8,
            max_steps: None,
            batch: 64,
            accumulation: 1,
            learning_rate: None,
            weight_decay: 0.01,
            betas: (0.9, 0.98),
            warmup: 0.06,
            clip: Some(1.0),
            dropout: None,
            evaluations: 1,
            patience: None,
            chunk_mib: 512,
        }
    }
}

impl Steps {
    /// What is wrong with the settings, if anything is.
    pub(in crate::method) fn problem(&self) -> Option<String> {
        let parts = (self.batch > 0 && !self.batch.is_multiple_of(self.accumulation.max(1))).then(|| {
            let (batch, accumulation) = (self.batch, self.accumulation);
            format!("batch = {batch} cannot be worked on in {accumulation} parts of the same size")
        });
        at_least_one("epochs", self.epochs as usize)
            .or_else(|| at_least_one("max_steps", self.max_steps.map_or(1, |steps| steps as usize)))
            .or_else(|| at_least_one("batch", self.batch))
            .or_else(|| at_least_one("accumulation", self.accumulation))
            .or(parts)
            .or_else(|| number("chunk_mib", self.chunk_mib as f64, f64::from(1 << 20)))
            .or_else(|| at_least_one("chunk_mib", self.chunk_mib))
            .or_else(|| number("dropout", self.dropout.unwrap_or(0.0).into(), 0.9))
    }

    /// The same course on so many devices, each of which works on its share of every part.
    ///
    /// # Errors
    /// What cannot be shared evenly.
    pub(in crate::method) fn shared_by(&self, devices: usize) -> Result<Steps, String> {
        let shared = Steps { accumulation: self.accumulation * devices, ..self.clone() };
        if self.batch.is_multiple_of(shared.accumulation) {
            return Ok(shared);
        }
        let parts = match self.accumulation {
            1 => String::new(),
            parts => format!(" in {parts} parts each"),
        };
        let batch = self.batch;
        Err(format!(
            "batch = {batch} cannot be shared evenly by {devices} devices{parts}; say another --set batch"
        ))
    }

    /// Steps in an epoch of so many documents.
    pub(in crate::method) fn epoch(&self, documents: usize) -> u64 {
        (documents as u64).div_ceil(self.batch as u64)
    }

    /// The engine's settings for a training on so many documents.
    pub(in crate::method) fn loop_config(&self, documents: usize, seed: u64, measured: bool) -> TrainConfig {
        let epoch = self.epoch(documents);
        let all = epoch * u64::from(self.epochs);
        let measured = measured && self.evaluations > 0;
        TrainConfig {
            steps: self.max_steps.map_or(all, |most| most.min(all)),
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

    /// The optimizer's settings: encoders, then others at rates of their own.
    pub(in crate::method) fn groups(&self, hidden: usize, others: &[f64]) -> Vec<Group> {
        let encoder = self.learning_rate.unwrap_or_else(|| rate_by_width(3e-4, hidden));
        let group = |&learning_rate: &f64| Group {
            learning_rate,
            weight_decay: self.weight_decay,
            betas: self.betas,
            ..Group::default()
        };
        [encoder].iter().chain(others).map(group).collect()
    }

    /// Which examples a part of a step sees, of `per_step` in the whole step.
    pub(in crate::method) fn chosen(&self, order: &Order, place: Place, per_step: usize) -> Vec<usize> {
        let per_part = per_step.div_ceil(self.accumulation);
        let first = (place.step * self.accumulation as u64 + place.part as u64) * per_part as u64;
        order.examples(first, per_part)
    }
}

/// What is wrong with a number that has to be one at least.
pub(in crate::method) fn at_least_one(name: &str, value: usize) -> Option<String> {
    (value == 0).then(|| format!("{name} = 0 is out of range; say at least 1"))
}

/// What is wrong with a number of tokens.
pub(in crate::method) fn tokens(name: &str, value: usize) -> Option<String> {
    (!(3..=512).contains(&value)).then(|| format!("{name} = {value} is out of range; say 3 to 512"))
}

/// What is wrong with a number from zero to a greatest one.
pub(in crate::method) fn number(name: &str, value: f64, most: f64) -> Option<String> {
    let fits = (0.0..=most).contains(&value);
    (!fits).then(|| format!("{name} = {value} is out of range; say 0 to {most}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_encoders_learn_in_smaller_steps() {
        let rate = |hidden| Steps::default().groups(hidden, &[])[0].learning_rate;
        assert!((rate(384) - 3e-4).abs() < 1e-9 && (rate(768) - 1e-4).abs() < 1e-9);
        let given = Steps { learning_rate: Some(7e-5), ..Steps::default() };
        assert_eq!(given.groups(384, &[])[0].learning_rate, 7e-5);
    }

    #[test]
    fn steps_are_counted_by_the_whole_batch() {
        let config = Steps { accumulation: 4, max_steps: Some(1500), ..Steps::default() };
        let steps = config.loop_config(45_000, 0, true);
        assert_eq!((steps.steps, steps.evaluate_every), (1500, Some(704)));
        let steps = Steps::default().loop_config(45_000, 0, false);
        assert_eq!((steps.steps, steps.evaluate_every), (8 * 704, None));
    }
}
