//! Folders of files: tagged once, whatever happens on the way.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array};
use serde_json::Value;

use crate::support::{DEV, Lab, Ran, gzip, signal, stderr_of, texts, wait_for};

const WORDS: [&str; 4] = ["green tea by rail", "bees and honey", "nothing of note", "the trade of tea"];

/// Writes rows with distinct ids.
fn write_rows(lab: &Lab, name: &str, rows: std::ops::Range<i64>, group: usize) {
    let words = rows.clone().map(|row| Some(WORDS[row as usize % 4]).filter(|_| row % 101 != 7));
    let words = texts(words);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
    lab.write_table(name, vec![("id", ids), ("text", words)], group);
}

/// What a person sees in a folder, file by file.
fn seen(lab: &Lab, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let mut tree = lab.tree(folder);
    tree.retain(|name, _| !name.contains("/."));
    tree.into_iter().map(|(name, bytes)| (name[folder.len()..].to_owned(), bytes)).collect()
}

#[test]
fn each_file_gets_one_and_new_ones_are_done_when_it_runs_again() {
    let lab = Lab::with_model();
    write_rows(&lab, "in/a.parquet", 0..10, 4);
    write_rows(&lab, "in/part=1/b.arrow", 10..20, 4);
    lab.write("in/c.jsonl.gz", gzip(DEV));
    lab.write("in/_SUCCESS", "");
    lab.write("in/.hidden", "");
    for (format, ending) in [("", "parquet"), ("--format arrow", "arrow"), ("--format jsonl", "jsonl")] {
        let out = format!("out-{ending}");
        let line = format!("predict model --in in --out {out} {format}");
        let ran = lab.run(&line);
        assert!(ran.stderr.contains("22 rows tagged, 3 files are done\n"), "{}", ran.stderr);
        ran.done();
        let names: Vec<String> = seen(&lab, &out).into_keys().collect();
        assert_eq!(
            names,
            ["a", "c", "part=1/", "part=1/b"].map(|name| match name.ends_with('/') {
                true => format!("/{name}"),
                false => format!("/{name}.{ending}"),
            })
        );
        let before = seen(&lab, &out);
        let ran = lab.run(&line);
        assert!(
            ran.stderr.contains("0 rows tagged, 3 files are done; 22 rows were there already"),
            "{}",
            ran.stderr
        );
        assert!(seen(&lab, &out) == before);
    }
    let rows = lab.table("out-parquet/part=1/b.parquet");
    assert_eq!(rows, lab.table("out-arrow/part=1/b.arrow"));
    assert_eq!(rows, lab.json_lines("out-jsonl/part=1/b.jsonl"));
    assert_eq!(
        rows.iter().map(|row| row["id"].as_i64().unwrap()).collect::<Vec<_>>(),
        (10..20).collect::<Vec<_>>()
    );
    assert_eq!(lab.table("out-parquet/c.parquet")[0]["id"], "4");
    write_rows(&lab, "in/d.parquet", 20..25, 4);
    let ran = lab.run("predict model --in in --out out-parquet");
    assert!(
        ran.stderr.contains("5 rows tagged, 4 files are done; 22 rows were there already"),
        "{}",
        ran.stderr
    );
    // One file into a folder is a folder of one.
    lab.run("predict model --in in/a.parquet --out one/").done();
    assert!(lab.bytes("one/a.parquet") == lab.bytes("out-parquet/a.parquet"));
    // The answer to another file is not replaced, also if that file is gone.
    fs::remove_file(lab.path("in/a.parquet")).unwrap();
    lab.write("in/a.jsonl", DEV);
    let complaint = lab.refuses("predict model --in in --out out-parquet");
    let part =
        "in/a.jsonl: would be answered in a.parquet, which is the answer to a.parquet; rename the file";
    assert!(complaint.contains(part), "{complaint}");
    assert_eq!(lab.table("out-parquet/a.parquet").len(), 10);
    fs::remove_file(lab.path("out-parquet/a.parquet")).unwrap();
    lab.run("predict model --in in --out out-parquet").done();
    assert_eq!(lab.table("out-parquet/a.parquet").len(), 2);
    fs::remove_file(lab.path("in/a.jsonl")).unwrap();
    write_rows(&lab, "in/a.parquet", 0..10, 4);
    lab.run("predict model --in in/a.parquet --out two/").done();
    // An answer that somebody took away is made again.
    fs::remove_file(lab.path("one/a.parquet")).unwrap();
    lab.run("predict model --in in/a.parquet --out one/").done();
    assert!(lab.bytes("one/a.parquet") == lab.bytes("two/a.parquet"));
}

