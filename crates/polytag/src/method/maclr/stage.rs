//! A stage from its first step to the encoder it leaves: what it will take, the training, and a copy of the encoder in
//! the training's folder, so that a run that is broken off later need not do it again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use polytag_nn::device::Device;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::parameters::{Parameters, ParametersBuilder};
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::train::{CHECKPOINT, CURVE, Ended, Objective, Point, TrainConfig, Trainer, Watch};

use super::config::MaclrConfig;
use super::siamese::MEASURES;
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::training::Told;
use crate::progress::Event;

/// A stage of the training.
pub(super) struct StageRun<'a> {
    /// What it is called in its folder, and to people.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) config: &'a MaclrConfig,
    pub(super) context: &'a TrainContext<'a>,
    /// A checksum of all that what it leaves is a function of.
    pub(super) about: String,
    /// How often it sees each example.
    pub(super) epochs: f64,
    /// The share of the learning rate it has.
    pub(super) rate: f64,
}

/// What a stage leaves: an encoder, and its course.
pub(super) struct Left {
    pub(super) encoder: SentenceEncoder,
    pub(super) points: Vec<Point>,
}

impl StageRun<'_> {
    /// The folder it keeps its state in, made if it is not there.
    pub(super) fn folder(&self) -> Result<Option<PathBuf>, MethodError> {
        let Some(folder) = self.context.folder else { return Ok(None) };
        let folder = folder.join(STAGES).join(self.name);
        fs::create_dir_all(&folder).map_err(unfit(&folder, "cannot create the folder"))?;
        Ok(Some(folder))
    }

    /// What it left in an earlier run, if it did.
    pub(super) fn done(&self, base: &SentenceEncoder) -> Result<Option<Left>, MethodError> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        match fs::read_to_string(folder.join(DONE)) {
            Ok(about) if about == self.about => {}
            Ok(_) => {
                let words = format!(
                    "{}: what an earlier run left is another training's; it is made anew",
                    self.title
                );
                self.context.progress.report(Event::Warned(&words));
                return Ok(None);
            }
            Err(_) => return Ok(None),
        }
        let settings = base.settings();
        let overrides = Overrides {
            max_tokens: Some(settings.max_tokens),
            pooling: Some(settings.pooling),
            normalise: Some(settings.normalise),
        };
        let encoder = SentenceEncoder::load(&folder.join(ENCODER), self.context.device, &overrides)?;
        // The course is for people: what cannot be read of it is left out.
        let lines = fs::read_to_string(folder.join(CURVE)).unwrap_or_default();
        let points = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Some(Left { encoder, points }))
    }

    /// The encoder to train, beginning with the weights of `base`.
    pub(super) fn begin(&self, base: &SentenceEncoder) -> Result<(Encoder, Parameters), MethodError> {
        self.context.device.reset_peak_memory();
        let mut builder = ParametersBuilder::default();
        let mut encoder = base.encoder().copy(base.parameters(), &mut builder)?;
        if let Some(rate) = self.config.dropout {
            encoder.set_dropout(rate)?;
        }
        Ok((encoder, builder.build(self.context.device)?))
    }

    /// Trains to the end, and tells what was expected beside what was seen; `besides` is how many seconds go into other
    /// things than steps, from a step on.
    pub(super) fn train(
        &self,
        (loop_config, besides): (&TrainConfig, &dyn Fn(u64) -> f64),
        (encoder, parameters): (&Encoder, &mut Parameters),
        objective: &mut dyn Objective,
    ) -> Result<Vec<Point>, MethodError> {
        let (progress, device) = (self.context.progress, self.context.device);
        let groups = self.config.groups(encoder.config().hidden, self.rate);
        let mut trainer = Trainer::new(loop_config.clone(), groups, parameters, &self.about)?;
        let folder = self.folder()?;
        // One that was broken off goes on where it was.
        let done = trainer.steps_done(parameters, folder.as_deref())?;
        let left = loop_config.steps.saturating_sub(done) as f64;
        let seconds = besides(done) + left * trainer.try_steps(parameters, objective)?;
        let memory = gib(device);
        let say = |what: String, value: f64| {
            progress.report(Event::Measured { name: &format!("{}: {what}:", self.title), value });
        };
        say("expected seconds".to_owned(), seconds);
        say("expected memory, GiB".to_owned(), memory);
        let started = Instant::now();
        let mut told = Told::begin(progress, self.title, &MEASURES, loop_config);
        let ended = trainer.run(
            parameters,
            objective,
            &mut Watch {
                stop: &|| self.context.stop.is_asked(),
                note: &mut |point| told.point(point),
                folder: folder.as_deref(),
            },
        )?;
        let points = told.end();
        if ended == Ended::Stopped {
            return Err(MethodError::Stopped);
        }
        say(format!("seconds ({seconds:.1} expected)"), started.elapsed().as_secs_f64());
        say(format!("memory, GiB ({memory:.2} expected)"), gib(device));
        Ok(points)
    }

    /// The encoder with what it learned, and a copy in the folder.
    pub(super) fn finish(
        &self,
        base: &SentenceEncoder,
        (encoder, parameters): (&Encoder, &Parameters),
        points: Vec<Point>,
    ) -> Result<Left, MethodError> {
        let mut builder = ParametersBuilder::default();
        let copy = encoder.copy(parameters, &mut builder)?;
        let encoder = base.again(copy, builder.build(parameters.device())?)?;
        if let Some(folder) = self.folder()? {
            // What another training, or a crash, left here is in the way.
            fs::remove_file(folder.join(DONE)).ok();
            fs::remove_dir_all(folder.join(ENCODER)).ok();
            encoder.export(&folder.join(ENCODER))?;
            let done = folder.join(DONE);
            fs::write(&done, &self.about).map_err(unfit(&done, "cannot write"))?;
            // What there was to go on from is not needed any more.
            fs::remove_file(folder.join(CHECKPOINT)).ok();
        }
        Ok(Left { encoder, points })
    }
}

/// Where stages are kept in a training's folder.
pub(in crate::method) const STAGES: &str = "stages";

/// What is in the folder of a stage that is done.
const ENCODER: &str = "encoder";
const DONE: &str = "done";

fn gib(device: &Device) -> f64 {
    device.peak_memory().0 as f64 / f64::from(1 << 30)
}

fn unfit(path: &Path, problem: &str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Unfit(format!("{}: {problem}: {error}", path.display()))
}
