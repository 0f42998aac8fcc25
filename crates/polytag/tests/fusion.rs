//! `conse` and `xml0` over recorded rankings and a tiny encoder of random weights: what they answer makes no sense, but it
//! must be what the formula says, whichever way it was come by.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Tried, encoder, read, task};
use polytag::data::{Label, LabelChange, Passage, Split};
use polytag::method::{MethodConfig, change_labels, load, uses_network};
use polytag::predict::{Ask, Predictor};
use polytag_nn::device::Device;
use serde_json::{Value, json};

/// Rankings of documents: two labels, one unlikely label, one label twice over the threshold, none.
const SCORES: &str = r#"{"id": "two", "labels": [["1", 0.9], ["2", 0.6], ["3", 0.05]]}
{"id": "unlikely", "labels": [["2", 0.02], ["1", 0.01]]}
{"id": "one", "labels": [["1", 0.9]]}
{"id": "none", "labels": []}
"#;

struct Made {
    tried: Tried,
    classifier: PathBuf,
    semantics: PathBuf,
}

/// A task, recorded rankings and a frozen encoder.
fn made() -> Made {
    let tried = Tried::of(task);
    let scores = tried.dir.path().join("scores.jsonl");
    // The documents of the task are ranked, too, so that it can be evaluated.
    let of_task =
        (0..20).map(|id| format!("{{\"id\": \"{id}\", \"labels\": [[\"{}\", 0.7]]}}\n", id % 4 + 1));
    fs::write(&scores, SCORES.to_owned() + &of_task.collect::<String>()).unwrap();
    let classifier = fitted(&tried, "recorded", json!({"scores": scores})).unwrap();
    let semantics = fitted(&tried, "frozen", json!({"encoder": encoder("bert")})).unwrap();
    Made { tried, classifier, semantics }
}

fn fitted(tried: &Tried, method: &str, settings: Value) -> Result<PathBuf, polytag::Error> {
    Ok(tried.fitted(MethodConfig::named(method, &settings)?)?.0)
}

impl Made {
    fn fused(&self, method: &str, settings: Value) -> Result<PathBuf, polytag::Error> {
        let mut all = json!({"classifier": self.classifier, "semantics": self.semantics});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        fitted(&self.tried, method, all)
    }
}

const TEXT: &str = "the river and the sea";

fn document(id: &str) -> Passage<'_> {
    Passage { id: Some(id), title: None, text: TEXT }
}

/// The answer for a document, by label.
fn answer(model: &dyn Predictor, passage: Passage<'_>) -> Vec<(String, f32)> {
    let ranking = model.predict(&[passage], &Ask { k: 10, allowed: None }).unwrap().remove(0);
    let mut found: Vec<(String, f32)> = ranking
        .entries()
        .iter()
        .map(|entry| (model.label_space().label(entry.label).id.clone(), entry.score))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// The cosines of unseen labels with a text, as the encoder has them.
fn cosines(semantics: &dyn Predictor, passage: Passage<'_>) -> Vec<(String, f32)> {
    answer(semantics, passage).into_iter().filter(|(id, _)| id == "5" || id == "6").collect()
}

/// The text of a label.
fn label(name: &str) -> Passage<'_> {
    Passage { id: None, title: Some(name), text: "" }
}

#[track_caller]
fn assert_near(found: &[(String, f32)], expected: &[(String, f32)]) {
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-5, "{found:?} {expected:?}");
    }
}

#[test]
fn scores_are_those_of_the_formula() {
    let made = made();
    let semantics = read(&made.semantics);
    let (river, tariff) =
        (cosines(semantics.as_ref(), label("river")), cosines(semantics.as_ref(), label("tariff")));
    let of_document = cosines(semantics.as_ref(), document("x"));
    let labels = read(&made.fused("xml0", json!({"document": 0})).unwrap());
    // One label's cosine is its own, whatever its probability; where none is likely the likeliest stands alone.
    assert_near(&answer(labels.as_ref(), document("one")), &river);
    assert_near(&answer(labels.as_ref(), document("unlikely")), &tariff);
    assert!(answer(labels.as_ref(), document("none")).is_empty());
    let best = answer(labels.as_ref(), document("two"));
    let both = read(&made.fused("xml0", json!({"document": 0.5})).unwrap());
    let mean = |a: &[(String, f32)], b: &[(String, f32)]| -> Vec<(String, f32)> {
        a.iter().zip(b).map(|(a, b)| (a.0.clone(), 0.5 * a.1 + 0.5 * b.1)).collect()
    };
    assert_near(&answer(both.as_ref(), document("two")), &mean(&best, &of_document));
    let nothing: Vec<(String, f32)> = of_document.iter().map(|(id, _)| (id.clone(), 0.0)).collect();
    assert_near(&answer(both.as_ref(), document("none")), &mean(&nothing, &of_document));
    let alone = read(&made.fused("xml0", json!({"document": 1})).unwrap());
    assert_near(&answer(alone.as_ref(), document("two")), &of_document);
    // All together are one of the combinations, and so is each label.
    let conse = read(&made.fused("conse", json!({})).unwrap());
    for (place, all) in answer(conse.as_ref(), document("two")).iter().enumerate() {
        let most = all.1.max(river[place].1).max(tariff[place].1);
        assert!((best[place].1 - most).abs() < 1e-5, "{best:?} {all:?}");
    }
    // Of the likeliest alone there is one combination.
    let first = read(&made.fused("conse", json!({"most": 1})).unwrap());
    assert_near(&answer(first.as_ref(), document("two")), &river);
    // A threshold that lets nothing be unlikely takes the third label in.
    let low = read(&made.fused("conse", json!({"threshold": 0})).unwrap());
    assert_ne!(answer(low.as_ref(), document("two")), answer(conse.as_ref(), document("two")));
}

