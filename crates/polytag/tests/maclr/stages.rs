//! Stages: they go on where they were broken off, are made anew for another training, and take no more than their
//! steps come to.

use std::fs;
use std::path::Path;

use polytag::progress::Stop;
use polytag_nn::device::{Device, Precision};
use serde_json::{Value, json};

use super::common::{Fit, Heard, Tried};
use super::{TOPICS, config, document, lines, right};

#[test]
fn a_run_broken_off_anywhere_goes_on_and_ends_the_same() {
    let tried = Tried::new();
    let more = json!({"stage_one_epochs": 8, "stage_two_epochs": 1, "few_shot_epochs": 2, "clusters_update": 0.05, "evaluations": 4,
        "words": 1, "label_prior": 0.05, "few_shot_most": 7, "keep": 0.5});
    let (straight, _) = tried.fit("maclr-few-shot", &more).unwrap();
    let same = |one: &Path, other: &Path| {
        for name in ["label_vectors.safetensors", "encoder/model.safetensors"] {
            assert!(fs::read(one.join(name)).unwrap() == fs::read(other.join(name)).unwrap(), "{name}");
        }
    };
    // In the middle of a stage, between two, and while labels are guessed.
    for words in [
        "stage one\", total",
        "Advanced(10)",
        "stage one: seconds",
        "guessing labels by words",
        "stage two: expected",
    ] {
        let (model, folder) = (tried.dir.path().join("broken"), tried.dir.path().join("training"));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        let stop = Stop::default();
        let fit = |stop: Stop| Fit { task: &tried.task, model: &model, folder: Some(&folder), stop };
        let settings = config("maclr-few-shot", &more).unwrap();
        let heard = Heard::stopping_at(words, &stop);
        let error = fit(stop).heard_by(settings.clone(), &heard).unwrap_err().to_string();
        assert!(error.contains("stopped"), "{words}: {error}");
        fit(Stop::default()).run(settings).unwrap();
        same(&straight, &model);
    }
}

#[test]
fn few_steps_bound_what_lies_between_them() {
    let tried = Tried::new();
    let (model, folder) = (tried.dir.path().join("m"), tried.dir.path().join("training"));
    fs::create_dir_all(&folder).unwrap();
    let settings = config("maclr", &json!({"max_steps": 2, "stage_one_epochs": 3, "clusters": 30})).unwrap();
    let heard = Heard::default();
    let fit = Fit { task: &tried.task, model: &model, folder: Some(&folder), stop: Stop::default() };
    fit.heard_by(settings, &heard).unwrap();
    // Two steps of 24 come to 48 of the 120 documents; words guess for all, as all guesses are counted.
    let heard = heard.events();
    assert!(
        heard.iter().any(|event| event.contains("30 clusters are too many for 48 documents")),
        "{heard:?}"
    );
    let guessed = |by: &str, documents: usize| {
        let words = format!("guessing labels by {by}\", total: Some({documents})");
        assert!(heard.iter().any(|event| event.contains(&words)), "{words}: {heard:?}");
    };
    guessed("the encoder", 48);
    guessed("words", 120);
    let clustered = fs::read_dir(folder.join("stages/one")).unwrap().filter_map(|file| {
        let path = file.unwrap().path();
        path.extension().is_some_and(|kind| kind == "json").then(|| fs::read(path).unwrap())
    });
    let clustered: Vec<Value> = clustered.map(|text| serde_json::from_slice(&text).unwrap()).collect();
    assert_eq!(clustered.len(), 1);
    assert_eq!(clustered[0]["of"].as_array().unwrap().len(), 48);
}

#[test]
fn documents_without_guesses_do_not_take_the_steps_of_others() {
    let tried = Tried::new();
    // Words find the labels of one document in three: the others have no title.
    let some = |i: usize| document(i, i.is_multiple_of(3));
    tried.write("train.jsonl", &lines((0..180).map(some)));
    let more = json!({"max_steps": 2, "stage_one_epochs": 0, "stage_two_epochs": 1, "pseudo_encoder": 0});
    let (_, heard) = tried.fit("maclr", &more).unwrap();
    assert!(heard.iter().any(|event| event.contains("stage two\", total: Some(2)")), "{heard:?}");
}

#[test]
fn a_stage_that_was_encoded_otherwise_is_made_anew() {
    let tried = Tried::new();
    let (model, folder) = (tried.dir.path().join("m"), tried.dir.path().join("training"));
    fs::create_dir_all(&folder).unwrap();
    let fit = Fit { task: &tried.task, model: &model, folder: Some(&folder), stop: Stop::default() };
    let anew = |device: &Device| {
        let heard = Heard::default();
        fit.on((device, None), config("maclr", &json!({"max_steps": 2})).unwrap(), &heard).unwrap();
        heard.events().iter().filter(|event| event.contains("another training's; it is made anew")).count()
    };
    let integers = Device::cpu_in(Precision::EightBit);
    assert_eq!([anew(&Device::cpu()), anew(&Device::cpu()), anew(&integers), anew(&integers)], [0, 0, 2, 0]);
}

#[test]
fn a_stage_whose_guesses_are_others_is_made_anew() {
    let tried = Tried::new();
    let (model, folder) = (tried.dir.path().join("m"), tried.dir.path().join("training"));
    fs::create_dir_all(&folder).unwrap();
    let fit = Fit { task: &tried.task, model: &model, folder: Some(&folder), stop: Stop::default() };
    let anew = |more: &Value| {
        let mut settings = json!({"max_steps": 2, "label_text": "name"});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let heard = Heard::default();
        fit.heard_by(config("maclr", &settings).unwrap(), &heard).unwrap();
        let heard = heard.events();
        heard.iter().filter(|event| event.contains("another training's; it is made anew")).count()
    };
    // How labels are searched later is none of a stage's business.
    assert_eq!([anew(&json!({})), anew(&json!({})), anew(&json!({"index": "exact"}))], [0, 0, 0]);
    // The encoder reads names alone, words read aliases, too: those of another label's documents.
    let others = TOPICS.iter().cycle().skip(1).map(|(_, words)| words);
    let labels = TOPICS.iter().zip(others);
    let labels = labels.map(|((name, _), words)| json!({"id": name, "name": name, "aliases": words}));
    tried.write("labels.jsonl", &lines(labels));
    assert_eq!([anew(&json!({})), anew(&json!({}))], [1, 0], "stage two");
}

#[test]
fn a_run_can_begin_at_stage_two() {
    let tried = Tried::new();
    let (one, _) = tried.fit("maclr", &json!({"stage_two_epochs": 0})).unwrap();
    let first = tried.dir.path().join("first");
    fs::rename(&one, &first).unwrap();
    let more = json!({"stage_one_epochs": 0, "encoder": first.join("encoder")});
    let (two, heard) = tried.fit("maclr", &more).unwrap();
    assert!(!heard.iter().any(|event| event.contains("stage one")), "{heard:?}");
    assert!(heard.iter().any(|event| event.contains("stage two: seconds")), "{heard:?}");
    assert!(right(&two) >= right(&first) - 0.1, "{} {}", right(&first), right(&two));
    let curve = fs::read_to_string(two.join("curve.jsonl")).unwrap();
    assert!(curve.lines().count() > 0 && curve.contains("R@100"), "{curve}");
}
