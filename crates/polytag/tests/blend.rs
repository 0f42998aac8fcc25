//! Blends: one ranking over labels that training saw and those that it did not, kept, changed and explained.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{Tried, answers, read};
use polytag::data::{Label, LabelChange, Passage, Split};
use polytag::ids::LabelId;
use polytag::index::Allowed;
use polytag::method::{MethodConfig, change_labels, uses_network};
use polytag::predict::Ask;
use polytag::ranking::Ranking;
use polytag_nn::device::Device;
use serde_json::{Value, json};

/// A task of eighty labels. Documents have words of their labels, which trees can learn, and half of the time the name
/// of a label, which words alone give away, beside a name that means nothing now and then; the last twenty labels are in no training document. Labels are rarer the
/// higher their number is.
fn both_kinds(dir: &Path) -> PathBuf {
    let task = dir.join("task");
    fs::create_dir_all(&task).unwrap();
    let name = |number: usize| format!("name{number}");
    let labels: Vec<String> =
        (0..80).map(|number| json!({"id": format!("l{number}"), "name": name(number)}).to_string()).collect();
    fs::write(task.join("labels.jsonl"), labels.join("\n")).unwrap();
    let document = |i: usize, labels: usize| {
        let drawn = (i * 7919 + i / 13) % (labels * labels);
        let (first, second) = (drawn % labels * (drawn / labels) / labels, (i * 31) % labels);
        let gold: std::collections::BTreeSet<usize> = [first, second].into();
        let mut words: Vec<String> =
            gold.iter().map(|l| format!("word{l} filler{}", (i * 31 + l) % 17)).collect();
        words.extend(gold.iter().filter(|l| (i + *l).is_multiple_of(2)).map(|&l| name(l)));
        // A name that means nothing.
        words.extend(i.is_multiple_of(3).then(|| name((i * 17 + 5) % labels)));
        let ids: Vec<String> = gold.iter().map(|l| format!("l{l}")).collect();
        json!({"id": i.to_string(), "text": words.join(" "), "labels": ids}).to_string()
    };
    let split = |range: std::ops::Range<usize>, labels| {
        range.map(|i| format!("{}\n", document(i, labels))).collect::<String>()
    };
    fs::write(task.join("train.jsonl"), split(0..900, 60)).unwrap();
    fs::write(task.join("dev.jsonl"), split(1000..1200, 80)).unwrap();
    task
}

fn blend(more: &Value) -> Result<MethodConfig, polytag::Error> {
    let mut all = json!({"held_out": 0.2, "hidden": 0.2});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Ok(MethodConfig::named("blend", &all)?)
}

#[test]
fn seen_and_unseen_labels_are_in_one_ranking() {
    let tried = Tried::of(both_kinds);
    let (model, heard) = tried.fitted(blend(&json!({})).unwrap()).unwrap();
    assert!(heard.iter().any(|event| event.contains("calibration error")), "{heard:?}");
    assert!(!uses_network(&model).unwrap());
    let value = |model: &Path, name| tried.report(model, Split::Dev).value(name).unwrap();
    let alone = |method| tried.fitted(MethodConfig::named(method, &json!({})).unwrap()).unwrap().0;
    let (tree, lexical) = (alone("label-tree"), alone("lexical"));
    // Better than each of its sources, and it finds what the tree cannot.
    for source in [&tree, &lexical] {
        assert!(value(&model, "nDCG@5") > value(source, "nDCG@5"));
    }
    assert_eq!(value(&tree, "ZSR@10"), 0.0);
    assert!(value(&model, "ZSR@10") > 30.0, "{}", value(&model, "ZSR@10"));
    // Scores are probabilities.
    let found = answers(read(&model).as_ref(), &["word3 name70", "nothing of the kind", ""]);
    assert!(found.iter().flatten().all(|(_, score)| (0.0..=1.0).contains(&f32::from_bits(*score))));
    let best: Vec<&str> = found[0][..2].iter().map(|(id, _)| &id[..]).collect();
    assert!(best.contains(&"l3") && best.contains(&"l70"), "{best:?}");
}

#[test]
fn the_knobs_do_what_they_say() {
    let tried = Tried::of(both_kinds);
    let shares = [-10.0, 0.0, 10.0].map(|unseen| {
        let (model, _) = tried.fitted(blend(&json!({"unseen": unseen})).unwrap()).unwrap();
        tried.report(&model, Split::Dev).value("unseen share@1").unwrap()
    });
    assert!(shares[0] < shares[1] && shares[1] < shares[2], "{shares:?}");
    let (sure, _) = tried.fitted(blend(&json!({"least": 0.5})).unwrap()).unwrap();
    let found = answers(read(&sure).as_ref(), &["word3 filler2", "nothing of the kind"]);
    assert!(found[0].iter().all(|(_, score)| f32::from_bits(*score) >= 0.5));
    assert!(found[1].is_empty(), "nothing is likely: {:?}", found[1]);
}

