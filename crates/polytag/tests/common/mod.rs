//! What tests of methods with an encoder share.

#![allow(dead_code)] // Every test file takes what it needs.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use polytag::data::{Passage, ReadOptions, Task};
use polytag::encoder::EncoderCache;
use polytag::ids::LabelId;
use polytag::method::{MethodConfig, TrainContext, fit, load};
use polytag::predict::{Ask, Predictor};
use polytag::progress::{Event, Progress, Stop};
use polytag_nn::device::Device;

/// The folder of a tiny encoder with random weights.
pub(crate) fn encoder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders").join(name)
}

/// Everything that was reported, as text; asks to stop when told of what is given.
#[derive(Default)]
pub(crate) struct Heard {
    events: Mutex<Vec<String>>,
    stop_at: Option<(&'static str, Stop)>,
}

impl Heard {
    /// One that asks to stop at the first event with these words in it.
    pub(crate) fn stopping_at(words: &'static str, stop: &Stop) -> Heard {
        Heard { stop_at: Some((words, stop.clone())), ..Heard::default() }
    }

    /// What was heard.
    pub(crate) fn events(self) -> Vec<String> {
        self.events.into_inner().unwrap()
    }
}

impl Progress for Heard {
    fn report(&self, event: Event<'_>) {
        let event = format!("{event:?}");
        if let Some((words, stop)) = &self.stop_at
            && event.contains(words)
        {
            stop.ask();
        }
        self.events.lock().unwrap().push(event);
    }
}

/// A fit of a task folder into a model folder.
pub(crate) struct Fit<'a> {
    pub(crate) task: &'a Path,
    pub(crate) model: &'a Path,
    pub(crate) folder: Option<&'a Path>,
    pub(crate) stop: Stop,
}

impl Fit<'_> {
    /// Fits; what was reported meanwhile.
    pub(crate) fn run(&self, config: MethodConfig) -> Result<Vec<String>, polytag::Error> {
        let heard = Heard::default();
        self.heard_by(config, &heard)?;
        Ok(heard.events())
    }

    /// Fits, told to `heard`.
    pub(crate) fn heard_by(&self, config: MethodConfig, heard: &Heard) -> Result<(), polytag::Error> {
        let (device, encoders) = (Device::cpu(), EncoderCache::new("encoders"));
        let context = TrainContext {
            seed: 3,
            folder: self.folder,
            ..TrainContext::new((&device, &encoders), (&self.stop, heard))
        };
        let task = Task::open(self.task, &ReadOptions::with_spool(std::env::temp_dir()))?;
        fit(&task, config, self.model, &context).map(drop)
    }
}

/// Reads a model folder.
pub(crate) fn read(model: &Path) -> Box<dyn Predictor> {
    load(model, &Device::cpu()).unwrap()
}

/// Every label and its score's bits, best first.
pub(crate) fn answers(model: &dyn Predictor, texts: &[&str]) -> Vec<Vec<(String, u32)>> {
    let passages: Vec<Passage<'_>> = texts.iter().map(|&text| Passage::from(text)).collect();
    let rankings = model.predict(&passages, &Ask { k: 10, allowed: None }).unwrap();
    let id = |label: LabelId| model.label_space().label(label).id.clone();
    let entries = |ranking: &polytag::ranking::Ranking| {
        ranking.entries().iter().map(|entry| (id(entry.label), entry.score.to_bits())).collect()
    };
    rankings.iter().map(entries).collect()
}
