//! `polytag import`, one small source a format.

use std::collections::BTreeMap;

use crate::support::{Lab, gzip, json, zstd};

/// The names of a task's labels by id, and the labels of its documents by id, joined with spaces.
fn imported(lab: &Lab, task: &str) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let labels = lab.json_lines(&format!("{task}/labels.jsonl"));
    let labels = labels.iter().map(|label| (text(&label["id"]), text(&label["name"]))).collect();
    let mut documents = BTreeMap::new();
    for name in lab.names(task).iter().filter(|name| *name != "labels.jsonl") {
        for document in lab.json_lines(&format!("{task}/{name}")) {
            let mut labels: Vec<String> =
                document["labels"].as_array().into_iter().flatten().map(text).collect();
            labels.sort_unstable();
            documents.insert(format!("{name} {}", text(&document["id"])), labels.join(" "));
        }
    }
    (labels, documents)
}

/// Pairs of strings as a map.
fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Runs an import, sees that what came out is in order, and that nothing else was left.
fn import(lab: &Lab, line: &str) -> String {
    let told = lab.run(&format!("import {line}")).done();
    lab.run("inspect out").done();
    assert!(!lab.names("").iter().any(|name| name.starts_with(".partial")));
    told
}

#[test]
fn csv() {
    let lab = Lab::new();
    lab.write("shop.csv", "id,body,tags,part\nd1,\"green, or black\",tea;rail,train\nd2,honey,,dev\n");
    lab.write("names.csv", "id,name\ntea,Tea\nrail,Rail\n");
    let told = import(
        &lab,
        "csv shop.csv out --text-column body --labels-column tags --split-column part --label-file names.csv",
    );
    assert_eq!(told, "out: 2 labels, 2 pairs, documents: train 1, dev 1\n");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels, map([("rail", "Rail"), ("tea", "Tea")]));
    assert_eq!(documents, map([("dev.jsonl d2", ""), ("train.jsonl d1", "rail tea")]));
    assert_eq!(lab.json_lines("out/train.jsonl")[0]["text"], "green, or black");
}

#[test]
fn tsv_with_drawn_splits_and_a_summary_in_json() {
    let lab = Lab::new();
    let rows: String = (0..200).map(|n| format!("text {n}\ta|b\n")).collect();
    lab.write("notes.tsv.gz", gzip(format!("text\tlabels\n{rows}")));
    let line = "csv notes.tsv.gz out --label-separator | --dev 20% --test 20% --seed 3 --json";
    let summary = json(&import(&lab, line));
    let documents: Vec<u64> =
        ["train", "dev", "test"].iter().map(|split| summary["documents"][split].as_u64().unwrap()).collect();
    assert_eq!(documents.iter().sum::<u64>(), 200);
    assert!(documents.iter().all(|&n| n > 10), "{documents:?}");
    assert_eq!((&summary["labels"], &summary["pairs"]), (&2.into(), &400.into()));
}

#[test]
fn lightxml() {
    let lab = Lab::new();
    lab.write("in/train_texts.txt", "first text\nTitle /SEP/ body\n");
    lab.write("in/train_labels.txt", "motor_vehicle glue\nglue\n");
    lab.write("in/test_texts.txt", "t\n");
    lab.write("in/test_labels.txt", "glue\n");
    import(&lab, "lightxml in out");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels, map([("glue", "glue"), ("motor_vehicle", "motor vehicle")]));
    let train = [("train.jsonl train-1", "glue motor_vehicle"), ("train.jsonl train-2", "glue")];
    assert_eq!(documents, map([("test.jsonl test-1", "glue"), train[0], train[1]]));
}

#[test]
fn xc_with_titles_and_contents() {
    let lab = Lab::new();
    lab.write(
        "in/lbl.json.gz",
        gzip("{\"uid\":\"A\",\"title\":\"Glue\"}\n{\"uid\":\"B\",\"title\":\"Rail\"}\n"),
    );
    lab.write(
        "in/trn.json.gz",
        gzip("{\"uid\":\"d\",\"title\":\"T\",\"content\":\"C\",\"target_ind\":[1,0]}\n"),
    );
    lab.write("in/tst.json.gz", gzip("{\"uid\":\"e\",\"title\":\"T\",\"content\":\"\",\"target_ind\":[]}\n"));
    import(&lab, "xc in out");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels, map([("A", "Glue"), ("B", "Rail")]));
    assert_eq!(documents, map([("test.jsonl e", ""), ("train.jsonl d", "A B")]));
}

#[test]
fn xc_with_sparse_rows() {
    let lab = Lab::new();
    lab.write("in/train.txt", "2 3 2\n1,0 0:2 2:1\n0 1:1\n");
    lab.write("in/test.txt", "1 3 2\n0 2:1\n");
    lab.write("in/Xf.txt", "glue\npaste\nrail\n");
    lab.write("in/Y.txt", "adhesives\ntransport\n");
    import(&lab, "xc in out");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels, map([("0", "adhesives"), ("1", "transport")]));
    let train = [("train.jsonl train-0", "0 1"), ("train.jsonl train-1", "0")];
    assert_eq!(documents, map([("test.jsonl test-0", "0"), train[0], train[1]]));
    assert_eq!(lab.json_lines("out/train.jsonl")[0]["text"], "glue glue rail");
}

const PETS: &str = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n\
    <urn:1> a skos:Concept ; skos:prefLabel \"Cats\"@en, \"Katzen\"@de ; skos:altLabel \"felines\"@en .\n\
    <urn:2> a skos:Concept ; skos:prefLabel \"Dogs\"@en, \"Hunde\"@de ; skos:broader <urn:1> .\n";

