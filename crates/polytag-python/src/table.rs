//! Tables in, tagged tables out: all at once (`Tagged`) or as they are read (`TaggedStream`).
//!
//! The library tags a batch; here batches are cut into pieces that are soon done, so that Ctrl-C is heard, and put together again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use polytag::index::Allowed;
use polytag::predict::{Ask, BatchTagger, Columns, FoundColumns, Predictor};
use polytag::progress::Stop;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::capsule::{self, Arrays};
use crate::{errors, work};

/// Rows tagged at once, and bytes of them, whichever is reached first: as on the command line.
const PIECE: usize = 512;
const PIECE_BYTES: usize = 16 << 20;
/// Rows of a batch that leaves, at most.
const MOST_ROWS: usize = 1 << 16;

/// What is asked about a table.
pub(crate) struct TableAsk {
    pub(crate) model: Arc<dyn Predictor>,
    pub(crate) k: usize,
    pub(crate) threshold: Option<f32>,
    pub(crate) allowed: Option<Allowed>,
    pub(crate) columns: Columns,
    /// Whether every column is kept, and not only those that `columns` names.
    pub(crate) keep_all: bool,
}

/// A table that is tagged batch after batch.
pub(crate) struct Tagging {
    ask: TableAsk,
    arrays: Arrays,
    schema: SchemaRef,
    found: FoundColumns,
    /// Rows that came in.
    rows: u64,
    without_text: u64,
}

impl Tagging {
    pub(crate) fn new(object: &Bound<'_, PyAny>, mut ask: TableAsk) -> PyResult<Tagging> {
        let Some(arrays) = capsule::import(object)? else {
            let class = object.get_type().name()?;
            return Err(errors::wrong_type(format!(
                "{class} is no Arrow data: give a table or batch of pyarrow, polars, pandas (2.2 or later) or duckdb, or anything with \
                 __arrow_c_stream__ or __arrow_c_array__"
            )));
        };
        let Some(schema) = capsule::table_schema(arrays.field()) else {
            let kind = arrays.field().data_type();
            return Err(errors::wrong_type(format!(
                "the Arrow data is an array of type {kind}, where a table is expected; use tag for a column of texts"
            )));
        };
        if ask.keep_all {
            let read = ask.columns.id.as_deref().unwrap_or("id");
            let names = schema.fields().iter().map(|field| field.name());
            ask.columns.keep = names.filter(|name| name.as_str() != read).cloned().collect();
        }
        let found = ask.columns.find(&schema).map_err(|error| errors::wrong_type(error.to_string()))?;
        Ok(Tagging { ask, arrays, schema, found, rows: 0, without_text: 0 })
    }

    /// The schema of what comes out.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.found.schema()
    }

    /// The next batch as it came in, or none at the end. Where it comes from Python, this takes the interpreter's lock.
    fn read(&mut self) -> PyResult<Option<RecordBatch>> {
        let Some(array) = self.arrays.next() else { return Ok(None) };
        let wrong = |error: ArrowError| errors::input(format!("the Arrow data cannot be read: {error}"));
        let batch = capsule::batch(array.map_err(wrong)?, &self.schema).map_err(wrong)?;
        for position in self.found.positions() {
            capsule::check(batch.column(position)).map_err(wrong)?;
        }
        Ok(Some(batch))
    }

    /// A batch tagged. `stop` is asked between pieces of it.
    fn tag(&mut self, batch: &RecordBatch, stop: &Stop) -> PyResult<Vec<RecordBatch>> {
        let (mut whole, mut pieces, mut rows) = (Vec::new(), Vec::new(), 0);
        for piece in cut(batch) {
            if stop.is_asked() {
                return Err(PyKeyboardInterrupt::new_err("stopped before the end"));
            }
            let tagged = self.tag_piece(&piece)?;
            rows += tagged.num_rows();
            pieces.push(tagged);
            if rows >= MOST_ROWS {
                whole.push(join(self.schema(), &mut pieces)?);
                rows = 0;
            }
        }
        if !pieces.is_empty() {
            whole.push(join(self.schema(), &mut pieces)?);
        }
        Ok(whole)
    }

    fn tag_piece(&mut self, piece: &RecordBatch) -> PyResult<RecordBatch> {
        let ask = Ask { k: self.ask.k, allowed: self.ask.allowed.as_ref() };
        let (model, columns) = (self.ask.model.as_ref(), &self.ask.columns);
        let tagger = BatchTagger { model, columns, ask, threshold: self.ask.threshold };
        let tagged = tagger.tag_found(piece, &self.found, self.rows + 1).map_err(errors::library)?;
        self.rows += piece.num_rows() as u64;
        self.without_text += tagged.without_text as u64;
        Ok(tagged.batch)
    }
}

/// A batch in pieces of the same rows.
fn cut(batch: &RecordBatch) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    // Of these rows alone, as batches are often slices of larger ones. Rows are taken to be of like size: bytes are a limit on memory,
    // not a promise.
    let size = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
    let bytes = batch.columns().iter().map(size).sum::<usize>() / rows.max(1);
    let step = (PIECE_BYTES / bytes.max(1)).clamp(1, PIECE);
    (0..rows).step_by(step).map(|start| batch.slice(start, step.min(rows - start))).collect()
}

