//! The vectors of labels in a model, and the index that searches them: which one it is, how it is chosen and measured,
//! kept in a model folder and read from there.
//!
//! Small label sets are compared one and all, and kept as they always were. From [`AUTO_FROM`] labels on `auto` makes a
//! graph. Large files stay where they are: vectors, codes and links are looked at in the file, and what changes afterwards
//! is kept beside it in memory. Where a model lies on a GPU, so does a copy of the vectors that are compared one and all.

use std::borrow::Cow;

use polytag_nn::device::Device;
use serde::{Deserialize, Serialize};

use super::TrainContext;
use super::error::MethodError;
use crate::artifact::{ArtifactError, IndexReport, Manifest, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{Dataset, Document, LabelSpace};
use crate::ids::{DocId, LabelId};
use crate::index::{
    Allowed, DEVICE_FROM, Exact, GraphArrays, Hnsw, HnswConfig, IndexError, LabelIndex, MEASURED_AT,
    OnDevice, Precision, Rows, recall,
};
use crate::predict::{Embeddings, PredictError};
use crate::ranking::Ranking;
use crate::storage::Array;

/// The file of label vectors, and their name in it.
pub(super) const VECTORS: (&str, &str) = ("label_vectors.safetensors", "label_vectors");

/// What labels gain, and the scales of their codes, in the same file.
const GAINS: &str = "label_gains";
const SCALES: &str = "label_scales";

/// The file of the vectors in 8 bits, and their name in it.
const CODES: (&str, &str) = ("label_codes.safetensors", "label_codes");

/// The file of the graph, and the name of labels outside of it in there.
const GRAPH: &str = "label_graph.safetensors";
const OUTSIDE: &str = "outside";

/// The label vectors that a model folder was fitted with, a row a position, and how many numbers each has.
///
/// # Errors
/// If the model has none, or damaged ones.
pub fn fitted_vectors(folder: &ModelFolder) -> Result<(usize, Rows), ArtifactError> {
    folder.tensors(VECTORS.0)?.rows(VECTORS.1)
}

/// How many bytes the label vectors of a model take, with what searches them.
pub fn label_vector_bytes(manifest: &Manifest) -> u64 {
    let is_one = |name: &str| [VECTORS.0, CODES.0, GRAPH].contains(&name);
    manifest.files.iter().filter(|file| is_one(&file.name)).map(|file| file.bytes).sum()
}

/// From how many labels on `auto` makes a graph.
pub const AUTO_FROM: usize = 200_000;

/// From how many bytes on vectors stay in their file.
const MAPPED_FROM: u64 = 64 << 20;

/// Queries that an index is measured with.
const MEASURED_WITH: usize = 200;

/// How label vectors are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IndexKind {
    /// By their number: through a graph from 200,000 labels on.
    #[default]
    Auto,
    /// One and all.
    Exact,
    /// Through a graph.
    Hnsw,
}

/// Label vectors and what searches them.
pub(super) struct LabelVectors {
    kind: Kind,
    report: Option<IndexReport>,
}

enum Kind {
    Exact(Box<Exact>),
    /// The same with a GPU's help.
    OnDevice(Box<OnDevice>),
    Hnsw(Box<Hnsw>),
    /// An index that is not ours, which has the vectors.
    Elsewhere(Box<dyn LabelIndex>),
}

impl From<Exact> for LabelVectors {
    fn from(exact: Exact) -> LabelVectors {
        LabelVectors { kind: Kind::Exact(Box::new(exact)), report: None }
    }
}

impl LabelVectors {
    /// The vectors, where they are ours, searched one and all.
    fn exact(&self) -> Option<&Exact> {
        match &self.kind {
            Kind::Exact(exact) => Some(exact),
            Kind::OnDevice(index) => Some(index.exact()),
            Kind::Hnsw(index) => Some(index.exact()),
            Kind::Elsewhere(_) => None,
        }
    }

    /// What searches them.
    pub(super) fn index(&self) -> &dyn LabelIndex {
        match &self.kind {
            Kind::Exact(index) => index.as_ref(),
            Kind::OnDevice(index) => index.as_ref(),
            Kind::Hnsw(index) => index.as_ref(),
            Kind::Elsewhere(index) => index.as_ref(),
        }
    }

