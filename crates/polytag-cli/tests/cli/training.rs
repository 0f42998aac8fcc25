//! Methods that train an encoder, as people run them: a table that grows, a training that goes on after
//! Ctrl-C, a picture of several. The encoder is tiny and its weights are random.

use std::path::Path;

use crate::support::{Lab, json, signal, wait_for};

fn encoder() -> String {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders/bert");
    tiny.canonicalize().unwrap().display().to_string()
}

/// The command that fits `method` into the folder `out`.
fn fit(method: &str, out: &str, more: &str) -> String {
    let encoder = encoder();
    format!(
        "fit task --method {method} --encoder {encoder} --set max_tokens=32 --set batch=3 --set epochs=4 \
         --device cpu --cache cache --out {out} {more}"
    )
}

#[test]
fn a_training_shows_how_good_it_gets_and_leaves_its_course() {
    let lab = Lab::with_task();
    let ran = lab.run(&fit("of-lan", "lan", ""));
    let told = ran.stderr.clone();
    assert!(ran.done().contains("of-lan, 4 labels"));
    assert!(told.contains("nDCG@5") && told.contains("ZSR@100") && told.contains("step 4"), "{told}");
    let measured =
        lab.json_lines("lan/curve.jsonl").iter().filter(|point| point["measures"].is_object()).count();
    assert_eq!(measured, 4, "an epoch has one step here");
    assert!(lab.read("lan/training.html").contains("<svg"));
    assert!(!lab.path("lan.training").exists(), "nothing is left beside the model");
    let why = json(&lab.run("explain lan --text tea --k 1 --device cpu --json").done());
    assert!(why[0]["reasons"][0]["attention"].is_number(), "{why}");
    let why = lab.run("explain lan --text tea --k 1 --device cpu").done();
    assert!(why.contains("of the label's attention"), "{why}");
    lab.run_all(&["labels", "lan", "add", "--id", "ash", "--name", "volcanic ash", "--device", "cpu"]).done();
    let told = json(&lab.feed("predict lan --plain --k 9 --device cpu", "volcanic ash").done());
    assert_eq!(told["labels"].as_array().unwrap().len(), 5);
}

#[test]
fn a_classifier_shows_where_its_labels_look() {
    let lab = Lab::with_task();
    let ran = lab.run(&fit("me-xml", "experts", ""));
    assert!(ran.stderr.contains("P@5") && ran.stderr.contains("step 4"), "{}", ran.stderr);
    assert!(ran.done().contains("me-xml"));
    let why = json(&lab.run("explain experts --text tea --k 1 --device cpu --json --html why.html").done());
    assert!(why[0]["marks"][0]["attention"].is_number() && why[0]["marks"][0]["end"] == 3, "{why}");
    let page = lab.read("why.html");
    assert!(page.contains("<mark style=\"--strength:1.00\">tea</mark>"), "{page}");
    let added = ["labels", "experts", "add", "--id", "ash", "--name", "ash", "--device", "cpu"];
    let error = lab.run_all(&added).complaint();
    assert!(error.contains("train"), "{error}");
}

