//! A model folder, loaded: what `polytag.Model` rests on.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use polytag::artifact::{Manifest, ModelFolder};
use polytag::data::{LabelChange, LabelSpace, Passage, ReadOptions, Task};
use polytag::ids::LabelId;
use polytag::index::Allowed;
use polytag::method;
use polytag::metric::{EvaluationConfig, EvaluationPlan, Propensity, evaluate};
use polytag::predict::{Ask, Columns, Explanation, Field, Predictor};
use polytag::progress::Stop;
use polytag::ranking::{Ranking, Scored};
use polytag_nn::device::Device;
use pyo3::exceptions::{PyKeyboardInterrupt, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use serde_json::Value;

use crate::device::Place;
use crate::table::{TableAsk, Tagged, TaggedStream, Tagging};
use crate::texts::Strings;
use crate::{errors, work};

/// Texts tagged at once, and bytes of them, whichever is reached first: as on the command line.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 16 << 20;

/// A model, loaded. Any number of threads may ask it; a change of labels is seen by calls that begin after it.
#[pyclass(frozen, module = "polytag._native")]
pub(crate) struct Model {
    path: PathBuf,
    device: Device,
    threads: usize,
    manifest: Manifest,
    predictor: RwLock<Arc<dyn Predictor>>,
    /// Whoever has it changes labels: the last change on the disk is the last one here.
    changing: Mutex<()>,
}

/// Which folder is loaded, and where it works.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LoadAsk {
    path: PathBuf,
    device: String,
    precision: String,
    threads: Option<usize>,
    cache: Option<PathBuf>,
}

/// What is asked about texts.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct TextAsk<'py> {
    k: usize,
    threshold: Option<f32>,
    allow: Option<Vec<String>>,
    titles: Option<Bound<'py, PyAny>>,
    ids: Option<Bound<'py, PyAny>>,
}

/// What is asked about a table.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ColumnAsk {
    k: usize,
    threshold: Option<f32>,
    allow: Option<Vec<String>>,
    text: String,
    id: Option<String>,
    title: Option<String>,
    keep: Vec<String>,
    keep_all: bool,
}

/// How a split is measured.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct EvaluateAsk {
    task: PathBuf,
    split: String,
    k: Option<Vec<usize>>,
    recall_k: Option<Vec<usize>>,
    zsr_k: Option<Vec<usize>>,
    propensity: Option<(f64, f64)>,
    item_to_item: bool,
    replicates: Option<usize>,
    seed: u64,
}

impl Model {
    /// A model that was just fitted.
    pub(crate) fn fitted(path: PathBuf, device: Device, threads: usize, mut fitted: method::Fitted) -> Model {
        fitted.predictor.place(&device);
        Model::new((path, device), threads, fitted.manifest, fitted.predictor)
    }

    fn new(
        (path, device): (PathBuf, Device),
        threads: usize,
        manifest: Manifest,
        predictor: Box<dyn Predictor>,
    ) -> Model {
        let (predictor, changing) = (RwLock::new(Arc::from(predictor)), Mutex::default());
        Model { path, device, threads, manifest, predictor, changing }
    }