    fn index_mut(&mut self) -> &mut dyn LabelIndex {
        match &mut self.kind {
            Kind::Exact(index) => index.as_mut(),
            Kind::OnDevice(index) => index.as_mut(),
            Kind::Hnsw(index) => index.as_mut(),
            Kind::Elsewhere(index) => index.as_mut(),
        }
    }

    /// Leaves the vectors to another index, which holds the same ones; ours are forgotten.
    pub(super) fn leave_to(&mut self, index: Box<dyn LabelIndex>) -> Result<(), PredictError> {
        if index.dim() != self.index().dim() {
            let (found, expected) = (index.dim(), self.index().dim());
            return Err(IndexError::Dimension { label: LabelId(0), found, expected }.into());
        }
        self.kind = Kind::Elsewhere(index);
        Ok(())
    }

    /// The vectors of some labels, those that have any.
    pub(super) fn of(&self, labels: &[LabelId]) -> Result<Embeddings, PredictError> {
        let mut vectors = Embeddings::new(self.index().dim());
        for &label in labels {
            if let Some(vector) = self.index().vector(label)? {
                vectors.push(label, &vector);
            }
        }
        Ok(vectors)
    }

    /// Appends the numbers at a label's position.
    ///
    /// # Panics
    /// If there is no such position.
    pub(super) fn extend_with(&self, label: LabelId, to: &mut Vec<f32>) {
        self.exact()
            .expect("a model that is searched elsewhere is no part of another")
            .extend_with(label, to);
    }

    /// Whether labels gain something beside their products.
    pub(super) fn has_gains(&self) -> bool {
        self.exact().is_some_and(|exact| !exact.gains().is_empty())
    }

    /// What a label gains beside its product.
    pub(super) fn gain(&self, label: LabelId) -> f32 {
        self.exact().map_or(0.0, |exact| exact.gain(label))
    }

