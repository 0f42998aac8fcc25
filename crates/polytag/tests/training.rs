//! Methods that train an encoder: they learn, keep what they learned, take labels later, and refuse what
//! cannot be learned from. With a tiny encoder of random weights.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Fit, Heard, LABELS, answers, documents, encoder, labels, read, task};
use polytag::data::{Label, LabelChange, Passage, ReadOptions, Split, Task};
use polytag::index::Allowed;
use polytag::method::{MethodConfig, change_labels};
use polytag::metric::{EvaluationConfig, EvaluationPlan, evaluate};
use polytag::predict::Ask;
use polytag::progress::{Silent, Stop, Watch};
use polytag_nn::device::Device;
use serde_json::{Value, json};

/// Settings that make a tiny encoder learn in no time.
fn settings(more: &Value) -> Value {
    let mut all = json!({
        "encoder": encoder("bert"), "max_tokens": 32, "epochs": 12, "batch": 10, "learning_rate": 2e-3,
        "head_learning_rate": 1e-2, "dropout": 0.0
    });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

/// Fits with settings that make a tiny encoder learn.
fn run(fit: &Fit<'_>, method: &str, more: &Value) -> Result<Vec<String>, polytag::Error> {
    fit.run(MethodConfig::named(method, &settings(more))?)
}

fn fitted(dir: &Path, method: &str, more: &Value) -> Result<(PathBuf, Vec<String>), polytag::Error> {
    let (task, model) = (task(dir), dir.join(method));
    let fit = Fit { task: &task, model: &model, folder: None, stop: Stop::default() };
    let heard = run(&fit, method, more)?;
    Ok((model, heard))
}

const ALL: [&str; 6] = ["of-de", "dpr", "dexml", "ova", "of-lan", "lan"];

#[test]
fn every_method_learns_what_a_word_gives_away() {
    let dir = tempfile::tempdir().unwrap();
    for method in ALL {
        let (model, heard) = fitted(dir.path(), method, &json!({"epochs": 30})).unwrap();
        let model = read(&model);
        let lines = documents(60, 4);
        let documents: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let passages: Vec<Passage<'_>> = documents
            .iter()
            .map(|document| Passage {
                id: None,
                title: document["title"].as_str(),
                text: document["text"].as_str().unwrap(),
            })
            .collect();
        let rankings = model.predict(&passages, &Ask { k: 1, allowed: None }).unwrap();
        let is_right = |(ranking, document): &(&polytag::ranking::Ranking, &Value)| {
            let best = &model.label_space().label(ranking.entries()[0].label).id;
            document["labels"].as_array().unwrap().iter().any(|label| label == best)
        };
        let right = rankings.iter().zip(&documents).filter(is_right).count();
        assert!(right >= 57, "{method}: {right} of 60");
        let task =
            Task::open(&dir.path().join("task"), &ReadOptions::with_spool(std::env::temp_dir())).unwrap();
        let plan = EvaluationPlan::try_from(EvaluationConfig::default()).unwrap();
        let watch = Watch { progress: &Silent, stop: &Stop::default() };
        let report = evaluate(model.as_ref(), &task, Split::Dev, &plan, &watch).unwrap();
        let curve = fs::read_to_string(dir.path().join(method).join("curve.jsonl")).unwrap();
        let points = curve.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let best = points.filter_map(|point| point["measured"].as_f64().map(|score| (score, point)));
        let best = best.reduce(|a, b| if b.0 > a.0 { b } else { a }).unwrap().1;
        for name in ["nDCG@5", "PSP@5", "ZSR@100"] {
            let (then, now) = (best["measures"][name].as_f64().unwrap(), report.value(name).unwrap());
            assert!((then - now).abs() < 1e-6, "{method}: {name} was {then} in training and is {now}");
        }
        let rows: Vec<&String> = heard.iter().filter(|event| event.starts_with("Row")).collect();
        assert_eq!(rows.len(), 30, "{method}: a row an epoch: {heard:?}");
        assert!(rows[0].contains("nDCG@5") && rows[0].contains("ZSR@100"), "{}", rows[0]);
    }
}

#[test]
fn scores_are_probabilities_and_reasons_add_up_to_their_log_odds() {
    let dir = tempfile::tempdir().unwrap();
    for method in ["of-de", "of-lan", "ova", "lan"] {
        let model = read(&fitted(dir.path(), method, &json!({})).unwrap().0);
        let passage = Passage { id: None, title: Some("the river"), text: "a sea of books" };
        let ranking = model.predict(&[passage], &Ask { k: 6, allowed: None }).unwrap().remove(0);
        for entry in ranking.entries() {
            assert!((0.0..=1.0).contains(&entry.score));
            let explanation = model.explain(passage, entry.label).unwrap();
            assert!((explanation.score - entry.score).abs() < 1e-4, "{method}: {explanation:?}");
            let sum: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
            let odds = (entry.score / (1.0 - entry.score)).ln();
            assert!((sum - odds).abs() < 2e-2 * odds.abs().max(1.0), "{method}: {sum} {odds}");
            let attention: f32 = explanation.reasons.iter().filter_map(|reason| reason.attention).sum();
            let expected = if method.ends_with("lan") { 1.0 } else { 0.0 };
            assert!((attention - expected).abs() < 1e-4, "{method}: {attention}");
        }
    }
}

#[test]
fn a_label_added_later_scores_as_if_it_had_always_been_there() {
    let texts = ["the river and the map", "a quota of books", ""];
    for method in ["of-de", "of-lan", "dpr", "dexml"] {
        let (whole, grown) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Unseen labels have no part in training, so that it is the same with and without them.
        let more = json!({"unseen": "out"});
        let (whole, _) = fitted(whole.path(), method, &more).unwrap();
        let (task, model) = (task(grown.path()), grown.path().join("model"));
        fs::write(task.join("labels.jsonl"), labels(4)).unwrap();
        fs::write(task.join("dev.jsonl"), documents(20, 4)).unwrap();
        let fit = Fit { task: &task, model: &model, folder: None, stop: Stop::default() };
        // What is chosen by unseen labels on dev must not differ either.
        run(&fit, method, &json!({"unseen": "out", "evaluations": 0})).unwrap();
        let again = tempfile::tempdir().unwrap();
        let (whole_again, _) =
            fitted(again.path(), method, &json!({"unseen": "out", "evaluations": 0})).unwrap();
        drop(whole);
        let expected = answers(read(&whole_again).as_ref(), &texts);
        let add = |at: usize| LabelChange::Add { label: Label::new(LABELS[at].0, LABELS[at].1) };
        let changed = change_labels(&model, &[add(4), add(5)], &Device::cpu()).unwrap();
        assert_eq!(answers(changed.as_ref(), &texts), expected, "{method}");
        assert_eq!(answers(read(&model).as_ref(), &texts), expected, "{method}, after a restart");
        let gone = LabelChange::Remove { id: "1".into() };
        let changed = change_labels(&model, &[gone], &Device::cpu()).unwrap();
        for (found, expected) in answers(changed.as_ref(), &texts).into_iter().zip(expected) {
            assert_eq!(found, expected.into_iter().filter(|(id, _)| id != "1").collect::<Vec<_>>());
        }
    }
}

#[test]
fn labels_with_numbers_of_their_own_cannot_be_added() {
    let dir = tempfile::tempdir().unwrap();
    for method in ["ova", "lan"] {
        let (model, _) = fitted(dir.path(), method, &json!({"unseen": "out"})).unwrap();
        assert_eq!(answers(read(&model).as_ref(), &["river"])[0].len(), 4, "unseen labels have no numbers");
        let add = LabelChange::Add { label: Label::new("7", "lake") };
        let error = change_labels(&model, &[add], &Device::cpu()).err().unwrap().to_string();
        assert!(error.contains("of-lan"), "{error}");
        let rename = LabelChange::Rename { id: "2".into(), name: "levy".into() };
        let remove = LabelChange::Remove { id: "1".into() };
        let changed = change_labels(&model, &[rename, remove], &Device::cpu()).unwrap();
        assert_eq!(answers(changed.as_ref(), &["river"])[0].len(), 3);
    }
}

#[test]
fn only_allowed_labels_answer_and_candidates_change_little() {
    let dir = tempfile::tempdir().unwrap();
    let (model, _) = fitted(dir.path(), "of-lan", &json!({})).unwrap();
    let model = read(&model);
    let space = model.label_space();
    let allowed: Allowed = ["2", "6"].iter().map(|id| space.find(id).unwrap()).collect();
    let ask = Ask { k: 10, allowed: Some(&allowed) };
    let ranking = model.predict(&[Passage::from("river")], &ask).unwrap().remove(0);
    let mut found: Vec<&str> = ranking.labels().map(|label| &space.label(label).id[..]).collect();
    found.sort_unstable();
    assert_eq!(found, ["2", "6"]);
    let none = Ask { k: 10, allowed: Some(&Allowed::default()) };
    assert!(model.predict(&[Passage::from("river")], &none).unwrap()[0].is_empty());
    let all = answers(model.as_ref(), &["the river"]).remove(0);
    let few = fitted(dir.path(), "of-lan", &json!({"candidates": 3})).unwrap().0;
    let passage = Passage::from("the river");
    let ranking = read(&few).predict(&[passage], &Ask { k: 2, allowed: None }).unwrap().remove(0);
    assert_eq!(ranking.len(), 2);
    for entry in ranking.entries() {
        let id = &space.label(entry.label).id;
        let (_, bits) = all.iter().find(|(other, _)| other == id).unwrap();
        assert!((f32::from_bits(*bits) - entry.score).abs() < 1e-5, "a candidate's score is the same");
    }
}

#[test]
fn encoders_of_other_sizes_and_families_read_the_labels() {
    let dir = tempfile::tempdir().unwrap();
    for method in ["of-de", "of-lan"] {
        let more = json!({"label_encoder": encoder("mpnet"), "encoder": encoder("distilbert")});
        let (model, _) = fitted(dir.path(), method, &more).unwrap();
        assert_eq!(answers(read(&model).as_ref(), &["the river"])[0].len(), 6);
    }
}

#[test]
fn a_training_that_was_stopped_goes_on_and_ends_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path());
    let (straight, broken) = (dir.path().join("straight"), dir.path().join("broken"));
    let folder = dir.path().join("training");
    fs::create_dir_all(&folder).unwrap();
    let fit = |model, folder, stop| Fit { task: &task, model, folder, stop };
    run(&fit(&straight, None, Stop::default()), "of-lan", &json!({})).unwrap();
    // Stopped as soon as something was measured.
    let stop = Stop::default();
    let config = MethodConfig::named("of-lan", &settings(&json!({}))).unwrap();
    let heard = Heard::stopping_at("Row {", &stop);
    let error = fit(&broken, Some(&folder), stop).heard_by(config, &heard).unwrap_err().to_string();
    assert!(error.contains("stopped") && !broken.exists(), "{error}");
    assert!(folder.join("checkpoint.safetensors").is_file());
    run(&fit(&broken, Some(&folder), Stop::default()), "of-lan", &json!({})).unwrap();
    for name in ["label_vectors.safetensors", "head.safetensors", "encoder/model.safetensors", "curve.jsonl"]
    {
        let [one, other] = [&straight, &broken].map(|model| fs::read(model.join(name)).unwrap());
        assert!(one == other, "{name}");
    }
}