#[test]
fn a_document_that_is_a_label_is_not_tagged_with_itself() {
    let lab = Lab::with_task();
    let encoder = encoder();
    lab.run(&format!(
        "fit task --method maclr --encoder {encoder} --set item_to_item=true --set max_steps=1 --set max_tokens=32 \
         --device cpu --cache cache --out items"
    ))
    .done();
    let label = lab.json_lines("task/labels.jsonl")[0]["id"].as_str().unwrap().to_owned();
    let tagged = |id: &str, k: usize| -> Vec<String> {
        let document = format!("{{\"id\": \"{id}\", \"text\": \"tea\"}}");
        let told = json(&lab.feed(&format!("predict items --k {k} --device cpu"), &document).done());
        let labels = told["labels"].as_array().unwrap().iter();
        labels.map(|label| label["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = tagged("another document", 9);
    assert_eq!(all.len(), 4);
    let others: Vec<String> = all.iter().filter(|id| **id != label).cloned().collect();
    assert_eq!(tagged(&label, 9), others);
    assert_eq!(tagged(&label, 2), others[..2]);
}

#[test]
fn several_trainings_make_one_picture() {
    let lab = Lab::with_task();
    lab.run(&fit("of-de", "de", "")).done();
    lab.run(&fit("ova", "ova", "")).done();
    lab.run("curves ours=de ova/curve.jsonl --out page.html").done();
    let page = lab.read("page.html");
    assert!(page.contains("ours") && page.contains("ZSR@100") && page.contains("<svg"));
    let error = lab.refuses("curves de --measure magic --out page.html");
    assert!(error.contains("magic") && error.contains("nDCG@5"), "{error}");
    lab.write("bad.jsonl", "{\"step\": 1}\n");
    let error = lab.refuses("curves bad.jsonl --out page.html");
    assert!(error.contains("bad.jsonl:1"), "{error}");
}

#[test]
fn a_training_that_was_stopped_goes_on() {
    let lab = Lab::with_task();
    let line = fit("of-de", "de", "--set epochs=100000");
    let mut child = lab.start(&line);
    wait_for("a first checkpoint", || lab.path("de.training/checkpoint.safetensors").is_file());
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!lab.path("de").exists(), "there is no model yet");
    let ran = lab.run(&fit("of-de", "de", "--set epochs=5"));
    let error = ran.complaint();
    assert!(error.contains("checkpoint"), "another training is not gone on with: {error}");
    std::fs::remove_dir_all(lab.path("de.training")).unwrap();
    lab.run(&fit("of-de", "de", "--set epochs=5")).done();
}

#[test]
fn settings_and_tasks_that_make_no_sense_are_refused() {
    let lab = Lab::with_task();
    let error = lab.refuses(&fit("of-lan", "m", "--set epoch=3"));
    assert!(error.contains("epochs"), "{error}");
    let error = lab.refuses(&fit("of-lan", "m", "--set unseen=never"));
    assert!(error.contains("masked"), "{error}");
    let error = lab.refuses(&fit("lan", "m", "--set auxiliary=1"));
    assert!(error.contains("auxiliary = 0"), "{error}");
    lab.write("task/train.jsonl", "{\"id\":\"1\",\"text\":\"tea\"}\n");
    let error = lab.refuses(&fit("of-de", "m", ""));
    assert!(error.contains("no training document carries a label"), "{error}");
    assert!(!lab.path("m").exists() && !lab.path("m.training").exists());
}

#[test]
fn several_devices_train_one_model() {
    let lab = Lab::with_task();
    let on = |devices: &str, out: &str, more: &str| {
        fit("of-de", out, more).replace("--device cpu", &format!("--device {devices}"))
    };
    let batch = "--set batch=4 --set auxiliary_batch=4";
    lab.run(&on("cpu", "one", batch)).done();
    lab.run(&on("cpu,", "world-of-one", batch)).done();
    assert_eq!(lab.read("one/manifest.json"), lab.read("world-of-one/manifest.json"), "to the last bit");
    lab.run(&on("cpu,cpu", "two", batch)).done();
    let points = |model: &str| lab.json_lines(&format!("{model}/curve.jsonl")).len();
    assert_eq!(points("two"), points("one"));
    let error = lab.refuses(&on("cpu,cpu", "m", ""));
    assert!(error.contains("batch = 3") && error.contains("2 devices"), "{error}");
    let error = lab.refuses("fit task --method lexical --device cpu,cpu --out m");
    assert!(error.contains("works on one device"), "{error}");
    let error = lab.refuses("predict one --device cpu,cpu");
    assert!(error.contains("only `fit` works on several"), "{error}");
    let error = lab.refuses("fit task --method of-de --device auto,cpu --out m");
    assert!(error.contains("cuda:0,cuda:1"), "{error}");
    assert!(!lab.path("m").exists() && !lab.path("m.training").exists());
}

#[test]
fn texts_alone_are_enough_to_train_on() {
    let lab = Lab::with_task();
    lab.write(
        "task/train.jsonl",
        "{\"id\":\"1\",\"title\":\"tea\",\"text\":\"a cup of it\"}\n{\"id\":\"2\",\"title\":\"law\",\"text\":\"by a court\"}\n\
         {\"id\":\"3\",\"text\":\"First this. Then that.\"}\n",
    );
    let encoder = encoder();
    let line = |method: &str, more: &str| {
        format!(
            "fit task --method {method} --encoder {encoder} --set max_tokens=32 --set max_steps=4 --device cpu \
             --cache cache --out m {more}"
        )
    };
    // Without a pair, and with few enough documents for a CPU, this is what there is to do.
    let ran = lab.run(&line("auto", ""));
    let told = ran.stderr.clone();
    assert!(ran.done().contains("maclr, 4 labels"));
    assert!(told.contains("method: maclr, which learns from the texts alone"), "{told}");
    assert!(told.contains("clusters are too many for 3 documents"), "{told}");
    assert!(
        told.contains("stage one: expected seconds") && told.contains("stage two: memory, GiB"),
        "{told}"
    );
    assert!(!lab.path("m.training").exists(), "nothing is left beside the model");
    let found = json(&lab.feed("predict m --plain --k 9 --device cpu", "a cup of tea").done());
    assert_eq!(found["labels"].as_array().unwrap().len(), 4);
    let error = lab.refuses(&line("maclr", "--set clusters=0"));
    assert!(error.contains("clusters = 0"), "{error}");
    let error = lab.refuses(&line("maclr", "--set pairs=headline"));
    assert!(error.contains("title") && error.contains("chunks"), "{error}");
    let error = lab.refuses(&line("few-shot", ""));
    assert!(error.contains("no training document carries a label"), "{error}");
}

#[test]
fn steps_are_in_f32_and_what_is_encoded_between_them_in_the_precision_asked_for() {
    let lab = Lab::with_task();
    let encoder = encoder();
    let fitted = |out: &str, precision: &str| {
        let line = format!(
            "fit task --method few-shot --encoder {encoder} --set max_tokens=32 --set max_steps=4 --set evaluations=0 \
             --device cpu --cache cache --precision {precision} --out {out}"
        );
        lab.run(&line).done();
        let bytes = |file: &str| std::fs::read(lab.path(&format!("{out}/{file}"))).unwrap();
        (bytes("encoder/model.safetensors"), bytes("label_vectors.safetensors"))
    };
    let (weights, labels) = fitted("exact", "f32");
    let (same, rounded) = fitted("rounded", "int8");
    // Given pairs are learned without a look at anything encoded, so that the trainings are one.
    assert!(weights == same, "the trained weights differ");
    assert!(labels != rounded, "label vectors were not made in 8-bit integers");
}

#[test]
fn a_run_in_stages_that_was_stopped_goes_on() {
    let lab = Lab::with_task();
    let encoder = encoder();
    let line = |epochs: &str| {
        format!(
            "fit task --method maclr --encoder {encoder} --set max_tokens=32 --set stage_one_epochs={epochs} \
             --set evaluations=0 --device cpu --cache cache --out m"
        )
    };
    let mut child = lab.start(&line("1000000"));
    wait_for("a first checkpoint", || lab.path("m.training/stages/one/checkpoint.safetensors").is_file());
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!lab.path("m").exists(), "there is no model yet");
    let error = lab.run(&line("2")).complaint();
    assert!(error.contains("checkpoint"), "another training is not gone on with: {error}");
    std::fs::remove_dir_all(lab.path("m.training")).unwrap();
    lab.run(&line("2")).done();
    assert!(lab.path("m/manifest.json").is_file() && !lab.path("m.training").exists());
}
