//! `polytag split`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Lab, json};

/// The labels that train documents carry, and how many pairs there are.
fn carried(lab: &Lab, task: &str) -> (BTreeSet<String>, usize) {
    let documents = lab.json_lines(&format!("{task}/train.jsonl"));
    let labels = documents.iter().flat_map(|document| document["labels"].as_array().into_iter().flatten());
    let labels: Vec<&str> = labels.map(|label| label.as_str().unwrap()).collect();
    (labels.iter().map(|&label| label.to_owned()).collect(), labels.len())
}

/// The documents of a file, each with its labels in order.
fn documents(lab: &Lab, name: &str) -> Vec<Value> {
    let mut documents = lab.json_lines(name);
    for document in &mut documents {
        document["labels"].as_array_mut().unwrap().sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    documents
}

#[test]
fn a_task_is_cut_three_ways() {
    let lab = Lab::with_sample();
    let (all, pairs) = carried(&lab, "sample");
    let summary = json(&lab.run("split sample zero --zero-shot 60 --seed 1 --json").done());
    let (kept, _) = carried(&lab, "zero");
    assert_eq!((summary["labels_dropped"].as_u64(), all.len() - kept.len()), (Some(60), 60));
    assert!(kept.is_subset(&all));

    let told = lab.run("split sample few --few-shot 10%").done();
    assert!(told.contains("labels in train") && told.contains("labels unseen now"), "{told}");
    assert_eq!(carried(&lab, "few").0.len(), all.len() / 10);

    lab.run("split sample pairs --few-shot-pairs 5%").done();
    assert_eq!(carried(&lab, "pairs").1, (pairs as f64 * 0.05).round() as usize);

    for task in ["zero", "few", "pairs"] {
        assert_eq!(
            documents(&lab, &format!("{task}/dev.jsonl")),
            documents(&lab, "sample/dev.jsonl"),
            "{task}"
        );
        let labels = |of: &str| lab.json_lines(&format!("{of}/labels.jsonl"));
        assert_eq!(labels(task), labels("sample"), "{task}");
        lab.run(&format!("inspect {task}")).done();
    }
}

#[test]
fn the_seed_alone_decides() {
    let lab = Lab::with_sample();
    for (out, seed) in [("a", 7), ("b", 7), ("c", 8)] {
        lab.run(&format!("split sample {out} --zero-shot 20 --seed {seed}")).done();
    }
    assert_eq!(lab.bytes("a/train.jsonl"), lab.bytes("b/train.jsonl"));
    assert_ne!(lab.bytes("a/train.jsonl"), lab.bytes("c/train.jsonl"));
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let lab = Lab::with_task();
    for (line, part) in [
        ("split task out --zero-shot 3", "only 1 are both in train and in dev or test"),
        ("split task out --few-shot 1", "write 1%"),
        ("split task out", "--zero-shot"),
        ("split task out --zero-shot 1 --few-shot 1%", "cannot be used with"),
        ("split task task --zero-shot 1", "is both input and output"),
        ("split nowhere out --zero-shot 1", "nowhere: cannot open the task folder"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains(part), "{line}: {complaint}");
    }
}
