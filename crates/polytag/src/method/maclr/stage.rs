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
use polytag_nn::train::{Ended, Objective, TrainConfig, Trainer, Watch};

use super::config::MaclrConfig;
use super::siamese::MEASURES;
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::training::Told;
use crate::progress::Event;

/// A stage of the training.
pub(super) struct Stage<'a> {
    /// What it is called in its folder, and to people.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) config: &'a MaclrConfig,
    pub(super) context: &'a TrainContext<'a>,
    /// What makes it the stage that it is, besides the weights it begins with.
    pub(super) about: String,
    /// How often it sees each example.
    pub(super) epochs: f64,
    /// The share of the learning rate it has.
    pub(super) rate: f64,
}

impl Stage<'_> {
    /// The folder it keeps its state in, made if it is not there.
    pub(super) fn folder(&self) -> Result<Option<PathBuf>, MethodError> {
        let Some(folder) = self.context.folder else { return Ok(None) };
        let folder = folder.join(STAGES).join(self.name);
        create(&folder)?;
        Ok(Some(folder))
    }

    /// The encoder that it left in an earlier run, if it did.
    pub(super) fn done(&self, base: &SentenceEncoder) -> Result<Option<SentenceEncoder>, MethodError> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        match fs::read_to_string(folder.join(DONE)) {
            Ok(about) if about == self.about => {}
            _ => return Ok(None),
        }
        let settings = base.settings();
        let overrides = Overrides {
            max_tokens: Some(settings.max_tokens),
            pooling: Some(settings.pooling),
            normalise: Some(settings.normalise),
        };
        Ok(Some(SentenceEncoder::load(&folder.join(ENCODER), self.context.device, &overrides)?))
    }

    /// The encoder to train, beginning with the weights of `base`.
    pub(super) fn begin(&self, base: &SentenceEncoder) -> Result<(Encoder, Parameters), MethodError> {
        let mut builder = ParametersBuilder::default();
        let mut encoder = base.encoder().copy(base.parameters(), &mut builder)?;
        if let Some(rate) = self.config.dropout {
            encoder.set_dropout(rate)?;
        }
        Ok((encoder, builder.build(self.context.device)?))
    }

    /// Trains to the end, and tells what was expected beside what was seen.
    pub(super) fn train(
        &self,
        loop_config: &TrainConfig,
        (encoder, parameters): (&Encoder, &mut Parameters),
        objective: &mut dyn Objective,
    ) -> Result<(), MethodError> {
        let (progress, device) = (self.context.progress, self.context.device);
        let groups = self.config.groups(encoder.config().hidden, self.rate);
        let mut trainer = Trainer::new(loop_config.clone(), groups, parameters, &self.about)?;
        let step = trainer.try_steps(parameters, objective)?;
        let say = |what: &str, value: f64| {
            let name = format!("{}: {what}:", self.title);
            progress.report(Event::Measured { name: &name, value });
        };
        say("expected seconds", step * loop_config.steps as f64);
        // Two moments and the masters' copy come with the optimizer's first step.
        say("expected memory, GiB", gib(device));
        let folder = self.folder()?;
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
        told.end();
        if ended == Ended::Stopped {
            return Err(MethodError::Stopped);
        }
        say("seconds", started.elapsed().as_secs_f64());
        say("memory, GiB", gib(device));
        Ok(())
    }

    /// The encoder with what it learned, and a copy in the folder.
    pub(super) fn finish(
        &self,
        base: &SentenceEncoder,
        (encoder, parameters): (&Encoder, &Parameters),
    ) -> Result<SentenceEncoder, MethodError> {
        let mut builder = ParametersBuilder::default();
        let copy = encoder.copy(parameters, &mut builder)?;
        let learned = base.again(copy, builder.build(parameters.device())?)?;
        if let Some(folder) = self.folder()? {
            // What another training, or a crash, left here is in the way.
            fs::remove_file(folder.join(DONE)).ok();
            fs::remove_dir_all(folder.join(ENCODER)).ok();
            learned.export(&folder.join(ENCODER))?;
            write(&folder.join(DONE), &self.about)?;
            // What there was to go on from is not needed any more.
            fs::remove_file(folder.join("checkpoint.safetensors")).ok();
        }
        Ok(learned)
    }
}

/// Where stages are kept in a training's folder, and what is in the folder of one.
const STAGES: &str = "stages";
const ENCODER: &str = "encoder";
const DONE: &str = "done";

fn gib(device: &Device) -> f64 {
    device.peak_memory().0 as f64 / f64::from(1 << 30)
}

fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder)
        .map_err(|error| Error::Unfit(format!("{}: cannot create the folder: {error}", folder.display())))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| Error::Unfit(format!("{}: cannot write: {error}", path.display())))
}
