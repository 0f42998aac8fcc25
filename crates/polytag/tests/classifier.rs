//! The classifier: experts and guides learn, are kept, explain themselves, and say what they make of odd tasks. With a
//! tiny encoder of random weights.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Fit, Heard, LABELS, Tried, answers, documents, encoder, labels, read, task};
use polytag::data::{Label, LabelChange, Passage, Split};
use polytag::index::Allowed;
use polytag::method::{MethodConfig, change_labels};
use polytag::predict::Ask;
use polytag::progress::Stop;
use polytag_nn::device::Device;
use serde_json::{Value, json};

/// Settings that make a tiny encoder learn in no time.
fn config(method: &str, more: &Value) -> Result<MethodConfig, polytag::Error> {
    let mut all = json!({
        "encoder": encoder("bert"), "max_tokens": 32, "epochs": 30, "batch": 10, "learning_rate": 2e-3,
        "attention_learning_rate": 1e-2, "output_learning_rate": 1e-2, "dropout": 0.0, "feature_dropout": 0.1
    });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Ok(MethodConfig::named(method, &all)?)
}

impl Tried {
    fn new() -> Tried {
        Tried::of(task)
    }

    fn fit(&self, method: &str, more: &Value) -> Result<(PathBuf, Vec<String>), polytag::Error> {
        self.fitted(config(method, more)?)
    }

    /// P@1 on train, and nDCG@5 on dev.
    fn quality(&self, model: &Path) -> [f64; 2] {
        [(Split::Train, "P@1"), (Split::Dev, "nDCG@5")]
            .map(|(split, name)| self.report(model, split).value(name).unwrap())
    }
}

/// Every switch of the method.
fn ablations() -> Vec<(&'static str, Value)> {
    let two = json!(["labels@1", "cls@last"]);
    vec![
        ("classifier", json!({})),
        ("classifier", json!({"experts": ["mean@last2"]})),
        ("classifier", json!({"experts": ["labels@1"]})),
        ("gudn", json!({})),
        ("gudn", json!({"link_guide": 0})),
        ("gudn", json!({"feature_guide": 0, "accumulation": 2})),
        ("gudn", json!({"guide": "one-hot"})),
        ("me-xml", json!({"diversity_after": 2})),
        ("me-xml", json!({"diversity": 0})),
        ("me-xml", json!({"experts": two, "together": "collaborative"})),
        ("me-xml", json!({"experts": ["labels@1", "labels@last", "cls@last"], "diversity_after": 1})),
        ("me-xml", json!({"experts": ["cls@1", "cls@last"]})),
        ("me-xml", json!({"experts": two, "feature_guide": 1, "link_guide": 1})),
        ("classifier", clustered(1)),
        ("gudn", clustered(2)),
        ("me-xml", clustered(1)),
    ]
}

/// Labels in clusters of two, so many of which are judged.
fn clustered(beam: usize) -> Value {
    json!({"cluster_above": 3, "cluster_size": 2, "cluster_beam": beam, "cluster_labels": 3})
}

#[test]
fn every_configuration_learns_and_measures_what_it_does() {
    let tried = Tried::new();
    for (method, more) in ablations() {
        let (model, _) = tried.fit(method, &more).unwrap();
        let [train, dev] = tried.quality(&model);
        assert!(train > 90.0, "{method} {more}: {train}");
        let curve = fs::read_to_string(model.join("curve.jsonl")).unwrap();
        let points = curve.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let best = points.filter_map(|point| point["measured"].as_f64()).fold(0.0, f64::max);
        assert!((best - dev).abs() < 1e-9, "{method} {more}: {best} {dev}");
    }
}

#[test]
fn a_probability_is_the_mean_of_the_experts_and_its_parts_add_up() {
    let tried = Tried::new();
    let more = json!({"experts": ["labels@1", "mean@last", "cls@0"], "diversity": 0, "epochs": 4});
    let (model, _) = tried.fit("me-xml", &more).unwrap();
    let model = read(&model);
    let passage = Passage { id: None, title: Some("the"), text: "a river in the sea" };
    let ranking = model.predict(&[passage], &Ask { k: 10, allowed: None }).unwrap().remove(0);
    assert_eq!(ranking.entries().len(), 4);
    for entry in ranking.entries() {
        let found = model.explain(passage, entry.label).unwrap();
        assert!((found.score - entry.score).abs() < 1e-5 && (0.0..=1.0).contains(&found.score));
        let attention: f32 = found.reasons.iter().filter_map(|reason| reason.attention).sum();
        assert!((attention - 1.0).abs() < 1e-4, "{attention}");
        assert!(found.reasons.iter().any(|reason| reason.words == "river"), "{:?}", found.reasons);
    }
    // With one expert the parts add up to the log-odds.
    let (model, _) = tried.fit("classifier", &json!({"experts": ["labels@1"], "epochs": 2})).unwrap();
    let model = read(&model);
    let label = model.label_space().find("1").unwrap();
    let found = model.explain(passage, label).unwrap();
    let sum: f32 = found.reasons.iter().map(|reason| reason.weight).sum();
    assert!((sum - (found.score / (1.0 - found.score)).ln()).abs() < 1e-3, "{sum} {}", found.score);
}

