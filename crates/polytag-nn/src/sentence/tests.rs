use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::device::Precision;
use crate::golden::{self, Expected, FAMILIES};
use crate::op::testing::devices;

fn load(folder: &Path, device: &Device) -> SentenceEncoder {
    SentenceEncoder::load(folder, device, &Overrides::default()).unwrap()
}

fn as_texts(texts: &[String]) -> Vec<Text<'_>> {
    texts.iter().map(|text| Text::new(text)).collect()
}

#[test]
fn tiny_encoders_give_the_vectors_of_their_texts() {
    let texts = golden::texts("encoders/texts.jsonl");
    for family in FAMILIES {
        let expected = Expected::read(&golden::tiny(family).join("expected.safetensors"));
        let tokenizer = Tokenizer::read(&golden::tiny(family)).unwrap();
        let ids = tokenizer.encode(&as_texts(&texts), 64).unwrap().concat();
        assert_eq!(ids, expected.integers("token_ids"), "{family}");
        for (pooling, name) in [(Pooling::Mean, "mean_pooled"), (Pooling::Cls, "cls")] {
            let overrides =
                Overrides { pooling: Some(pooling), normalise: Some(false), ..Overrides::default() };
            let encoder = SentenceEncoder::load(&golden::tiny(family), &Device::cpu(), &overrides).unwrap();
            assert_eq!((encoder.dimension(), encoder.settings().max_tokens), (64, 64));
            let vectors = encoder.encode(&as_texts(&texts)).unwrap();
            golden::assert_close(&vectors, &expected.floats(name), 1e-5, family);
        }
    }
}

#[test]
fn weights_between_two_encoders_are_between_theirs() {
    let device = Device::cpu();
    let one = load(&golden::tiny("bert"), &device);
    let mut builder = ParametersBuilder::default();
    let copy = one.encoder.copy(&one.parameters, &mut builder).unwrap();
    let mut parameters = builder.build(&device).unwrap();
    for &id in copy.parameters() {
        let moved: Vec<f32> = parameters.to_vec(id).unwrap().iter().map(|value| value + 1.0).collect();
        parameters.set(id, &moved).unwrap();
    }
    let other = one.again(copy, parameters).unwrap();
    for share in [0.0, 0.25, 1.0] {
        let between = one.between(&other, share).unwrap();
        let pairs = one.encoder.parameters().iter().zip(between.encoder.parameters());
        for (&here, &there) in pairs {
            let (own, found) =
                (one.parameters.to_vec(here).unwrap(), between.parameters.to_vec(there).unwrap());
            let moved: Vec<f32> = own.iter().map(|value| value + share).collect();
            golden::assert_close(&found, &moved, 1e-6, "between");
        }
    }
    let another = load(&golden::tiny("mpnet"), &device);
    assert!(one.between(&another, 0.5).err().unwrap().to_string().contains("two shapes"));
}

#[test]
fn golden_texts_have_the_tokens_that_python_finds() {
    let texts = golden::texts("embeddings/texts.jsonl");
    for name in ["minilm", "mpnet"] {
        let Some(folder) = golden::real(name) else { continue };
        let tokenizer = Tokenizer::read(&folder).unwrap();
        let lines =
            std::fs::read_to_string(golden::testdata(&format!("embeddings/tokens.{name}.jsonl"))).unwrap();
        let found = tokenizer.encode(&as_texts(&texts), 512).unwrap();
        for (index, line) in lines.lines().enumerate() {
            let expected: Vec<u32> = serde_json::from_str(line).unwrap();
            assert_eq!(found[index], expected, "{name}, text {index}");
        }
    }
}

#[test]
fn golden_vectors_are_those_of_sentence_transformers() {
    let texts = golden::texts("embeddings/texts.jsonl");
    for name in ["minilm", "mpnet"] {
        let Some(folder) = golden::real(name) else { continue };
        let expected = Expected::read(&golden::testdata(&format!("embeddings/{name}.safetensors")));
        for device in devices("golden vectors") {
            for (max_tokens, tensor) in [(None, "own_length"), (Some(512), "length_512")] {
                let overrides = Overrides { max_tokens, ..Overrides::default() };
                let encoder = SentenceEncoder::load(&folder, &device, &overrides).unwrap();
                let vectors = encoder.encode(&as_texts(&texts)).unwrap();
                let what = format!("{name} {tensor} on {device:?}");
                match device {
                    Device::Cpu(_) => {
                        let tolerance = golden::tolerance(&folder);
                        golden::assert_close(&vectors, &expected.floats(tensor), tolerance, &what);
                    }
                    Device::Cuda(_) => {
                        golden::assert_aligned(
                            &vectors,
                            &expected.floats(tensor),
                            encoder.dimension(),
                            &what,
                        );
                    }
                }
            }
        }
    }
}

/// The least cosine of vectors in 8-bit integers and in `f32`.
fn cosine_in_eight_bits(folder: &Path, texts: &[String]) -> f64 {
    let [exact, rounded] = [Precision::Float, Precision::EightBit].map(|precision| {
        let encoder = load(folder, &Device::cpu_in(precision));
        (encoder.encode(&as_texts(texts)).unwrap(), encoder.dimension())
    });
    assert!(exact.0 != rounded.0, "they were computed otherwise");
    golden::least_cosine(&rounded.0, &exact.0, exact.1)
}

#[test]
fn vectors_in_eight_bits_point_where_those_of_floats_do() {
    for family in FAMILIES {
        let cosine = cosine_in_eight_bits(&golden::tiny(family), &golden::texts("encoders/texts.jsonl"));
        assert!(cosine > 0.99, "{family}: {cosine}");
    }
    // Some numbers of MPNet's states are far greater than the others, which so have fewer steps.
    for (name, least) in [("minilm", 0.99), ("mpnet", 0.95)] {
        let Some(folder) = golden::real(name) else { continue };
        let texts = golden::texts("embeddings/texts.jsonl");
        let cosine = cosine_in_eight_bits(&folder, &texts[..50]);
        assert!(cosine > least, "{name}: {cosine}");
    }
}

