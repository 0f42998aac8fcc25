//! From a task folder to a model folder.

use std::path::PathBuf;

use polytag::encoder::EncoderCache;
use polytag::method::{self, Choice, Means, MethodConfig, TrainContext, TrainingFolder};
use polytag::progress::{Event, Watch};
use polytag_nn::device::Device;
use pyo3::prelude::*;
use serde_json::Value;

use crate::device::Place;
use crate::model::{Model, open_task};
use crate::{errors, work};

/// What is to be fitted, and how.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct FitAsk {
    task: PathBuf,
    out: PathBuf,
    method: String,
    /// Settings of the method, a JSON object.
    settings: String,
    seed: u64,
    memory: Option<u64>,
    device: String,
    precision: String,
    threads: Option<usize>,
    cache: Option<PathBuf>,
}

/// Fits a method to a task and writes the model folder.
#[pyfunction]
#[pyo3(signature = (ask, listener=None))]
pub(crate) fn fit(py: Python<'_>, ask: FitAsk, listener: Option<&Bound<'_, PyAny>>) -> PyResult<Model> {
    let threads = work::threads(ask.threads)?;
    work::long(py, threads, listener, |watch| ask.run(threads, watch))
}

impl FitAsk {
    fn run(&self, threads: usize, watch: &Watch<'_>) -> PyResult<Model> {
        let settings: Value = serde_json::from_str(&self.settings).map_err(errors::ours)?;
        let encoders = self.cache.as_ref().map(|root| root.join("encoders")).unwrap_or_default();
        let encoders = EncoderCache::new(encoders);
        let FitAsk { device, precision, cache, .. } = self;
        let place = Place { device: device.clone(), precision: precision.clone(), cache: cache.clone() };
        place.check()?;
        // Settings that the method does not have are an error before anything is read.
        let given = match self.method.as_str() {
            "auto" => None,
            name => Some(MethodConfig::named(name, &settings).map_err(errors::library)?),
        };
        let task = open_task(&self.task)?;
        let (config, device) = match given {
            Some(config) => {
                let device = if config.uses_network(&encoders) { place.open()? } else { Device::cpu() };
                (config, device)
            }
            None => {
                let named = Means::names_encoder(&settings);
                let encoder = Means::has_encoder(&settings, &encoders).map_err(errors::library)?;
                let device = if encoder { place.open()? } else { Device::cpu() };
                let means = Means { encoder, named, gpu: matches!(device, Device::Cuda(_)) };
                let choice = Choice::of(&task, means, watch.stop).map_err(errors::library)?;
                let stage = format!("method: {}, {}", choice.method, choice.why);
                watch.progress.report(Event::Started { stage: &stage, total: None });
                watch.progress.report(Event::Finished);
                (choice.config(settings).map_err(errors::library)?, device)
            }
        };
        let training = config.trains().then(|| TrainingFolder::beside(&self.out)).transpose();
        let training = training.map_err(errors::library)?;
        let context = TrainContext {
            seed: self.seed,
            folder: training.as_ref().map(TrainingFolder::path),
            memory_limit: self.memory,
            ..TrainContext::new((&device, &encoders), (watch.stop, watch.progress))
        };
        let fitted = method::fit(&task, config, &self.out, &context);
        if let Some(training) = training {
            training.end(fitted.is_ok()).map_err(errors::library)?;
        }
        Ok(Model::fitted(self.out.clone(), device, threads, fitted.map_err(errors::library)?))
    }
}
