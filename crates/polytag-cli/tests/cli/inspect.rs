//! `polytag inspect`.

use crate::support::{Lab, TRAIN, json};

#[test]
fn a_task_is_described_for_people_programs_and_browsers() {
    let lab = Lab::with_task();
    let told = lab.run("inspect task").done();
    for part in ["documents", "labels by training documents", "0 (unseen)"] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let counted = json(&lab.run("inspect task --json").done());
    assert_eq!((&counted["labels"], &counted["seen"], &counted["unseen"]), (&4.into(), &2.into(), &2.into()));
    assert_eq!(counted["problem_count"], 0);
    let splits: Vec<_> = counted["splits"].as_array().unwrap().iter().map(|split| &split["split"]).collect();
    assert_eq!(splits, ["train", "dev"]);
    assert_eq!(counted["splits"][0]["documents"], 3);
    assert_eq!(counted["splits"][1]["unseen_pairs"], 1);
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let lab = Lab::with_task();
    lab.run("inspect task --html page.html").done();
    let page = lab.read("page.html");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.contains("0 (unseen)"));
    for outside in ["http://", "https://", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "the page holds {outside:?}");
    }
}

#[test]
fn problems_are_listed_with_file_and_line() {
    let lab = Lab::with_task();
    lab.write("task/train.jsonl", format!("{TRAIN}{{}}\n{{\"id\":\"1\",\"text\":\"\"}}\nnonsense\n"));
    lab.write("task/dev.jsonl", "{\"id\":\"9\",\"text\":\"x\",\"labels\":[\"nobody\"]}\n");
    let ran = lab.run("inspect task");
    assert_eq!(ran.code, Some(2));
    for part in [
        "4 problems",
        "task/train.jsonl, line 4: the field \"id\" is missing; give it an id",
        "task/train.jsonl, line 5: the id \"1\" was used before, on line 1; give each its own id",
        "task/train.jsonl, line 6: not a JSON object; write one JSON object a line",
        "task/dev.jsonl, line 1: no label has the id \"nobody\"; add it to labels.jsonl",
    ] {
        assert!(ran.stdout.contains(part), "no {part:?} in\n{}", ran.stdout);
    }
    let ran = lab.run("inspect task --json --html page.html");
    assert_eq!((ran.code, &json(&ran.stdout)["problem_count"]), (Some(2), &4.into()));
    assert!(lab.read("page.html").contains("4 problems"));
}

#[test]
fn fields_that_are_not_read_are_noted() {
    let lab = Lab::with_task();
    lab.write("task/dev.jsonl", "{\"id\":\"9\",\"text\":\"x\",\"lables\":[\"tea\"]}\n");
    let told = lab.run("inspect task").done();
    assert!(told.contains("dev has a field \"lables\" on 1 of its first 1,000 lines"), "{told}");
}

#[test]
fn files_that_are_not_read_are_noted() {
    let lab = Lab::with_task();
    assert_eq!(json(&lab.run("inspect task --json").done())["unread_files"], json("[]"));
    lab.write("task/training.jsonl", TRAIN);
    lab.write("task/TEST.jsonl.gz", "x");
    lab.write("task/dev.csv", "id,text\n");
    lab.write("task/test.jsonl/part", "x");
    lab.write("task/notes.txt", "x");
    let told = lab.run("inspect task --html page.html").done();
    let page = lab.read("page.html");
    for (name, why) in
        [("training.jsonl", ""), ("TEST.jsonl.gz", ""), ("dev.csv", ""), ("test.jsonl", ", as it is no file")]
    {
        let note =
            format!("{name} is not read{why}; the files of a task are labels, train, dev and test, each as");
        assert!(told.contains(&format!("note: {note}")), "no {name} in\n{told}");
        assert!(page.contains(&note), "{page}");
    }
    assert_eq!(told.matches("is not read").count(), 4, "{told}");
    let counted = json(&lab.run("inspect task --json").done());
    assert_eq!(counted["unread_files"][0], json(r#"{"name":"TEST.jsonl.gz","is_file":true}"#));
}
