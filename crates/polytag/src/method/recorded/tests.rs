//! Files of scores, good and bad.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::Path;
use std::sync::Mutex;

use polytag_nn::device::Device;
use proptest::prelude::*;
use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::data::{LabelChange, Passage, ReadOptions};
use crate::encoder::EncoderCache;
use crate::method::{MethodConfig, change_labels, fit, load, uses_network};
use crate::predict::Ask;
use crate::progress::{Progress, Stop};

const LABELS: &str =
    "{\"id\":\"a\",\"name\":\"A\"}\n{\"id\":\"b\",\"name\":\"B\"}\n{\"id\":\"7\",\"name\":\"C\"}\n";
const TEST: &str =
    "{\"id\":\"d1\",\"text\":\"x\",\"labels\":[\"a\"]}\n{\"id\":\"d2\",\"text\":\"y\",\"labels\":[]}\n";

#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Progress for Warnings {
    fn report(&self, event: Event<'_>) {
        if let Event::Warned(words) = event {
            self.0.lock().unwrap().push(words.to_owned());
        }
    }
}

/// Fits a file of scores; the answers for both documents, and what was warned of.
fn recorded(scores: impl AsRef<[u8]>) -> Result<(Vec<String>, Vec<String>), String> {
    let dir = tempfile::tempdir().unwrap();
    recorded_in(dir.path(), scores)
}

fn recorded_in(dir: &Path, scores: impl AsRef<[u8]>) -> Result<(Vec<String>, Vec<String>), String> {
    let task = dir.join("task");
    fs::create_dir_all(&task).unwrap();
    fs::write(task.join("labels.jsonl"), LABELS).unwrap();
    fs::write(task.join("test.jsonl"), TEST).unwrap();
    fs::write(dir.join("scores"), scores).unwrap();
    let task = Task::open(&task, &ReadOptions::with_spool(dir)).unwrap();
    let config = MethodConfig::named("recorded", &json!({"scores": dir.join("scores")})).unwrap();
    let (device, encoders) = (Device::cpu(), EncoderCache::new("none"));
    let (stop, warnings) = (Stop::default(), Warnings::default());
    let context = TrainContext::new((&device, &encoders), (&stop, &warnings));
    fit(&task, config, &dir.join("model"), &context).map_err(|error| {
        assert_eq!(error.fault(), crate::Fault::User);
        error.to_string()
    })?;
    Ok((answers(dir, &["d1", "d2"]), warnings.0.into_inner().unwrap()))
}

/// What a model folder answers for documents, as text.
fn answers(dir: &Path, documents: &[&str]) -> Vec<String> {
    let model = load(&dir.join("model"), &Device::cpu()).unwrap();
    let passages: Vec<Passage<'_>> =
        documents.iter().map(|id| Passage { id: Some(id), title: None, text: "" }).collect();
    let rankings = model.predict(&passages, &Ask { k: 2, allowed: None }).unwrap();
    let entry = |entry: &crate::ranking::Scored| {
        format!("{} {}", model.label_space().label(entry.label).id, entry.score)
    };
    let answer = |ranking: &crate::ranking::Ranking| {
        ranking.entries().iter().map(entry).collect::<Vec<_>>().join(", ")
    };
    rankings.iter().map(answer).collect()
}