#[test]
fn a_folder_goes_on_only_as_it_was_begun() {
    let lab = Lab::with_model();
    write_rows(&lab, "in/a.parquet", 0..10, 4);
    lab.run("predict model --in in --out out").done();
    lab.write("mine.txt", "bees\n");
    for (line, part) in [
        (
            "predict model --in in --out out --k 3",
            "out: was begun with another k (then 5, now 3); run the command as it was",
        ),
        ("predict model --in in --out out --threshold 0.5", "another threshold (then null, now 0.5)"),
        ("predict model --in in --out out --allow mine.txt", "another set of allowed labels"),
        (
            "predict model --in in --out out --keep text",
            "another list of kept columns (then [], now [\"text\"])",
        ),
        (
            "predict model --in in --out out --format jsonl",
            "another format (then \"parquet\", now \"jsonl\")",
        ),
        ("predict model --in in --out in/out", "in/out: is both input and output"),
        ("predict model --in in --out in", "in: is both input and output"),
        ("predict model --in in --out .", ".: is both input and output"),
        (
            "predict model --in in --out task",
            "task: already exists and is not empty, nor was it begun by an earlier run",
        ),
        ("predict model --in in --out model/tags/", "model/tags/: is both input and output"),
        ("predict model --in in --out mine.txt", "mine.txt: already exists and is no folder"),
        ("predict model --in in", "a folder in needs a folder out"),
        ("predict model --out out", "a folder out needs files to go on from"),
        ("predict model --in nowhere --out out/", "nowhere: cannot open"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains(part), "{line}: {complaint}");
    }
    fs::create_dir(lab.path("empty")).unwrap();
    let complaint = lab.refuses("predict model --in empty --out new");
    assert!(complaint.contains("empty: holds no file to tag"), "{complaint}");
    lab.write("odd/notes.txt", "x");
    let complaint = lab.refuses("predict model --in odd --out new");
    assert!(complaint.contains("odd/notes.txt: neither a table"), "{complaint}");
    write_rows(&lab, "same/a.parquet", 0..3, 4);
    write_rows(&lab, "same/a.arrow", 0..3, 4);
    let complaint = lab.refuses("predict model --in same --out new");
    assert!(complaint.contains("would both be answered in a.parquet; rename one"), "{complaint}");
    // Another model, and other labels of the same one.
    lab.run("fit task --set ngrams=1 --out other").done();
    let complaint = lab.refuses("predict other --in in --out out");
    assert!(complaint.contains("another model (then"), "{complaint}");
    lab.run("labels model add --id new --name new").done();
    let complaint = lab.refuses("predict model --in in --out out");
    assert!(complaint.contains("another labels of the model"), "{complaint}");
    lab.run("labels model remove new").done();
    // Another file under the same name.
    write_rows(&lab, "in/a.parquet", 0..11, 4);
    let complaint = lab.refuses("predict model --in in --out out");
    assert!(
        complaint.contains("in/a.parquet: has changed since it was tagged (its size has changed)"),
        "{complaint}"
    );
}

#[test]
fn a_record_that_is_damaged_is_told_and_a_last_line_cut_short_is_not_missed() {
    let lab = Lab::with_model();
    write_rows(&lab, "in/a.parquet", 0..10, 4);
    lab.run("predict model --in in --out out").done();
    let journal = "out/.polytag-tagging/journal";
    let whole = lab.bytes(journal);
    lab.write(journal, &whole[..whole.len() - 5]);
    let ran = lab.run("predict model --in in --out out");
    // That it was finished is forgotten, and its piece is gone: it is done again.
    assert!(ran.stderr.contains("10 rows tagged, 1 files are done"), "{}", ran.stderr);
    ran.done();
    let mut damaged = lab.bytes(journal);
    damaged[40] ^= 1;
    lab.write(journal, damaged);
    let complaint = lab.refuses("predict model --in in --out out");
    assert!(complaint.contains("journal, line 1: the record of what is done is damaged"), "{complaint}");
}

