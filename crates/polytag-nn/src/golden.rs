//! What Python computed, for tests: see `testdata/`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;

/// The tiny encoders that are always there.
pub(crate) const FAMILIES: [&str; 4] = ["bert", "distilbert", "mpnet", "roberta"];

/// A folder or file of the test data.
pub(crate) fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// The folder of a tiny encoder.
pub(crate) fn tiny(family: &str) -> PathBuf {
    testdata("encoders").join(family)
}

/// The folder of a real encoder, or a word about its absence.
pub(crate) fn real(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("POLYTAG_ENCODERS").map(|folder| Path::new(&folder).join(name));
    let found = folder.filter(|folder| folder.exists());
    if found.is_none() {
        skipped(&format!("{name}, for which POLYTAG_ENCODERS must name a folder that has it"));
    }
    found
}

/// How near the vectors of a folder's encoder must come to Python's: 1e-4, unless its weights were
/// rounded to half precision on the way here.
pub(crate) fn tolerance(folder: &Path) -> f32 {
    let weights = crate::weights::Weights::open(folder).unwrap();
    let words = weights.tensor("embeddings.word_embeddings.weight").unwrap();
    if words.dtype == "F32" { 1e-4 } else { 1e-2 }
}

/// Says that something is not tested: straight to the file, because the harness hides what passing
/// tests print.
pub(crate) fn skipped(what: &str) {
    writeln!(std::io::stderr(), "skipped: {what}").ok();
}

/// The texts of a file with one `{"text": …}` a line.
pub(crate) fn texts(name: &str) -> Vec<String> {
    let lines = fs::read_to_string(testdata(name)).unwrap();
    let text = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].clone();
    lines.lines().map(|line| text(line).as_str().unwrap().to_owned()).collect()
}

/// Tensors that Python wrote.
pub(crate) struct Expected(Vec<u8>);

impl Expected {
    pub(crate) fn read(path: &Path) -> Expected {
        Expected(fs::read(path).unwrap())
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    pub(crate) fn integers(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()) as u32).collect()
    }
}

/// Fails where two lists differ by more than `tolerance`.
pub(crate) fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(most <= tolerance, "{what}: off by {most}");
}

/// Fails where two vectors point in different directions.
pub(crate) fn assert_aligned(found: &[f32], expected: &[f32], dimension: usize, what: &str) {
    let cosine = least_cosine(found, expected, dimension);
    assert!(cosine >= 0.999, "{what}: cosine {cosine}");
}

/// The cosine of the two vectors that differ most.
pub(crate) fn least_cosine(found: &[f32], expected: &[f32], dimension: usize) -> f64 {
    assert_eq!(found.len(), expected.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let cosine = |(a, b): (&[f32], &[f32])| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    let cosines = found.chunks(dimension).zip(expected.chunks(dimension)).map(cosine);
    // What is not a number is the least.
    cosines.fold(1.0, |least, cosine| if cosine >= least { least } else { cosine })
}