#[test]
fn scores_that_are_no_probabilities_are_told_of() {
    let made = made();
    let told = |classifier: &PathBuf| {
        let settings = json!({"classifier": classifier, "semantics": made.semantics});
        let (_, heard) = made.tried.fitted(MethodConfig::named("xml0", &settings).unwrap()).unwrap();
        heard.iter().any(|event| event.contains("are no probabilities"))
    };
    assert!(!told(&made.classifier));
    let other = made.tried.dir.path().join("lexical");
    fs::rename(fitted(&made.tried, "lexical", json!({})).unwrap(), &other).unwrap();
    assert!(told(&other));
    let large = made.tried.dir.path().join("large.jsonl");
    fs::write(&large, "{\"id\": \"one\", \"labels\": [[\"1\", 7.5]]}\n").unwrap();
    let recorded = made.tried.dir.path().join("recorded-large");
    fs::rename(fitted(&made.tried, "recorded", json!({"scores": large})).unwrap(), &recorded).unwrap();
    assert!(told(&recorded));
}

#[test]
fn reasons_add_up_and_name_the_combination() {
    let made = made();
    let model = read(&made.fused("xml0", json!({})).unwrap());
    let unseen = model.label_space().find("6").unwrap();
    let explanation = model.explain(document("two"), unseen).unwrap();
    let score = answer(model.as_ref(), document("two"))[1].1;
    let sum: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
    assert!((explanation.score - score).abs() < 1e-5 && (sum - score).abs() < 1e-5, "{explanation:?}");
    let matched = explanation.matched.unwrap();
    assert!(matched.starts_with("labels ") && matched.contains(", document "), "{matched}");
    assert!(matched.contains("river 0.90") || matched.contains("tariff 0.60"), "{matched}");
    assert!(!explanation.marks.is_empty());
    let seen = model.label_space().find("1").unwrap();
    assert_eq!(model.explain(document("two"), seen).unwrap().score, 0.0);
}

#[test]
fn a_model_of_models_stands_alone() {
    let made = made();
    let model = made.fused("xml0", json!({})).unwrap();
    assert!(uses_network(&model).unwrap());
    let expected = answer(read(&model).as_ref(), document("two"));
    assert_eq!(expected.iter().map(|(id, _)| &id[..]).collect::<Vec<_>>(), ["5", "6"], "unseen labels alone");
    fs::remove_dir_all(&made.classifier).unwrap();
    fs::remove_dir_all(&made.semantics).unwrap();
    assert_eq!(answer(read(&model).as_ref(), document("two")), expected);
    let report = made.tried.report(&model, Split::Dev);
    assert!(report.value("unseen P@1").is_some() && report.value("unseen nDCG@5").is_some());
    // A model of models can be a part of another; this one predicts no seen label, so that there is nothing to combine.
    let settings = json!({"classifier": model, "semantics": model.join("parts/semantics")});
    let again = fitted(&made.tried, "conse", settings).unwrap();
    assert!(again.join("parts/classifier/parts/classifier/rankings.jsonl").is_file());
    assert!(answer(read(&again).as_ref(), document("two")).is_empty());
}

