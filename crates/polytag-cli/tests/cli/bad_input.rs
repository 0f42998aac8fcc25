//! What people get wrong in their files: each is told with the file, the line and a remedy.

use std::fs;
use std::io::{BufWriter, Write};
use std::process::Child;
use std::thread;
use std::time::Duration;

use crate::support::{DEV, LABELS, Lab, Ran, TRAIN, gzip, json_lines, zstd};

/// More than the program may use for a line that is too long.
const MOST_MEMORY_KIB: u64 = 300 << 10;

/// What a line of a document file can have wrong with it, and what is said.
const BAD_DOCUMENTS: [(&[u8], &str); 9] = [
    (b"nonsense", "not a JSON object; write one JSON object a line"),
    (b"[1, 2]", "not a JSON object; write one JSON object a line"),
    (b"{\"id\":\"9\",", "not valid JSON at column 10: EOF while parsing"),
    (b"{\"id\":NaN,\"text\":\"x\"}", "not valid JSON at column 7: expected value"),
    (b"{\"text\":\"x\"}", "the field \"id\" is missing; give it an id of its own"),
    (b"{\"id\":\"\",\"text\":\"x\"}", "the field \"id\" is empty; give it an id of its own"),
    (b"{\"id\":\"9\"}", "the field \"text\" is missing; add it"),
    (b"{\"id\":\"9\",\"text\":7}", "invalid type: integer `7`, expected a string"),
    (b"{\"id\":\"9\",\"text\":\"\xe9\"}", "byte 19 of the line is not UTF-8; convert the file"),
];

fn with_line(good: &str, bad: &[u8]) -> Vec<u8> {
    [good.as_bytes(), bad, b"\n"].concat()
}

#[test]
fn empty_files_are_refused() {
    for blank in ["", "\n \n"] {
        for (name, line, expected) in [
            ("task/labels.jsonl", "fit task --out out", "one label a line"),
            ("task/train.jsonl", "fit task --out out", "one document a line"),
            ("task/dev.jsonl", "evaluate model task", "one document a line"),
            ("docs.jsonl", "predict model --in docs.jsonl", "one document a line"),
            ("docs.jsonl", "predict model --in docs.jsonl --out tags.jsonl", "one document a line"),
        ] {
            let lab = Lab::with_model();
            lab.write(name, blank);
            let complaint = lab.refuses(line);
            assert_eq!(complaint, format!("{name}: the file is empty; it should hold {expected}"));
        }
        let complaint = Lab::with_model().refuses_input("predict model", blank);
        assert_eq!(complaint, "standard input: the file is empty; it should hold one document a line");
    }
}

#[test]
fn a_bad_line_is_named_wherever_it_stands() {
    for (bad, said) in BAD_DOCUMENTS {
        let lab = Lab::with_model();
        lab.write("task/train.jsonl", with_line(TRAIN, bad));
        lab.write("task/dev.jsonl", with_line(DEV, bad));
        lab.write("docs.jsonl", with_line(DEV, bad));
        for (line, place) in [
            ("fit task --out out", "task/train.jsonl, line 4: "),
            ("fit task --out model", "task/train.jsonl, line 4: "),
            ("split task out --zero-shot 1", "task/train.jsonl, line 4: "),
            ("evaluate model task --json report.json", "task/dev.jsonl, line 3: "),
            ("predict model --in docs.jsonl --out tags.jsonl", "docs.jsonl, line 3: "),
        ] {
            let complaint = lab.refuses(line);
            assert!(complaint.starts_with(place) && complaint.contains(said), "{line}: {complaint}");
        }
        let complaint = lab.refuses_input("predict model", with_line(DEV, bad));
        assert!(complaint.starts_with("standard input, line 3: ") && complaint.contains(said), "{complaint}");
    }
}

