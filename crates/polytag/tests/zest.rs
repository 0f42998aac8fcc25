//! `zest`: words that call for words of labels, so that labels are found which no document carried and no document
//! names.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Tried, answers, read, task};
use polytag::data::{Label, LabelChange, Passage, Split};
use polytag::index::Allowed;
use polytag::method::{MethodConfig, change_labels, uses_network};
use polytag::predict::Ask;
use polytag_nn::device::Device;
use serde_json::{Value, json};

/// Kinds of each sort.
const KINDS: usize = 8;

/// A task whose labels are named by a colour and a thing, `colour3 thing5`, and whose documents say neither, but
/// `shade3` and `shape5` among fillers. Every eighth pair is in no training document.
fn pairs(dir: &Path) -> PathBuf {
    let task = dir.join("task");
    fs::create_dir_all(&task).unwrap();
    let id = |pair: usize| format!("{}-{}", pair / KINDS, pair % KINDS);
    let name = |pair: usize| format!("colour{} thing{}", pair / KINDS, pair % KINDS);
    let label = |pair| format!("{}\n", json!({"id": id(pair), "name": name(pair)}));
    fs::write(task.join("labels.jsonl"), (0..KINDS * KINDS).map(label).collect::<String>()).unwrap();
    let is_unseen = |pair: usize| (pair / KINDS + pair % KINDS).is_multiple_of(KINDS);
    let document = |(i, pair): (usize, usize)| {
        let words =
            format!("filler{} shade{} filler{} shape{}", i * 31 % 17, pair / KINDS, i * 7 % 13, pair % KINDS);
        format!("{}\n", json!({"id": i.to_string(), "title": "On", "text": words, "labels": [id(pair)]}))
    };
    let all = |count: usize, of: &dyn Fn(usize) -> bool| -> String {
        let pairs = (0..count).map(|i| (i, i % (KINDS * KINDS)));
        pairs.filter(|(_, pair)| of(*pair)).map(document).collect()
    };
    fs::write(task.join("train.jsonl"), all(1280, &|pair| !is_unseen(pair))).unwrap();
    fs::write(task.join("dev.jsonl"), all(128, &|_| true)).unwrap();
    task
}

fn zest(more: &Value) -> MethodConfig {
    let mut all = json!({"stem": null});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    MethodConfig::named("zest", &all).unwrap()
}

#[test]
fn labels_are_found_that_no_document_carried_or_names() {
    let tried = Tried::of(pairs);
    let (model, heard) = tried.fitted(zest(&json!({}))).unwrap();
    assert!(heard.iter().any(|event| event.contains("shortlists")), "{heard:?}");
    assert!(!uses_network(&model).unwrap());
    let report = tried.report(&model, Split::Dev);
    let value = |name| report.value(name).unwrap();
    assert!(value("P@1") > 85.0, "{}", value("P@1"));
    assert!(value("unseen P@1") > 99.0, "{}", value("unseen P@1"));
    assert!(value("ZSR@10") > 99.0, "{}", value("ZSR@10"));
    // Words alone know nothing of the kind.
    let (lexical, _) = tried.fitted(MethodConfig::named("lexical", &json!({})).unwrap()).unwrap();
    assert_eq!(tried.report(&lexical, Split::Dev).value("P@1"), Some(0.0));
    let found = answers(read(&model).as_ref(), &["shade3 shape5", "nothing of the kind", "08P01B?", ""]);
    assert_eq!(found[0][0].0, "3-5", "an unseen pair");
    assert!(found[1].is_empty() && found[2].is_empty() && found[3].is_empty(), "{found:?}");
}

#[test]
fn memory_and_threads_change_the_time_and_not_the_bytes() {
    let tried = Tried::of(pairs);
    let bytes = |name, limit, threads| {
        let fit = (zest(&json!({"passes": 2})), ["manifest.json", "links.safetensors"]);
        tried.bytes(fit, (name, limit, threads), "shade3 shape5 filler2")
    };
    let free = bytes("free", None, 2);
    assert_eq!(free, bytes("tight", Some(3000), 1), "every row on the disk");
    assert_eq!(free, bytes("threads", None, 3));
}