    /// Gives a label its vector.
    pub(super) fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.index_mut().set(label, vector)
    }

    /// Gives labels their vectors, all or none but for want of memory, and takes others out.
    pub(super) fn change(
        &mut self,
        vectors: [&Embeddings; 2],
        removed: impl IntoIterator<Item = LabelId>,
    ) -> Result<(), IndexError> {
        let vectors = || vectors.into_iter().flat_map(Embeddings::iter);
        vectors().try_for_each(|(label, vector)| self.index().check(label, vector))?;
        for (label, vector) in vectors() {
            // Whoever tells of changes may tell of vectors that are here already.
            if self.exact().and_then(|exact| exact.kept(label)).is_none_or(|kept| kept != vector) {
                self.set(label, vector)?;
            }
        }
        removed.into_iter().for_each(|label| self.index_mut().remove(label));
        if let Kind::OnDevice(index) = &mut self.kind {
            index.settle();
        }
        Ok(())
    }

    /// The best labels of each query.
    pub(super) fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        self.index().search(queries, k, allowed)
    }

    /// The same, with what labels gain beside their products, by position. Only a search through all can have that.
    pub(super) fn with_gains(self, gains: Vec<f32>) -> Result<LabelVectors, IndexError> {
        match self.kind {
            Kind::Exact(exact) => Ok(exact.with_gains(gains)?.into()),
            _ => Err(IndexError::Unfit { problem: "a graph knows nothing of gains".to_owned() }),
        }
    }

    /// Has them on a GPU, too, where that is one, labels are compared one and all, and there are enough of them.
    pub(super) fn place(&mut self, device: &Device) {
        if let Kind::Exact(exact) = &mut self.kind
            && matches!(device, Device::Cuda(_))
            && exact.len() >= DEVICE_FROM
        {
            let none = Exact::new(exact.dim(), Precision::F32).expect("a dimension that an index has");
            let exact = std::mem::replace(exact.as_mut(), none);
            self.kind = Kind::OnDevice(Box::new(OnDevice::new(exact, device)));
        }
    }

    /// Why a GPU that could search does not.
    pub(super) fn notice(&self) -> Option<String> {
        match &self.kind {
            Kind::OnDevice(index) => index.told().map(str::to_owned),
            _ => None,
        }
    }

    /// Makes the index that is asked for, of all labels; `sample` gives vectors of documents to measure it with.
    pub(super) fn indexed(
        self,
        (method, kind): (&'static str, IndexKind),
        obstacle: Option<&'static str>,
        sample: impl FnOnce() -> Result<Vec<f32>, MethodError>,
        context: &TrainContext<'_>,
    ) -> Result<LabelVectors, MethodError> {
        let Kind::Exact(exact) = self.kind else { return Ok(self) };
        let exact = *exact;
        let labels = exact.len();
        let (graph, why) = match (kind, obstacle) {
            (IndexKind::Hnsw, Some(obstacle)) => {
                let problem = format!("index = hnsw: {obstacle}; say index = exact");
                return Err(MethodError::Config { method, problem });
            }
            (IndexKind::Hnsw, None) => (labels > 0, "as was said".to_owned()),
            (IndexKind::Exact, _) => (false, "as was said".to_owned()),
            (IndexKind::Auto, Some(obstacle)) if labels >= AUTO_FROM => (false, obstacle.to_owned()),
            (IndexKind::Auto, _) => {
                (labels >= AUTO_FROM, format!("auto: {labels} labels, a graph from {AUTO_FROM} on"))
            }
        };
        if !graph && !exact.is_coded() {
            let told = labels >= AUTO_FROM || kind == IndexKind::Exact;
            let report = told.then(|| IndexReport::exact(why, precision(&exact)));
            return Ok(LabelVectors { report, ..exact.into() });
        }
        let queries = queries(&exact, sample()?)?;
        if !graph {
            let report = IndexReport::exact(why, precision(&exact));
            let truth = exact.search_in_full(&queries, MEASURED_AT, None)?;
            let found = exact.search(&queries, MEASURED_AT, None)?;
            let report = report.measured(recall(&truth, &found), truth.len());
            return Ok(LabelVectors { report: Some(report), ..exact.into() });
        }
        let config = HnswConfig { seed: context.seed, ..HnswConfig::default() };
        let kept = precision(&exact);
        let built = Hnsw::build(exact, &config, &queries, (context.progress, context.stop))?;
        let (index, measured) = built.ok_or(MethodError::Stopped)?;
        let report = IndexReport {
            kind: "hnsw".to_owned(),
            why,
            precision: kept,
            width: Some(config.width),
            ef: Some(measured.ef),
            recall_at_100: Some(measured.recall_at_100),
            queries: Some(measured.queries),
        };
        Ok(LabelVectors { kind: Kind::Hnsw(Box::new(index)), report: Some(report) })
    }

    /// Writes vectors and index.
    pub(super) fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let Some(exact) = self.exact() else {
            return Err(ArtifactError::Elsewhere { path: model.target().to_owned() });
        };
        let rows: Cow<'_, Rows> = exact.rows();
        let mut vectors = TensorsBuilder::default().rows(VECTORS.1, exact.dim(), &rows);
        if !exact.gains().is_empty() {
            vectors = vectors.f32(GAINS, exact.gains());
        }
        let codes = exact.codes();
        let codes = codes.as_ref().map(|codes| codes.parts());
        if let Some((_, scales)) = codes {
            vectors = vectors.f32(SCALES, scales);
        }
        model.tensors(VECTORS.0, &vectors)?;
        if let Some((codes, _)) = codes {
            // Rows are whole cache lines, and are to begin at one.
            model.tensors(CODES.0, &TensorsBuilder::default().aligned().numbers(CODES.1, codes))?;
        }
        if let Kind::Hnsw(index) = &self.kind {
            let GraphArrays { links, nodes, upper, numbers, outside } = index.arrays();
            let arrays =
                TensorsBuilder::default().aligned().numbers("links", &links).numbers("nodes", &nodes);
            let mut arrays = arrays.numbers("upper", &upper).numbers("walks", &numbers);
            if !outside.is_empty() {
                arrays = arrays.numbers(OUTSIDE, &outside);
            }
            model.tensors(GRAPH, &arrays)?;
        }
        if let Some(report) = &self.report {
            model.index(report.clone());
        }
        Ok(())
    }

    /// Reads what [`save`](LabelVectors::save) wrote: vectors of `dim` numbers of the labels of `space`, of which
    /// `labels` count.
    pub(super) fn load(
        folder: &ModelFolder,
        dim: usize,
        (space, labels): (&LabelSpace, Allowed),
    ) -> Result<LabelVectors, ArtifactError> {
        LabelVectors::load_mapped(folder, dim, (space, labels), MAPPED_FROM)
    }

    fn load_mapped(
        folder: &ModelFolder,
        dim: usize,
        (space, labels): (&LabelSpace, Allowed),
        mapped_from: u64,
    ) -> Result<LabelVectors, ArtifactError> {
        let size =
            |name: &str| folder.manifest().files.iter().find(|file| file.name == name).map(|file| file.bytes);
        let coded = size(CODES.0).is_some();
        let mapped = coded || size(VECTORS.0).is_some_and(|bytes| bytes >= mapped_from);
        let (found, rows, gains, scales) = if mapped {
            let tensors = folder.mapped(VECTORS.0)?;
            let (dim, rows) = tensors.rows(VECTORS.1)?;
            let gains = if tensors.has(GAINS) { tensors.array::<f32>(GAINS)?.to_vec() } else { Vec::new() };
            let scales = if coded { tensors.array::<f32>(SCALES)? } else { Array::default() };
            (dim, rows, gains, scales)
        } else {
            let tensors = folder.tensors(VECTORS.0)?;
            let (dim, rows) = tensors.rows(VECTORS.1)?;
            let gains = if tensors.has(GAINS) { tensors.f32(GAINS)? } else { Vec::new() };
            (dim, rows, gains, Array::default())
        };
        // The last positions may be of labels without a vector.
        if found != dim || rows.len() > dim * space.positions() || gains.len() > space.positions() {
            return Err(folder.damaged(VECTORS.0, "its vectors are not those of the labels"));
        }
        let exact = if coded {
            let codes = folder.mapped(CODES.0)?.array::<u8>(CODES.1)?;
            Exact::from_coded_rows(dim, rows, labels, Some((codes, scales)))
                .map_err(|error| folder.damaged(CODES.0, error))?
        } else {
            Exact::from_rows(dim, rows, labels).map_err(|error| folder.damaged(VECTORS.0, error))?
        };
        let exact = exact.with_gains(gains).map_err(|error| folder.damaged(VECTORS.0, error))?;
        let report = folder.manifest().index.clone();
        if size(GRAPH).is_none() {
            return Ok(LabelVectors { report, ..exact.into() });
        }
        if !coded || !exact.gains().is_empty() {
            return Err(folder.damaged(GRAPH, "it is a graph over vectors that cannot have one"));
        }
        let tensors = folder.mapped(GRAPH)?;
        let graph = GraphArrays {
            links: tensors.array("links")?,
            nodes: tensors.array("nodes")?,
            upper: tensors.array("upper")?,
            numbers: tensors.array("walks")?,
            outside: if tensors.has(OUTSIDE) { tensors.array(OUTSIDE)? } else { Array::default() },
        };
        let index = Hnsw::from_parts(exact, graph).map_err(|error| folder.damaged(GRAPH, error))?;
        Ok(LabelVectors { kind: Kind::Hnsw(Box::new(index)), report })
    }
}

