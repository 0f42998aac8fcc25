//! `polytag labels`.

use std::collections::BTreeSet;

use crate::support::{Lab, Ran, json};

fn listed(lab: &Lab) -> Vec<String> {
    let labels = json(&lab.run("labels model list --json").done());
    labels.as_array().unwrap().iter().map(|label| label["id"].as_str().unwrap().to_owned()).collect()
}

fn best(lab: &Lab, text: &str) -> String {
    let told = json(&lab.feed("predict model --plain --k 1", text).done());
    told["labels"][0]["id"].as_str().unwrap_or("nothing").to_owned()
}

#[test]
fn a_label_is_in_the_very_next_answer() {
    let lab = Lab::with_model();
    assert_eq!(best(&lab, "volcanic ash"), "nothing");
    let told = lab.run_all(&[
        "labels",
        "model",
        "add",
        "--id",
        "ash",
        "--name",
        "volcano",
        "--alias",
        "volcanic ash",
        "--parent",
        "tea",
        "--description",
        "Mountains that burn.",
    ]);
    assert_eq!(told.done(), "1 changed; 5 labels now\n");
    assert_eq!(best(&lab, "volcanic ash"), "ash");
    let label = json(&lab.run("labels model list --match VOLCANIC --json").done());
    let expected = r#"[{"id":"ash","name":"volcano","description":"Mountains that burn.",
        "aliases":["volcanic ash"],"parents":["tea"],"train_documents":0,"seen":false}]"#;
    assert_eq!(label, json(expected));

    lab.run_all(&["labels", "model", "rename", "ash", "geyser"]).done();
    assert_eq!(best(&lab, "a geyser"), "ash");
    lab.run("labels model remove ash rail").done();
    assert_eq!(best(&lab, "a geyser of volcanic ash"), "nothing");
    assert_eq!(listed(&lab), ["tea", "bees", "glue"]);
    let table = lab.run("labels model list --match tea").done();
    assert!(table.contains("tea trade") && !table.contains("adhesive"), "{table}");
}

#[test]
fn a_file_adds_all_of_its_labels() {
    let lab = Lab::with_model();
    lab.write(
        "new.jsonl",
        "{\"id\":\"ash\",\"name\":\"volcanic ash\"}\n\n{\"id\":7,\"name\":\"seventh heaven\"}\n",
    );
    assert_eq!(lab.run("labels model add new.jsonl").done(), "2 changed; 6 labels now\n");
    assert_eq!(listed(&lab), ["tea", "rail", "bees", "glue", "ash", "7"]);
    assert_eq!((best(&lab, "heaven"), best(&lab, "ash")), ("7".to_owned(), "ash".to_owned()));
}

#[test]
fn a_file_with_one_bad_label_changes_nothing() {
    let good = "{\"id\":\"ash\",\"name\":\"volcanic ash\"}\n";
    for (bad, part) in [
        ("{\"id\":\"x\"}\n", "new.jsonl, line 2: the label \"x\" has no name; add a \"name\""),
        ("{\"name\":\"x\"}\n", "new.jsonl, line 2: the field \"id\" is missing"),
        ("nonsense\n", "new.jsonl, line 2: not a JSON object"),
        (
            "{\"id\":\"x\",\"name\":\"X\",\"descripton\":\"typo\"}\n",
            "new.jsonl, line 2: the field \"descripton\" is not known; a label has id, name, description, aliases and parents",
        ),
        (
            "{\"id\":\"x\",\"name\":\"X\",\"descripton\":\"typo\",\"alias\":[\"x\"]}\n",
            "new.jsonl, line 2: the fields \"alias\", \"descripton\" are not known; a label has",
        ),
        (
            "{\"id\":\"tea\",\"name\":\"x\"}\n",
            "new.jsonl, line 2: a label with the id \"tea\" is there already",
        ),
        (good, "new.jsonl, line 2: a label with the id \"ash\" is there already; choose another id"),
    ] {
        let lab = Lab::with_model();
        lab.write("new.jsonl", format!("{good}{bad}"));
        let complaint = lab.run("labels model add new.jsonl").complaint();
        assert!(complaint.contains(part), "{complaint}");
        assert_eq!(listed(&lab), ["tea", "rail", "bees", "glue"]);
        assert_eq!(best(&lab, "volcanic ash"), "nothing");
    }
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let lab = Lab::with_model();
    lab.write("model/labels.log", "");
    lab.write("empty.jsonl", "");
    for (line, part) in [
        (
            "labels model add --id tea --name x",
            "a label with the id \"tea\" is there already; choose another id",
        ),
        ("labels model add --id x", "--name"),
        ("labels model add", "<FILE>"),
        ("labels model add empty.jsonl", "empty.jsonl: the file is empty"),
        ("labels model add nowhere.jsonl", "nowhere.jsonl: cannot open"),
        ("labels model remove nobody", "no label has the id \"nobody\"; `polytag labels MODEL list`"),
        ("labels model remove tea nobody", "no label has the id \"nobody\""),
        ("labels model rename nobody x", "no label has the id \"nobody\""),
        ("labels nowhere list", "nowhere: cannot open the model folder"),
        ("labels task add --id x --name x", "task: not a model folder"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains(part), "{line}: {complaint}");
    }
    let complaint = lab.run_all(&["labels", "model", "add", "--id", "x", "--name", " "]).complaint();
    assert!(complaint.contains("the label \"x\" has no name; give it one"), "{complaint}");
    let complaint = lab.run_all(&["labels", "model", "rename", "tea", ""]).complaint();
    assert!(complaint.contains("the label \"tea\" has no name"), "{complaint}");
}

#[test]
fn many_at_once_lose_no_label() {
    let lab = Lab::with_model();
    let mut expected: BTreeSet<String> = listed(&lab).into_iter().collect();
    for round in 0..3 {
        let mut waiting: Vec<String> = (0..8).map(|n| format!("r{round}-{n}")).collect();
        expected.extend(waiting.iter().cloned());
        while !waiting.is_empty() {
            let start = |id: &String| {
                let line = format!("labels model add --id {id} --name name-{id}");
                lab.command(line.split(' ')).spawn().unwrap()
            };
            let running: Vec<_> = waiting.iter().map(start).collect();
            let ran: Vec<Ran> =
                running.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap())).collect();
            assert!(ran.iter().any(|ran| ran.code == Some(0)), "nobody got through: {ran:#?}");
            let mut refused = Vec::new();
            for (id, ran) in waiting.into_iter().zip(ran) {
                if ran.code != Some(0) {
                    let complaint = ran.complaint();
                    assert!(
                        complaint.contains("another program is changing this model; try again"),
                        "{complaint}"
                    );
                    refused.push(id);
                }
            }
            waiting = refused;
        }
    }
    assert_eq!(listed(&lab).into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(lab.read("model/labels.log").lines().count(), 24);
}