#[test]
fn what_cannot_be_learned_from_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path());
    let model = dir.path().join("model");
    let fit = Fit { task: &task, model: &model, folder: None, stop: Stop::default() };
    let unlabelled = documents(5, 4).replace("\"labels\"", "\"tags\"");
    fs::write(task.join("train.jsonl"), unlabelled).unwrap();
    let error = run(&fit, "of-de", &json!({})).unwrap_err().to_string();
    assert!(error.contains("no training document carries a label") && error.contains("lexical"), "{error}");
    fs::remove_file(task.join("train.jsonl")).unwrap();
    let error = run(&fit, "of-lan", &json!({})).unwrap_err().to_string();
    assert!(error.contains("there is no train file here") && error.contains("of-lan"), "{error}");
    let error = run(&fit, "of-lan", &json!({"encoder": "nowhere/to-be-found"})).unwrap_err().to_string();
    assert!(!error.is_empty() && !model.exists(), "{error}");
}

#[test]
fn odd_tasks_are_learned_from_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path());
    let model = dir.path().join("model");
    let fit = Fit { task: &task, model: &model, folder: None, stop: Stop::default() };
    // Two labels with one text, one whose text no tokenizer knows, no unseen label, no dev split, and a
    // document longer than any encoder takes.
    let twins = labels(4) + "{\"id\": \"7\", \"name\": \"river\"}\n{\"id\": \"8\", \"name\": \"\u{200b}\"}\n";
    fs::write(task.join("labels.jsonl"), twins).unwrap();
    let long = json!({"id": "long", "text": "river ".repeat(5000), "labels": ["7", "8"]});
    fs::write(task.join("train.jsonl"), format!("{}{long}\n", documents(60, 4))).unwrap();
    fs::remove_file(task.join("dev.jsonl")).unwrap();
    for method in ALL {
        let heard = run(&fit, method, &json!({"max_tokens": 512, "residual": null})).unwrap();
        let warned = heard.iter().any(|event| event.contains("read the same as another"));
        assert_eq!(warned, method.starts_with("of-"), "{method}: {heard:?}");
        let found = answers(read(&model).as_ref(), &["the river"]).remove(0);
        let score = |id: &str| found.iter().find(|(other, _)| other == id).unwrap().1;
        if method.starts_with("of-") {
            assert_eq!(score("1"), score("7"), "{method}: labels that read the same score alike");
        }
    }
}
