//! The vectors of labels in a model, and the index that searches them: which one it is, how it is chosen and measured,
//! kept in a model folder and read from there.
//!
//! Small label sets are compared one and all, and kept as they always were. From [`AUTO_FROM`] labels on `auto` makes a
//! graph. Large files stay where they are: vectors, codes and links are looked at in the file, and what changes afterwards
//! is kept beside it in memory.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::TrainContext;
use super::error::MethodError;
use crate::artifact::{ArtifactError, IndexReport, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{Dataset, Document, LabelSpace};
use crate::ids::{DocId, LabelId};
use crate::index::{
    Allowed, Exact, GraphArrays, Hnsw, HnswConfig, IndexError, LabelIndex, MEASURED_AT, Precision, Rows,
    recall,
};
use crate::ranking::Ranking;
use crate::storage::Array;

/// The file of label vectors, and their name in it.
pub(super) const VECTORS: (&str, &str) = ("label_vectors.safetensors", "label_vectors");

/// What labels gain, and the scales of their codes, in the same file.
const GAINS: &str = "label_gains";
const SCALES: &str = "label_scales";

/// The file of the vectors in 8 bits, and their name in it.
const CODES: (&str, &str) = ("label_codes.safetensors", "label_codes");

/// The file of the graph.
const GRAPH: &str = "label_graph.safetensors";

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
    /// What searches them instead, where that is not ours.
    elsewhere: Option<Box<dyn LabelIndex>>,
}

enum Kind {
    Exact(Box<Exact>),
    Hnsw(Box<Hnsw>),
}

impl From<Exact> for LabelVectors {
    fn from(exact: Exact) -> LabelVectors {
        LabelVectors { kind: Kind::Exact(Box::new(exact)), report: None, elsewhere: None }
    }
}

impl LabelVectors {
    /// The vectors, searched one and all.
    pub(super) fn exact(&self) -> &Exact {
        match &self.kind {
            Kind::Exact(exact) => exact,
            Kind::Hnsw(index) => index.exact(),
        }
    }

    /// What searches them.
    pub(super) fn index(&self) -> &dyn LabelIndex {
        match (&self.elsewhere, &self.kind) {
            (Some(index), _) => index.as_ref(),
            (None, Kind::Exact(index)) => index.as_ref(),
            (None, Kind::Hnsw(index)) => index.as_ref(),
        }
    }

    /// The same, searched by another index that holds the same vectors and hears of every change.
    pub(super) fn searched_by(self, index: Box<dyn LabelIndex>) -> LabelVectors {
        LabelVectors { elsewhere: Some(index), ..self }
    }

    /// Gives a label its vector.
    pub(super) fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        if let Some(index) = &mut self.elsewhere {
            index.set(label, vector)?;
        }
        match &mut self.kind {
            Kind::Exact(index) => index.set(label, vector),
            Kind::Hnsw(index) => index.set(label, vector),
        }
    }

    /// Takes a label out.
    pub(super) fn remove(&mut self, label: LabelId) {
        if let Some(index) = &mut self.elsewhere {
            index.remove(label);
        }
        match &mut self.kind {
            Kind::Exact(index) => index.remove(label),
            Kind::Hnsw(index) => index.remove(label),
        }
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
            Kind::Hnsw(_) => Err(IndexError::Unfit { problem: "a graph knows nothing of gains".to_owned() }),
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
        if !graph && exact.codes().is_none() {
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
        let exact = if exact.codes().is_some() { exact } else { exact.coded()? };
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
        Ok(LabelVectors { kind: Kind::Hnsw(Box::new(index)), report: Some(report), elsewhere: None })
    }

    /// Writes vectors and index.
    pub(super) fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let exact = self.exact();
        let rows: Cow<'_, Rows> = exact.rows();
        let mut vectors = TensorsBuilder::default().rows(VECTORS.1, exact.dim(), &rows);
        if !exact.gains().is_empty() {
            vectors = vectors.f32(GAINS, exact.gains());
        }
        if let Some((_, scales)) = exact.codes() {
            vectors = vectors.f32(SCALES, scales);
        }
        model.tensors(VECTORS.0, &vectors)?;
        if let Some((codes, _)) = exact.codes() {
            // Rows are whole cache lines, and are to begin at one.
            model.tensors(CODES.0, &TensorsBuilder::default().aligned().numbers(CODES.1, codes))?;
        }
        if let Kind::Hnsw(index) = &self.kind {
            let GraphArrays { links, nodes, upper, numbers } = index.arrays();
            let arrays =
                TensorsBuilder::default().aligned().numbers("links", &links).numbers("nodes", &nodes);
            model.tensors(GRAPH, &arrays.numbers("upper", &upper).numbers("walks", &numbers))?;
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
        };
        let index = Hnsw::from_parts(exact, graph).map_err(|error| folder.damaged(GRAPH, error))?;
        Ok(LabelVectors { kind: Kind::Hnsw(Box::new(index)), report, elsewhere: None })
    }
}

