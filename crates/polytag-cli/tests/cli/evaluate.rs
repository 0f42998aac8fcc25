//! `polytag evaluate`.

use serde_json::Value;

use crate::support::{Lab, json};

/// What `lexical` reaches on the dev split of the sample, in percent.
const GOLDEN: [(&str, f64); 10] = [
    ("P@1", 53.6667),
    ("P@5", 34.4667),
    ("R@10", 35.8922),
    ("R@100", 58.772),
    ("nDCG@5", 39.9087),
    ("PSP@5", 37.9433),
    ("ZSR@10", 63.6364),
    ("ZSR@100", 72.7273),
    ("unseen nDCG@5", 63.0065),
    ("macro F@5", 31.699),
];
const TOLERANCE: f64 = 0.05;

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_sample_gives_the_figures_it_always_gave() {
    let lab = Lab::with_sample();
    lab.run("fit sample --method lexical --out model").done();
    let table = lab.run("evaluate model sample --split dev --json report.json").done();
    assert!(table.contains("nDCG") && table.contains("39.9"), "{table}");
    let report = json(&lab.read("report.json"));
    for (name, expected) in GOLDEN {
        let value = report["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name}"));
        assert!((value - expected).abs() <= TOLERANCE, "{name} is {value}, and was {expected}");
    }
    let mut fields = [
        "metrics",
        "intervals",
        "documents",
        "documents_without_gold",
        "documents_with_unseen_gold",
        "labels",
        "unseen_labels",
        "unknown_gold_labels",
    ];
    fields.sort_unstable();
    assert_eq!(keys(&report), fields);
    let counts =
        ["documents", "documents_with_unseen_gold", "labels", "unseen_labels", "unknown_gold_labels"];
    assert_eq!(counts.map(|name| report[name].as_u64().unwrap()), [300, 22, 617, 157, 0]);
    for (name, interval) in report["intervals"].as_object().unwrap() {
        let (low, high) = (interval[0].as_f64().unwrap(), interval[1].as_f64().unwrap());
        let value = report["metrics"][name].as_f64().unwrap();
        assert!(low <= high && (0.0..=100.0).contains(&value), "{name}: {value} in {interval}");
    }
    assert!(report["intervals"]["nDCG@5"].is_array());
}

#[test]
fn a_report_can_be_printed_as_json_or_markdown() {
    let lab = Lab::with_model();
    let report = json(&lab.run("evaluate model task --json -").done());
    assert_eq!((report["documents"].as_u64(), report["metrics"]["P@1"].as_f64()), (Some(2), Some(100.0)));
    let markdown = lab.run("evaluate model task --markdown -").done();
    assert!(markdown.contains("| nDCG@5 |") || markdown.contains("nDCG"), "{markdown}");
    lab.run("evaluate model task --markdown report.md --json report.json").done();
    assert_eq!(lab.read("report.md"), markdown);
    assert_eq!(json(&lab.read("report.json")), report);
}

#[test]
fn depths_and_intervals_are_the_users() {
    let lab = Lab::with_model();
    let line = "evaluate model task --k 2,7 --recall-k 4 --zsr-k 3 --replicates 0 --json -";
    let report = json(&lab.run(line).done());
    for name in ["P@2", "P@7", "nDCG@7", "R@4", "ZSR@3"] {
        assert!(report["metrics"][name].is_number(), "no {name}");
    }
    assert!(report["metrics"].get("P@1").is_none());
    assert_eq!(report["intervals"], json("{}"));
}

#[test]
fn threads_do_not_change_the_figures() {
    let lab = Lab::with_sample();
    lab.run("fit sample --out model").done();
    let report = |threads| lab.run(&format!("evaluate model sample --json - --threads {threads}")).done();
    assert_eq!(report(1), report(2));
}

#[test]
fn senseless_requests_are_refused() {
    let lab = Lab::with_model();
    for (line, part) in [
        ("evaluate model task --k 0", "cutoff 0"),
        ("evaluate model task --split test", "no test.jsonl here"),
        ("evaluate model task --split tset", "say train, dev or test"),
        ("evaluate model task --propensity-a nan", "propensity"),
        (
            "evaluate task task",
            "task: not a model folder: it holds no manifest.json; `polytag fit` makes one",
        ),
        ("evaluate model nowhere", "nowhere: cannot open the task folder"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains(part), "{line}: {complaint}");
    }
}