#[test]
fn who_reads_the_text_as_a_whole_says_what_it_would_miss() {
    let tried = Tried::new();
    let (model, _) = tried.fit("classifier", &json!({"experts": ["cls@last"]})).unwrap();
    let model = read(&model);
    let passage = Passage { id: None, title: None, text: "the river and the" };
    let label = model.predict(&[passage], &Ask { k: 1, allowed: None }).unwrap()[0].entries()[0].label;
    let found = model.explain(passage, label).unwrap();
    assert_eq!(found.reasons[0].words, "river", "{:?}", found.reasons);
    assert!(found.reasons[0].weight > 0.0 && found.reasons.iter().all(|reason| reason.attention.is_none()));
    let sum: f32 = found.reasons.iter().map(|reason| reason.weight).sum();
    assert!((sum - (found.score / (1.0 - found.score)).ln()).abs() < 1e-3, "{sum} {}", found.score);
    assert!(found.marks.iter().any(|mark| mark.weight > 0.0));
}

#[test]
fn labels_in_clusters_are_judged_a_few_at_a_time() {
    let tried = Tried::new();
    // Forty labels, each given away by a pair of letters.
    let letters: Vec<char> = ('a'..='z').collect();
    let name = |i: usize| format!("{} {}", letters[i % 8], letters[10 + i / 8]);
    let labels = (0..40).map(|i| format!("{}\n", json!({"id": i.to_string(), "name": name(i)})));
    tried.write("labels.jsonl", &labels.collect::<String>());
    let document = |i: usize| {
        let text = format!("{} the {}", name(i % 40), name(i % 40));
        format!("{}\n", json!({"id": i.to_string(), "text": text, "labels": [(i % 40).to_string()]}))
    };
    tried.write("train.jsonl", &(0..160).map(document).collect::<String>());
    tried.write("dev.jsonl", &(0..40).map(document).collect::<String>());
    let more = json!({"cluster_above": 3, "cluster_size": 8, "cluster_beam": 1, "cluster_labels": 16, "epochs": 40,
        "experts": ["mean@last", "labels@1"]});
    let (model, heard) = tried.fit("me-xml", &more).unwrap();
    assert!(heard.iter().any(|event| event.contains("grouping labels")), "{heard:?}");
    let rows: Vec<f64> = heard
        .iter()
        .filter_map(|event| event.split("(\"candidates\", ").nth(1))
        .map(|rest| rest.split(')').next().unwrap().parse().unwrap())
        .collect();
    assert!(rows[0] < 60.0 && *rows.last().unwrap() > 90.0, "clusters are learned: {rows:?}");
    assert!(tried.quality(&model)[0] > 80.0);
    // A cluster's five labels, and three of the next one.
    let (model, text) = (read(&model), "a k the a k");
    let found = model.predict(&[Passage::from(text)], &Ask { k: 40, allowed: None }).unwrap().remove(0);
    assert_eq!(found.entries().len(), 8);
    // A label that is asked for is judged whatever its cluster is, and scores as it does among others.
    for (label, _) in model.label_space().iter() {
        let only: Allowed = [label].into_iter().collect();
        let asked = Ask { k: 3, allowed: Some(&only) };
        let alone = model.predict(&[Passage::from(text)], &asked).unwrap().remove(0);
        assert_eq!(alone.labels().collect::<Vec<_>>(), [label]);
        let same = found.entries().iter().find(|entry| entry.label == label);
        assert!(same.is_none_or(|entry| (entry.score - alone.entries()[0].score).abs() < 1e-6));
    }
}