    fn predictor(&self) -> Arc<dyn Predictor> {
        Arc::clone(&self.predictor.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl Model {
    /// Reads a model folder.
    #[staticmethod]
    fn load(py: Python<'_>, ask: LoadAsk) -> PyResult<Model> {
        let LoadAsk { path, device, precision, threads, cache } = ask;
        let threads = work::threads(threads)?;
        let place = Place { device, precision, cache };
        let model = work::short(py, threads, move || {
            let device = place.for_model(&path)?;
            let manifest = ModelFolder::open(&path).map_err(errors::library)?.manifest().clone();
            let predictor = method::load(&path, &device).map_err(errors::library)?;
            Ok(Model::new((path, device), threads, manifest, predictor))
        })?;
        if let Some(notice) = model.predictor().notice() {
            let text = CString::new(notice).map_err(errors::ours)?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
        }
        Ok(model)
    }

    #[getter]
    fn path(&self) -> &Path {
        &self.path
    }

    #[getter]
    fn device(&self) -> String {
        self.device.name()
    }

    #[getter]
    fn method(&self) -> &str {
        &self.manifest.method
    }

    /// The manifest, as JSON.
    fn manifest(&self) -> PyResult<String> {
        serde_json::to_string(&self.manifest).map_err(errors::ours)
    }

    #[getter]
    fn gives_probabilities(&self) -> bool {
        self.predictor().gives_probabilities()
    }

    #[getter]
    fn takes_new_labels(&self) -> bool {
        self.predictor().takes_new_labels()
    }

    fn __len__(&self) -> usize {
        self.predictor().label_space().len()
    }

    /// Every label, made by `label(id, name, description, aliases, parents, train_documents)`.
    fn labels<'py>(&self, label: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let predictor = self.predictor();
        let space = predictor.label_space();
        let labels = PyList::empty(label.py());
        for (id, known) in space.iter() {
            let aliases = PyTuple::new(label.py(), &known.aliases)?;
            let parents = PyTuple::new(label.py(), &known.parents)?;
            let count = space.train_count(id);
            labels.append(label.call1((
                &known.id,
                &known.name,
                &known.description,
                aliases,
                parents,
                count,
            ))?)?;
        }
        Ok(labels)
    }

    /// The best labels of each text, made by `tag(id, name, score, seen)`.
    fn tag<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        ask: TextAsk<'py>,
        tag: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = texts.py();
        let texts = Strings::of(texts, "texts")?;
        let titles = ask.titles.as_ref().map(|titles| Strings::of(titles, "titles")).transpose()?;
        let ids = ask.ids.as_ref().map(|ids| Strings::of(ids, "ids")).transpose()?;
        let passages = passages(&texts, titles.as_ref(), ids.as_ref())?;
        let predictor = self.predictor();
        let space = predictor.label_space();
        let allowed = ask.allow.as_ref().map(|ids| allowed(space, ids)).transpose()?;
        // One more where a document may be among its own labels.
        let itself = predictor.item_to_item();
        let asked = Ask { k: ask.k.saturating_add(usize::from(itself)), allowed: allowed.as_ref() };
        let rank = |stop: &Stop| rank(predictor.as_ref(), &passages, &asked, stop);
        let rankings = match passages.len() {
            0..=BATCH => work::short(py, self.threads, || rank(&Stop::default()))?,
            _ => work::long(py, self.threads, None, |watch| rank(watch.stop))?,
        };
        let mut maker = TagMaker { space, tag, made: Vec::new() };
        let answers = PyList::empty(py);
        for (passage, ranking) in passages.iter().zip(&rankings) {
            let itself = passage.id.filter(|_| itself).and_then(|id| space.find(id));
            let least = ask.threshold.unwrap_or(f32::NEG_INFINITY);
            let kept = ranking.entries().iter();
            let kept = kept.filter(|entry| entry.score >= least && Some(entry.label) != itself).take(ask.k);
            let tags = kept.map(|entry| maker.make(entry)).collect::<PyResult<Vec<_>>>()?;
            answers.append(PyList::new(py, tags)?)?;
        }
        Ok(answers)
    }

    /// A table with the labels of its rows.
    fn tag_arrow(&self, data: &Bound<'_, PyAny>, ask: ColumnAsk) -> PyResult<Tagged> {
        Tagged::all(data.py(), self.threads, self.tagging(data, ask)?)
    }

    /// The same as it is read.
    fn tag_stream(&self, data: &Bound<'_, PyAny>, ask: ColumnAsk) -> PyResult<TaggedStream> {
        Ok(TaggedStream::new(self.tagging(data, ask)?, self.threads))
    }

    /// Changes the labels, on the disk and here: `changes` is a list of them as JSON.
    fn change_labels(&self, py: Python<'_>, changes: &str) -> PyResult<()> {
        let changes: Vec<LabelChange> = serde_json::from_str(changes)
            .map_err(|error| errors::wrong_type(format!("a label is not as it should be: {error}")))?;
        py.detach(|| {
            // Waited for beside the pool, whose threads take up other work while they wait for a part of theirs.
            let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let change = || {
                let mut changed =
                    method::change_labels(&self.path, &changes, &self.device).map_err(errors::library)?;
                changed.place(&self.device);
                Ok(changed)
            };
            let changed = work::unwatched(self.threads, change)?;
            *self.predictor.write().unwrap_or_else(PoisonError::into_inner) = Arc::from(changed);
            Ok(())
        })
    }

    /// Why labels fit a text, as JSON; the best `k`, or those that are named.
    fn explain(
        &self,
        py: Python<'_>,
        passage: (String, Option<String>, Option<String>),
        labels: Option<Vec<String>>,
        k: usize,
    ) -> PyResult<String> {
        let predictor = self.predictor();
        work::short(py, self.threads, || {
            let (text, title, id) = &passage;
            let passage = Passage { id: id.as_deref(), title: title.as_deref(), text };
            let space = predictor.label_space();
            let labels = match labels {
                Some(ids) => ids.iter().map(|id| find(space, id)).collect::<PyResult<Vec<LabelId>>>()?,
                None => {
                    let rankings = predictor.predict(&[passage], &Ask { k, allowed: None });
                    rankings.map_err(errors::library)?.iter().flat_map(Ranking::labels).collect()
                }
            };
            let explain = |id: LabelId| {
                let explanation = predictor.explain(passage, id).map_err(errors::library)?;
                explained(space, id, explanation, passage)
            };
            let explained = labels.into_iter().map(explain).collect::<PyResult<Vec<Value>>>()?;
            serde_json::to_string(&explained).map_err(errors::ours)
        })
    }

    /// How good it is on a split, as JSON.
    #[pyo3(signature = (ask, listener=None))]
    fn evaluate(
        &self,
        py: Python<'_>,
        ask: EvaluateAsk,
        listener: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let split = ask.split.parse().map_err(|problem: String| errors::input(problem))?;
        let default = EvaluationConfig::default();
        let config = EvaluationConfig {
            ks: ask.k.unwrap_or(default.ks),
            recall_ks: ask.recall_k.unwrap_or(default.recall_ks),
            zsr_ks: ask.zsr_k.unwrap_or(default.zsr_ks),
            propensity: ask.propensity.map_or(default.propensity, |(a, b)| Propensity { a, b }),
            item_to_item: ask.item_to_item,
            replicates: ask.replicates.unwrap_or(default.replicates),
            seed: ask.seed,
        };
        let plan = EvaluationPlan::try_from(config).map_err(errors::library)?;
        let predictor = self.predictor();
        work::long(py, self.threads, listener, |watch| {
            let task = open_task(&ask.task)?;
            let report = evaluate(predictor.as_ref(), &task, split, &plan, watch).map_err(errors::library)?;
            serde_json::to_string(&report).map_err(errors::ours)
        })
    }
}

impl Model {
    fn tagging(&self, data: &Bound<'_, PyAny>, ask: ColumnAsk) -> PyResult<Tagging> {
        let model = self.predictor();
        let allowed = ask.allow.as_ref().map(|ids| allowed(model.label_space(), ids)).transpose()?;
        let columns = Columns { id: ask.id, title: ask.title, text: ask.text, keep: ask.keep };
        let (k, threshold, keep_all) = (ask.k, ask.threshold, ask.keep_all);
        Tagging::new(data, TableAsk { model, k, threshold, allowed, columns, keep_all })
    }
}

/// Opens a task folder.
pub(crate) fn open_task(dir: &Path) -> PyResult<Task> {
    Task::open(dir, &ReadOptions::with_spool(std::env::temp_dir())).map_err(errors::library)
}

/// What there is to tag, checked to be as many of each.
fn passages<'a>(
    texts: &'a Strings,
    titles: Option<&'a Strings>,
    ids: Option<&'a Strings>,
) -> PyResult<Vec<Passage<'a>>> {
    let texts = texts.views()?;
    let beside = |strings: Option<&'a Strings>, what: &str| -> PyResult<Vec<Option<&'a str>>> {
        let Some(strings) = strings else { return Ok(vec![None; texts.len()]) };
        let views = strings.views()?;
        if views.len() == texts.len() {
            return Ok(views);
        }
        let (found, expected) = (views.len(), texts.len());
        Err(errors::input(format!(
            "there are {found} {what} and {expected} texts; give one for each, or none"
        )))
    };
    let (titles, ids) = (beside(titles, "titles")?, beside(ids, "ids")?);
    let passage = |(place, text): (usize, &Option<&'a str>)| match text {
        Some(text) => Ok(Passage { id: ids[place], title: titles[place], text }),
        None => Err(errors::input(format!(
            "texts[{place}] is missing (None or null); leave it out or write \"\", or use tag_arrow, which gives it null labels"
        ))),
    };
    texts.iter().enumerate().map(passage).collect()
}

