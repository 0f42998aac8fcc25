//! The training loop: what every method that trains an encoder shares.
//!
//! An [`Objective`] says what the loss of a step is and, if it can, how good the model is. The
//! [`Trainer`] does the rest: accumulation, clipping, the schedule, the curve, early stopping with the
//! best weights kept, checkpoints, and stopping when told to. All randomness is a function of the seed
//! and the step: a run that was killed and resumed ends with the same weights as one that was not.
//!
//! A step is worked on in [`TrainConfig::accumulation`] parts, one after the other, or by the devices of a
//! [world](crate::world) at the same time, each with its share of the parts. Examples and dropout masks are functions of the part: what
//! several devices learn differs from what one would learn in the order of sums only.

mod ahead; // what an objective made ahead
mod checkpoint; // a training broken off goes on as if it had not been
mod curve; // the course of a training as a file
mod order; // which examples a step sees
mod patience; // when to stop because it gets no better
mod together; // a training on several devices
mod trial; // what a training will take, before it begins
#[cfg(test)]
mod tests;

pub use ahead::Ahead;
pub use curve::Point;
pub use order::Order;
pub use patience::Patience;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::device::Precision;
use crate::error::Error;
use crate::optimizer::{AdamW, AdamWState, Group, StepReport};
use crate::parameters::Parameters;
use crate::random::Key;
use crate::schedule::{Schedule, ScheduleConfig};
use crate::tape::{BackwardOptions, Tape, Var};
use crate::tensor::Tensor;
use crate::world::Member;
use checkpoint::{Contents, State};
use curve::Curve;

/// Which part of the training a forward pass is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The step, from zero.
    pub step: u64,
    /// The part of the step, from zero, if gradients of several are added up.
    pub part: usize,
}

/// What is trained.
pub trait Objective {
    /// Makes what the losses at `place` need besides the weights: called ahead, while the device is
    /// still busy with the step before.
    fn prepare(&mut self, place: Place) -> Result<(), Error>;

    /// The losses at `place`, each with its weight. Must be a function of the place and the weights.
    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error>;

    /// How good the weights are; `None` where that cannot be said.
    fn evaluate(&mut self, parameters: &Parameters) -> Result<Option<Evaluation>, Error>;
}

/// How good weights are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// What the best weights are chosen by, higher is better; `None` where they are not to be chosen by what was
    /// measured.
    pub score: Option<f64>,
    /// Everything that was measured, by name. What is not a finite number is not noted.
    pub measures: BTreeMap<String, f64>,
}

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// How many steps.
    pub steps: u64,
    /// How many parts' gradients are added up for a step, those of all devices together.
    pub accumulation: usize,
    /// The greatest norm of a gradient; longer ones are shortened to it.
    pub clip: Option<f32>,
    /// How the learning rates change.
    pub schedule: ScheduleConfig,
    /// How many steps lie between points of the curve.
    pub note_every: u64,
    /// How many steps lie between evaluations; none, if not said.
    pub evaluate_every: Option<u64>,
    /// After how many evaluations without a better one to stop.
    pub patience: Option<usize>,
    /// How many steps lie between checkpoints, where there is a folder for them.
    pub checkpoint_every: u64,
    /// How many seconds lie between them at least: one that falls due earlier is left out. It holds gigabytes,
    /// and writing it takes its time.
    pub checkpoint_seconds: u64,
    /// What makes one run differ from another.
    pub seed: u64,
}

impl Default for TrainConfig {
    fn default() -> TrainConfig {
        TrainConfig {
            steps: 1000,
            accumulation: 1,
            clip: Some(1.0),
            schedule: ScheduleConfig::default(),
            note_every: 10,
            evaluate_every: None,
            patience: None,
            checkpoint_every: 500,
            checkpoint_seconds: 0,
            seed: 0,
        }
    }
}

/// Who watches a training.
pub struct Watch<'a> {
    /// Whether to end early.
    pub stop: &'a dyn Fn() -> bool,
    /// Told of every point of the curve.
    pub note: &'a mut dyn FnMut(&Point),
    /// Where checkpoint and curve are kept; nowhere, if not said.
    pub folder: Option<&'a Path>,
}

