//! `polytag bench`.

use std::path::Path;
use std::process::Command;

use crate::support::{Lab, json, skipped};

#[test]
fn search_is_measured_without_a_peer() {
    let lab = Lab::new();
    for precision in ["f32", "f16"] {
        let line = format!(
            "bench search --labels 3000 --dim 20 --k 5 --batch 3 --rounds 2 --precision {precision} \
             --python ./no-such-python"
        );
        let told = lab.run(&line).done();
        for part in
            ["3,000 labels of 20 numbers, 3 queries at once, k = 5", "queries/s", "no peer: ./no-such"]
        {
            assert!(told.contains(part), "no {part:?} in\n{told}");
        }
        let report = json(&lab.run(&format!("{line} --threads 1 --json")).done());
        assert!(report["ours"]["queries_per_second"].as_f64().unwrap() > 0.0);
        assert_eq!((&report["precision"], &report["threads"]), (&precision.into(), &1.into()));
        assert!(report["peer"].is_null() && report["ratio"].is_null());
    }
    assert_eq!(lab.names(""), [""; 0]);
}

/// A stand-in for Python that checks what it is given and answers, so that the way to a peer is tested
/// without one.
fn stand_in(lab: &Lab, check: &str, answer: &str) {
    lab.write("python", format!("#!/bin/sh\n{check}\necho '{answer}'\n"));
    let made = Command::new("chmod").arg("+x").arg(lab.path("python")).status().unwrap();
    assert!(made.success());
}

#[test]
fn the_peer_gets_the_same_vectors() {
    let lab = Lab::new();
    stand_in(
        &lab,
        "bytes=$(wc -c)\n[ \"$bytes\" = $((4 * 3 * (10 + 2))) ] || exit 1",
        r#"{"name": "stand-in", "seconds": 0.5, "found": [[0, 1], [2, 3]]}"#,
    );
    let line = "bench search --labels 10 --dim 3 --k 10 --batch 2 --rounds 1 --python ./python";
    let report = json(&lab.run(&format!("{line} --json")).done());
    assert_eq!(report["peer"]["name"], "stand-in");
    assert_eq!(report["peer"]["queries_per_second"], 4.0);
    assert_eq!(report["agreement"], 1.0);
    assert!(report["ratio"].as_f64().unwrap() > 1.0);
    assert!(lab.run(line).done().contains("x the peer; 100.00 % of its labels"));
}

#[test]
fn faiss_finds_the_same_labels_where_it_is_installed() {
    let has_faiss = Command::new("python3").args(["-c", "import faiss"]).output();
    if !has_faiss.is_ok_and(|output| output.status.success()) || !Path::new("/bin/sh").exists() {
        return skipped("python3 has no faiss");
    }
    let lab = Lab::new();
    for precision in ["f32", "f16"] {
        let line = format!(
            "bench search --labels 2000 --dim 32 --k 10 --batch 20 --rounds 1 --precision {precision} --json"
        );
        let report = json(&lab.run(&line).done());
        assert!(report["agreement"].as_f64().unwrap() > 0.99, "{report}");
    }
}

#[test]
fn senseless_sizes_are_refused() {
    let lab = Lab::new();
    for option in ["--labels 0", "--dim 0", "--k 0", "--batch 0", "--rounds 0", "--precision f8"] {
        let complaint = lab.refuses(&format!("bench search {option}"));
        assert!(complaint.contains("invalid value"), "{option}: {complaint}");
    }
}

/// A step that even an unoptimised build makes in no time.
const SMALL_STEP: &str =
    "bench train-step --device cpu --layers 1 --hidden 32 --heads 1 --steps 2 --python ./no-such-python";