#[test]
fn labels_come_and_go() {
    let made = made();
    let device = Device::cpu();
    let whole = made.fused("xml0", json!({"document": 0.5})).unwrap();
    let expected = answer(read(&whole).as_ref(), document("two"));
    let change = |change: LabelChange| change_labels(&whole, &[change], &device).unwrap();
    let removed = change(LabelChange::Remove { id: "6".into() });
    assert_eq!(answer(removed.as_ref(), document("two")), expected[..1]);
    let added = change(LabelChange::Add { label: Label::new("6", "map") });
    assert_near(&answer(added.as_ref(), document("two")), &expected);
    let more = change(LabelChange::Add { label: Label::new("7", "river") });
    let found = answer(more.as_ref(), document("one"));
    assert_eq!(found.len(), 3);
    let renamed = change(LabelChange::Rename { id: "7".into(), name: "map".into() });
    let found = answer(renamed.as_ref(), document("two"));
    assert!((found[1].1 - found[2].1).abs() < 1e-6, "the same name, the same score: {found:?}");
    // A seen label that is gone is combined no more.
    let without = change(LabelChange::Remove { id: "1".into() });
    let tariff = cosines(read(&made.semantics).as_ref(), label("tariff"));
    let of_document = cosines(read(&made.semantics).as_ref(), document("x"));
    for (place, (_, score)) in answer(without.as_ref(), document("two"))[..2].iter().enumerate() {
        assert!((score - 0.5 * (tariff[place].1 + of_document[place].1)).abs() < 1e-5);
    }
    let again = load(&whole, &device).unwrap();
    assert_eq!(answer(again.as_ref(), document("two")), answer(without.as_ref(), document("two")));
}

