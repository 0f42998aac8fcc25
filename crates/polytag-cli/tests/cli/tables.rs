//! Columns in, columns out: tables as tasks and as documents to tag, and what can be wrong with them.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, LargeStringArray, ListArray, StringViewArray,
    TimestampSecondArray,
};
use serde_json::{Value, json};

use crate::support::{DEV, LABELS, Lab, gzip, json_lines, texts};

const TEXTS: [Option<&str>; 4] =
    [Some("keeping bees and their honey"), None, Some(""), Some("transport by rail")];

fn lists(rows: &[Option<&[&str]>]) -> ListArray {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in rows {
        lists.append_option(row.map(|row| row.iter().map(|item| Some(*item))));
    }
    lists.finish()
}

/// The ids of the labels of an answer; none where they are null.
fn labels(answer: &Value) -> Option<Vec<&str>> {
    let labels = answer["labels"].as_array()?;
    Some(labels.iter().map(|label| label["id"].as_str().unwrap()).collect())
}

#[test]
fn a_row_in_is_a_row_out_whatever_the_files_are() {
    let lab = Lab::with_model();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9, 10]));
    let kinds: [ArrayRef; 3] = [
        texts(TEXTS),
        Arc::new(LargeStringArray::from(TEXTS.to_vec())),
        Arc::new(StringViewArray::from(TEXTS.to_vec())),
    ];
    let mut answers: Vec<Vec<Value>> = Vec::new();
    for (input, kind) in ["a.parquet", "b.arrow", "c.feather"].into_iter().zip(kinds) {
        lab.write_table(input, vec![("text", kind), ("id", ids.clone())], 3);
        for output in ["out.parquet", "out.arrow", "out.jsonl"] {
            let ran = lab.run(&format!("predict model --k 2 --in {input} --out {output}"));
            assert!(ran.stderr.contains("1 rows have no text; their labels are null"), "{}", ran.stderr);
            ran.done();
            answers.push(if output.ends_with("jsonl") { lab.json_lines(output) } else { lab.table(output) });
        }
        answers.push(json_lines(&lab.run(&format!("predict model --k 2 --in {input}")).done()));
    }
    let first = answers[0].clone();
    assert!(answers.iter().all(|answer| *answer == first), "{answers:#?}");
    let found: Vec<_> = first.iter().map(labels).collect();
    assert_eq!(found, [Some(vec!["bees"]), None, Some(vec![]), Some(vec!["rail"])]);
    let numbers: Vec<&Value> = first.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(numbers, [7, 8, 9, 10]);
    // The same as lines are answered with.
    lab.write("d.jsonl", DEV);
    let lines = json_lines(&lab.run("predict model --k 2 --in d.jsonl").done());
    assert_eq!((&lines[0]["labels"], &lines[1]["labels"]), (&first[0]["labels"], &first[3]["labels"]));
    lab.run("predict model --k 2 --in d.jsonl --out d.parquet").done();
    assert_eq!(lab.table("d.parquet"), lines);
    lab.feed("predict model --k 2 --out e.parquet", DEV).done();
    assert_eq!(lab.table("e.parquet"), lines);
    lab.feed("predict model --plain --out f.parquet", "tea\n\nrail\n").done();
    let ids: Vec<Value> = lab.table("f.parquet").iter().map(|row| row["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn columns_go_by_any_name_and_others_are_carried_through() {
    let lab = Lab::with_model();
    let columns = || {
        vec![
            ("body", texts(["rail", "tea"])),
            ("head", texts([Some("bee keeping"), None])),
            ("key", texts(["x", "y"])),
            ("weight", Arc::new(Float64Array::from(vec![0.5, 1.5])) as ArrayRef),
        ]
    };
    lab.write_table("docs.parquet", columns(), 10);
    let options = "--text-column body --title-column head --id-column key --keep weight --keep body --k 1";
    lab.run(&format!("predict model --in docs.parquet {options} --out tags.parquet")).done();
    let rows = lab.table("tags.parquet");
    let row = |row: &Value| (row["id"].clone(), row["weight"].clone(), row["body"].clone());
    assert_eq!(row(&rows[0]), (json!("x"), json!(0.5), json!("rail")));
    assert_eq!(row(&rows[1]), (json!("y"), json!(1.5), json!("tea")));
    assert_eq!((labels(&rows[0]), labels(&rows[1])), (Some(vec!["bees"]), Some(vec!["tea"])));
    // Without ids, rows are called by their numbers, over row groups.
    lab.write_table("docs.parquet", vec![("text", texts(["a", "b", "c"]))], 2);
    lab.run("predict model --in docs.parquet --out tags.jsonl").done();
    let ids: Vec<Value> = lab.json_lines("tags.jsonl").iter().map(|row| row["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3]);
    let mut dated = columns();
    dated.push(("date", Arc::new(TimestampSecondArray::from(vec![1, 2]))));
    lab.write_table("docs.parquet", dated, 10);
    let options = "--text-column body --keep date";
    lab.run(&format!("predict model --in docs.parquet {options} --out tags.parquet")).done();
    let complaint = lab.refuses(&format!("predict model --in docs.parquet {options} --out tags2.jsonl"));
    assert!(
        complaint.contains("the column \"date\" is of type Timestamp(s), where something that JSON has"),
        "{complaint}"
    );
}

#[test]
fn a_table_without_rows_is_answered_with_one() {
    let lab = Lab::with_model();
    lab.write_table("none.parquet", vec![("id", texts([""; 0])), ("text", texts([""; 0]))], 1);
    for out in ["out.parquet", "out.arrow"] {
        lab.run(&format!("predict model --in none.parquet --out {out}")).done();
        assert_eq!(lab.table(out).len(), 0);
    }
    assert_eq!(lab.run("predict model --in none.parquet").done(), "");
}

#[test]
fn what_is_wrong_with_a_table_is_told_by_file_column_and_remedy() {
    let lab = Lab::with_model();
    let number: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let text = || texts(["tea"]);
    lab.write_table("good.parquet", vec![("id", text()), ("text", text())], 1);
    lab.write_table("number.parquet", vec![("id", text()), ("text", number.clone())], 1);
    lab.write_table("id.arrow", vec![("id", number), ("text", text())], 1);
    lab.write_table("twice.parquet", vec![("id", text()), ("text", text()), ("text", text())], 1);
    lab.write_table("body.parquet", vec![("id", text()), ("body", text())], 1);
    lab.write("lines.parquet", DEV);
    lab.write("packed.parquet", gzip(lab.bytes("good.parquet")));
    lab.write("empty.parquet", "");
    lab.write("empty.arrow", "");
    lab.write("stream.arrow", [&[0xff; 4][..], &[0; 20]].concat());
    lab.write_table("good.arrow", vec![("id", text()), ("text", text())], 1);
    for name in ["good.parquet", "good.arrow"] {
        let bytes = lab.bytes(name);
        for length in [3, 8, 11, bytes.len() / 2, bytes.len() - 1] {
            lab.write(&format!("cut-{length}-{name}"), &bytes[..length]);
            let complaint = lab.refuses(&format!("predict model --in cut-{length}-{name} --out x.parquet"));
            assert!(
                complaint.contains("data ends too early; the file was cut short"),
                "{length}: {complaint}"
            );
        }
    }
    for (file, part) in [
        (
            "number.parquet",
            "number.parquet: the column \"text\" is of type Float64, where text (Utf8, LargeUtf8, Utf8View",
        ),
        (
            "id.arrow",
            "id.arrow: the column \"id\" is of type Float64, where an id (text or whole numbers) is expected; name",
        ),
        ("twice.parquet", "twice.parquet: two columns are called \"text\"; rename one of them"),
        (
            "body.parquet",
            "body.parquet: no column is called \"text\"; there are \"id\", \"body\"; name one of them",
        ),
        ("lines.parquet", "lines.parquet: is not Parquet (it does not start like one); check what it is"),
        ("packed.parquet", "packed.parquet: is not Parquet (it is compressed as a whole); unpack it"),
        ("empty.parquet", "empty.parquet: is not Parquet (it is empty); write it again"),
        ("empty.arrow", "empty.arrow: is not Arrow (it is empty); write it again"),
        (
            "stream.arrow",
            "stream.arrow: is not Arrow (it looks like an Arrow stream); write it in Arrow's format",
        ),
        ("none.parquet", "none.parquet: cannot open: No such file or directory"),
        ("good.parquet --keep when", "good.parquet: no column is called \"when\""),
        ("good.parquet --keep id", "the answer would have two columns called \"id\""),
        ("good.parquet --id-column key", "no column is called \"key\""),
        (
            "task/dev.jsonl --text-column body",
            "task/dev.jsonl: holds lines, whose fields are id, title and text",
        ),
        ("good.parquet --format parquet --out good.parquet", "good.parquet: is both input and output"),
    ] {
        let out = if file.contains("--out") { "" } else { "--out x.parquet" };
        let complaint = lab.refuses(&format!("predict model --in {file} {out}"));
        assert!(complaint.contains(part), "{file}: {complaint}");
    }
    let complaint = lab.refuses("predict model --in good.parquet --format parquet");
    assert!(complaint.contains("a table cannot be written to standard output"), "{complaint}");
    let complaint = lab.refuses("predict model --in task/dev.jsonl --text-column body");
    assert!(complaint.contains("columns can be named for tables only"), "{complaint}");
}

/// A file of three row groups, the second of which has wrong bytes.
fn with_a_damaged_group(lab: &Lab, name: &str) {
    let words: Vec<String> = (0..300).map(|n| format!("tea {}", n * 7919 % 1000)).collect();
    let words = texts(words.iter().map(String::as_str));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..300));
    lab.write_table(name, vec![("id", ids), ("text", words)], 100);
    let mut bytes = lab.bytes(name);
    let third = bytes.len() / 3;
    bytes[third..third + 200].fill(0xa5);
    lab.write(name, bytes);
}

#[test]
fn a_damaged_row_group_is_told_by_number_and_nothing_is_half_written() {
    let lab = Lab::with_model();
    with_a_damaged_group(&lab, "docs.parquet");
    let complaint = lab.refuses("predict model --in docs.parquet --out tags.parquet");
    assert!(complaint.starts_with("docs.parquet, row group "), "{complaint}");
    assert!(complaint.ends_with("fetch or write the file again"), "{complaint}");
}

#[test]
fn files_that_cannot_be_read_stop_a_folder_before_it_begins_or_are_passed_over() {
    let lab = Lab::with_model();
    for name in ["a", "b", "e"] {
        let columns = vec![("id", texts(["1", "2"])), ("text", texts(["tea", "rail"]))];
        lab.write_table(&format!("in/{name}.parquet"), columns, 10);
    }
    let bytes = lab.bytes("in/b.parquet");
    lab.write("in/b.parquet", &bytes[..bytes.len() / 2]);
    with_a_damaged_group(&lab, "in/d.parquet");
    let complaint = lab.refuses("predict model --in in --out out");
    assert!(complaint.starts_with("in/b.parquet: the Parquet data ends too early"), "{complaint}");
    let ran = lab.run("predict model --in in --out out --keep-going");
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("4 rows tagged, 2 files are done"), "{}", ran.stderr);
    for part in
        ["not done: in/b.parquet: the Parquet data ends too early", "not done: in/d.parquet, row group "]
    {
        assert!(ran.stderr.contains(part), "no {part:?} in {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    let written: Vec<String> = lab.names("out").into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(written, ["a.parquet", "e.parquet"]);
    // Once the file is whole it is tagged, and only it.
    lab.write("in/b.parquet", &bytes);
    lab.write("in/d.parquet", &bytes);
    let ran = lab.run("predict model --in in --out out");
    assert!(
        ran.stderr.contains("in/d.parquet: its size has changed since it was begun; it is begun anew"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("4 rows tagged, 4 files are done; 4 rows were there already"),
        "{}",
        ran.stderr
    );
    ran.done();
}

#[test]
fn a_task_of_tables_is_the_task_of_lines() {
    let lab = Lab::with_task();
    let none: Option<&str> = None;
    lab.write_table(
        "tables/train.parquet",
        vec![
            ("id", Arc::new(Int64Array::from(vec![1, 2, 3]))),
            ("title", texts([Some("Tea"), none, none])),
            (
                "text",
                texts([
                    "rules for the trade of green tea",
                    "trains on the rail network carry goods",
                    "tea goes by rail",
                ]),
            ),
            ("labels", Arc::new(lists(&[Some(&["tea"]), Some(&["rail"]), Some(&["tea", "rail"])]))),
            ("note", texts(["a", "b", "c"])),
        ],
        2,
    );
    lab.write_table(
        "tables/dev.arrow",
        vec![
            ("id", texts(["4", "5", "6"])),
            ("text", texts(["keeping bees and their honey", "transport by rail", "x"])),
            ("labels", Arc::new(lists(&[Some(&["bees"]), None, Some(&[])]))),
        ],
        2,
    );
    lab.write_table(
        "tables/labels.parquet",
        vec![
            ("id", texts(["tea", "rail", "bees", "glue"])),
            ("name", texts(["tea trade", "rail transport", "bee keeping", "adhesive"])),
            ("description", texts([none, none, Some("Hives and honey."), none])),
            ("aliases", Arc::new(lists(&[Some(&["green tea"]), None, None, Some(&[])]))),
        ],
        10,
    );
    lab.run("fit task --out lines-model").done();
    lab.run("fit tables --out tables-model").done();
    for name in ["labels.jsonl", "weights.safetensors", "words.txt"] {
        assert!(
            lab.bytes(&format!("lines-model/{name}")) == lab.bytes(&format!("tables-model/{name}")),
            "{name}"
        );
    }
    let told = lab.run("inspect tables").done();
    assert!(told.contains("note"), "{told}");
    let counted = crate::support::json(&lab.run("inspect tables --json").done());
    let dev =
        counted["splits"].as_array().unwrap().iter().find(|split| split["split"] == "dev").unwrap().clone();
    assert_eq!((&dev["documents"], &dev["labelled"]), (&json!(3), &json!(2)), "{dev}");
    lab.run("evaluate lines-model tables --split dev").done();
    lab.write("tables/train.jsonl", "{}");
    let complaint = lab.refuses("inspect tables");
    assert!(complaint.contains("holds both train.jsonl and train.parquet; keep one of them"), "{complaint}");
}

#[test]
fn what_is_wrong_with_a_row_of_a_task_is_told_by_row() {
    let lab = Lab::new();
    lab.write("task/labels.jsonl", LABELS);
    let write = |columns| lab.write_table("task/train.parquet", columns, 2);
    let ids = || texts(["1", "2", "2"]);
    let some = || texts(["a", "b", "c"]);
    for (columns, part) in [
        (
            vec![("id", ids()), ("text", some())],
            "train.parquet, row 3: the id \"2\" was used before, on line 2",
        ),
        (
            vec![("id", some()), ("text", texts([Some("a"), None, None]))],
            "train.parquet, row 2: the field \"text\" is missing",
        ),
        (
            vec![("id", some()), ("text", some()), ("labels", Arc::new(lists(&[None, None, Some(&["x"])])))],
            "train.parquet, row 3: no label has the id \"x\"",
        ),
        (
            vec![("id", some()), ("text", some()), ("labels", some())],
            "the column \"labels\" is of type Utf8, where a list",
        ),
        (vec![("text", some())], "train.parquet: no column is called \"id\""),
        (vec![("id", texts([""; 0])), ("text", texts([""; 0]))], "train.parquet: the file is empty"),
    ] {
        write(columns);
        let complaint = lab.refuses("fit task --out model");
        assert!(complaint.contains(part), "{part}: {complaint}");
    }
    let bytes = lab.bytes("task/train.parquet");
    lab.write("task/train.parquet", &bytes[..bytes.len() - 3]);
    let complaint = lab.refuses("fit task --out model");
    assert!(complaint.contains("train.parquet: the Parquet data ends too early"), "{complaint}");
}

#[test]
fn tables_are_imported_by_column_and_by_name_of_file() {
    let lab = Lab::new();
    let topics: ArrayRef = Arc::new(lists(&[Some(&["tea", "rail", "tea"]), Some(&[]), None]));
    let columns = |topics: ArrayRef| {
        vec![
            ("key", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef),
            ("body", texts(["a", "b", "c"])),
            ("topics", topics),
        ]
    };
    lab.write_table("data/train-00000-of-00001.parquet", columns(topics), 2);
    let codes = texts([Some("tea|rail"), Some(""), None]);
    lab.write_table("data/validation-00000.arrow", columns(codes), 2);
    let options = "--id-column key --text-column body --labels-column topics --label-separator |";
    lab.write("codes.jsonl", LABELS);
    let told = lab.run(&format!("import parquet data task {options} --label-file codes.jsonl")).done();
    assert_eq!(told, "task: 4 labels, 4 pairs, documents: train 3, dev 3\n");
    for split in ["train", "dev"] {
        let rows = lab.json_lines(&format!("task/{split}.jsonl"));
        let labels: Vec<Option<&Value>> = rows.iter().map(|row| row.get("labels")).collect();
        assert_eq!(labels, [Some(&json!(["tea", "rail"])), Some(&json!([])), None], "{split}");
        assert_eq!((&rows[2]["id"], &rows[2]["text"]), (&json!("3"), &json!("c")));
    }
    let one = "import parquet data/train-00000-of-00001.parquet other";
    let complaint = lab.refuses(one);
    assert!(
        complaint.contains("no column is called \"text\"; there are \"key\", \"body\", \"topics\""),
        "{complaint}"
    );
    let complaint = lab.refuses(&format!("{one} --text-column key"));
    assert!(complaint.contains("the column \"key\" is of type Int64, where text"), "{complaint}");
    lab.write("nothing/notes.txt", "x");
    let complaint = lab.refuses("import parquet nothing other");
    assert!(complaint.contains("nothing: no table was found"), "{complaint}");
    let half = texts([Some("a"), None]);
    assert_eq!(half.null_count(), 1);
    lab.write_table("half.parquet", vec![("text", half)], 2);
    let complaint = lab.refuses("import parquet half.parquet other");
    assert!(complaint.contains("half.parquet, row 2: the text is null; fill it in"), "{complaint}");
}