#[test]
fn a_blend_is_kept_and_its_labels_change() {
    let tried = Tried::of(both_kinds);
    let (model, _) = tried.fitted(blend(&json!({})).unwrap()).unwrap();
    let texts = ["word3 name70 filler2", "cobalt mining"];
    let before = answers(read(&model).as_ref(), &texts);
    assert_eq!(before, answers(read(&model).as_ref(), &texts));
    let device = Device::cpu();
    let add = LabelChange::Add { label: Label::new("cobalt", "cobalt mining") };
    change_labels(&model, &[add, LabelChange::Remove { id: "l70".to_owned() }], &device).unwrap();
    let after = answers(read(&model).as_ref(), &texts);
    assert_eq!(after[1][0].0, "cobalt");
    assert!(after[0].iter().all(|(id, _)| id != "l70"));
    let predictor = read(&model);
    let space = predictor.label_space();
    let only: Allowed = ["l3", "cobalt"].iter().map(|id| space.find(id).unwrap()).collect();
    let ask = Ask { k: 9, allowed: Some(&only) };
    let ranking = &predictor.predict(&[Passage::from("word3 cobalt")], &ask).unwrap()[0];
    assert_eq!(ranking.entries().len(), 2);
}

#[test]
fn reasons_add_up_to_the_log_odds() {
    let tried = Tried::of(both_kinds);
    let (model, _) = tried.fitted(blend(&json!({})).unwrap()).unwrap();
    let predictor = read(&model);
    let space = predictor.label_space();
    let passage = || Passage::from("word3 name70 filler2");
    let ranking = predictor.predict(&[passage()], &Ask { k: 3, allowed: None }).unwrap().remove(0);
    for entry in ranking.entries() {
        let explained = predictor.explain(passage(), entry.label).unwrap();
        assert_eq!(explained.score.to_bits(), entry.score.to_bits());
        let total: f32 = explained.reasons.iter().map(|reason| reason.weight).sum();
        let chance = 1.0 / (1.0 + (-total).exp());
        assert!((chance - entry.score).abs() < 1e-4, "{chance} {}", entry.score);
        assert!(explained.matched.unwrap().contains("label-tree"));
    }
    // The words that speak for a label are those of its sources.
    let best = predictor.explain(passage(), ranking.entries()[0].label).unwrap();
    assert!(best.reasons.iter().any(|reason| ["word3", "name70"].contains(&&reason.words[..])), "{best:?}");
    let silent = predictor.explain(Passage::from(""), space.find("l3").unwrap()).unwrap();
    assert!(silent.score < 0.5);
}

#[test]
fn a_probability_hangs_on_neither_how_many_labels_are_asked_for_nor_which() {
    let tried = Tried::of(both_kinds);
    let (model, _) = tried.fitted(blend(&json!({"depth": 5})).unwrap()).unwrap();
    let predictor = read(&model);
    let space = predictor.label_space();
    let texts = ["word3 name70 filler2", "name1 name2 name3 name4 name5 name6 name7 word8 word9", "", "none"];
    let passages = texts.map(Passage::from);
    let ranked = |k: usize, allowed: Option<&Allowed>| {
        let rankings = predictor.predict(&passages, &Ask { k, allowed }).unwrap();
        let bits = |ranking: &Ranking| {
            let entries = ranking.entries().iter();
            entries.map(|entry| (entry.label, entry.score.to_bits())).collect::<BTreeMap<_, _>>()
        };
        rankings.iter().map(bits).collect::<Vec<_>>()
    };
    let all = ranked(80, None);
    assert!(all[0].len() > 10 && all[1].len() > 10, "{} {}", all[0].len(), all[1].len());
    let few: Allowed = ["l3", "l9", "l40", "l70", "l79"].iter().map(|id| space.find(id).unwrap()).collect();
    let many: Allowed = (0..80).step_by(2).map(LabelId).collect();
    let mut compared = 0;
    // Of the first two cases what is found is among the best of some source, of the others all sources say something.
    for (k, allowed) in [(1, None), (3, None), (80, Some(&few)), (2, Some(&few))] {
        for ((found, all), passage) in ranked(k, allowed).iter().zip(&all).zip(&passages) {
            assert!(found.len() <= k);
            for (label, bits) in found {
                assert!(allowed.is_none_or(|allowed| allowed.contains(*label)));
                assert_eq!(all.get(label), Some(bits), "{k} {allowed:?} {label:?}");
                let explained = predictor.explain(*passage, *label).unwrap();
                assert_eq!(explained.score.to_bits(), *bits, "{label:?} {explained:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "{compared}");
    // Where more are wanted than sources have among their best, they are asked again.
    for found in &ranked(9, Some(&many))[..2] {
        assert!(found.len() == 9 && found.keys().all(|label| many.contains(*label)), "{found:?}");
    }
    // Documents together are judged as each by itself.
    for (passage, all) in passages.iter().zip(&all) {
        let alone = predictor.predict(&[*passage], &Ask { k: 80, allowed: None }).unwrap();
        let alone = alone[0].entries().iter().map(|entry| (entry.label, entry.score.to_bits()));
        assert_eq!(&alone.collect::<BTreeMap<_, _>>(), all);
    }
}

#[test]
fn what_cannot_be_rehearsed_is_said() {
    let few = Tried::of(|dir| {
        let task = both_kinds(dir);
        let train = fs::read_to_string(task.join("train.jsonl")).unwrap();
        let few: String = train.lines().take(3).map(|line| format!("{line}\n")).collect();
        fs::write(task.join("train.jsonl"), few).unwrap();
        task
    });
    let error = few.fitted(blend(&json!({})).unwrap()).unwrap_err().to_string();
    assert!(error.contains("3 documents with labels are too few"), "{error}");
    let error =
        blend(&json!({"sources": ["label-tree", "magic"]})).unwrap().method().err().unwrap().to_string();
    assert!(error.contains("magic"), "{error}");
}
