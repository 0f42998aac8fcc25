//! How label vectors are searched: the setting, what is told of it, what is kept, and what damage does.

use std::path::Path;

use crate::support::{Lab, json};

/// A tiny encoder whose weights are random.
fn encoder() -> String {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders/bert");
    tiny.canonicalize().unwrap().display().to_string()
}

/// A task of many labels, half of them below one of two others.
fn lab() -> Lab {
    let lab = Lab::new();
    let words = ["tea", "rail", "bee", "glue", "ash", "boat", "tax", "fish", "corn", "milk", "steel", "wool"];
    let mut labels = String::from(
        "{\"id\":\"top\",\"name\":\"things\"}\n{\"id\":\"mid\",\"name\":\"goods\",\"parents\":[\"top\"]}\n",
    );
    for (place, first) in words.iter().enumerate() {
        for (at, second) in words.iter().enumerate() {
            let parent = if at % 2 == 0 { ",\"parents\":[\"mid\"]" } else { "" };
            labels.push_str(&format!("{{\"id\":\"{place}-{at}\",\"name\":\"{first} {second}\"{parent}}}\n"));
        }
    }
    lab.write("task/labels.jsonl", labels);
    lab
}

fn fit(lab: &Lab, model: &str, settings: &[&str]) -> String {
    let encoder = encoder();
    let mut line = vec![
        "fit",
        "task",
        "--method",
        "frozen",
        "--encoder",
        &encoder,
        "--device",
        "cpu",
        "--cache",
        "cache",
    ];
    line.extend(["--out", model]);
    settings.iter().for_each(|setting| line.extend(["--set", setting]));
    lab.run_all(&line).done()
}

fn best(lab: &Lab, model: &str, options: &str, text: &str) -> Vec<(String, f64)> {
    let told = json(&lab.feed(&format!("predict {model} --plain --device cpu {options}"), text).done());
    let labels = told["labels"].as_array().unwrap().iter();
    labels.map(|label| (label["id"].as_str().unwrap().to_owned(), label["score"].as_f64().unwrap())).collect()
}

#[test]
fn a_graph_is_told_of_kept_and_changed_beside_its_files() {
    let lab = lab();
    let told = fit(&lab, "plain", &[]);
    assert!(!told.contains("index:"), "few labels are compared one and all, as ever: {told}");
    let told = fit(&lab, "graph", &["index=hnsw"]);
    assert!(told.contains("index: hnsw (as was said)") && told.contains("recall@100"), "{told}");
    let manifest = json(&lab.read("graph/manifest.json"));
    assert_eq!((&manifest["index"]["kind"], &manifest["config"]["index"]), (&"hnsw".into(), &"hnsw".into()));
    assert!(manifest["index"]["recall_at_100"].as_f64().unwrap() > 0.9, "{manifest}");
    assert!(json(&lab.read("plain/manifest.json")).get("index").is_none());
    let files = lab.tree("graph");
    assert_eq!(best(&lab, "graph", "--k 3", "rail glue")[0].0, "1-3");
    lab.run("labels graph add --id new --name volcano --device cpu").done();
    lab.run("labels graph remove 1-3 --device cpu").done();
    assert_eq!(best(&lab, "graph", "--k 1", "volcano")[0].0, "new");
    assert_ne!(best(&lab, "graph", "--k 1", "rail glue")[0].0, "1-3");
    let now = lab.tree("graph");
    for (name, bytes) in files {
        assert!(now.get(&name) == Some(&bytes), "{name}");
    }
    fit(&lab, "again", &["index=hnsw"]);
    assert_eq!(lab.bytes("again/label_graph.safetensors"), lab.bytes("graph/label_graph.safetensors"));
}

#[test]
fn eight_bits_score_as_sixteen_do() {
    let lab = lab();
    fit(&lab, "f16", &["precision=f16"]);
    let told = fit(&lab, "i8", &["precision=i8"]);
    assert!(told.contains("index: exact") && told.contains("recall@100"), "{told}");
    assert_eq!(best(&lab, "i8", "--k 5", "wool tax"), best(&lab, "f16", "--k 5", "wool tax"));
}

#[test]
fn labels_below_another_can_be_asked_for() {
    let lab = lab();
    fit(&lab, "graph", &["index=hnsw"]);
    let found = best(&lab, "graph", "--k 200 --under top", "rail glue");
    assert_eq!(found.len(), 2 + 72);
    assert!(found.iter().all(|(id, _)| !id.ends_with("-3")), "not below it: {found:?}");
    assert_eq!(best(&lab, "graph", "--k 9 --under 1-3", "rail glue").len(), 1);
    lab.write("mine.txt", "1-3\n1-4\n");
    assert_eq!(best(&lab, "graph", "--under mid --allow mine.txt", "rail glue")[0].0, "1-4");
    let complaint = lab.refuses("predict graph --plain --device cpu --under nowhere");
    assert!(complaint.contains("--under nowhere"), "{complaint}");
}

#[test]
fn damaged_index_files_are_named() {
    let lab = lab();
    fit(&lab, "graph", &["index=hnsw"]);
    for name in ["label_vectors", "label_codes", "label_graph"] {
        let path = format!("graph/{name}.safetensors");
        let whole = lab.bytes(&path);
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 64;
        for damaged in [&whole[..whole.len() - 7], &changed] {
            lab.write(&path, damaged);
            let complaint = lab.refuses("predict graph --plain --device cpu");
            assert!(complaint.contains(name), "{complaint}");
        }
        lab.write(&path, &whole);
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let lab = lab();
    let complaint = lab.refuses("fit task --method frozen --set index=tree --out m");
    assert!(complaint.contains("index = \"tree\""), "{complaint}");
}