/// Pieces as one batch.
fn join(schema: &SchemaRef, pieces: &mut Vec<RecordBatch>) -> PyResult<RecordBatch> {
    let joined = match pieces.as_slice() {
        [one] => one.clone(),
        several => concat_batches(schema, several).map_err(errors::ours)?,
    };
    pieces.clear();
    Ok(joined)
}

/// A tagged table.
#[pyclass(frozen, module = "polytag")]
pub(crate) struct Tagged {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// Rows without a text: null labels.
    #[pyo3(get)]
    without_text: u64,
}

impl Tagged {
    /// Tags all of a table.
    pub(crate) fn all(py: Python<'_>, threads: usize, mut tagging: Tagging) -> PyResult<Tagged> {
        work::in_turns(py, threads, move |crew, watch| {
            let mut batches = Vec::new();
            while let Some(batch) = tagging.read()? {
                batches.extend(crew.work(|| tagging.tag(&batch, watch.stop))?);
            }
            Ok(Tagged { schema: Arc::clone(tagging.schema()), batches, without_text: tagging.without_text })
        })
    }

    fn whole(&self) -> PyResult<RecordBatch> {
        join(&self.schema, &mut self.batches.clone())
    }
}

#[pymethods]
impl Tagged {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    fn __repr__(&self) -> String {
        format!("<polytag.Tagged: {} rows of {}>", self.__len__(), self.column_names().join(", "))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::export_schema(py, &self.schema)
    }

    // What a consumer asks for is a wish: who cannot cast gives what there is.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        capsule::export_batch(py, self.whole()?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        capsule::export_stream(py, Box::new(RecordBatchIterator::new(batches, Arc::clone(&self.schema))))
    }

    /// The table as a `pyarrow.Table`, without copying.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// The table as a `pandas.DataFrame`; needs pyarrow, too.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Tagged::to_pyarrow(slf)?.call_method0("to_pandas")
    }

    /// The table as a `polars.DataFrame`, without copying.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }
}

/// A table that is tagged as it is read, once.
#[pyclass(frozen, module = "polytag")]
pub(crate) struct TaggedStream {
    tagging: Mutex<Option<Tagging>>,
    schema: SchemaRef,
    threads: usize,
}

impl TaggedStream {
    pub(crate) fn new(tagging: Tagging, threads: usize) -> TaggedStream {
        let schema = Arc::clone(tagging.schema());
        TaggedStream { tagging: Mutex::new(Some(tagging)), schema, threads }
    }
}

#[pymethods]
impl TaggedStream {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Tagged>> {
        let schema = Arc::clone(&self.schema);
        work::in_turns(py, self.threads, |crew, watch| {
            let mut guard = self.tagging.lock().unwrap_or_else(PoisonError::into_inner);
            // After a failure it has ended, as a generator has: rows are not passed over.
            let Some(mut tagging) = guard.take() else { return Ok(None) };
            let Some(batch) = tagging.read()? else { return Ok(None) };
            let before = tagging.without_text;
            let batches = crew.work(|| tagging.tag(&batch, watch.stop))?;
            let without_text = tagging.without_text - before;
            *guard = Some(tagging);
            Ok(Some(Tagged { schema, batches, without_text }))
        })
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        format!("<polytag.TaggedStream of {}>", names.join(", "))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::export_schema(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let tagging = py.detach(|| self.tagging.lock().unwrap_or_else(PoisonError::into_inner).take());
        let tagging =
            tagging.ok_or_else(|| errors::input("the stream was read already; tag_arrow makes a new one"))?;
        let reader =
            Reader { tagging, schema: Arc::clone(&self.schema), threads: self.threads, ready: Vec::new() };
        capsule::export_stream(py, Box::new(reader))
    }
}

/// The stream for a reader that is not Python. Whoever asks it may hold the interpreter's lock: a batch is read on the thread that
/// asks, which can have the lock, and tagged on others, which do not need it.
struct Reader {
    tagging: Tagging,
    schema: SchemaRef,
    threads: usize,
    /// Batches that were made and not yet taken, the last one first.
    ready: Vec<RecordBatch>,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() {
            // Whoever asks is not Rust: nothing may unwind through it.
            let made = catch_unwind(AssertUnwindSafe(|| self.next_batches()));
            match made.unwrap_or_else(|payload| Err(errors::panicked(payload.as_ref()))) {
                Ok(Some(batches)) => self.ready = batches.into_iter().rev().collect(),
                Ok(None) => return None,
                // An Arrow stream has words for a failure, not exceptions.
                Err(error) => return Some(Err(ArrowError::ExternalError(error.into()))),
            }
        }
        self.ready.pop().map(Ok)
    }
}

impl Reader {
    fn next_batches(&mut self) -> PyResult<Option<Vec<RecordBatch>>> {
        let Some(batch) = self.tagging.read()? else { return Ok(None) };
        work::unwatched(self.threads, || self.tagging.tag(&batch, &Stop::default())).map(Some)
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }
}