/// The rankings of many passages, batch after batch.
fn rank(
    predictor: &dyn Predictor,
    passages: &[Passage<'_>],
    ask: &Ask<'_>,
    stop: &Stop,
) -> PyResult<Vec<Ranking>> {
    let mut rankings = Vec::with_capacity(passages.len());
    let mut rest = passages;
    while !rest.is_empty() {
        if stop.is_asked() {
            return Err(PyKeyboardInterrupt::new_err("stopped before the end"));
        }
        let mut bytes = 0;
        let fits = |passage: &&Passage<'_>| {
            bytes += passage.bytes();
            bytes <= BATCH_BYTES
        };
        // One at least, however long it is.
        let (batch, behind) = rest.split_at(rest.iter().take(BATCH).take_while(fits).count().max(1));
        rankings.extend(predictor.predict(batch, ask).map_err(errors::library)?);
        rest = behind;
    }
    Ok(rankings)
}

fn find(space: &LabelSpace, id: &str) -> PyResult<LabelId> {
    space.find(id).ok_or_else(|| errors::input(format!("the model has no label with the id {id:?}")))
}

fn allowed(space: &LabelSpace, ids: &[String]) -> PyResult<Allowed> {
    if ids.is_empty() {
        return Err(errors::input("allow names no label; name one at least, or leave it out"));
    }
    ids.iter().map(|id| find(space, id)).collect::<PyResult<Allowed>>()
}

