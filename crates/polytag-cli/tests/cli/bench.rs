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

/// A stand-in that says what it was given, so that the way to a peer is tested without one.
#[test]
fn the_peer_gets_the_same_vectors() {
    let lab = Lab::new();
    lab.write(
        "python",
        "#!/bin/sh\nbytes=$(wc -c)\n[ \"$bytes\" = $((4 * 3 * (10 + 2))) ] || exit 1\n\
         echo '{\"name\": \"stand-in\", \"seconds\": 0.5, \"found\": [[0, 1], [2, 3]]}'\n",
    );
    let made = Command::new("chmod").arg("+x").arg(lab.path("python")).status().unwrap();
    assert!(made.success());
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
