//! `polytag predict`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{DEV, Lab, Ran, gzip, json_lines, skipped, texts, zstd};

fn ids(answer: &Value) -> Vec<&str> {
    answer["labels"].as_array().unwrap().iter().map(|label| label["id"].as_str().unwrap()).collect()
}

#[test]
fn a_line_in_is_a_line_out() {
    let lab = Lab::with_model();
    let answers = json_lines(&lab.feed("predict model", DEV).done());
    assert_eq!(answers.len(), 2);
    assert_eq!((&answers[0]["id"], ids(&answers[0])[0]), (&"4".into(), "bees"));
    assert_eq!((&answers[1]["id"], ids(&answers[1])[0]), (&"5".into(), "rail"));
    let best = answers[1]["labels"][0].as_object().unwrap();
    assert_eq!(best.len(), 4);
    assert_eq!((&best["name"], &best["seen"]), (&"rail transport".into(), &true.into()));
    assert!(best["score"].as_f64().unwrap() > 0.0);
    assert_eq!(answers[0]["labels"][0]["seen"], false);
}

#[test]
fn files_may_be_packed_and_the_answer_too() {
    let lab = Lab::with_model();
    let expected = lab.feed("predict model", DEV).done();
    lab.write("docs.jsonl", DEV);
    lab.write("docs.jsonl.gz", gzip(DEV));
    lab.write("docs.jsonl.zst", zstd(DEV));
    for file in ["docs.jsonl", "docs.jsonl.gz", "docs.jsonl.zst"] {
        assert_eq!(lab.run(&format!("predict model --in {file}")).done(), expected, "{file}");
    }
    lab.write("tags.jsonl", "an older answer");
    assert_eq!(lab.run("predict model --in docs.jsonl --out tags.jsonl").done(), "");
    assert_eq!(lab.read("tags.jsonl"), expected);
    lab.run("predict model --in docs.jsonl --out tags.jsonl.zst").done();
    assert_eq!(zstd::decode_all(&lab.bytes("tags.jsonl.zst")[..]).unwrap(), expected.as_bytes());
}

#[test]
fn how_many_which_and_how_good_are_the_users() {
    let lab = Lab::with_model();
    let text = "rail transport of green tea and bees";
    let ask = |options: &str| {
        let told = lab.feed(&format!("predict model --plain {options}"), text).done();
        let answers = json_lines(&told);
        assert_eq!((answers.len(), &answers[0]["id"]), (1, &"1".into()));
        answers[0].clone()
    };
    assert_eq!(ids(&ask("")), ["rail", "tea", "bees"]);
    assert_eq!(ids(&ask("--k 1")), ["rail"]);
    lab.write("mine.txt", "bees\n{\"id\": \"tea\", \"name\": \"x\"}\n");
    assert_eq!(ids(&ask("--allow mine.txt")), ["tea", "bees"]);
    let scores: Vec<f64> =
        ask("")["labels"].as_array().unwrap().iter().map(|label| label["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let between = (scores[0] + scores[1]) / 2.0;
    assert_eq!(ids(&ask(&format!("--threshold {between}"))), ["rail"]);
    assert_eq!(ids(&ask("--threshold 1000000")), [""; 0]);
    assert_eq!(ids(&ask("--threshold -1")), ["rail", "tea", "bees"]);
}

#[test]
fn order_is_kept_over_many_batches() {
    let lab = Lab::with_model();
    let texts = ["green tea", "by rail", "bees"];
    let documents: String =
        (0..1500).map(|n| format!("{{\"id\":\"d{n}\",\"text\":\"{}\"}}\n", texts[n % 3])).collect();
    for threads in [1, 2] {
        let answers =
            json_lines(&lab.feed(&format!("predict model --k 1 --threads {threads}"), &documents).done());
        assert_eq!(answers.len(), 1500);
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!(answer["id"], format!("d{n}"));
            assert_eq!(ids(answer), [["tea", "rail", "bees"][n % 3]]);
        }
    }
}

#[test]
fn bad_lines_can_be_passed_over_and_still_tell_in_the_exit_code() {
    let lab = Lab::with_model();
    let input = [DEV.as_bytes(), b"nonsense\n{\"text\":\"x\"}\n\xff\n", b"{\"id\":\"9\",\"text\":\"tea\"}\n"]
        .concat();
    let ran = lab.feed("predict model --keep-going", &input);
    assert_eq!(ran.code, Some(2));
    let answered: Vec<Value> = json_lines(&ran.stdout).iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(answered, ["4", "5", "9"]);
    for part in [
        "standard input, line 3: not a JSON object",
        "standard input, line 4: the field \"id\" is missing",
        "standard input, line 5: byte 1 of the line is not UTF-8",
        "3 lines could not be read and were passed over",
    ] {
        assert!(ran.stderr.contains(part), "no {part:?} in\n{}", ran.stderr);
    }
    let complaint = lab.refuses_input("predict model", &input);
    assert!(complaint.starts_with("standard input, line 3: "), "{complaint}");
}

#[test]
fn a_reader_that_has_read_enough_ends_it_quietly() {
    let lab = Lab::with_model();
    lab.write("docs.jsonl", "{\"id\":\"d\",\"text\":\"green tea by rail\"}\n".repeat(20_000));
    let mut child = lab.command("predict model --in docs.jsonl".split(' ')).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("\"tea\""));
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(
        (ran.code, ran.stderr.contains("error"), ran.stderr.contains("panicked")),
        (Some(0), false, false)
    );
}