#[test]
fn labels_are_allowed_renamed_and_removed_but_not_added() {
    let tried = Tried::new();
    let (model, _) = tried.fit("me-xml", &json!({"epochs": 2})).unwrap();
    let texts = ["the river", ""];
    let before = answers(read(&model).as_ref(), &texts);
    assert_eq!(before, answers(read(&model).as_ref(), &texts), "a model answers the same twice");
    let predictor = read(&model);
    let only: Allowed = [predictor.label_space().find("2").unwrap()].into_iter().collect();
    let ask = Ask { k: 10, allowed: Some(&only) };
    assert_eq!(predictor.predict(&[Passage::from("the river")], &ask).unwrap()[0].entries().len(), 1);
    let change = |change| change_labels(&model, &[change], &Device::cpu());
    change(LabelChange::Rename { id: "1".into(), name: "stream".into() }).unwrap();
    change(LabelChange::Rename { id: "5".into(), name: "share".into() }).unwrap();
    assert_eq!(answers(read(&model).as_ref(), &texts), before);
    change(LabelChange::Remove { id: "1".into() }).unwrap();
    let after = answers(read(&model).as_ref(), &texts);
    let without: Vec<_> = before[0].iter().filter(|(id, _)| id != "1").cloned().collect();
    assert_eq!(after[0], without);
    let error = change(LabelChange::Add { label: Label::new("9", "moon") }).err().unwrap().to_string();
    assert!(error.contains("train"), "{error}");
}

#[test]
fn a_run_broken_off_goes_on_and_ends_the_same() {
    let tried = Tried::new();
    let more = json!({"epochs": 6, "experts": ["labels@1", "cls@last2"], "feature_guide": 1, "link_guide": 1,
        "guide": "one-hot", "diversity_after": 1, "cluster_above": 2, "cluster_size": 3, "cluster_labels": 3});
    let (straight, _) = tried.fit("me-xml", &more).unwrap();
    let (model, folder) = (tried.dir.path().join("broken"), tried.dir.path().join("training"));
    fs::create_dir_all(&folder).unwrap();
    let stop = Stop::default();
    let fit = |stop: Stop| Fit { task: &tried.task, model: &model, folder: Some(&folder), stop };
    let heard = Heard::stopping_at("step 18", &stop);
    let error = fit(stop).heard_by(config("me-xml", &more).unwrap(), &heard).unwrap_err().to_string();
    assert!(error.contains("stopped"), "{error}");
    fit(Stop::default()).run(config("me-xml", &more).unwrap()).unwrap();
    for name in ["experts.safetensors", "encoder/model.safetensors"] {
        assert!(fs::read(straight.join(name)).unwrap() == fs::read(model.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn odd_tasks_are_learned_from_with_a_word() {
    let tried = Tried::new();
    let few = json!({"max_steps": 4});
    let warned = |method: &str, words: &str| {
        let (model, heard) = tried.fit(method, &few).unwrap();
        assert!(heard.iter().any(|event| event.starts_with("Warned") && event.contains(words)), "{heard:?}");
        assert!(!answers(read(&model).as_ref(), &["the river"])[0].is_empty());
    };
    warned("me-xml", "2 of 6 labels are in no training document");
    // Documents without labels, all of a batch of them.
    let bare: String =
        (0..40).map(|i| format!("{}\n", json!({"id": format!("b{i}"), "text": "a", "labels": []}))).collect();
    tried.write("train.jsonl", &(documents(6, 4) + &bare));
    warned("gudn", "40 of 46 training documents carry no label");
    // Symbols for names.
    let names: String =
        LABELS.iter().map(|(id, _)| format!("{}\n", json!({"id": id, "name": format!("0{id}P+")}))).collect();
    tried.write("labels.jsonl", &names);
    tried.write("train.jsonl", &documents(60, 4));
    warned("gudn", "the names of 4 of 4 labels, such as ");
    // One label only.
    tried.write("labels.jsonl", &labels(1));
    tried.write("train.jsonl", &documents(20, 1));
    tried.write("dev.jsonl", &documents(5, 1));
    warned("gudn", "there is one label only");
    warned("me-xml", "there is one label only");
}

#[test]
fn what_cannot_be_learned_is_said_before_training() {
    let tried = Tried::new();
    let error = |method: &str, more: &Value| tried.fit(method, more).unwrap_err().to_string();
    assert!(error("classifier", &json!({"experts": ["cls@9"]})).contains("cls@9"));
    assert!(error("classifier", &json!({"experts": ["eye@1"]})).contains("no expert"));
    assert!(error("me-xml", &json!({"experts": []})).contains("nobody"));
    tried.write("train.jsonl", "{\"id\": \"1\", \"text\": \"river\"}\n");
    let said = error("gudn", &json!({}));
    assert!(said.contains("no training document carries a label"), "{said}");
}
