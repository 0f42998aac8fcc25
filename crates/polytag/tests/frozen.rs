//! `frozen` from labels to a model folder and back, with a tiny encoder of random weights: what it
//! answers makes no sense, but it must be the same whichever way it was come by.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use polytag::data::{Label, LabelChange, Passage, ReadOptions, Task};
use polytag::encoder::EncoderCache;
use polytag::index::Allowed;
use polytag::method::{MethodConfig, TrainContext, change_labels, fit, load, uses_network};
use polytag::predict::{Ask, Predictor};
use polytag::progress::{Silent, Stop};
use polytag_nn::device::Device;
use serde_json::json;

const LABELS: [(&str, &str); 4] =
    [("1", "customs tariff"), ("2", "fishing quota"), ("3", "a book of maps"), ("4", "river water")];

fn encoder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders/bert")
}

/// Fits the first `count` labels into a model folder.
fn fitted(dir: &Path, count: usize, settings: serde_json::Value) -> Result<PathBuf, polytag::Error> {
    let task = dir.join("task");
    std::fs::create_dir_all(&task).unwrap();
    let lines = LABELS[..count].iter().map(|(id, name)| format!("{}\n", json!({"id": id, "name": name})));
    std::fs::write(task.join("labels.jsonl"), lines.collect::<String>()).unwrap();
    let task = Task::open(&task, &ReadOptions::with_spool(dir)).unwrap();
    let mut all = json!({"encoder": encoder()});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let config = MethodConfig::named("frozen", &all)?;
    let (device, encoders) = (Device::cpu(), EncoderCache::new(dir.join("encoders")));
    let stop = Stop::default();
    let context = TrainContext::new((&device, &encoders), (&stop, &Silent));
    let model = dir.join("model");
    fit(&task, config, &model, &context)?;
    Ok(model)
}

fn answers(model: &dyn Predictor) -> Vec<Vec<(String, u32)>> {
    let passages = [
        Passage { id: None, title: Some("Maps"), text: "the river and the sea" },
        Passage::from(""),
        Passage::from("a tariff on books, and a quota"),
    ];
    let rankings = model.predict(&passages, &Ask { k: 10, allowed: None }).unwrap();
    let entry = |label| model.label_space().label(label).id.clone();
    rankings
        .iter()
        .map(|ranking| ranking.entries().iter().map(|e| (entry(e.label), e.score.to_bits())).collect())
        .collect()
}

#[test]
fn a_label_added_later_answers_as_if_it_had_always_been_there() {
    let (whole, grown) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whole = fitted(whole.path(), 4, json!({})).unwrap();
    let grown = fitted(grown.path(), 3, json!({})).unwrap();
    assert!(uses_network(&grown).unwrap());
    let device = Device::cpu();
    let expected = answers(load(&whole, &device).unwrap().as_ref());
    assert!(expected.iter().all(|ranking| ranking.len() == 4));
    let change = LabelChange::Add { label: Label::new(LABELS[3].0, LABELS[3].1) };
    let changed = change_labels(&grown, &[change], &device).unwrap();
    assert_eq!(answers(changed.as_ref()), expected);
    assert_eq!(answers(load(&grown, &device).unwrap().as_ref()), expected, "and after a restart");
    let changes = [
        LabelChange::Rename { id: "4".into(), name: "lake".into() },
        LabelChange::Rename { id: "4".into(), name: LABELS[3].1.into() },
        LabelChange::Remove { id: "1".into() },
    ];
    let changed = change_labels(&grown, &changes, &device).unwrap();
    for (ranking, expected) in answers(changed.as_ref()).iter().zip(expected) {
        assert_eq!(*ranking, expected.into_iter().filter(|(id, _)| id != "1").collect::<Vec<_>>());
    }
    assert!(change_labels(&grown, &[LabelChange::Remove { id: "1".into() }], &device).is_err());
}

#[test]
fn only_allowed_labels_are_answered_with_and_scores_are_cosines() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(&fitted(dir.path(), 4, json!({})).unwrap(), &Device::cpu()).unwrap();
    let space = model.label_space();
    let allowed: Allowed = ["2", "4"].iter().map(|id| space.find(id).unwrap()).collect();
    let ask = Ask { k: 10, allowed: Some(&allowed) };
    let ranking = model.predict(&[Passage::from("fishing quota")], &ask).unwrap().remove(0);
    let best = ranking.entries()[0];
    assert_eq!((ranking.entries().len(), &space.label(best.label).id[..]), (2, "2"));
    assert!((best.score - 1.0).abs() < 1e-5, "a label's own name is as near as can be: {}", best.score);
}

#[test]
fn the_reasons_add_up_to_the_score() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(&fitted(dir.path(), 4, json!({})).unwrap(), &Device::cpu()).unwrap();
    let passage = Passage { id: None, title: Some("The river"), text: "a book of maps and rivers" };
    let ranking = model.predict(&[passage], &Ask { k: 1, allowed: None }).unwrap().remove(0);
    let best = ranking.entries()[0];
    let explanation = model.explain(passage, best.label).unwrap();
    assert!((explanation.score - best.score).abs() < 1e-5, "{explanation:?}");
    let sum: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
    assert!((sum - best.score).abs() < 1e-5);
    let words: Vec<&str> = explanation.reasons.iter().map(|reason| &reason.words[..]).collect();
    assert!(words.contains(&"river") && words.contains(&"maps") && words.contains(&"book"), "{words:?}");
}

#[test]
fn half_precision_takes_half_the_room_and_nearly_the_same_scores() {
    let (full, half) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let full = fitted(full.path(), 4, json!({})).unwrap();
    let half = fitted(half.path(), 4, json!({"precision": "f16"})).unwrap();
    let size = |model: &Path| std::fs::metadata(model.join("label_vectors.safetensors")).unwrap().len();
    assert!(size(&half) < size(&full));
    let scores = |model: &Path| -> Vec<f32> {
        let all = answers(load(model, &Device::cpu()).unwrap().as_ref());
        all.iter().flatten().map(|(_, bits)| f32::from_bits(*bits)).collect()
    };
    for (a, b) in scores(&full).iter().zip(scores(&half)) {
        assert!((a - b).abs() < 2e-3, "{a} {b}");
    }
}

#[test]
fn what_is_wrong_with_an_encoder_or_a_model_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let error = fitted(dir.path(), 2, json!({"encoder": "minilm"})).unwrap_err().to_string();
    assert!(error.contains("polytag encoders pull minilm"), "{error}");
    let error = fitted(dir.path(), 2, json!({"max_tokens": 500})).unwrap_err().to_string();
    assert!(error.contains("500") && error.contains("64"), "{error}");
    let model = fitted(dir.path(), 2, json!({})).unwrap();
    let weights = model.join("encoder/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let error = load(&model, &Device::cpu()).err().unwrap().to_string();
    assert!(error.contains("model.safetensors") && error.contains("checksum"), "{error}");
}
