//! Methods that several devices train together: they learn what one device learns, stop and go on, and refuse what cannot be
//! shared. CPUs stand for GPUs, with a tiny encoder of random weights.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Fit, Heard, answers, encoder, read, task};
use polytag::method::MethodConfig;
use polytag::progress::Stop;
use serde_json::{Value, json};

fn config(method: &str, more: &Value) -> MethodConfig {
    let mut all = json!({
        "encoder": encoder("bert"), "max_tokens": 32, "epochs": 6, "batch": 12, "learning_rate": 1e-3, "dropout": 0.0
    });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    MethodConfig::named(method, &all).unwrap()
}

/// Fits on so many devices; none is one alone.
fn fitted(dir: &Path, config: MethodConfig, devices: Option<usize>) -> PathBuf {
    let (task, model) = (task(dir), dir.join(format!("{}-{devices:?}", config.name())));
    let fit = Fit { task: &task, model: &model, folder: None, stop: Stop::default() };
    match devices {
        None => fit.heard_by(config, &Heard::default()).unwrap(),
        Some(size) => fit.together(size, config, &Heard::default()).unwrap(),
    }
    model
}

fn losses(model: &Path) -> Vec<f64> {
    let curve = fs::read_to_string(model.join("curve.jsonl")).unwrap();
    curve.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64().unwrap()).collect()
}

#[test]
fn two_devices_learn_what_one_learns() {
    let dir = tempfile::tempdir().unwrap();
    // Label vectors of every kind: frozen with residuals, an encoder's, numbers of their own; labels that attend; experts.
    // What drops label residuals draws by the part, so that it is off here.
    let without = json!({"residual": null});
    for (method, more) in [
        ("of-de", &without),
        ("dpr", &json!({})),
        ("dexml", &json!({})),
        ("of-lan", &without),
        ("lan", &json!({})),
        ("classifier", &json!({"feature_dropout": 0.0})),
        ("me-xml", &json!({"feature_dropout": 0.0})),
    ] {
        let alone = fitted(dir.path(), config(method, more), None);
        let together = fitted(dir.path(), config(method, more), Some(2));
        let (one, two) = (losses(&alone), losses(&together));
        assert_eq!(one.len(), two.len(), "{method}");
        for (one, two) in one.iter().zip(&two) {
            assert!((one / two - 1.0).abs() < 2e-3, "{method}: {one} {two}");
        }
        assert!(two.last().unwrap() < &(0.9 * two[0]), "{method} learns: {two:?}");
        let manifest = |model: &Path| -> Value {
            serde_json::from_str(&fs::read_to_string(model.join("manifest.json")).unwrap()).unwrap()
        };
        assert_eq!(manifest(&alone)["config"], manifest(&together)["config"], "{method}: the same settings");
    }
}

#[test]
fn a_world_of_one_leaves_the_same_bytes_as_one_device() {
    let dir = tempfile::tempdir().unwrap();
    for method in ["of-lan", "guided-experts"] {
        let more = json!({"dropout": 0.1});
        let alone = fitted(dir.path(), config(method, &more), None);
        let together = fitted(dir.path(), config(method, &more), Some(1));
        for file in ["manifest.json", "curve.jsonl"] {
            let bytes = |model: &Path| fs::read(model.join(file)).unwrap();
            assert!(bytes(&alone) == bytes(&together), "{method}: {file} differs");
        }
    }
}

#[test]
fn a_training_of_two_that_was_stopped_goes_on_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let config = || config("of-de", &json!({"dropout": 0.1}));
    let whole = fitted(dir.path(), config(), Some(2));
    let (task, model, folder) = (task(dir.path()), dir.path().join("resumed"), dir.path().join("kept"));
    fs::create_dir_all(&folder).unwrap();
    let stop = Stop::default();
    let fit = |stop: Stop| Fit { task: &task, model: &model, folder: Some(&folder), stop };
    let error = fit(stop.clone()).together(2, config(), &Heard::stopping_at("step 15", &stop)).unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
    assert!(folder.join("checkpoint.safetensors").is_file() && !model.exists());
    fit(Stop::default()).together(2, config(), &Heard::default()).unwrap();
    let bytes = |model: &Path| fs::read(model.join("manifest.json")).unwrap();
    assert!(bytes(&whole) == bytes(&model), "the models differ");
    let texts = ["river and sea", "the tariff"];
    assert_eq!(answers(read(&whole).as_ref(), &texts), answers(read(&model).as_ref(), &texts));
}

#[test]
fn what_cannot_be_shared_is_refused_with_words() {
    let dir = tempfile::tempdir().unwrap();
    let (task, model) = (task(dir.path()), dir.path().join("refused"));
    let fit = Fit { task: &task, model: &model, folder: None, stop: Stop::default() };
    let refused = |config: MethodConfig, devices: usize| {
        let error = fit.together(devices, config, &Heard::default()).unwrap_err();
        assert!(!model.exists());
        error.to_string()
    };
    for method in ["of-de", "classifier"] {
        let error = refused(config(method, &json!({"batch": 10})), 4);
        assert!(error.contains("batch = 10") && error.contains("4 devices"), "{error}");
    }
    let error = refused(config("of-de", &json!({"auxiliary_batch": 3})), 2);
    assert!(error.contains("auxiliary_batch = 3"), "{error}");
    for method in ["lexical", "frozen", "maclr"] {
        let error = refused(MethodConfig::named(method, &json!({})).unwrap(), 2);
        assert!(error.contains("works on one device") && error.contains("of-lan"), "{error}");
    }
}