#[test]
fn labels_come_change_and_go() {
    let tried = Tried::of(pairs);
    let (model, _) = tried.fitted(zest(&json!({}))).unwrap();
    let device = Device::cpu();
    let change = |change| change_labels(&model, &[change], &device).unwrap();
    let best =
        |predictor: &dyn polytag::predict::Predictor, text: &str| answers(predictor, &[text])[0].clone();
    let added = change(LabelChange::Add { label: Label::new("new", "colour2 colour4") });
    assert_eq!(best(added.as_ref(), "shade2 shade4")[0].0, "new");
    assert_eq!(
        answers(added.as_ref(), &["shade2 shade4"]),
        answers(read(&model).as_ref(), &["shade2 shade4"])
    );
    let renamed = change(LabelChange::Rename { id: "new".into(), name: "thing1 thing7".into() });
    assert_eq!(best(renamed.as_ref(), "shape1 shape7")[0].0, "new");
    let gone = change(LabelChange::Remove { id: "new".into() });
    assert!(best(gone.as_ref(), "shape1 shape7").iter().all(|(id, _)| id != "new"));
    // Only what is allowed is answered with.
    let space = gone.label_space();
    let allowed: Allowed = ["3-5", "0-1"].iter().map(|id| space.find(id).unwrap()).collect();
    let ask = Ask { k: 5, allowed: Some(&allowed) };
    let ranking = &gone.predict(&[Passage::from("shade3 shape4")], &ask).unwrap()[0];
    assert_eq!(ranking.labels().map(|label| &space.label(label).id[..]).collect::<Vec<_>>(), ["3-5", "0-1"]);
}

#[test]
fn an_explanation_adds_up_to_the_score() {
    let tried = Tried::of(pairs);
    for alike in [0.0, 0.5] {
        let (model, _) = tried.fitted(zest(&json!({"alike": alike}))).unwrap();
        let predictor = read(&model);
        assert_eq!(predictor.gives_probabilities(), alike == 0.0);
        let error = tried.report(&model, Split::Dev).value("calibration error@5");
        assert_eq!(error.is_some(), alike == 0.0, "{error:?}");
        let passage = Passage { title: Some("On shade3"), ..Passage::from("shape5 colour3 filler2 filler1") };
        let ranking = &predictor.predict(&[passage], &Ask { k: 8, allowed: None }).unwrap()[0];
        assert_eq!(ranking.len(), 8);
        for entry in ranking.entries() {
            let explained = predictor.explain(passage, entry.label).unwrap();
            let sum: f32 = explained.reasons.iter().map(|reason| reason.weight).sum();
            assert!((explained.score - entry.score).abs() < 1e-5 && (sum - entry.score).abs() < 1e-5);
        }
        let best = predictor.explain(passage, ranking.entries()[0].label).unwrap();
        let words: Vec<&str> = best.reasons[..3].iter().map(|reason| &reason.words[..]).collect();
        assert!(words.contains(&"shade3") && words.contains(&"shape5"), "{words:?}");
    }
}

#[test]
fn odd_tasks_are_learned_from_with_a_word() {
    let tried = Tried::of(task);
    let fit = || tried.fitted(zest(&json!({"min_documents": 1})));
    tried.write("train.jsonl", "{\"id\": \"1\", \"text\": \"a river\"}\n");
    assert!(fit().err().unwrap().to_string().contains("no training document carries a label"));
    let one =
        "{\"id\": \"1\", \"text\": \"a river\", \"labels\": [\"1\"]}\n{\"id\": \"2\", \"text\": \"\"}\n";
    tried.write("train.jsonl", one);
    let (model, heard) = fit().unwrap();
    assert!(heard.iter().any(|event| event.contains("1 of 2 documents carry no label")), "{heard:?}");
    assert_eq!(answers(read(&model).as_ref(), &["a river"])[0][0].0, "1");
    // Documents without a word, and labels whose names are symbols.
    tried.write("train.jsonl", "{\"id\": \"1\", \"text\": \"?\", \"labels\": [\"1\", \"2\"]}\n");
    tried.write("labels.jsonl", "{\"id\": \"1\", \"name\": \"?\"}\n{\"id\": \"2\", \"name\": \"08P01B\"}\n");
    let (model, _) = fit().unwrap();
    assert_eq!(answers(read(&model).as_ref(), &["?", "08P01B"])[1].len(), 1);
    // What is not a model is said so.
    let links = model.join("links.safetensors");
    let mut bytes = fs::read(&links).unwrap();
    bytes.truncate(bytes.len() - 4);
    fs::write(&links, bytes).unwrap();
    assert!(polytag::method::load(&model, &Device::cpu()).is_err());
}

#[test]
fn senseless_settings_are_refused_with_a_remedy() {
    for (setting, words) in [
        (json!({"links": 0}), "links = 0 is out of range; say at least 1"),
        (json!({"own_links": 0}), "at least 1"),
        (json!({"shortlist": 0}), "at least 1"),
        (json!({"alike": 1.5}), "0 to 1"),
        (json!({"own": -1}), "0 to 100"),
        (json!({"rate": 0}), "above 0"),
        (json!({"passes": 0}), "at least 1"),
        (json!({"ngrams": 0}), "[1, 0]"),
    ] {
        let error = zest(&setting).method().err().unwrap().to_string();
        assert!(error.contains(words), "{setting}: {error}");
    }
}