#[test]
fn a_training_step_is_measured_without_a_peer() {
    let lab = Lab::new();
    let told = lab.run(&format!("{SMALL_STEP} --batch 4 --length 7 --peak 1")).done();
    for part in [
        "1 layers of 32 numbers, 1 heads; 1 batches, 4 texts, 28 tokens; CPU",
        "tokens/s",
        "no torch eager: ./no-such-python cannot be run",
        "no torch compile: ./no-such-python",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    lab.write("lengths.json", "[[3, 9], [5, 5, 1, 20]]");
    let line = format!("{SMALL_STEP} --lengths lengths.json --modes eager --peak 0.5 --threads 1 --json");
    let report = json(&lab.run(&line).done());
    assert_eq!((&report["tokens"], &report["inner"]), (&43.into(), &128.into()));
    assert_eq!((&report["lengths_vary"], &report["threads"]), (&true.into(), &1.into()));
    let ours = &report["ours"];
    for figure in ["milliseconds", "tokens_per_second", "teraflops", "share_of_peak", "peak_bytes"] {
        assert!(ours[figure].as_f64().unwrap() > 0.0, "{figure}: {report}");
    }
    let peers = report["peers"].as_array().unwrap();
    assert_eq!((peers.len(), &peers[0]["mode"]), (1, &"eager".into()));
    assert!(peers[0]["figures"].is_null() && peers[0]["ratio"].is_null());
    assert_eq!(lab.names(""), ["lengths.json"]);
}

#[test]
fn the_peer_makes_the_same_step() {
    let lab = Lab::new();
    stand_in(
        &lab,
        "grep -c '\"device\":\"cpu\".*\"batches\":\\[\\[7,7\\]\\]' >&2 || exit 1",
        r#"{"name": "stand-in", "milliseconds": 1e6, "tokens_per_second": 0.014, "peak_bytes": 1}"#,
    );
    let line = SMALL_STEP.replace("./no-such-python", "./python") + " --batch 2 --length 7 --modes compile";
    let report = json(&lab.run(&format!("{line} --json")).done());
    let peer = &report["peers"][0];
    assert_eq!(peer["figures"]["name"], "stand-in");
    assert!(peer["ratio"].as_f64().unwrap() > 1.0 && peer["memory_ratio"].as_f64().unwrap() > 1.0);
    assert!(lab.run(&line).done().contains("x the speed of stand-in, "));
}

#[test]
fn steps_that_cannot_be_made_are_refused() {
    let lab = Lab::new();
    lab.write("bad.json", "[[3, \"x\"]]");
    lab.write("empty.json", "[]");
    lab.write("long.json", "[[3, 513]]");
    for (options, complaint) in [
        ("--batch 3", "even number of texts"),
        ("--lengths empty.json", "even number of texts"),
        ("--lengths bad.json", "bad.json: is not a JSON list of batches"),
        ("--lengths none.json", "none.json"),
        ("--lengths long.json", "a text of 513 tokens; 1 to 512"),
        ("--batch 2 --length 20 --pad-to 10", "a text of 20 tokens; 1 to 10"),
        ("--hidden 33", "33"),
        ("--peak 0", "above zero"),
    ] {
        let options = format!("bench train-step --device cpu --layers 1 --heads 2 --steps 1 {options}");
        let told = lab.refuses(&options);
        assert!(told.contains(complaint), "{options}: {told}");
    }
    let told = lab.refuses("bench train-step --device gpu");
    assert!(told.contains("auto, cpu, cuda or cuda:N"), "{told}");
}

/// A BERT of a few kilobytes.
fn tiny_encoder() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders/bert");
    folder.to_str().unwrap().to_owned()
}

#[test]
fn encoding_is_measured_without_a_peer() {
    let lab = Lab::new();
    lab.write("texts.txt", "tea goes by rail\nbees\n\ntrains carry goods\n");
    let line = format!(
        "bench encode --encoder {} --texts texts.txt --max-tokens 16 --passes 2 --device cpu --cache cache \
         --python ./no-such-python",
        tiny_encoder()
    );
    let told = lab.run(&line).done();
    for part in [": 4 texts, ", "texts/s", "the peak is ", "no torch: ./no-such", "no onnxruntime: ./no"] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let report = json(&lab.run(&format!("{line} --limit 3 --engines ort --threads 1 --json")).done());
    assert_eq!((&report["texts"], &report["threads"]), (&3.into(), &1.into()));
    // Two special tokens a text at least.
    assert!(report["tokens"].as_u64().unwrap() > 6 && report["peak_gigaflops"].as_f64().unwrap() > 0.0);
    for figure in ["texts_per_second", "tokens_per_second", "gigaflops", "share_of_peak"] {
        assert!(report["ours"][figure].as_f64().unwrap() > 0.0, "{figure}: {report}");
    }
    let peers = report["peers"].as_array().unwrap();
    assert_eq!((peers.len(), &peers[0]["engine"]), (1, &"ort".into()));
    assert!(peers[0]["missing"].as_str().unwrap().contains("no-such-python"));
    assert_eq!(lab.names(""), ["texts.txt"]);
}

#[test]
fn integers_are_measured_beside_floats() {
    let lab = Lab::new();
    lab.write("texts.txt", "tea goes by rail\nbees\n\ntrains carry goods\n");
    let line = format!(
        "bench encode --encoder {} --texts texts.txt --max-tokens 16 --device cpu --precision int8 \
         --python ./no-such-python",
        tiny_encoder()
    );
    let told = lab.run(&line).done();
    for part in ["polytag in int8", "polytag in f32", " x f32; cosine of the vectors "] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let report = json(&lab.run(&format!("{line} --json")).done());
    assert!(report["in_f32"]["ratio"].as_f64().unwrap() > 0.0);
    let (least, mean) = (&report["in_f32"]["least_cosine"], &report["in_f32"]["mean_cosine"]);
    let (least, mean) = (least.as_f64().unwrap(), mean.as_f64().unwrap());
    assert!(0.99 < least && least < 1.0 && least <= mean, "{least} {mean}");
}