#[test]
fn what_is_wrong_with_parts_is_said() {
    let made = made();
    let refused = |settings: Value| made.fused("xml0", settings).unwrap_err().to_string();
    assert!(refused(json!({"classifier": ""})).contains("--set classifier=MODEL"));
    assert!(refused(json!({"semantics": made.classifier})).contains("fit `frozen` or `few-shot`"));
    let nothing = made.tried.dir.path().join("nothing");
    assert!(refused(json!({"semantics": nothing})).contains("nothing"));
    assert!(refused(json!({"threshold": 2})).contains("threshold"));
    let model = made.fused("xml0", json!({})).unwrap();
    let damaged = |file: &str, damage: fn(&Path)| {
        let path = model.join("parts").join(file);
        let before = fs::read(&path).ok();
        damage(&path);
        let error = load(&model, &Device::cpu()).err().unwrap().to_string();
        match before {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        assert!(error.contains(file), "{error}");
    };
    let append =
        |path: &Path| fs::write(path, [fs::read(path).unwrap_or_default(), b" ".to_vec()].concat()).unwrap();
    damaged("classifier/manifest.json", append);
    damaged("classifier/rankings.jsonl", append);
    damaged("semantics/encoder/model.safetensors", append);
    damaged("classifier/labels.log", append);
    load(&model, &Device::cpu()).unwrap();
}

#[test]
fn without_unseen_labels_answers_are_empty_until_some_are_added() {
    let made = made();
    let text = fs::read_to_string(made.tried.task.join("labels.jsonl")).unwrap();
    made.tried
        .write("labels.jsonl", &text.lines().take(4).map(|line| format!("{line}\n")).collect::<String>());
    made.tried.write("dev.jsonl", "");
    let all = json!({"classifier": made.classifier, "semantics": made.semantics});
    let (model, heard) = made.tried.fitted(MethodConfig::named("xml0", &all).unwrap()).unwrap();
    assert!(heard.iter().any(|event| event.contains("until labels are added")), "{heard:?}");
    assert!(answer(read(&model).as_ref(), document("two")).is_empty());
    let added = LabelChange::Add { label: Label::new("5", "a quota") };
    assert_eq!(
        answer(change_labels(&model, &[added], &Device::cpu()).unwrap().as_ref(), document("two")).len(),
        1
    );
}

/// How many labels the documents of [`together`] carry; two more have the ids after them.
const SEEN: usize = 48;

/// A task whose documents carry two or three labels each, so that it can be learned which go together.
fn together() -> Made {
    let made = made();
    let document = |at: usize| {
        let labels: Vec<String> =
            (0..2 + at % 2).map(|turn| ((at * 7 + turn * 5) % SEEN + 1).to_string()).collect();
        json!({"id": at.to_string(), "text": "the river", "labels": labels}).to_string() + "\n"
    };
    made.tried.write("train.jsonl", &(0..200).map(document).collect::<String>());
    let words = ["river", "tariff", "sea", "map", "of", "the", "p", "q", "a", "b", "c", "d"];
    let after = |place: usize| words[place % words.len()];
    let seen = (0..SEEN).map(|at| match at / words.len() {
        0 => after(at).to_owned(),
        apart => format!("{} {}", after(at), after(at + apart)),
    });
    let names = seen.chain(["river the", "sea map tariff"].map(str::to_owned));
    let label =
        |(at, name): (usize, String)| json!({"id": (at + 1).to_string(), "name": name}).to_string() + "\n";
    made.tried.write("labels.jsonl", &names.enumerate().map(label).collect::<String>());
    let scores = made.tried.dir.path().join("scores.jsonl");
    let classifier = fitted(&made.tried, "recorded", json!({"scores": scores})).unwrap();
    let semantics = fitted(&made.tried, "frozen", json!({"encoder": encoder("bert")})).unwrap();
    Made { classifier, semantics, ..made }
}

#[test]
fn labels_that_go_together_are_learned_kept_and_explained() {
    let made = together();
    // Both are fitted into the same folder.
    let plain = read(&made.fused("xml0", json!({"vectors": "plain"})).unwrap());
    let folder = made.fused("xml0", json!({"vectors": "together"})).unwrap();
    assert!(folder.join("together.safetensors").is_file());
    let model = read(&folder);
    let found = answer(model.as_ref(), document("two"));
    let ids = [SEEN + 1, SEEN + 2].map(|id| id.to_string());
    let score_of = |id: &str| found.iter().find(|(found, _)| found == id).unwrap().1;
    assert_eq!(found.len(), ids.len());
    assert_ne!(answer(plain.as_ref(), document("two")), found);
    // Nothing predicted leaves the document, with its share, as ever.
    assert_near(&answer(model.as_ref(), document("none")), &answer(plain.as_ref(), document("none")));
    // Reasons add up, what is usual among them.
    for id in &ids {
        let unseen = model.label_space().find(id).unwrap();
        let explanation = model.explain(document("two"), unseen).unwrap();
        let sum: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
        let score = score_of(id);
        assert!((explanation.score - score).abs() < 1e-5 && (sum - score).abs() < 1e-4, "{explanation:?}");
        assert!(explanation.reasons.iter().any(|reason| reason.words == "what is usual for this label"));
    }
    // A part of the labels is answered as all are.
    let one: polytag::index::Allowed = [model.label_space().find(&ids[1]).unwrap()].into_iter().collect();
    let alone = model.predict(&[document("two")], &Ask { k: 9, allowed: Some(&one) }).unwrap();
    assert_eq!(alone[0].entries().iter().map(|entry| entry.score).collect::<Vec<_>>(), [score_of(&ids[1])]);
    // A label added later scores as one that was always there.
    let device = Device::cpu();
    let change = |change: LabelChange| change_labels(&folder, &[change], &device).unwrap();
    change(LabelChange::Remove { id: ids[1].clone() });
    let again = change(LabelChange::Add { label: Label::new(&ids[1], "sea map tariff") });
    assert_near(&answer(again.as_ref(), document("two")), &found);
    // What was learned is part of the model.
    let path = folder.join("together.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
    let error = load(&folder, &device).err().unwrap().to_string();
    assert!(error.contains("together.safetensors"), "{error}");
}

#[test]
fn too_few_label_sets_are_told_and_vectors_stay_as_they_are() {
    let made = made();
    let mut all = json!({"classifier": made.classifier, "semantics": made.semantics, "vectors": "together"});
    let fit = |all: &serde_json::Value| made.tried.fitted(MethodConfig::named("xml0", all).unwrap()).unwrap();
    let (model, heard) = fit(&all);
    assert!(heard.iter().any(|event| event.contains("which go together")), "{heard:?}");
    assert!(!model.join("together.safetensors").exists());
    // Where nobody asked for them there is nothing to tell.
    all["vectors"] = json!("auto");
    let (model, heard) = fit(&all);
    assert!(!heard.iter().any(|event| event.contains("together")), "{heard:?}");
    assert!(!model.join("together.safetensors").exists());
}

#[test]
fn a_rehearsal_chooses_label_vectors() {
    let made = together();
    // The classifier must know what to say of any train document.
    let scores: String = (0..200)
        .map(|at| {
            let labels = json!([[(at % SEEN + 1).to_string(), 0.9]]);
            json!({"id": at.to_string(), "labels": labels}).to_string() + "\n"
        })
        .collect();
    let known = made.tried.dir.path().join("known.jsonl");
    fs::write(&known, scores).unwrap();
    let classifier = fitted(&made.tried, "recorded", json!({"scores": known})).unwrap();
    let all = json!({"classifier": classifier, "semantics": made.semantics});
    let fit = || made.tried.fitted(MethodConfig::named("xml0", &all).unwrap()).unwrap();
    let (model, heard) = fit();
    let measured = |vectors: &str| -> f64 {
        let line = heard.iter().find(|event| event.contains(vectors)).unwrap_or_else(|| panic!("{heard:?}"));
        let value = line.split("value: ").nth(1).unwrap();
        value.trim_end_matches([' ', '}']).parse().unwrap()
    };
    let better = measured("by what goes together") > measured("as they are");
    assert_eq!(model.join("together.safetensors").is_file(), better);
    let hidden = |heard: Vec<String>| -> Vec<String> {
        heard.into_iter().filter(|event| event.contains("hidden")).collect()
    };
    let (first, again) = (hidden(heard), hidden(fit().1));
    assert!(first.len() == 2 && first == again, "{first:?} {again:?}");
}