#[test]
fn nobody_needs_to_listen_to_standard_error() {
    let lab = Lab::with_model();
    lab.write("docs.jsonl", DEV);
    let mut child = lab.command("predict model --in docs.jsonl --keep-going".split(' ')).spawn().unwrap();
    drop(child.stderr.take());
    let mut told = String::new();
    child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((child.wait().unwrap().code(), told.lines().count()), (Some(0), 2));
}

#[test]
fn a_pipe_can_be_written_to_by_name() {
    let lab = Lab::with_model();
    lab.write("docs.jsonl", DEV);
    let made = std::process::Command::new("mkfifo").arg(lab.path("pipe")).status();
    if !made.is_ok_and(|status| status.success()) {
        skipped("no mkfifo here");
        return;
    }
    let path = lab.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(path).unwrap());
    let ran = lab.run("predict model --in docs.jsonl --out pipe");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(reader.join().unwrap().lines().count(), 2);
    assert!(!std::fs::metadata(lab.path("pipe")).unwrap().is_file(), "the pipe was replaced by a file");
}

#[test]
fn a_dash_is_the_stream_on_both_sides() {
    let lab = Lab::with_model();
    let expected = lab.feed("predict model", DEV).done();
    let before = lab.tree("");
    for options in ["--in -", "--out -", "--in - --out -", "--in - --out - --format jsonl"] {
        assert_eq!(lab.feed(&format!("predict model {options}"), DEV).done(), expected, "{options}");
    }
    assert!(lab.tree("") == before, "{:?}", lab.names(""));
    lab.feed("predict model --in - --out tags.jsonl", DEV).done();
    assert_eq!(lab.read("tags.jsonl"), expected);
    for (options, part) in [
        ("--in - --out - --format parquet", "a table cannot be written to standard output; name a file"),
        ("--in task --out -", "a folder in needs a folder out; name it with --out"),
        ("--in - --out tags/", "a folder out needs files to go on from; name them with --in"),
        ("--in - --text-column body", "columns can be named for tables only"),
    ] {
        let complaint = lab.refuses_input(&format!("predict model {options}"), DEV);
        assert!(complaint.starts_with(part), "{options}: {complaint}");
    }
    let complaint = lab.refuses_input("predict model --in -", "nonsense\n");
    assert!(complaint.starts_with("standard input, line 1: "), "{complaint}");
    // A file of that name has a place.
    lab.write("-", DEV);
    assert_eq!(lab.run("predict model --in ./-").done(), expected);
}

#[test]
fn an_ending_that_names_no_format_is_refused() {
    let lab = Lab::with_model();
    lab.write_table("docs.parquet", vec![("id", texts(["1"])), ("text", texts(["tea"]))], 1);
    for input in ["--in task/dev.jsonl", "--in task/dev.jsonl --plain", "--in docs.parquet"] {
        for out in ["o.csv", "o.tsv", "o.txt", "o.paruqet", "o.csv.gz", "o.parquet.zst"] {
            let complaint = lab.refuses(&format!("predict model {input} --out {out}"));
            let expected = format!("{out}: its ending names no format; end the name in .parquet, .arrow");
            assert!(complaint.starts_with(&expected), "{input}: {complaint}");
            assert!(complaint.ends_with("or say --format parquet, arrow or jsonl"), "{complaint}");
        }
        let expected = lab.run(&format!("predict model {input}")).done();
        for out in ["o", "o.jsonl", "o.ndjson", "o.json", "o.JSONL", "o.csv --format jsonl"] {
            lab.run(&format!("predict model {input} --out {out}")).done();
            assert_eq!(lab.read(out.split(' ').next().unwrap()), expected, "{input} {out}");
        }
    }
    lab.run("predict model --in docs.parquet --out o.table --format parquet").done();
    assert!(lab.bytes("o.table").starts_with(b"PAR1"));
}

#[test]
fn a_full_disk_behind_standard_output_is_told() {
    let lab = Lab::with_model();
    lab.write("docs.jsonl", DEV);
    for line in
        ["predict model --in docs.jsonl", "labels model list", "inspect task --json", "completions zsh"]
    {
        let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
            skipped("no /dev/full here");
            return;
        };
        let ran = Ran::of(lab.command(line.split(' ')).stdout(Stdio::from(full)).output().unwrap());
        let complaint = ran.complaint();
        let expected =
            "standard output: cannot write: No space left on device (os error 28); free some space";
        assert!(complaint.starts_with(expected), "{line}: {complaint}");
    }
}

#[test]
fn senseless_questions_are_refused() {
    let lab = Lab::with_model();
    lab.write("docs.jsonl", DEV);
    lab.write("wrong.txt", "tea\nnobody\n");
    lab.write("none.txt", "\n");
    for (options, part) in [
        ("--k 0", "--k 0 asks for no label; say at least 1"),
        ("--threshold nan", "--threshold must be a finite number"),
        (
            "--allow wrong.txt",
            "wrong.txt, line 2: the model has no label with the id \"nobody\"; take the line out",
        ),
        ("--allow none.txt", "none.txt: names no label; write the id of one a line"),
        ("--out docs.jsonl", "docs.jsonl: is both input and output"),
        ("--out task", "task: already exists and is not empty, nor was it begun by an earlier run"),
        ("--out no/such/place", "no/such/place: cannot create: No such file or directory"),
    ] {
        let complaint = lab.refuses(&format!("predict model --in docs.jsonl {options}"));
        assert!(complaint.contains(part), "{options}: {complaint}");
    }
}