#[test]
fn a_bad_label_is_named() {
    for (bad, said) in [
        (&b"{\"id\":\"x\"}"[..], "the label \"x\" has no name; add a \"name\" that says what it means"),
        (b"{\"id\":\"x\",\"name\":\" \"}", "the label \"x\" has no name"),
        (b"{\"name\":\"x\"}", "the field \"id\" is missing"),
        (b"nonsense", "not a JSON object; write one JSON object a line, like {\"id\": \"l1\""),
        (b"\xff", "byte 1 of the line is not UTF-8"),
        (
            b"{\"id\":\"tea\",\"name\":\"again\"}",
            "the id \"tea\" was used before, on line 1; give each its own id",
        ),
    ] {
        let lab = Lab::with_model();
        lab.write("task/labels.jsonl", with_line(LABELS, bad));
        for line in
            ["fit task --out out", "inspect task", "evaluate model task", "split task out --zero-shot 1"]
        {
            let complaint = lab.refuses(line);
            let starts = complaint.starts_with("task/labels.jsonl, line 5: ");
            assert!(starts && complaint.contains(said), "{line}: {complaint}");
        }
    }
}

#[test]
fn ids_used_twice_and_labels_that_nobody_described_are_named() {
    let lab = Lab::with_task();
    lab.write("task/train.jsonl", format!("{TRAIN}\n{{\"id\":\"2\",\"text\":\"\"}}\n"));
    let complaint = lab.refuses("fit task --out out");
    assert_eq!(
        complaint,
        "task/train.jsonl, line 5: the id \"2\" was used before, on line 2; give each its own id"
    );
    lab.write("task/train.jsonl", format!("{TRAIN}{{\"id\":\"9\",\"text\":\"\",\"labels\":[\"tee\"]}}\n"));
    let complaint = lab.refuses("fit task --out out");
    assert_eq!(
        complaint,
        "task/train.jsonl, line 4: no label has the id \"tee\"; add it to labels.jsonl or take it off the document"
    );
}

#[test]
fn folders_that_are_not_there_or_not_tasks_are_named() {
    let lab = Lab::with_model();
    lab.write("bare/train.jsonl", TRAIN);
    lab.write("file", "x");
    lab.write("twice/labels.jsonl", LABELS);
    lab.write("twice/train.jsonl", TRAIN);
    lab.write("twice/train.jsonl.gz", gzip(TRAIN));
    lab.write("other/precious", "x");
    for (line, said) in [
        (
            "fit nowhere --out out",
            "nowhere: cannot open the task folder: No such file or directory (os error 2); check the path",
        ),
        (
            "fit file --out out",
            "file: cannot open the task folder: not a directory; name a folder, not a file",
        ),
        (
            "fit bare --out out",
            "bare: no labels.jsonl here (nor labels.jsonl.gz, labels.jsonl.zst or labels.parquet); a task folder needs one",
        ),
        ("fit twice --out out", "twice: holds both train.jsonl and train.jsonl.gz; keep one of them"),
        (
            "fit task --out other",
            "other: already exists and is not an intact model, so it is not ours to replace; choose",
        ),
        ("fit task --out file", "file: already exists and is not a folder; choose another name"),
        ("split task other --zero-shot 1", "other: already exists and is not empty; choose another name"),
        (
            "predict nowhere --in task/dev.jsonl",
            "nowhere: cannot open the model folder: No such file or directory",
        ),
        (
            "predict model --in nowhere",
            "nowhere: cannot open: No such file or directory (os error 2); check the path",
        ),
        ("predict model --in task", "a folder in needs a folder out; name it with --out"),
        ("predict other --in task/dev.jsonl", "other: not a model folder: it holds no manifest.json"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.starts_with(said), "{line}: {complaint}");
    }
    let complaint = lab.refuses("fit task --out task");
    assert!(complaint.ends_with("task: is both input and output; write to another place"), "{complaint}");
}