#[test]
fn killed_at_any_moment_it_goes_on_and_no_row_is_lost_or_doubled() {
    let lab = Lab::with_model();
    // Several pieces a file, ending within row groups and with them; and lines.
    write_rows(&lab, "in/a.parquet", 0..40_000, 10_000);
    write_rows(&lab, "in/b.arrow", 40_000..60_000, 7_000);
    let lines: String = (60_000..80_000)
        .map(|row| format!("{{\"id\":\"{row}\",\"text\":\"{}\"}}\n", WORDS[row as usize % 4]))
        .collect();
    lab.write("in/c.jsonl.gz", gzip(lines));
    write_rows(&lab, "in/d.parquet", 80_000..81_000, 100);
    let started = Instant::now();
    lab.run("predict model --in in --out whole --threads 1").done();
    let all = started.elapsed();
    let expected = seen(&lab, "whole");
    let line = "predict model --in in --out out --threads 1";
    let mut kills = 0;
    let mut pause = 0.05;
    let ran = loop {
        let mut child = lab.command(line.split(' ')).spawn().unwrap();
        // Moments that differ from run to run of this test, too.
        let noise = f64::from(Instant::now().duration_since(started).subsec_micros() % 1000) / 1000.0;
        thread::sleep(all.mul_f64((pause + 0.1 * noise).min(3.0)));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            break Ran::of(child.wait_with_output().unwrap());
        }
        signal(&child, "KILL");
        child.wait().unwrap();
        kills += 1;
        // Whatever is seen of it is whole.
        for (name, bytes) in seen(&lab, "out") {
            assert!(expected[&name] == bytes, "{name} after {kills} kills");
        }
        pause *= 1.15;
        assert!(kills < 60, "it does not get on");
    };
    assert!(kills > 0, "it was killed {kills} times only");
    assert!(ran.stderr.contains("rows were there already"), "{}", ran.stderr);
    assert!(seen(&lab, "out") == expected, "after {kills} kills");
    let hidden = lab.names("out").into_iter().filter(|name| name.starts_with('.')).collect::<Vec<_>>();
    assert_eq!(hidden, [".polytag-tagging"]);
    assert_eq!(lab.names("out/.polytag-tagging"), ["journal"]);
    let mut ids: Vec<i64> = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let id = |row: &Value| row["id"].as_i64().or_else(|| row["id"].as_str()?.parse().ok()).unwrap();
        ids.extend(lab.table(&format!("out/{name}.parquet")).iter().map(id));
    }
    assert!(ids == (0..81_000).collect::<Vec<_>>());
}

#[test]
fn interrupted_it_says_how_to_go_on() {
    let lab = Lab::with_model();
    write_rows(&lab, "in/a.parquet", 0..200_000, 50_000);
    let line = "predict model --in in --out out --threads 1";
    let mut child = lab.command(line.split(' ')).spawn().unwrap();
    let journal = lab.path("out/.polytag-tagging/journal");
    wait_for("the first piece", || fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"piece\"")));
    // Another run is kept out.
    let complaint = lab.run(line).complaint();
    assert!(complaint.contains("out: another run is writing here"), "{complaint}");
    signal(&child, "INT");
    wait_for("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let said = stderr_of(&mut child);
    assert!(said.contains("rows are on the disk, and the same command goes on from there"), "{said}");
    let ran = lab.run(line);
    assert!(ran.stderr.contains("rows were there already"), "{}", ran.stderr);
    ran.done();
    assert_eq!(lab.table("out/a.parquet").len(), 200_000);
}

#[test]
fn lines_that_cannot_be_read_are_counted_once() {
    let lab = Lab::with_model();
    let lines: String = (0..20_000)
        .map(|row| match row % 5000 {
            4999 => "nonsense\n".to_owned(),
            _ => format!("{{\"id\":\"{row}\",\"text\":\"tea\"}}\n"),
        })
        .collect();
    lab.write("in/a.jsonl", lines);
    let complaint = lab.run("predict model --in in --out out").complaint();
    assert!(complaint.starts_with("in/a.jsonl, line 5000: not a JSON object"), "{complaint}");
    let child =
        lab.command("predict model --in in --out out --keep-going --threads 1".split(' ')).spawn().unwrap();
    thread::sleep(Duration::from_millis(60));
    signal(&child, "KILL");
    drop(child.wait_with_output());
    let ran = lab.run("predict model --in in --out out --keep-going");
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("\n4 lines could not be read and were passed over"), "{}", ran.stderr);
    assert_eq!(lab.table("out/a.parquet").len(), 19_996);
}
