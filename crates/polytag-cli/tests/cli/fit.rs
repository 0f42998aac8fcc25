//! `polytag fit`.

use crate::support::{Lab, gzip, json, zstd};

#[test]
fn the_same_fit_gives_the_same_bytes_whatever_the_threads() {
    let lab = Lab::with_sample();
    for (out, threads) in [("a", 0), ("b", 0), ("c", 1), ("d", 2)] {
        lab.run(&format!("fit sample --method lexical --out {out} --threads {threads}")).done();
    }
    let files = lab.names("a");
    assert_eq!(files, ["labels.jsonl", "manifest.json", "weights.safetensors", "words.txt"]);
    for other in ["b", "c", "d"] {
        assert_eq!(lab.names(other), files);
        for file in &files {
            let same = lab.bytes(&format!("a/{file}")) == lab.bytes(&format!("{other}/{file}"));
            assert!(same, "a/{file} and {other}/{file} differ");
        }
    }
}

#[test]
fn compressed_tasks_are_fitted_as_they_are() {
    let lab = Lab::with_task();
    lab.run("fit task --out plain").done();
    for (name, packed) in [
        ("labels.jsonl.gz", gzip(lab.bytes("task/labels.jsonl"))),
        ("train.jsonl.zst", zstd(lab.bytes("task/train.jsonl"))),
    ] {
        lab.write(&format!("packed/{name}"), packed);
    }
    lab.run("fit packed --out packed-model").done();
    for file in ["labels.jsonl", "weights.safetensors", "words.txt"] {
        assert_eq!(lab.bytes(&format!("plain/{file}")), lab.bytes(&format!("packed-model/{file}")), "{file}");
    }
}

#[test]
fn settings_come_from_a_file_and_the_command_line_lies_over_them() {
    let lab = Lab::with_task();
    lab.write("some.toml", "title_weight = 3.0\nngrams = 2\n");
    lab.write("same.json", "{\"title_weight\": 3.0, \"ngrams\": 2}");
    for config in ["some.toml", "same.json"] {
        let line = format!(
            "fit task --config {config} --set ngrams=1 --set stem=german --seed 5 --out model --json"
        );
        let manifest = json(&lab.run(&line).done());
        assert_eq!(manifest["method"], "lexical");
        assert_eq!(manifest["seed"], 5);
        let config = &manifest["config"];
        assert_eq!((&config["title_weight"], &config["ngrams"]), (&json("3.0"), &1.into()));
        assert_eq!(config["stem"], "german");
        let sources: Vec<_> =
            manifest["sources"].as_array().unwrap().iter().map(|source| &source["name"]).collect();
        assert_eq!(sources, ["labels.jsonl", "train.jsonl"]);
    }
}

#[test]
fn labels_alone_are_enough() {
    let lab = Lab::with_task();
    std::fs::remove_file(lab.path("task/train.jsonl")).unwrap();
    let told = lab.run("fit task --out model").done();
    assert!(told.contains("4 labels, 0 training documents"), "{told}");
    assert!(lab.feed("predict model --plain --k 1", "green tea").done().contains("\"seen\":false"));
}

#[test]
fn a_train_file_by_another_name_is_noted_and_one_that_is_missing_is_said_to_be() {
    let lab = Lab::with_task();
    std::fs::rename(lab.path("task/train.jsonl"), lab.path("task/training.jsonl")).unwrap();
    let complaint = lab.refuses("fit task --method label-tree --out model");
    assert!(complaint.starts_with("task: there is no train file here (train.jsonl, "), "{complaint}");
    assert!(complaint.contains("label-tree") && complaint.contains("lexical"), "{complaint}");
    let ran = lab.run("fit task --out model");
    let note = "note: training.jsonl is not read; the files of a task are labels, train, dev and test, ";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert!(ran.done().contains("0 training documents"));
    assert_eq!(lab.run("fit task --method lexical --out model --quiet").stderr, "");
}

#[test]
fn a_model_is_replaced_and_a_link_to_it_stays_a_link() {
    let lab = Lab::with_task();
    lab.run("fit task --out deep/inside/model").done();
    std::os::unix::fs::symlink("deep/inside/model", lab.path("current")).unwrap();
    lab.run("fit task --set ngrams=1 --out current").done();
    assert!(std::fs::symlink_metadata(lab.path("current")).unwrap().is_symlink());
    assert_eq!(json(&lab.read("deep/inside/model/manifest.json"))["config"]["ngrams"], 1);
    assert_eq!(lab.names("deep/inside"), ["model"]);
    assert_eq!(lab.names(""), ["current", "deep", "task"]);
}

#[test]
fn logs_have_plain_lines_and_quiet_means_quiet() {
    let lab = Lab::with_task();
    let ran = lab.run("fit task --out model");
    assert!(ran.stderr.contains("reading documents: ") && ran.stderr.contains("counting words: "));
    assert!(!ran.stderr.contains(['\u{1b}', '\r']), "{:?}", ran.stderr);
    assert_eq!(lab.run("fit task --method lexical --out model --quiet").stderr, "");
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let lab = Lab::with_task();
    lab.write("bad.toml", "ngrams = 2\ntitle_weight = [\n");
    lab.write("nan.toml", "title_weight = nan\n");
    lab.write("list.json", "[1]");
    for (line, parts) in [
        ("--set titel_weight=1", ["unknown field `titel_weight`", "title_weight"]),
        ("--set title_weight", ["--set title_weight: write NAME=VALUE", "ngrams=2"]),
        ("--set title_weight=heavy", ["title_weight = \"heavy\"", "expected f32"]),
        ("--set title_weight=NaN", ["title_weight = \"NaN\"", "expected f32"]),
        ("--set title_weight=-1", ["title_weight = -1 is out of range", "from 0 to 100"]),
        ("--config nan.toml", ["title_weight = null", "expected f32"]),
        ("--config bad.toml", ["bad.toml: TOML parse error at line", "title_weight = ["]),
        ("--config list.json", ["list.json: invalid type", "at line 1"]),
        ("--config nowhere.toml", ["nowhere.toml: cannot read: No such file", "check the path"]),
        ("--method magic", ["'magic'", "lexical"]),
        ("--threads 100000", ["--threads", "0..=512"]),
        ("--max-line-mib 0", ["--max-line-mib", "1..=1023"]),
    ] {
        let complaint = lab.refuses(&format!("fit task --out model {line}"));
        for part in parts {
            assert!(complaint.contains(part), "{line}: no {part:?} in {complaint}");
        }
    }
}

#[test]
fn what_is_fitted_unasked_takes_a_language_explains_itself_in_words_and_says_what_it_lacks() {
    let lab = Lab::with_sample();
    let ran = lab.run("fit sample --set stem=german --device cpu --cache none --out m");
    assert!(ran.stderr.contains("method: blend"), "{}", ran.stderr);
    ran.done();
    let told =
        lab.run_all(&["explain", "m", "--k", "1", "--text", "A web server with TLS and HTTP/2"]).done();
    assert!(told.contains("through \"label-tree 0.") && told.contains("\"server\" in the text"), "{told}");
    assert!(told.contains("  carried by ") && told.contains("log-odds"), "{told}");
    let error = lab.refuses("fit sample --set title_weight=3 --device cpu --cache none --out m2");
    assert!(
        error.contains("unknown field `title_weight`") && error.contains("`auto` took `blend`"),
        "{error}"
    );
    let ran = lab.run("labels m remove role::program");
    assert!(ran.stderr.contains("an unseen label until the next fit"), "{}", ran.stderr);
    ran.done();
}
