//! What tests of methods with an encoder share.

#![allow(dead_code)] // Every test file takes what it needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use polytag::data::{Passage, ReadOptions, Split, Task};
use polytag::encoder::EncoderCache;
use polytag::ids::LabelId;
use polytag::method::{MethodConfig, TrainContext, fit, load};
use polytag::metric::{EvaluationConfig, EvaluationPlan, Report, evaluate};
use polytag::predict::{Ask, Predictor};
use polytag::progress::{Event, Progress, Silent, Stop, Watch};
use polytag_nn::device::Device;
use polytag_nn::world::World;
use serde_json::json;

/// The folder of a tiny encoder with random weights.
pub(crate) fn encoder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders").join(name)
}

/// Labels and the word that gives each away; the last two are in no training document.
pub(crate) const LABELS: [(&str, &str); 6] =
    [("1", "river"), ("2", "tariff"), ("3", "book"), ("4", "sea"), ("5", "quota"), ("6", "map")];

/// Words that say nothing.
pub(crate) const FILLER: [&str; 5] = ["the", "of", "and", "a", "in"];

/// Documents with one or two of the first `labels` labels each.
pub(crate) fn documents(count: usize, labels: usize) -> String {
    let document = |i: usize| {
        let (first, second) = (i % labels, (i / 2) % labels);
        let words = [FILLER[i % 5], LABELS[first].1, FILLER[(i / 3) % 5], LABELS[second].1];
        let mut gold = vec![LABELS[first].0, LABELS[second].0];
        gold.dedup();
        json!({"id": i.to_string(), "title": FILLER[(i / 7) % 5], "text": words.join(" "), "labels": gold})
    };
    (0..count).map(|i| format!("{}\n", document(i))).collect()
}

pub(crate) fn labels(count: usize) -> String {
    LABELS[..count].iter().map(|(id, name)| format!("{}\n", json!({"id": id, "name": name}))).collect()
}

/// A task of 60 documents and six labels, four of which the documents carry.
pub(crate) fn task(dir: &Path) -> PathBuf {
    let task = dir.join("task");
    fs::create_dir_all(&task).unwrap();
    fs::write(task.join("labels.jsonl"), labels(6)).unwrap();
    fs::write(task.join("train.jsonl"), documents(60, 4)).unwrap();
    fs::write(task.join("dev.jsonl"), documents(20, 6)).unwrap();
    task
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
        self.on((&Device::cpu(), None), config, heard)
    }

    /// Fits on so many CPUs that train together.
    pub(crate) fn together(
        &self,
        size: usize,
        config: MethodConfig,
        heard: &Heard,
    ) -> Result<(), polytag::Error> {
        let world = World::new((0..size).map(|_| Device::cpu()).collect()).unwrap();
        self.on((&world.devices()[0], Some(&world)), config, heard)
    }

    /// Fits on a device.
    pub(crate) fn on(
        &self,
        (device, world): (&Device, Option<&World>),
        config: MethodConfig,
        heard: &Heard,
    ) -> Result<(), polytag::Error> {
        let encoders = EncoderCache::new("encoders");
        let context = TrainContext {
            seed: 3,
            world,
            folder: self.folder,
            ..TrainContext::new((device, &encoders), (&self.stop, heard))
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

/// A task folder, and room beside it.
pub(crate) struct Tried {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) task: PathBuf,
}

impl Tried {
    /// The task that `make` leaves in a folder.
    pub(crate) fn of(make: fn(&Path) -> PathBuf) -> Tried {
        let dir = tempfile::tempdir().unwrap();
        Tried { task: make(dir.path()), dir }
    }

    /// Writes a file of the task.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.task.join(name), text).unwrap();
    }

    /// Fits into a folder called as the method; what was reported meanwhile.
    pub(crate) fn fitted(&self, config: MethodConfig) -> Result<(PathBuf, Vec<String>), polytag::Error> {
        let model = self.dir.path().join(config.name());
        let fit = Fit { task: &self.task, model: &model, folder: None, stop: Stop::default() };
        let heard = fit.run(config)?;
        Ok((model, heard))
    }

    /// The files of a model that is fitted within a limit of memory and by so many threads. In memory it answers as from its
    /// folder.
    pub(crate) fn bytes(
        &self,
        (config, files): (MethodConfig, [&str; 2]),
        (name, limit, threads): (&str, Option<u64>, usize),
        text: &str,
    ) -> [Vec<u8>; 2] {
        let out = self.dir.path().join(name);
        let (device, encoders, stop) = (Device::cpu(), EncoderCache::new("encoders"), Stop::default());
        let context =
            TrainContext { memory_limit: limit, ..TrainContext::new((&device, &encoders), (&stop, &Silent)) };
        let open = || Task::open(&self.task, &ReadOptions::with_spool(self.dir.path())).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let fitted = pool.install(|| fit(&open(), config, &out, &context)).unwrap();
        assert_eq!(answers(fitted.predictor.as_ref(), &[text]), answers(read(&out).as_ref(), &[text]));
        files.map(|file| fs::read(out.join(file)).unwrap())
    }

    /// How good a model is on a split.
    pub(crate) fn report(&self, model: &Path, split: Split) -> Report {
        let task = Task::open(&self.task, &ReadOptions::with_spool(self.dir.path())).unwrap();
        let plan = EvaluationPlan::try_from(EvaluationConfig::default()).unwrap();
        let watch = Watch { progress: &Silent, stop: &Stop::default() };
        evaluate(read(model).as_ref(), &task, split, &plan, &watch).unwrap()
    }
}