#[test]
fn annif() {
    let lab = Lab::new();
    lab.write("in/pets-train.tsv", "about cats\t<urn:1>\nboth\t<urn:2> <urn:1>\n");
    lab.write("in/pets-test.tsv", "about dogs\t<urn:2>\n");
    lab.write("pets.ttl", PETS);
    import(&lab, "annif in out --vocabulary pets.ttl");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels, map([("urn:1", "Cats"), ("urn:2", "Dogs")]));
    let train = [("train.jsonl pets-train-1", "urn:1"), ("train.jsonl pets-train-2", "urn:1 urn:2")];
    assert_eq!(documents, map([("test.jsonl pets-test-1", "urn:2"), train[0], train[1]]));
}

#[test]
fn skos_makes_a_task_that_can_be_fitted_and_asked() {
    let lab = Lab::new();
    lab.write("pets.ttl", PETS);
    import(&lab, "skos pets.ttl out --language de");
    assert_eq!(imported(&lab, "out").0, map([("urn:1", "Katzen"), ("urn:2", "Hunde")]));
    lab.run("fit out --set stem=german --out model").done();
    assert!(lab.feed("predict model --plain --k 1", "Die Katze").done().contains("\"urn:1\""));
}

#[test]
fn eurlex57k() {
    let lab = Lab::new();
    let law = |id: &str| {
        format!("{{\"celex_id\":\"{id}\",\"title\":\"T\",\"main_body\":[\"B\"],\"concepts\":[\"889\"]}}")
    };
    lab.write("in/train/a.json", law("3A"));
    lab.write("in/dev/b.json", law("3B"));
    lab.write(
        "in/EURLEX57K.json",
        r#"{"889": {"label": "State aid", "alt_labels": ["aid"], "parents": []}}"#,
    );
    import(&lab, "eurlex57k in out");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels, map([("889", "State aid")]));
    assert_eq!(documents, map([("dev.jsonl 3B", "889"), ("train.jsonl 3A", "889")]));
}

#[test]
fn debian_by_tags_and_by_related_packages() {
    let lab = Lab::new();
    let packages = "Package: 0ad\nDescription: Strategy game\nTag: game::strategy, role::program\nDepends: data\n\n\
        Package: data\nDescription: Data of it\nTag: role::data\nSuggests: 0ad\n";
    lab.write("lists/x_Packages.zst", zstd(packages));
    lab.write("vocabulary", "Facet: role\nDescription: Role\n\nTag: role::program\nDescription: Program\n");
    import(&lab, "debian lists out --labels tags --vocabulary vocabulary --dev 0% --test 0%");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels["role::program"], "Program");
    assert_eq!(
        documents,
        map([("train.jsonl 0ad", "game::strategy role::program"), ("train.jsonl data", "role::data")])
    );

    lab.run("import debian lists related --labels related --dev 0% --test 0%").done();
    let (_, documents) = imported(&lab, "related");
    assert_eq!(documents, map([("train.jsonl 0ad", "data"), ("train.jsonl data", "0ad")]));
}

#[test]
fn wordnet() {
    let lab = Lab::new();
    lab.write(
        "in/data.noun",
        "00001740 03 n 01 entity 0 001 ~ 00001930 n 0000 | that which is perceived  \n\
         00001930 03 n 01 thing 0 001 @ 00001740 n 0000 | an entity  \n",
    );
    for rest in ["verb", "adj", "adv"] {
        lab.write(&format!("in/data.{rest}"), "");
    }
    import(&lab, "wordnet in out --dev 0% --test 0%");
    let (labels, documents) = imported(&lab, "out");
    assert_eq!(labels, map([("n00001740", "entity"), ("n00001930", "thing")]));
    assert_eq!(
        documents,
        map([("train.jsonl n00001740", "n00001930"), ("train.jsonl n00001930", "n00001740")])
    );
}

#[test]
fn what_cannot_be_imported_is_refused_by_file_and_line_and_leaves_nothing() {
    let lab = Lab::new();
    lab.write("bad.csv", "id,text,labels\na,x,l\na,y,l\n");
    lab.write("short/train_texts.txt", "a\nb\n");
    lab.write("short/train_labels.txt", "l\n");
    lab.write("sparse/train.txt", "1 2 2\n1 1:NaN\n");
    lab.write("torn.csv.gz", &gzip("text\n".repeat(1000))[..40]);
    lab.write("bad.ttl", "<urn:1> & .\n");
    lab.write("open.csv", "id,text,labels\na,x,l\nb,y,l\nc,\"z,l\nd,w,l\n");
    lab.write("open-names.csv", "id,name\nl,\"L\nm,M\n");
    for (line, part) in [
        ("import csv bad.csv out", "line 3"),
        ("import csv bad.csv out --text-column body", "bad.csv, line 1: no column is called \"body\""),
        ("import lightxml short out", "short/train_texts.txt, line 2"),
        ("import xc sparse out", "sparse/train.txt, line 2: \"1:NaN\" is no feature"),
        ("import csv open.csv out", "open.csv, line 4: a quote that is opened in this row is never closed"),
        (
            "import csv bad.csv out --label-file open-names.csv",
            "open-names.csv, line 2: a quote that is opened",
        ),
        ("import csv torn.csv.gz out", "torn.csv.gz: the gzip data ends too early"),
        ("import skos bad.ttl out", "bad.ttl, line 1"),
        ("import csv nowhere.csv out", "nowhere.csv: cannot open: No such file or directory"),
        ("import csv bad.csv bad.csv", "bad.csv: is both input and output"),
        ("import lightxml short short", "short: is both input and output"),
        ("import avro x out", "unrecognized subcommand"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains(part), "{line}: {complaint}");
    }
}