/// Why a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps were done.
    Finished,
    /// It got no better.
    NoBetter,
    /// It was told to stop. A checkpoint was written, if there is a folder for it.
    Stopped,
}

/// A training under way.
pub struct Trainer {
    config: TrainConfig,
    schedule: Schedule,
    optimizer: AdamW,
    state: State,
    best: Vec<f32>,
    /// Losses that the device may still be working on, their places and their weights.
    pending: Vec<(Place, Tensor, f32)>,
    /// What trains here, where several devices train together.
    member: Option<Member>,
}

impl Trainer {
    /// A training of `parameters` from its first step. `about` is what else the training is a
    /// function of, such as the data's checksum: a checkpoint made with another one is refused.
    pub fn new(
        config: TrainConfig,
        groups: Vec<Group>,
        parameters: &mut Parameters,
        about: &str,
    ) -> Result<Trainer, Error> {
        if config.accumulation == 0 || config.note_every == 0 || config.checkpoint_every == 0 {
            let problem = "accumulation, note_every and checkpoint_every must be at least 1";
            return Err(Error::Unfit(problem.to_owned()));
        }
        if config.evaluate_every == Some(0) || config.patience == Some(0) {
            let problem = "evaluate_every and patience must be at least 1, or left out";
            return Err(Error::Unfit(problem.to_owned()));
        }
        if config.clip.is_some_and(|clip| !(clip.is_finite() && clip > 0.0)) {
            return Err(Error::Unfit("clip must be a number above zero, or left out".to_owned()));
        }
        let fingerprint = fingerprint(&config, &groups, parameters, about);
        let schedule = config.schedule.over(config.steps)?;
        let optimizer = AdamW::new(parameters, groups)?;
        let state = State { fingerprint, ..State::default() };
        Ok(Trainer {
            config,
            schedule,
            optimizer,
            state,
            best: Vec::new(),
            pending: Vec::new(),
            member: None,
        })
    }