/// The job is a line, and our vectors come after it.
#[test]
fn the_peer_gets_the_same_texts() {
    let lab = Lab::new();
    lab.write("texts.txt", "tea goes by rail\nbees\n");
    stand_in(
        &lab,
        "grep -ac '\"texts\":\\[\"tea goes by rail\",\"bees\"\\]' >&2 || exit 1",
        r#"{"name": "stand-in", "seconds": 1e6, "least_cosine": 0.5}"#,
    );
    let line = format!(
        "bench encode --encoder {} --texts texts.txt --max-tokens 16 --device cpu --engines torch \
         --python ./python",
        tiny_encoder()
    );
    let report = json(&lab.run(&format!("{line} --json")).done());
    assert_eq!(report["peers"][0]["least_cosine"], 0.5);
    assert!(report["peers"][0]["ratio"].as_f64().unwrap() > 1.0);
    assert!(lab.run(&line).done().contains("x stand-in; cosine of the vectors 0.500000 or more"));
}

#[test]
fn encoding_nothing_is_refused() {
    let lab = Lab::new();
    lab.write("empty.txt", "");
    lab.write("texts.txt", "bees\n");
    let encoder = tiny_encoder();
    for (options, complaint) in [
        (format!("--encoder {encoder} --texts empty.txt"), "empty.txt: has no texts"),
        (format!("--encoder {encoder} --texts none.txt"), "none.txt"),
        (format!("--encoder {encoder} --texts texts.txt --max-tokens 512"), "max_tokens is 512"),
        ("--encoder ./nothing --texts texts.txt".to_owned(), "nothing"),
    ] {
        let told = lab.refuses(&format!("bench encode --device cpu --cache cache {options}"));
        assert!(told.contains(complaint), "{options}: {told}");
    }
}

#[test]
fn fusion_is_measured_without_a_peer() {
    let lab = Lab::new();
    let line = "bench fusion --unseen 40 --dim 12 --rounds 2";
    let told = lab.run(&format!("{line} --predicted 20")).done();
    for part in
        ["20 predicted labels, 40 unseen ones, 12 numbers a vector", "ms a document", "cannot hold 2^20"]
    {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let report = json(&lab.run(&format!("{line} --predicted 40 --threads 1 --json")).done());
    assert!(report["ours"]["seconds"].as_f64().unwrap() > 0.0);
    assert!(report["mean_members"].as_f64().unwrap() >= 1.0);
    assert!(report["peer"].is_null() && report["difference"].is_null());
    assert!(lab.refuses("bench fusion --alike 1").contains("0 to 0.95"));
    assert!(lab.refuses("bench fusion --model nothing").contains("nothing"));
    assert_eq!(lab.names(""), [""; 0]);
}

#[test]
fn the_fusion_peer_gets_the_same_vectors() {
    let lab = Lab::new();
    stand_in(
        &lab,
        "bytes=$(wc -c)\n[ \"$bytes\" = $((4 * (2 * 3 + 2 + 1 * 3))) ] || exit 1",
        r#"{"name": "stand-in", "seconds": 0.5, "cosines": [2.0]}"#,
    );
    let line = "bench fusion --predicted 2 --unseen 1 --dim 3 --rounds 1 --python ./python";
    let report = json(&lab.run(&format!("{line} --json")).done());
    assert_eq!((&report["peer"]["name"], &report["peer"]["seconds"]), (&"stand-in".into(), &0.5.into()));
    assert!(report["ratio"].as_f64().unwrap() > 1.0);
    assert!(report["difference"].as_f64().unwrap() >= 1.0, "no cosine is 2");
    assert!(lab.run(line).done().contains("x the peer; cosines differ by "));
}

#[test]
fn numpy_finds_the_same_combinations_where_it_is_installed() {
    let has_numpy = Command::new("python3").args(["-c", "import numpy"]).output();
    if !has_numpy.is_ok_and(|output| output.status.success()) {
        return skipped("python3 has no numpy");
    }
    let lab = Lab::new();
    for alike in ["0", "0.6"] {
        let line =
            format!("bench fusion --predicted 9 --unseen 30 --dim 20 --alike {alike} --rounds 1 --json");
        let report = json(&lab.run(&line).done());
        assert!(report["difference"].as_f64().unwrap() < 1e-5, "{report}");
    }
}
