//! Vectors that are searched, changed, written and read, whatever the index.

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
                let given: Vec<f32> = queries()[..2 * DIM].to_vec();
                let given = Embeddings::of_all(DIM, &[LabelId(12), LabelId(700)], given);
                vectors.change([&given, &Embeddings::default()], [LabelId(11)]).unwrap();
            }
            same(&ours, &theirs);
            // What was changed is kept with the rest.
            let other = dir.with_file_name(format!("m-{mapped_from}"));
            let wider = write(&theirs, 701, &other);
            let mut again = read(&other, &wider, mapped_from).unwrap();
            again.change([&Embeddings::default(); 2], [LabelId(11)]).unwrap();
            same(&ours, &again);
            let (ours, theirs) = (ours.index(), theirs.index());
            assert_eq!(theirs.vector(LabelId(12)).unwrap(), ours.vector(LabelId(12)).unwrap());
            assert_eq!((theirs.len(), theirs.vector(LabelId(11)).unwrap()), (700, None));
        }
        assert_eq!(read(&dir, &space, 0).unwrap().report, written.report);
    }
}

/// The engine's plain loops stand in for a GPU.
#[test]
fn vectors_on_a_device_are_searched_changed_and_written_as_others() {
    for precision in [Precision::F32, Precision::F16] {
        let mut ours = indexed(vectors(700, precision), IndexKind::Exact, None).unwrap();
        let report = ours.report.clone();
        let there = OnDevice::new(vectors(700, precision), &Device::cpu());
        let mut theirs = LabelVectors { kind: Kind::OnDevice(Box::new(there)), report };
        let given = Embeddings::of_all(DIM, &[LabelId(12), LabelId(700)], queries()[..2 * DIM].to_vec());
        for vectors in [&mut ours, &mut theirs] {
            vectors.change([&given, &Embeddings::default()], [LabelId(11)]).unwrap();
        }
        let found = theirs.search(&queries(), 30, None).unwrap();
        assert_eq!(found, ours.search(&queries(), 30, None).unwrap());
        assert_eq!(theirs.notice(), None);
        let dir = tempfile::tempdir().unwrap();
        let folders = [&ours, &theirs].map(|vectors| {
            let folder = dir.path().join(if std::ptr::eq(vectors, &ours) { "ours" } else { "theirs" });
            write(vectors, 701, &folder);
            fs::read(folder.join(VECTORS.0)).unwrap()
        });
        assert_eq!(folders[0], folders[1]);
    }
}

/// A model on a CPU, or of few labels, is as it always was.
#[test]
fn vectors_stay_where_a_device_does_not_help() {
    let mut small = LabelVectors::from(vectors(300, Precision::F32));
    small.place(&Device::cpu());
    assert!(matches!(small.kind, Kind::Exact(_)) && small.notice().is_none());
    let mut many = Exact::new(1, Precision::F32).unwrap();
    (0..DEVICE_FROM as u32).for_each(|label| many.set(LabelId(label), &[0.0]).unwrap());
    let mut many = LabelVectors::from(many);
    many.place(&Device::cpu());
    assert!(matches!(many.kind, Kind::Exact(_)));
}

#[test]
fn a_change_with_one_vector_that_does_not_fit_changes_nothing() {
    let mut ours = indexed(vectors(300, Precision::I8), IndexKind::Hnsw, None).unwrap();
    let before = ours.search(&queries(), 30, None).unwrap();
    let mut numbers = queries()[..2 * DIM].to_vec();
    numbers[DIM + 3] = f32::NAN;
    let given = Embeddings::of_all(DIM, &[LabelId(12), LabelId(300)], numbers);
    assert!(ours.change([&given, &Embeddings::default()], [LabelId(11)]).is_err());
    assert_eq!((ours.search(&queries(), 30, None).unwrap(), ours.index().len()), (before, 300));
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
