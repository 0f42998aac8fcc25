//! Our side of `scripts/bench-peers`: a label tree on a task, timed, and what peers need to do the same.
//!
//! usage: label_tree TASK OUT METHOD NAME=VALUE...
//!
//! Reads the task, fits the method to the train split, and measures processor time: of the whole fit, from text to
//! model, and from the rows that text becomes, which is where peers begin; and of ranking dev documents. Writes under OUT the rows and labels of
//! both splits as plain little-endian arrays, so that peers learn from the same numbers, and the model as a folder.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use polytag::data::{Dataset, Document, Passage, ReadOptions, Split, Task};
use polytag::encoder::EncoderCache;
use polytag::ids::DocId;
use polytag::method::{LabelTreeModel, MethodConfig, TrainContext, fit};
use polytag::predict::Ask;
use polytag::progress::{Event, Progress, Silent, Stop};
use polytag::sparse::Entry;
use polytag::storage::create;
use polytag_nn::device::Device;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, out, method, settings @ ..] = &arguments[..] else {
        return Err("usage: label_tree TASK OUT METHOD NAME=VALUE...".into());
    };
    let out = Path::new(out);
    let mut all = Map::new();
    for setting in settings {
        let (name, value) = setting.split_once('=').ok_or("write NAME=VALUE")?;
        all.insert(name.to_owned(), serde_json::from_str(value)?);
    }
    let task = Task::open(Path::new(task), &ReadOptions::with_spool(std::env::temp_dir()))?;
    let (device, encoders, stop) = (Device::cpu(), EncoderCache::new("encoders"), Stop::default());
    let context = TrainContext::new((&device, &encoders), (&stop, &Silent));
    let config = MethodConfig::named(method, &Value::Object(all))?;
    let folder = out.join("model");
    let watch = Watch::default();
    let (before, started) = (processor_seconds(), Instant::now());
    fit(&task, config, &folder, &TrainContext { progress: &watch, ..context })?;
    let (used, wall) = (processor_seconds() - before, started.elapsed().as_secs_f64());
    println!("RESULT polytag {method} fit_from_text_cpu_s={used:.2} wall_s={wall:.2}");
    let from_rows = used + before - watch.rows_at();
    println!("RESULT polytag {method} fit_from_rows_cpu_s={from_rows:.2}");
    let model = LabelTreeModel::load(&polytag::artifact::ModelFolder::open(&folder)?, &device)?;
    let size: u64 = std::fs::read_dir(&folder)?
        .map(|file| file?.metadata().map(|data| data.len()))
        .sum::<Result<_, _>>()?;
    println!("RESULT polytag {method} model_mb={:.1} weights={}", size as f64 / 1e6, model.weights());
    for split in [Split::Train, Split::Dev] {
        let dataset = task.dataset(split, &Silent, &stop)?;
        let documents: Vec<Document> =
            (0..dataset.len() as u32).map(|id| dataset.document(DocId(id))).collect::<Result<_, _>>()?;
        let passages: Vec<Passage<'_>> = documents.iter().map(Document::passage).collect();
        let rows = model.rows(&passages)?;
        write(out, split.as_str(), &rows, &documents)?;
        if split == Split::Dev {
            measure(&model, method, &passages, &rows)?;
        }
    }
    Ok(())
}

/// Times of ranking: many rows at once, one row, and one text.
fn measure(
    model: &LabelTreeModel,
    method: &str,
    passages: &[Passage<'_>],
    rows: &[Vec<Entry>],
) -> Result<(), Failure> {
    let ask = Ask { k: 5, allowed: None };
    let thousand = &rows[..rows.len().min(1000)];
    let least = (0..5)
        .map(|_| {
            let before = processor_seconds();
            model.rank(thousand, &ask)?;
            Ok(processor_seconds() - before)
        })
        .collect::<Result<Vec<f64>, Failure>>()?;
    let least = least.into_iter().fold(f64::INFINITY, f64::min) * 1000.0 / thousand.len() as f64;
    println!("RESULT polytag {method} rank_1000_rows_cpu_s={least:.4}");
    use polytag::predict::Predictor;
    let mut times: Vec<Duration> = Vec::new();
    for passage in &passages[..thousand.len()] {
        let started = Instant::now();
        model.predict(std::slice::from_ref(passage), &ask)?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let milliseconds = |at: usize| times[at].as_secs_f64() * 1e3;
    let (middle, late) = (milliseconds(times.len() / 2), milliseconds(times.len() * 95 / 100));
    println!("RESULT polytag {method} one_text_ms_median={middle:.3} p95={late:.3}");
    Ok(())
}

/// Notes when text had become rows: the stage before the first tree is learned was over then.
#[derive(Default)]
struct Watch(Mutex<(f64, Option<f64>)>);

impl Watch {
    /// Processor time of this process at that point.
    fn rows_at(&self) -> f64 {
        self.0.lock().map_or(f64::NAN, |at| at.1.unwrap_or(f64::NAN))
    }
}

impl Progress for Watch {
    fn report(&self, event: Event<'_>) {
        let Ok(mut at) = self.0.lock() else { return };
        match event {
            Event::Finished => at.0 = processor_seconds(),
            Event::Started { stage: "learning labels", .. } if at.1.is_none() => at.1 = Some(at.0),
            _ => {}
        }
    }
}

/// Processor time of this process so far, all threads together.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Rows and labels as arrays that NumPy reads with `fromfile`.
fn write(out: &Path, split: &str, rows: &[Vec<Entry>], documents: &[Document]) -> Result<(), Failure> {
    let file = |name: &str, bytes: Vec<u8>| {
        let mut sink = create(&out.join(format!("{split}.{name}")))?;
        sink.write(&bytes)?;
        sink.finish()
    };
    let starts = |lengths: &mut dyn Iterator<Item = usize>| {
        let mut at = 0u64;
        let ends: Vec<u8> = lengths
            .flat_map(|length| {
                at += length as u64;
                at.to_le_bytes()
            })
            .collect();
        [0u64.to_le_bytes().to_vec(), ends].concat()
    };
    file("x_starts.u64", starts(&mut rows.iter().map(Vec::len)))?;
    file("x_columns.u32", rows.iter().flatten().flat_map(|entry| entry.column.to_le_bytes()).collect())?;
    file("x_values.f32", rows.iter().flatten().flat_map(|entry| entry.value.to_le_bytes()).collect())?;
    file("y_starts.u64", starts(&mut documents.iter().map(|document| document.gold().len())))?;
    let labels = documents.iter().flat_map(|document| document.gold().iter());
    file("y_columns.u32", labels.flat_map(|label| label.0.to_le_bytes()).collect())?;
    Ok(())
}
