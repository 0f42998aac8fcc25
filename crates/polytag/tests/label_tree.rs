//! Label trees: they learn, are kept, answer the same whatever the memory, explain themselves, and say what they make of
//! odd tasks.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Tried, answers, encoder, read, task};
use polytag::data::{Label, LabelChange, Passage, Split};
use polytag::index::Allowed;
use polytag::method::{MethodConfig, change_labels};
use polytag::predict::Ask;
use polytag_nn::device::Device;
use serde_json::{Value, json};

fn config(method: &str, more: &Value) -> Result<MethodConfig, polytag::Error> {
    Ok(MethodConfig::named(method, more)?)
}

/// A task of sixty labels, whose documents name theirs among other words; the last ten are in no training document.
fn many_labels(dir: &Path) -> PathBuf {
    let task = dir.join("task");
    fs::create_dir_all(&task).unwrap();
    let label =
        |number: usize| json!({"id": format!("l{number}"), "name": format!("kind{number}")}).to_string();
    let labels: Vec<String> = (0..60).map(label).collect();
    fs::write(task.join("labels.jsonl"), labels.join("\n")).unwrap();
    let document = |i: usize, labels: usize| {
        let gold: Vec<usize> = [i % labels, (i * 7 + i / labels) % labels].into();
        let words: Vec<String> =
            gold.iter().map(|l| format!("word{l} group{} filler{}", l / 10, (i * 31 + l) % 17)).collect();
        let ids: std::collections::BTreeSet<String> = gold.iter().map(|l| format!("l{l}")).collect();
        json!({"id": i.to_string(), "title": "On things", "text": words.join(" "), "labels": ids}).to_string()
    };
    let split =
        |count: usize, labels| (0..count).map(|i| format!("{}\n", document(i, labels))).collect::<String>();
    fs::write(task.join("train.jsonl"), split(900, 50)).unwrap();
    fs::write(task.join("dev.jsonl"), split(100, 60)).unwrap();
    task
}

/// Trees small enough to have levels.
fn small() -> Value {
    json!({"branching": 2, "leaf": 4, "label_terms": 16})
}

#[test]
fn every_shape_learns() {
    let tried = Tried::of(many_labels);
    for (method, more) in [
        ("label-tree", json!({})),
        ("label-tree", small()),
        ("label-tree", json!({"branching": 4, "leaf": 4, "trees": 3, "ngrams": 2})),
        ("xr-linear", json!({"leaf": 8})),
        ("parabel", json!({"leaf": 8})),
        ("bonsai", json!({})),
    ] {
        let (model, heard) = tried.fitted(config(method, &more).unwrap()).unwrap();
        assert!(heard.iter().any(|event| event.contains("10 of 60 labels are carried by no document")));
        let value = |split, name| tried.report(&model, split).value(name).unwrap();
        assert!(value(Split::Train, "P@1") > 98.0, "{method} {more}: {}", value(Split::Train, "P@1"));
        let texts = ["word3 group0 filler2 word17 group1 filler5", "nothing of the kind", ""];
        let found = answers(read(&model).as_ref(), &texts);
        let best: Vec<&str> = found[0][..2].iter().map(|(id, _)| &id[..]).collect();
        assert!(best.contains(&"l3") && best.contains(&"l17"), "{method} {more}: {best:?}");
        assert!(found.iter().flatten().all(|(_, score)| (0.0..=1.0).contains(&f32::from_bits(*score))));
    }
}

#[test]
fn memory_and_threads_change_the_time_and_not_the_bytes() {
    let tried = Tried::of(many_labels);
    let bytes = |name, limit, threads| {
        let fit = (config("label-tree", &small()).unwrap(), ["manifest.json", "trees.safetensors"]);
        tried.bytes(fit, (name, limit, threads), "word3 group0 filler2 word17")
    };
    let free = bytes("free", None, 2);
    assert_eq!(free, bytes("tight", Some(3000), 1), "every row and node on the disk");
    assert_eq!(free, bytes("between", Some(60_000), 3), "nodes of the last levels in memory");
}

#[test]
fn only_what_is_allowed_is_answered_with() {
    let tried = Tried::of(many_labels);
    let (model, _) = tried.fitted(config("label-tree", &small()).unwrap()).unwrap();
    let predictor = read(&model);
    let space = predictor.label_space();
    let allowed: Allowed = ["l40", "l7", "l55"].iter().map(|id| space.find(id).unwrap()).collect();
    let ask = Ask { k: 5, allowed: Some(&allowed) };
    let ranking = &predictor.predict(&[Passage::from("word3 group0 word7")], &ask).unwrap()[0];
    let ids: Vec<&str> = ranking.labels().map(|label| &space.label(label).id[..]).collect();
    // Wherever its way down leads; l55 was in no training document.
    assert_eq!(ids, ["l7", "l40"]);
    // One label in each of many leaves.
    let every_third: Allowed = (0..50).step_by(3).map(|l| space.find(&format!("l{l}")).unwrap()).collect();
    let ask = Ask { k: 17, allowed: Some(&every_third) };
    assert_eq!(predictor.predict(&[Passage::from("word3")], &ask).unwrap()[0].len(), 17);
    let none = Ask { k: 5, allowed: Some(&Allowed::default()) };
    assert!(predictor.predict(&[Passage::from("word3")], &none).unwrap()[0].is_empty());
    let all = predictor.predict(&[Passage::from("word3")], &Ask { k: 50, allowed: None }).unwrap();
    assert_eq!(all[0].len(), 50, "the beam is as wide as the question");
}