    /// How many steps are done.
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// The step and value of the best evaluation.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.state.patience.best()
    }

    /// Goes on from the checkpoint in `watch`'s folder, if there is one, and trains to the end. Who watches is told
    /// of the points before the checkpoint, too.
    ///
    /// Where there were evaluations with a score, the weights at the end are those of the best one.
    pub fn run(
        &mut self,
        parameters: &mut Parameters,
        objective: &mut dyn Objective,
        watch: &mut Watch<'_>,
    ) -> Result<Ended, Error> {
        self.resume(parameters, watch.folder)?;
        let mut curve = match watch.folder {
            Some(folder) => {
                let (curve, before) = Curve::resume(&folder.join(CURVE), self.state.step)?;
                before.iter().for_each(|point| (watch.note)(point));
                Some(curve)
            }
            None => None,
        };
        let mut last_save: Option<Instant> = None;
        if self.state.step < self.config.steps {
            objective.prepare(Place { step: self.state.step, part: self.first_part() })?;
        }
        while self.state.step < self.config.steps {
            if self.state.patience.is_over(self.config.patience) {
                self.compare_weights(parameters)?;
                self.take_best(parameters)?;
                return Ok(Ended::NoBetter);
            }
            if self.first_says(|| (watch.stop)())? {
                self.settle(parameters, objective)?;
                self.save(parameters, watch.folder)?;
                return Ok(Ended::Stopped);
            }
            let report = self.one_step(parameters, objective)?;
            let (step, last) = (self.state.step, self.config.steps);
            let due = |every: u64| step.is_multiple_of(every) || step == last;
            let evaluates = self.config.evaluate_every.is_some_and(due);
            let spacing = Duration::from_secs(self.config.checkpoint_seconds);
            let checkpoints = step.is_multiple_of(self.config.checkpoint_every)
                && self.first_says(|| {
                    watch.folder.is_some() && last_save.is_none_or(|last| last.elapsed() >= spacing)
                })?;
            if evaluates || checkpoints || due(self.config.note_every) {
                self.settle(parameters, objective)?;
            }
            if evaluates || due(self.config.note_every) {
                let evaluation = if evaluates { self.evaluation(parameters, objective)? } else { None };
                let point = self.note(&report, evaluation, parameters)?;
                if let Some(curve) = &mut curve {
                    curve.push(&point)?;
                }
                (watch.note)(&point);
            }
            if checkpoints {
                self.save(parameters, watch.folder)?;
                last_save = Some(Instant::now());
            }
        }
        self.compare_weights(parameters)?;
        self.take_best(parameters)?;
        Ok(Ended::Finished)
    }

    /// One step of the optimizer.
    fn one_step(
        &mut self,
        parameters: &mut Parameters,
        objective: &mut dyn Objective,
    ) -> Result<StepReport, Error> {
        let step = self.state.step;
        // A step that failed may have left half a gradient behind.
        parameters.forget_gradients();
        let parts = self.parts();
        for part in parts.clone() {
            let place = Place { step, part };
            let losses = self.back_and_forth(parameters, objective, place, false)?;
            self.pending.extend(losses.into_iter().map(|(loss, weight)| (place, loss, weight)));
            let next = match part + 1 < parts.end {
                true => Place { step, part: part + 1 },
                false => Place { step: step + 1, part: parts.start },
            };
            if next.step < self.config.steps {
                objective.prepare(next)?;
            }
        }
        self.sum_gradients(parameters)?;
        let factor = self.schedule.factor(step);
        let report = match self.optimizer.step(parameters, factor, self.config.clip) {
            Err(Error::NotFinite { .. }) => return Err(self.explain(parameters, objective)),
            other => other?,
        };
        self.state.step += 1;
        self.state.losses.1 += 1;
        Ok(report)
    }

    /// The losses at a place, whose gradients are added to the weights'.
    fn back_and_forth(
        &self,
        parameters: &mut Parameters,
        objective: &mut dyn Objective,
        place: Place,
        checked: bool,
    ) -> Result<Vec<(Tensor, f32)>, Error> {
        let key = Key::new(self.config.seed).part(place.step).part(place.part as u64);
        let mut tape = Tape::training(parameters, key);
        let losses = objective.losses(&mut tape, place)?;
        let share = 1.0 / self.config.accumulation as f32;
        let record = tape.finish();
        let weighted: Vec<(&Var, f32)> = losses.iter().map(|(loss, weight)| (loss, weight * share)).collect();
        record.backward(&weighted, parameters, BackwardOptions { checked })?;
        Ok(losses.iter().map(|(loss, weight)| (loss.tensor().clone(), *weight)).collect())
    }

    /// Goes over the step again whose gradient was not finite, looking at every op, to name the one that
    /// made it so. Nothing has changed since: the optimizer took neither that step nor a later one.
    fn explain(&mut self, parameters: &mut Parameters, objective: &mut dyn Objective) -> Error {
        let step = self.optimizer.steps();
        self.state.step = step;
        self.pending.clear();
        let mut again = || -> Result<(), Error> {
            parameters.forget_gradients();
            for part in self.parts() {
                let place = Place { step, part };
                objective.prepare(place)?;
                for (loss, _) in self.back_and_forth(parameters, objective, place, true)? {
                    if !loss.to_vec()?.iter().all(|value| value.is_finite()) {
                        let place = ", made on the way forward".to_owned();
                        return Err(Error::NotFinite { what: "the loss".to_owned(), place });
                    }
                }
            }
            Ok(())
        };
        let remedy = "lower the learning rate or clip the gradient";
        let told = again();
        parameters.forget_gradients();
        let told = self.told_by_any(told);
        match told {
            Err(Error::NotFinite { what, place }) => {
                Error::NotFinite { what, place: format!("{place}, at step {}; {remedy}", step + 1) }
            }
            Err(error) => error,
            Ok(()) => Error::NotFinite {
                what: "the norm of the gradient".to_owned(),
                place: format!(" at step {}, though every gradient is; {remedy}", step + 1),
            },
        }
    }

    /// Waits for the device, and reads the losses that are still there.
    fn settle(&mut self, parameters: &mut Parameters, objective: &mut dyn Objective) -> Result<(), Error> {
        match self.optimizer.settle() {
            Err(Error::NotFinite { .. }) => return Err(self.explain(parameters, objective)),
            other => other?,
        }
        let share = 1.0 / self.config.accumulation as f64;
        for loss in self.losses_of_all()? {
            self.state.losses.0 += f64::from(loss) * share;
        }
        if !self.state.losses.0.is_finite() {
            let place = format!(", up to step {}", self.state.step);
            return Err(Error::NotFinite { what: "the loss".to_owned(), place });
        }
        Ok(())
    }

    /// How things stand after a step, with the mean loss since the last time.
    fn note(
        &mut self,
        report: &StepReport,
        evaluation: Option<Evaluation>,
        parameters: &Parameters,
    ) -> Result<Point, Error> {
        let (sum, steps) = std::mem::take(&mut self.state.losses);
        let step = self.state.step;
        let measured = evaluation.as_ref().and_then(|evaluation| evaluation.score);
        if let Some(measured) = measured
            && self.state.patience.note(step, measured)
            && self.is_first()
        {
            self.best = parameters.masters_to_vec()?;
        }
        let mut measures = evaluation.map(|evaluation| evaluation.measures).unwrap_or_default();
        // JSON has no word for them, and a line that cannot be read again would be lost.
        measures.retain(|_, value| value.is_finite());
        Ok(Point {
            step,
            loss: sum / steps.max(1) as f64,
            rate: f64::from(self.schedule.factor(step - 1)),
            gradient_norm: f64::from(report.gradient_norm()?),
            measured,
            measures,
        })
    }

    /// Puts the best weights in place, if any were measured.
    fn take_best(&mut self, parameters: &mut Parameters) -> Result<(), Error> {
        if self.best.is_empty() { Ok(()) } else { parameters.set_masters(&self.best) }
    }

    fn save(&mut self, parameters: &Parameters, folder: Option<&Path>) -> Result<(), Error> {
        self.compare_weights(parameters)?;
        let Some(folder) = folder else { return Ok(()) };
        let AdamWState { first: first_moments, second: second_moments, .. } = self.optimizer.state()?;
        let masters = parameters.masters_to_vec()?;
        let (state, best) = (self.state.clone(), self.best.clone());
        let contents = Contents { state, masters, first_moments, second_moments, best };
        checkpoint::write(&folder.join(CHECKPOINT), &contents)
    }

    /// How many steps are done already by a training that [`run`](Trainer::run) would go on with.
    pub fn steps_done(&self, parameters: &Parameters, folder: Option<&Path>) -> Result<u64, Error> {
        let Some(folder) = folder else { return Ok(0) };
        let path = folder.join(CHECKPOINT);
        let contents = checkpoint::read(&path, &self.state.fingerprint, parameters.masters_len())?;
        Ok(contents.map_or(0, |contents| contents.state.step))
    }

    fn resume(&mut self, parameters: &mut Parameters, folder: Option<&Path>) -> Result<(), Error> {
        let Some(contents) = self.checkpoint(parameters, folder)? else { return Ok(()) };
        parameters.set_masters(&contents.masters)?;
        self.optimizer.restore(&AdamWState {
            steps: contents.state.step,
            first: contents.first_moments,
            second: contents.second_moments,
        })?;
        self.best = contents.best;
        self.state = contents.state;
        Ok(())
    }
}

/// What a checkpoint is called in a training's folder.
pub const CHECKPOINT: &str = "checkpoint.safetensors";

/// What a curve is called in a training's folder.
pub const CURVE: &str = "curve.jsonl";

/// What a training is a function of, besides its steps.
fn fingerprint(config: &TrainConfig, groups: &[Group], parameters: &Parameters, about: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(serde_json::to_string(&(config, groups)).expect("settings are plain"));
    for id in parameters.ids() {
        hash.update(format!("{:?}", parameters.info(id)));
    }
    hash.update(about);
    // What is encoded between steps may decide which weights are the best.
    if parameters.device().precision() == Precision::EightBit {
        hash.update("8-bit integers");
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