#[test]
fn a_vector_in_eight_bits_does_not_depend_on_the_other_texts() {
    let encoder = load(&golden::tiny("bert"), &Device::cpu_in(Precision::EightBit));
    let texts: Vec<String> = (0..120).map(|n| "the cat sat on a mat ".repeat(n % 13)).collect();
    let together = encoder.encode(&as_texts(&texts)).unwrap();
    for (text, vector) in texts.iter().zip(together.chunks(encoder.dimension())) {
        golden::assert_close(&encoder.encode(&[Text::new(text)]).unwrap(), vector, 1e-6, "by itself");
    }
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| encoder.encode(&as_texts(&texts))).unwrap(), together);
}

#[test]
fn a_vector_does_not_depend_on_the_other_texts() {
    let encoder = load(&golden::tiny("mpnet"), &Device::cpu());
    let texts: Vec<String> = (0..120).map(|n| "the cat sat on a mat ".repeat(n % 13)).collect();
    let together = encoder.encode(&as_texts(&texts)).unwrap();
    for (text, vector) in texts.iter().zip(together.chunks(encoder.dimension())) {
        golden::assert_close(&encoder.encode(&[Text::new(text)]).unwrap(), vector, 1e-6, "by itself");
    }
    assert!(encoder.encode(&[]).unwrap().is_empty());
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| encoder.encode(&as_texts(&texts))).unwrap(), together);
}

#[test]
fn what_the_encoder_cannot_take_is_refused() {
    let overrides = Overrides { max_tokens: Some(65), ..Overrides::default() };
    let result = SentenceEncoder::load(&golden::tiny("bert"), &Device::cpu(), &overrides);
    let error = result.err().unwrap().to_string();
    assert!(error.contains("65") && error.contains("64"), "{error}");
    let encoder = load(&golden::tiny("bert"), &Device::cpu());
    assert!(encoder.encode_tokens(&[vec![]]).is_err());
    assert!(encoder.encode_tokens(&[vec![1_000]]).is_err());
}

#[test]
fn an_export_is_loaded_with_the_same_bytes() {
    let texts = golden::texts("encoders/texts.jsonl");
    let place = tempfile::tempdir().unwrap();
    for family in FAMILIES {
        let encoder = load(&golden::tiny(family), &Device::cpu());
        let folder = place.path().join("deep").join(family);
        encoder.export(&folder).unwrap();
        let again = load(&folder, &Device::cpu());
        assert_eq!(again.settings(), encoder.settings());
        let vectors = encoder.encode(&as_texts(&texts)).unwrap();
        assert_eq!(again.encode(&as_texts(&texts)).unwrap(), vectors, "{family}");
        let original = std::fs::read(golden::tiny(family).join("tokenizer.json")).unwrap();
        assert_eq!(std::fs::read(folder.join("tokenizer.json")).unwrap(), original);
        let error = encoder.export(&folder).unwrap_err().to_string();
        assert!(error.contains("is there already"), "{error}");
        let entries = std::fs::read_dir(place.path().join("deep")).unwrap().count();
        assert_eq!(entries, 1, "nothing is left beside the folder");
        std::fs::remove_dir_all(place.path().join("deep")).unwrap();
    }
}

/// A Python that has sentence-transformers, or a word about its absence.
fn python() -> Option<PathBuf> {
    let python = std::env::var_os("POLYTAG_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let found = Command::new(&python)
        .args([
            "-c",
            "import importlib.util as u, sys; sys.exit(u.find_spec('sentence_transformers') is None)",
        ])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        golden::skipped(
            "exports in Python, for which POLYTAG_PYTHON must name one with sentence-transformers",
        );
    }
    found.then_some(python)
}

/// Reads a folder and texts, prints the vectors.
const SCRIPT: &str = "
import json, sys
from sentence_transformers import SentenceTransformer
texts = [json.loads(line)['text'] for line in open(sys.argv[1], encoding='utf-8')]
for folder in sys.argv[2:]:
    model = SentenceTransformer(folder, device='cpu')
    print(json.dumps(model.encode(texts, batch_size=1, show_progress_bar=False).tolist()))
";

#[test]
fn python_loads_an_export_and_finds_the_same_vectors() {
    let Some(python) = python() else { return };
    let texts = golden::texts("encoders/texts.jsonl");
    let place = tempfile::tempdir().unwrap();
    let mut names: Vec<(String, PathBuf)> =
        FAMILIES.iter().map(|&family| (family.to_owned(), golden::tiny(family))).collect();
    names.extend(golden::real("minilm").map(|folder| ("minilm".to_owned(), folder)));
    let mut command = Command::new(python);
    command.arg("-c").arg(SCRIPT).arg(golden::testdata("encoders/texts.jsonl"));
    command.env("HF_HUB_OFFLINE", "1");
    let mut expected = Vec::new();
    for (name, source) in &names {
        let encoder = load(source, &Device::cpu());
        encoder.export(&place.path().join(name)).unwrap();
        command.arg(place.path().join(name));
        expected.push(encoder.encode(&as_texts(&texts)).unwrap());
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("[[")).collect();
    assert_eq!(lines.len(), names.len());
    for ((line, expected), (name, _)) in lines.iter().zip(&expected).zip(&names) {
        let found: Vec<Vec<f32>> = serde_json::from_str(line).unwrap();
        golden::assert_close(&found.concat(), expected, 1e-4, name);
    }
}
