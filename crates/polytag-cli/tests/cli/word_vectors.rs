//! `fit --method frozen` with word vectors: a handful of words in four directions, all the way to an answer.

use polytag_nn::weights::{NewTensor, write};
use serde_json::Value;

use crate::support::{Lab, json};

/// Words and which way they point.
const WORDS: [(&str, [f32; 4]); 9] = [
    ("tea", [1.0, 0.0, 0.0, 0.0]),
    ("green", [0.8, 0.0, 0.0, 0.2]),
    ("rail", [0.0, 1.0, 0.0, 0.0]),
    ("transport", [0.0, 0.9, 0.1, 0.0]),
    ("bee", [0.0, 0.0, 1.0, 0.0]),
    ("bees", [0.0, 0.0, 0.9, 0.0]),
    ("honey", [0.1, 0.0, 0.8, 0.0]),
    ("volcanic", [0.0, 0.0, 0.0, 1.0]),
    ("ash", [0.0, 0.1, 0.0, 1.0]),
];

/// A small task, and word vectors in `words`, one number of which is `odd` if that is given.
fn lab_with_words(odd: Option<f32>) -> Lab {
    let lab = Lab::with_task();
    lab.write("words/words.txt", WORDS.map(|(word, _)| format!("{word}\n")).concat());
    let mut values: Vec<f32> = WORDS.iter().flat_map(|(_, vector)| *vector).collect();
    values[5] = odd.unwrap_or(values[5]);
    let tensor = NewTensor { name: "word_vectors".to_owned(), shape: vec![WORDS.len(), 4] };
    write(&lab.path("words/word_vectors.safetensors"), &[tensor], |_| Ok(values.clone())).unwrap();
    lab
}

const FIT: &str = "fit task --method frozen --encoder ./words --cache cache --out model";

fn fitted() -> Lab {
    let lab = lab_with_words(None);
    let ran = lab.run(FIT);
    assert!(!ran.stderr.contains("device"), "no network, no device: {}", ran.stderr);
    assert!(ran.done().contains("frozen, 4 labels"));
    lab
}

/// Labels and scores for a text, all of them.
fn answer(lab: &Lab, text: &str) -> Vec<(String, f64)> {
    let told = json(&lab.feed("predict model --plain --k 9", text).done());
    let entry = |label: &Value| (label["id"].as_str().unwrap().to_owned(), label["score"].as_f64().unwrap());
    told["labels"].as_array().unwrap().iter().map(entry).collect()
}

#[test]
fn word_vectors_go_all_the_way_to_an_answer() {
    let lab = fitted();
    // What the model was made of may go: it carries its words.
    std::fs::remove_dir_all(lab.path("words")).unwrap();
    let best = |text: &str| answer(&lab, text)[0].0.clone();
    assert_eq!([best("Green TEA!"), best("by rail"), best("honey")], ["tea", "rail", "bees"]);
    let told = lab.run("evaluate model task --split dev").done();
    assert!(told.contains("nDCG@5"), "{told}");

    lab.run_all(&["labels", "model", "add", "--id", "ash", "--name", "volcanic ash"]).done();
    let (id, score) = answer(&lab, "volcanic ash").remove(0);
    assert!(id == "ash" && (score - 1.0).abs() < 1e-6, "{id} {score}");
    lab.run("labels model remove ash").done();
    assert!(answer(&lab, "volcanic ash").iter().all(|(id, _)| id != "ash"));

    let why = lab.run_all(&["explain", "model", "--text", "Bees by rail", "--k", "1", "--json"]).done();
    let why = json(&why);
    let reasons = why[0]["reasons"].as_array().unwrap();
    let words: Vec<&str> = reasons.iter().map(|reason| reason["words"].as_str().unwrap()).collect();
    assert_eq!(words, ["rail", "Bees"], "words that are not known say nothing: {why}");
    let sum: f64 = reasons.iter().map(|reason| reason["weight"].as_f64().unwrap()).sum();
    assert!((sum - why[0]["score"].as_f64().unwrap()).abs() < 1e-6, "{why}");
}

#[test]
fn a_text_without_a_known_word_scores_nothing_for_every_label() {
    let lab = fitted();
    for text in ["quite another thing", "?"] {
        let scores = answer(&lab, text);
        assert!(scores.len() == 4 && scores.iter().all(|(_, score)| *score == 0.0), "{scores:?}");
    }
    // A label of which no word is known, too.
    let glue = answer(&lab, "tea").into_iter().find(|(id, _)| id == "glue");
    assert_eq!(glue.unwrap().1, 0.0);
}

#[test]
fn a_gpu_is_not_needed_even_if_it_is_asked_for() {
    let lab = lab_with_words(None);
    lab.run(&format!("{FIT} --device cuda:77")).done();
    lab.feed("predict model --plain --device cuda:77", "tea").done();
}

#[test]
fn where_a_network_is_needed_word_vectors_are_refused() {
    let lab = lab_with_words(None);
    lab.write("texts.txt", "tea\n");
    for line in [
        "fit task --method of-lan --encoder ./words --cache cache --device cpu --out model",
        "fit task --method of-de --encoder ./words --cache cache --device cpu --out model",
        "bench encode --encoder ./words --texts texts.txt --cache cache --device cpu",
    ] {
        let error = lab.refuses(line);
        assert!(error.contains("./words: these are word vectors") && error.contains("frozen"), "{error}");
    }
}

#[test]
fn damaged_word_vectors_are_named() {
    let error = lab_with_words(Some(f32::NAN)).refuses(FIT);
    assert!(error.contains("word_vectors.safetensors") && error.contains("NaN"), "{error}");
    let lab = lab_with_words(None);
    lab.write("words/words.txt", "tea\n".repeat(9));
    let error = lab.refuses(FIT);
    assert!(error.contains("words.txt") && error.contains("twice"), "{error}");
    lab.write("words/words.txt", "tea\nrail\n");
    let error = lab.refuses(FIT);
    assert!(error.contains("9 vectors") && error.contains("2 words"), "{error}");
    std::fs::remove_file(lab.path("words/words.txt")).unwrap();
    assert!(lab.refuses(FIT).contains("no words.txt"));

    let lab = fitted();
    lab.write("model/encoder/words.txt", lab.read("words/words.txt").replace("green", "greek"));
    let error = lab.refuses("evaluate model task --split dev");
    assert!(error.contains("words.txt") && error.contains("checksum"), "{error}");
}