fn precision(exact: &Exact) -> Precision {
    match (&*exact.rows(), exact.is_coded()) {
        (Rows::F32(_), _) => Precision::F32,
        (Rows::F16(_), false) => Precision::F16,
        (Rows::F16(_), true) => Precision::I8,
    }
}

/// Documents to measure an index with, evenly out of all.
pub(super) fn measured_documents(dataset: &dyn Dataset) -> Result<Vec<Document>, MethodError> {
    let count = dataset.len().min(MEASURED_WITH);
    let places = (0..count).map(|place| place * dataset.len() / count.max(1));
    places.map(|place| Ok(dataset.document(DocId(place as u32))?)).collect()
}

/// What an index is measured with: vectors of documents, or where there are none what documents with three labels each
/// might be like.
fn queries(exact: &Exact, documents: Vec<f32>) -> Result<Vec<f32>, MethodError> {
    if !documents.is_empty() {
        return Ok(documents);
    }
    let labels: Vec<LabelId> = exact.labels().iter().collect();
    let mut queries = Vec::with_capacity(MEASURED_WITH * exact.dim());
    for query in 0..MEASURED_WITH.min(labels.len()) {
        let mut sum = vec![0f32; exact.dim()];
        for turn in 0..3 {
            // Steps through the labels that meet none twice for long.
            let place = (query * 3 + turn).wrapping_mul(0x9E37_79B1) % labels.len();
            let vector = exact.kept(labels[place]).expect("a label of the index");
            sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
        }
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        queries.extend(sum.iter().map(|value| value / length.max(f32::MIN_POSITIVE)));
    }
    Ok(queries)
}

#[cfg(test)]
mod tests;