/// An array as NumPy writes it.
fn array(kind: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': (), }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// A matrix as SciPy saves it.
fn matrix(shape: [i64; 2], ends: &[i32], columns: &[i32], scores: &[f32]) -> Vec<u8> {
    let whole = |numbers: &[i32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in [
        ("indices.npy", array("<i4", &whole(columns))),
        ("indptr.npy", array("<i4", &whole(ends))),
        ("format.npy", array("|S3", b"csr")),
        ("shape.npy", array("<i8", &shape.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>())),
        ("data.npy", array("<f4", &scores.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>())),
    ] {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(&content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_split_that_is_none_and_a_file_that_is_not_named_are_refused() {
    let config = RecordedConfig { split: "dve".to_owned(), ..RecordedConfig::default() };
    let error = Recorded::try_from(config).err().unwrap().to_string();
    assert!(error.contains("recorded") && error.contains("train, dev or test"), "{error}");
}

#[test]
fn three_formats_say_the_same() {
    let expected = ["b 0.75, a 0.5", ""];
    let lines = concat!(
        "{\"id\": \"d1\", \"labels\": [{\"id\": \"a\", \"name\": \"A\", \"score\": 0.5, \"seen\": true}, [\"b\", 0.75], [7, 0.25]]}\n",
        "\n{\"id\": \"d2\", \"labels\": []}\n",
    );
    let text = "2 3\n0:0.5 1:0.75 2:0.25\n\n";
    for scores in
        [lines.as_bytes().to_vec(), text.into(), matrix([2, 3], &[0, 3, 3], &[0, 1, 2], &[0.5, 0.75, 0.25])]
    {
        let (answers, warnings) = recorded(scores).unwrap();
        assert_eq!(answers, expected);
        assert!(warnings.is_empty());
    }
}

#[test]
fn documents_go_by_their_ids_and_labels_can_go_but_not_come() {
    let dir = tempfile::tempdir().unwrap();
    recorded_in(dir.path(), "2 3\n0:0.5 1:0.75 2:0.25\n2:1\n").unwrap();
    assert_eq!(answers(dir.path(), &["d2", "d1"]), ["7 1", "b 0.75, a 0.5"]);
    let (model, device) = (dir.path().join("model"), Device::cpu());
    assert!(!uses_network(&model).unwrap());
    let known = load(&model, &device).unwrap();
    let ask = Ask { k: 1, allowed: None };
    let error = known.predict(&[Passage::from("text")], &ask).unwrap_err();
    assert!(error.to_string().contains("without an id"), "{error}");
    let passage = Passage { id: Some("d9"), ..Passage::default() };
    assert!(known.predict(&[passage], &ask).unwrap_err().to_string().contains("\"d9\""));
    let b = known.label_space().find("b").unwrap();
    let explanation = known.explain(Passage { id: Some("d1"), ..Passage::default() }, b).unwrap();
    assert_eq!((explanation.score, explanation.reasons.len()), (0.75, 1));
    change_labels(&model, &[LabelChange::Remove { id: "b".into() }], &device).unwrap();
    assert_eq!(answers(dir.path(), &["d1"]), ["a 0.5, 7 0.25"]);
    let added = LabelChange::Add { label: crate::data::Label::new("n", "new") };
    assert!(change_labels(&model, &[added], &device).err().unwrap().to_string().contains("xml0"));
}

#[test]
fn labels_that_the_task_lacks_are_left_out_and_counted() {
    let lines = "{\"id\": \"d1\", \"labels\": [[\"z\", 0.9], [\"a\", 0.5], [\"y\", 0.1]]}\n{\"id\": \"d2\", \"labels\": [[\"z\", 1]]}\n";
    let (answers, warnings) = recorded(lines).unwrap();
    assert_eq!(answers, ["a 0.5", ""]);
    assert!(warnings[0].contains("line 1: 3 scores") && warnings[0].contains("\"z\""), "{warnings:?}");
    let error = recorded("{\"id\": \"d1\", \"labels\": [[\"z\", 0.9]]}\n").unwrap_err();
    assert!(error.contains("none of its labels") && error.contains("labels.jsonl"), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let row = |labels: &str| format!("{{\"id\": \"d1\", \"labels\": [{labels}]}}\n");
    for (scores, complaints) in [
        (row("[\"a\", NaN]"), ["line 1", "NaN is no score"]),
        (row("[\"a\", -Infinity]"), ["line 1", "Infinity is no score"]),
        (row("[\"a\", -0.5]"), ["line 1", "\"a\" has the score -0.5"]),
        (row("[\"z\", -0.5]"), ["line 1", "not negative"]),
        (row("[\"a\", 1e39]"), ["line 1", "must be finite"]),
        (row("[\"a\", 1], [\"a\", 1]"), ["line 1", "stands twice"]),
        (row("\"a\""), ["line 1", "\"score\": 0.93"]),
        (row("[\"a\", 1]").repeat(2), ["line 2", "\"d1\" was ranked before"]),
        (String::new(), ["scores", "empty"]),
        ("rubbish\n".to_owned(), ["line 1", "neither JSON nor two whole numbers"]),
        ("3 3\n\n\n\n".to_owned(), ["3 rows", "2 documents"]),
        ("2 4\n\n\n".to_owned(), ["4 columns", "3 labels"]),
        ("2 3\n0:1\n".to_owned(), ["ends after 1 of 2 rows", "one row a document"]),
        ("2 3\n\n\n\n0:1\n".to_owned(), ["line 5", "more rows than the 2"]),
        ("2 3\n0:nan\n\n".to_owned(), ["line 2", "\"a\" has the score NaN"]),
        ("2 3\n\n1:-inf\n".to_owned(), ["line 3", "\"b\" has the score -inf"]),
        ("2 3\n3:1\n\n".to_owned(), ["line 2", "a column below 3"]),
        ("2 3\n0:1 0:1\n\n".to_owned(), ["line 2", "stands twice"]),
    ] {
        let error = recorded(&scores).unwrap_err();
        assert!(complaints.iter().all(|part| error.contains(part)), "{scores:?}: {error}");
    }
    for (scores, complaint) in [
        (matrix([3, 3], &[0, 0, 0, 0], &[], &[]), "3 rows"),
        (matrix([2, -3], &[0, 0, 0], &[], &[]), "columns"),
        (matrix([2, 3], &[0, 2, 1], &[0, 1], &[1.0, 1.0]), "out of order"),
        (matrix([2, 3], &[0, 0, 99], &[0], &[1.0]), "out of order"),
        (matrix([2, 3], &[0, 0, 2], &[0], &[1.0]), "1 numbers instead of 2"),
        (matrix([2, 3], &[0, 0, 1], &[3], &[1.0]), "column 3"),
        (matrix([2, 3], &[0, 0, 1], &[-1], &[1.0]), "column -1"),
        (matrix([2, 3], &[0, 0, 1], &[0], &[f32::NAN]), "score NaN"),
        (b"PK\x03\x04 and no more".to_vec(), "save_npz"),
    ] {
        let error = recorded(&scores).unwrap_err();
        assert!(error.contains(complaint), "{complaint}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_file_makes_it_panic(head in prop_oneof![Just(""), Just("2 3\n"), Just("{\"id\":1,\"labels\":["), Just("PK\x03\x04")],
                              rest in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = recorded([head.as_bytes(), &rest].concat());
    }
}