#[test]
fn packed_files_that_are_cut_or_are_none_are_named() {
    let many: String =
        (0..3000).map(|n| format!("{{\"id\":\"{n}\",\"text\":\"tea number {}\"}}\n", n * 7919)).collect();
    let lab = Lab::with_model();
    for (ending, format, packed) in [("gz", "gzip", gzip(&many)), ("zst", "zstd", zstd(&many))] {
        let (task, docs) = (format!("task/train.jsonl.{ending}"), format!("docs.jsonl.{ending}"));
        let _ = fs::remove_file(lab.path("task/train.jsonl"));
        for cut in [4, 5, 9, 12, 100, packed.len() / 2, packed.len() - 5, packed.len() - 1] {
            lab.write(&task, &packed[..cut]);
            lab.write(&docs, &packed[..cut]);
            let said = format!(
                "the {format} data ends too early; the file was cut short, so fetch or write it again"
            );
            assert_eq!(lab.refuses("fit task --out out"), format!("{task}: {said}"), "cut at {cut}");
            let answered = lab.refuses(&format!("predict model --in {docs} --out tags.jsonl"));
            assert_eq!(answered, format!("{docs}: {said}"), "cut at {cut}");
        }
        for cut in 1..4 {
            lab.write(&docs, &packed[..cut]);
            let complaint = lab.refuses(&format!("predict model --in {docs}"));
            assert!(complaint.starts_with(&format!("{docs}: ")) && complaint.contains(format), "{complaint}");
            assert!(
                complaint.ends_with("write it again") || complaint.ends_with("write the file again"),
                "{complaint}"
            );
        }
        lab.write(&docs, DEV);
        let complaint = lab.refuses(&format!("predict model --in {docs}"));
        assert_eq!(
            complaint,
            format!(
                "{docs}: not valid {format} data (the file does not start like one); fetch or write the file again"
            )
        );
        let mut damaged = packed.clone();
        damaged[packed.len() / 2] ^= 0x55;
        lab.write(&docs, damaged);
        let complaint = lab.refuses(&format!("predict model --in {docs} --out tags.jsonl"));
        assert!(complaint.starts_with(&docs), "{complaint}");
        fs::remove_file(lab.path(&task)).unwrap();
    }
}

/// The most memory that a running child has held, in KiB.
fn peak_memory(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Writes a document whose line is 100 MB long, without the end of the line.
fn write_long_line(out: impl Write) -> std::io::Result<()> {
    let mut out = BufWriter::new(out);
    out.write_all(b"{\"id\":\"long\",\"text\":\"")?;
    let words = [b'x'; 1 << 16];
    for _ in 0..1600 {
        out.write_all(&words)?;
    }
    out.write_all(b"\"}\n")?;
    out.flush()
}

const TOO_LONG: &str = "longer than 64 MiB; split the document or raise the limit with --max-line-mib";

#[test]
fn a_line_of_a_hundred_megabytes_is_refused_in_little_memory() {
    let lab = Lab::with_model();
    lab.write("docs.jsonl", DEV);
    write_long_line(fs::OpenOptions::new().append(true).open(lab.path("docs.jsonl")).unwrap()).unwrap();
    let line = "predict model --in docs.jsonl --out tags.jsonl";
    let mut child = lab.command(line.split(' ')).spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(peak_memory(&child));
        thread::sleep(Duration::from_millis(2));
    }
    let complaint = Ran::of(child.wait_with_output().unwrap()).complaint();
    assert_eq!(complaint, format!("docs.jsonl, line 3: {TOO_LONG}"));
    assert!(peak > 0 && peak < MOST_MEMORY_KIB, "{peak} KiB");
    assert_eq!(lab.names(""), ["docs.jsonl", "model", "task"]);

    fs::remove_file(lab.path("task/train.jsonl")).unwrap();
    fs::hard_link(lab.path("docs.jsonl"), lab.path("task/train.jsonl")).unwrap();
    let complaint = lab.run("fit task --out out").complaint();
    assert_eq!(complaint, format!("task/train.jsonl, line 3: {TOO_LONG}"));
    assert_eq!(lab.names(""), ["docs.jsonl", "model", "task"]);

    // With a higher limit it is a document like any other.
    let told = lab.run("predict model --in docs.jsonl --max-line-mib 128").done();
    assert_eq!(json_lines(&told).len(), 3);
}

#[test]
fn such_a_line_on_standard_input_can_be_passed_over() {
    let lab = Lab::with_model();
    let mut child = lab.start("predict model --keep-going");
    let mut stdin = child.stdin.take().unwrap();
    write_long_line(&mut stdin).unwrap();
    // All but a little of it has been read by now.
    let peak = peak_memory(&child);
    assert!(peak > 0 && peak < MOST_MEMORY_KIB, "{peak} KiB");
    stdin.write_all(DEV.as_bytes()).unwrap();
    drop(stdin);
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, json_lines(&ran.stdout).len()), (Some(2), 2));
    assert!(ran.stderr.contains(&format!("warning: standard input, line 1: {TOO_LONG}")), "{}", ran.stderr);
}