fn precision(exact: &Exact) -> Precision {
    match (&*exact.rows(), exact.codes()) {
        (Rows::F32(_), _) => Precision::F32,
        (Rows::F16(_), None) => Precision::F16,
        (Rows::F16(_), Some(_)) => Precision::I8,
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
            let vector = exact.vector(labels[place]).expect("a label of the index");
            sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
        }
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        queries.extend(sum.iter().map(|value| value / length.max(f32::MIN_POSITIVE)));
    }
    Ok(queries)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use polytag_nn::device::Device;

    use super::*;
    use crate::artifact::Provenance;
    use crate::data::Label;
    use crate::encoder::EncoderCache;
    use crate::progress::{Silent, Stop};

    const DIM: usize = 12;

    fn number(seed: usize) -> f32 {
        ((seed * 7919 + seed / 11 * 104_729) % 2003) as f32 / 1001.0 - 1.0
    }

    fn vectors(labels: usize, precision: Precision) -> Exact {
        let mut exact = Exact::new(DIM, precision).unwrap();
        for label in 0..labels {
            let vector: Vec<f32> = (0..DIM).map(|at| number(label * DIM + at)).collect();
            exact.set(LabelId::from_index(label), &vector).unwrap();
        }
        exact
    }

    fn indexed(
        exact: Exact,
        kind: IndexKind,
        obstacle: Option<&'static str>,
    ) -> Result<LabelVectors, MethodError> {
        let (device, encoders, stop) = (Device::cpu(), EncoderCache::new("none"), Stop::default());
        let context = TrainContext::new((&device, &encoders), (&stop, &Silent));
        LabelVectors::from(exact).indexed(("frozen", kind), obstacle, || Ok(Vec::new()), &context)
    }

    /// Writes a model of nothing but vectors.
    fn write(vectors: &LabelVectors, labels: usize, dir: &Path) -> LabelSpace {
        let mut space = LabelSpace::default();
        (0..labels).for_each(|label| _ = space.add(Label::new(label.to_string(), "a name")).unwrap());
        let provenance = Provenance { config: serde_json::json!({}), seed: 0, sources: Vec::new() };
        let mut writer = ModelWriter::create(dir, "frozen", &provenance, &[]).unwrap();
        writer.labels(&space).unwrap();
        vectors.save(&mut writer).unwrap();
        writer.finish().unwrap();
        space
    }

    fn read(dir: &Path, space: &LabelSpace, mapped_from: u64) -> Result<LabelVectors, ArtifactError> {
        let labels = Allowed::first(space.positions());
        LabelVectors::load_mapped(&ModelFolder::open(dir)?, DIM, (space, labels), mapped_from)
    }

    fn queries() -> Vec<f32> {
        (0..7 * DIM).map(|at| number(5_000_000 + at)).collect()
    }

    #[test]
    fn what_is_read_searches_as_what_was_written() {
        let cases = [
            (Precision::F32, IndexKind::Auto),
            (Precision::F16, IndexKind::Exact),
            (Precision::I8, IndexKind::Exact),
            (Precision::F32, IndexKind::Hnsw),
            (Precision::I8, IndexKind::Hnsw),
        ];
        for (precision, kind) in cases {
            let dir = tempfile::tempdir().unwrap();
            let dir = dir.path().join("m");
            let written = indexed(vectors(700, precision), kind, None).unwrap();
            let space = write(&written, 700, &dir);
            for mapped_from in [0, u64::MAX] {
                let mut ours = indexed(vectors(700, precision), kind, None).unwrap();
                let mut theirs = read(&dir, &space, mapped_from).unwrap();
                let same = |ours: &LabelVectors, theirs: &LabelVectors| {
                    let ours = ours.search(&queries(), 30, None).unwrap();
                    assert_eq!(theirs.search(&queries(), 30, None).unwrap(), ours, "{precision:?} {kind:?}");
                };
                same(&ours, &theirs);
                for vectors in [&mut ours, &mut theirs] {
                    vectors.remove(LabelId(11));
                    vectors.set(LabelId(12), &queries()[..DIM]).unwrap();
                    vectors.set(LabelId(700), &queries()[DIM..2 * DIM]).unwrap();
                }
                same(&ours, &theirs);
                let (ours, theirs) = (ours.exact(), theirs.exact());
                assert_eq!(theirs.vector(LabelId(12)), ours.vector(LabelId(12)));
                assert_eq!((theirs.len(), theirs.vector(LabelId(11))), (700, None));
            }
            assert_eq!(read(&dir, &space, 0).unwrap().report, written.report);
        }
    }

    #[test]
    fn auto_chooses_by_number_and_says_so() {
        let small = indexed(vectors(300, Precision::F32), IndexKind::Auto, None).unwrap();
        assert!(matches!(small.kind, Kind::Exact(_)) && small.report.is_none(), "as it always was");
        let mut few = Exact::new(1, Precision::F32).unwrap();
        (0..AUTO_FROM as u32).for_each(|label| few.set(LabelId(label), &[0.0]).unwrap());
        let large = indexed(few, IndexKind::Auto, Some("it has a reason")).unwrap();
        let report = large.report.unwrap();
        assert_eq!((report.kind.as_str(), report.why.as_str()), ("exact", "it has a reason"));
        let error =
            indexed(vectors(300, Precision::F32), IndexKind::Hnsw, Some("it has a reason")).err().unwrap();
        assert!(error.to_string().contains("index = exact"), "{error}");
        let asked = indexed(vectors(300, Precision::F32), IndexKind::Hnsw, None).unwrap().report.unwrap();
        assert!(
            asked.kind == "hnsw" && asked.recall_at_100 > Some(0.98) && asked.queries == Some(200),
            "{asked:?}"
        );
        let coded = indexed(vectors(300, Precision::I8), IndexKind::Auto, None).unwrap().report.unwrap();
        assert!(coded.kind == "exact" && coded.recall_at_100 > Some(0.98), "{coded:?}");
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("m");
        let ours = indexed(vectors(200, Precision::F32), IndexKind::Hnsw, None).unwrap();
        let space = write(&ours, 200, &dir);
        for name in [VECTORS.0, CODES.0, GRAPH] {
            let path = dir.join(name);
            let whole = fs::read(&path).unwrap();
            let mut changed = whole.clone();
            *changed.last_mut().unwrap() ^= 1;
            for damaged in [&whole[..whole.len() - 1], &changed, &whole[..3], &[]] {
                fs::write(&path, damaged).unwrap();
                let error = read(&dir, &space, 0).err().unwrap().to_string();
                assert!(error.contains(name), "{error}");
            }
            fs::remove_file(&path).unwrap();
            assert!(read(&dir, &space, 0).is_err());
            fs::write(&path, &whole).unwrap();
        }
        assert!(read(&dir, &space, 0).is_ok());
    }

    #[test]
    fn files_of_another_model_are_refused_though_their_checksums_fit() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("m");
        // A graph of more labels than there are vectors, and vectors of more labels than the model has.
        let ours = indexed(vectors(200, Precision::F32), IndexKind::Hnsw, None).unwrap();
        let mut space = write(&ours, 200, &dir);
        space = {
            let mut fewer = LabelSpace::default();
            for (_, label) in space.iter().take(150) {
                fewer.add(label.clone()).unwrap();
            }
            fewer
        };
        let error = read(&dir, &space, 0).err().unwrap().to_string();
        assert!(error.contains("not those of the labels"), "{error}");
    }
}