/// Makes tags; the strings of a label are made once.
struct TagMaker<'a, 'py> {
    space: &'a LabelSpace,
    tag: &'a Bound<'py, PyAny>,
    made: Vec<Option<(Bound<'py, PyString>, Bound<'py, PyString>)>>,
}

impl<'py> TagMaker<'_, 'py> {
    fn make(&mut self, entry: &Scored) -> PyResult<Bound<'py, PyAny>> {
        let (py, index) = (self.tag.py(), entry.label.index());
        if self.made.is_empty() {
            self.made.resize(self.space.positions(), None);
        }
        let label = self.space.label(entry.label);
        let make = || (PyString::new(py, &label.id), PyString::new(py, &label.name));
        let (id, name) = self.made[index].get_or_insert_with(make);
        self.tag.call1((&*id, &*name, entry.score, self.space.is_seen(entry.label)))
    }
}

/// An explanation as JSON, with places counted in characters, as Python counts them, where ours are bytes.
fn explained(
    space: &LabelSpace,
    id: LabelId,
    explanation: Explanation,
    passage: Passage<'_>,
) -> PyResult<Value> {
    let field =
        |field: Field| if field == Field::Title { passage.title.unwrap_or_default() } else { passage.text };
    let places: Vec<(usize, usize)> = explanation
        .marks
        .iter()
        .map(|mark| {
            let characters =
                |bytes: usize| field(mark.field).get(..bytes).map_or(0, |text| text.chars().count());
            (characters(mark.start), characters(mark.end))
        })
        .collect();
    let mut value = serde_json::to_value(&explanation).map_err(errors::ours)?;
    if let Some(marks) = value.get_mut("marks").and_then(Value::as_array_mut) {
        for (mark, (start, end)) in marks.iter_mut().zip(places) {
            mark["start"] = start.into();
            mark["end"] = end.into();
        }
    }
    value["id"] = space.label(id).id.as_str().into();
    value["name"] = space.label(id).name.as_str().into();
    Ok(value)
}
