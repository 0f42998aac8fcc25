//! What disks and copies get wrong in a model folder.

use std::fs;

use crate::support::{Lab, json, skipped};

/// Commands that read a model.
const READERS: [&str; 3] =
    ["predict model --in task/dev.jsonl", "evaluate model task", "labels model add --id x --name x"];

#[test]
fn no_byte_of_a_model_can_change_unseen() {
    let lab = Lab::with_model();
    for file in lab.names("model") {
        let name = format!("model/{file}");
        let bytes = lab.bytes(&name);
        for at in [0, 1, bytes.len() / 3, bytes.len() / 2, bytes.len() - 2, bytes.len() - 1] {
            for flip in [0x01, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                lab.write(&name, changed);
                let complaint = lab.refuses(READERS[0]);
                let told = complaint.starts_with(&format!("{name}: damaged: "));
                assert!(
                    told && complaint.contains("; restore it from a copy or fit the model again"),
                    "{complaint}"
                );
            }
        }
        for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            lab.write(&name, &bytes[..cut]);
            let complaint = lab.refuses(READERS[0]);
            assert!(complaint.starts_with(&format!("{name}: damaged: ")), "{complaint}");
        }
        lab.write(&name, bytes);
    }
    lab.run(READERS[0]).done();
}

#[test]
fn a_file_that_is_missing_is_named() {
    for reader in READERS {
        for file in Lab::with_model().names("model") {
            let lab = Lab::with_model();
            fs::remove_file(lab.path(&format!("model/{file}"))).unwrap();
            let complaint = lab.refuses(reader);
            let expected = match file.as_str() {
                "manifest.json" => {
                    "model: not a model folder: it holds no manifest.json; `polytag fit` makes one".to_owned()
                }
                _ => format!(
                    "model/{file}: cannot open: No such file or directory (os error 2); check the path"
                ),
            };
            assert_eq!(complaint, expected);
        }
    }
}

#[test]
fn models_of_a_later_time_are_refused() {
    let lab = Lab::with_model();
    let manifest = lab.read("model/manifest.json");
    lab.write("model/manifest.json", manifest.replace("\"version\": 1", "\"version\": 2"));
    for reader in READERS {
        let complaint = lab.refuses(reader);
        assert_eq!(
            complaint,
            "model/manifest.json: written in format version 2, and this program reads up to 1; update polytag"
        );
    }
}

#[test]
fn methods_of_a_later_time_are_refused() {
    let lab = Lab::with_model();
    let manifest =
        lab.read("model/manifest.json").replace("\"method\": \"lexical\"", "\"method\": \"magic\"");
    // As a later program would have written it, checksum and all.
    let (body, _) = manifest.rsplit_once(",\n  \"checksum\": ").unwrap();
    lab.write("body", body);
    let summed = std::process::Command::new("sha256sum").arg(lab.path("body")).output();
    let Ok(summed) = summed else {
        skipped("no sha256sum here");
        return;
    };
    let sum = String::from_utf8(summed.stdout).unwrap()[..64].to_owned();
    lab.write("model/manifest.json", format!("{body},\n  \"checksum\": \"{sum}\"\n}}\n"));
    for reader in READERS {
        let complaint = lab.refuses(reader);
        assert_eq!(
            complaint,
            "model/manifest.json: made by the method \"magic\", which this program does not know; update polytag"
        );
    }
}

#[test]
fn a_torn_log_loses_its_last_line_and_no_other() {
    let lab = Lab::with_model();
    let ids = |lab: &Lab| -> Vec<String> {
        let listed = json(&lab.run("labels model list --json").done());
        let added = listed.as_array().unwrap().iter().skip(4);
        added.map(|label| label["id"].as_str().unwrap().to_owned()).collect()
    };
    for id in ["one", "two"] {
        lab.run(&format!("labels model add --id {id} --name {id}")).done();
    }
    let log = lab.bytes("model/labels.log");
    let first = log.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for cut in [first + 1, first + 8, first + 11, log.len() - 2] {
        lab.write("model/labels.log", &log[..cut]);
        assert_eq!(ids(&lab), ["one"], "cut at {cut}");
    }
    // What is added next takes the place of what was torn.
    lab.run("labels model add --id three --name three").done();
    assert_eq!(ids(&lab), ["one", "three"]);
}

#[test]
fn a_log_that_was_tampered_with_is_refused() {
    let lab = Lab::with_model();
    for id in ["one", "two"] {
        lab.run(&format!("labels model add --id {id} --name {id}")).done();
    }
    let log = lab.read("model/labels.log");
    let second = log.split_once('\n').unwrap().1;
    for changed in
        [log.replacen("one", "uno", 1), second.to_owned(), format!("x{log}"), log.replacen(' ', "", 1)]
    {
        lab.write("model/labels.log", changed);
        for reader in READERS {
            let complaint = lab.refuses(reader);
            let told = complaint.starts_with("model/labels.log: damaged: line 1: ");
            assert!(told && complaint.contains("restore it from a copy"), "{complaint}");
        }
    }
}
