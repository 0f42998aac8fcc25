//! `fit --method frozen`: an encoder from a folder, all the way to an answer. Its weights are random, so
//! only what must hold for any encoder is asked: a label's own name is nearest to it.

use std::path::Path;

use crate::support::{Lab, json};

fn encoder() -> String {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders/bert");
    tiny.canonicalize().unwrap().display().to_string()
}

fn fitted() -> Lab {
    let lab = Lab::with_model();
    let encoder = encoder();
    let told = lab.run_all(&[
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
        "--out",
        "frozen",
    ]);
    assert!(told.done().contains("frozen, 4 labels"));
    lab
}

fn best(lab: &Lab, text: &str) -> String {
    let told = json(&lab.feed("predict frozen --plain --k 1 --device cpu", text).done());
    told["labels"][0]["id"].as_str().unwrap_or("nothing").to_owned()
}

#[test]
fn a_label_added_is_in_the_very_next_answer() {
    let lab = fitted();
    lab.run_all(&["labels", "frozen", "add", "--id", "ash", "--name", "volcanic ash", "--device", "cpu"])
        .done();
    assert_eq!(best(&lab, "volcanic ash"), "ash");
    let why = lab.run_all(&[
        "explain",
        "frozen",
        "--text",
        "volcanic ash",
        "--k",
        "1",
        "--device",
        "cpu",
        "--json",
    ]);
    let why = why.done();
    assert!(why.contains("volcanic"), "{why}");
    assert!(lab.path("frozen/encoder/modules.json").is_file(), "Python can read the encoder");
}

#[test]
fn integers_find_the_same_label_on_the_cpu_and_are_refused_on_a_gpu() {
    let lab = fitted();
    let score = |options: &str| {
        let told = lab.feed(&format!("predict frozen --plain --k 1 {options}"), "tea");
        let told = json(&told.done());
        (told["labels"][0]["id"].clone(), told["labels"][0]["score"].as_f64().unwrap())
    };
    let ((exact_id, exact), (id, rounded)) = (score("--device cpu"), score("--device cpu --precision int8"));
    assert_eq!(exact_id, id);
    assert!(exact != rounded && (exact - rounded).abs() < 0.02, "{exact} {rounded}");
    let told = lab.feed("predict frozen --plain --precision int8", "tea");
    assert!(told.stderr.contains("8-bit integers"), "`auto` takes the CPU and says so: {}", told.stderr);
    assert_eq!(score("--quiet --precision int8"), (id, rounded));
    for command in ["predict frozen --plain", "evaluate frozen task"] {
        let refused = lab.refuses(&format!("{command} --precision int8 --device cuda"));
        assert!(refused.contains("for the CPU only; say --device cpu"), "{refused}");
        assert!(lab.refuses(&format!("{command} --precision f8")).contains("[possible values: f32, int8]"));
    }
}

#[test]
fn an_encoder_that_is_not_there_says_how_to_get_it() {
    let lab = Lab::with_model();
    let told = lab.run("fit task --method frozen --device cpu --cache cache --out frozen");
    let error = told.complaint();
    assert!(error.contains("polytag encoders pull minilm"), "{error}");
    let told = lab.run("fit task --method lexical --encoder minilm --out other");
    let error = told.complaint();
    assert!(error.contains("encoder"), "{error}");
}

#[test]
fn a_gpu_that_is_asked_for_and_missing_is_an_error_with_a_reason() {
    let lab = fitted();
    let told = lab.feed("predict frozen --plain --device cuda:77", "tea");
    let error = told.complaint();
    assert!(error.contains("GPU"), "{error}");
}