#[test]
fn labels_can_go_and_change_their_names_but_not_come() {
    let tried = Tried::of(many_labels);
    let (model, _) = tried.fitted(config("label-tree", &small()).unwrap()).unwrap();
    let device = Device::cpu();
    let change = |change| change_labels(&model, &[change], &device);
    let error = change(LabelChange::Add { label: Label::new("new", "word3") }).err().unwrap().to_string();
    assert!(error.contains("of-lan"), "{error}");
    change(LabelChange::Remove { id: "l3".into() }).unwrap();
    let again = change(LabelChange::Add { label: Label::new("l3", "kind3") });
    assert!(again.is_err(), "its weights are gone with its position");
    let predictor = change(LabelChange::Rename { id: "l4".into(), name: "other".into() }).unwrap();
    let found = answers(predictor.as_ref(), &["word3 group0 word4"]);
    assert_eq!(found[0][0].0, "l4");
    assert!(found[0].iter().all(|(id, _)| id != "l3"));
}

#[test]
fn an_explanation_adds_up_to_the_log_odds() {
    let tried = Tried::of(many_labels);
    for more in [json!({}), json!({"branching": 2, "leaf": 4, "trees": 3})] {
        let (model, _) = tried.fitted(config("label-tree", &more).unwrap()).unwrap();
        let predictor = read(&model);
        let passage =
            Passage { title: Some("On word3"), ..Passage::from("group0 word17 filler5 group1 filler1") };
        let ranking = &predictor.predict(&[passage], &Ask { k: 8, allowed: None }).unwrap()[0];
        for entry in ranking.entries() {
            let explained = predictor.explain(passage, entry.label).unwrap();
            assert!((explained.score - entry.score).abs() < 1e-4);
            let held = f64::from(explained.score).clamp(1e-6, 1.0 - 1e-6);
            let sum: f32 = explained.reasons.iter().map(|reason| reason.weight).sum();
            assert!((f64::from(sum) - (held / (1.0 - held)).ln()).abs() < 1e-2, "{sum} {held}");
        }
        let space = predictor.label_space();
        let first = predictor.explain(passage, space.find("l3").unwrap()).unwrap();
        assert_eq!(
            (&first.reasons[0].words[..], first.reasons.last().unwrap().words.starts_with('(')),
            ("word3", true)
        );
        assert!(predictor.explain(passage, space.find("l55").unwrap()).unwrap().reasons.is_empty());
    }
}

#[test]
fn an_encoder_can_join_words_or_stand_alone() {
    let tried = Tried::of(task);
    for words in [true, false] {
        let more = json!({"words": words, "encoder": encoder("bert"), "cost": 10.0});
        let (model, _) = tried.fitted(config("label-tree", &more).unwrap()).unwrap();
        let train = tried.report(&model, Split::Train).value("P@1").unwrap();
        assert!(train > 85.0, "words {words}: {train}");
        let predictor = read(&model);
        let text = "the river of sea";
        assert_eq!(answers(predictor.as_ref(), &[text]), answers(read(&model).as_ref(), &[text]));
        let label = predictor.label_space().find("1").unwrap();
        let reasons = predictor.explain(Passage::from(text), label).unwrap().reasons;
        assert!(reasons.iter().any(|reason| reason.words == "(what the encoder reads)"));
    }
}

#[test]
fn odd_tasks_are_learned_from_with_a_word() {
    let tried = Tried::of(task);
    let fit = || tried.fitted(config("label-tree", &json!({"min_documents": 1})).unwrap());
    fs::remove_file(tried.task.join("train.jsonl")).unwrap();
    let said = fit().err().unwrap().to_string();
    assert!(said.contains("there is no train file here") && said.contains("label-tree"), "{said}");
    tried.write("train.jsonl", "{\"id\": \"1\", \"text\": \"a river\"}\n");
    assert!(fit().err().unwrap().to_string().contains("no training document carries a label"));
    let one =
        "{\"id\": \"1\", \"text\": \"a river\", \"labels\": [\"1\"]}\n{\"id\": \"2\", \"text\": \"\"}\n";
    tried.write("train.jsonl", one);
    let (model, heard) = fit().unwrap();
    assert!(heard.iter().any(|event| event.contains("1 of 2 documents carry no label")), "{heard:?}");
    let found = answers(read(&model).as_ref(), &["a river", "08P01B", ""]);
    assert!(found.iter().all(|found| found.len() == 1 && found[0].0 == "1"));
    // Documents without a word, all with the same labels.
    tried.write("train.jsonl", "{\"id\": \"1\", \"text\": \"?\", \"labels\": [\"1\", \"2\"]}\n");
    let (model, _) = fit().unwrap();
    assert_eq!(answers(read(&model).as_ref(), &["?"])[0].len(), 2);
}

#[test]
fn senseless_settings_are_refused_with_a_remedy() {
    for (setting, words) in [
        (json!({"trees": u64::MAX}), "say 1 to 100"),
        (json!({"leaf": 1}), "leaf = 1 is out of range; say 2 to 256"),
        (json!({"branching": 300}), "2 to 256"),
        (json!({"cost": 0}), "a number above 0"),
        (json!({"words": false}), "name an encoder"),
        (json!({"ngrams": 0}), "[1, 0]"),
        (json!({"max_tokens": 1}), "3 to 512"),
        (json!({"beam": 0}), "at least 1"),
        (json!({"smallest": -1}), "0 to 100"),
    ] {
        let error = config("label-tree", &setting).unwrap().method().err().unwrap().to_string();
        assert!(error.contains(words), "{setting}: {error}");
    }
}
