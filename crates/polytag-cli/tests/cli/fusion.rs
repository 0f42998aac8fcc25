//! `fit --method recorded`, `conse` and `xml0`: from another program's scores to unseen labels.

use std::path::Path;

use crate::support::{Lab, json, json_lines};

/// The bundled sample's stand-in, rankings of its documents in `scores.jsonl`, and models of both in `classifier` and
/// `semantics`.
fn prepared() -> Lab {
    let lab = Lab::with_task();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders/bert");
    let tiny = tiny.canonicalize().unwrap().display().to_string();
    lab.write(
        "scores.jsonl",
        "{\"id\":\"4\",\"labels\":[{\"id\":\"tea\",\"score\":0.8},{\"id\":\"rail\",\"score\":0.4}]}\n\
         {\"id\":\"5\",\"labels\":[{\"id\":\"rail\",\"score\":0.9},{\"id\":\"steam\",\"score\":0.9}]}\n",
    );
    let ran = lab.run("fit task --method recorded --set scores=scores.jsonl --out classifier");
    assert!(ran.stderr.contains("1 scores are of labels that the task does not know, \"steam\""), "{ran:?}");
    ran.done();
    lab.run(&format!("fit task --method frozen --encoder {tiny} --device cpu --cache cache --out semantics"))
        .done();
    lab
}

const XML0: &str = "fit task --method xml0 --set classifier=classifier --set semantics=semantics --device cpu --cache cache --out xml0";

#[test]
fn unseen_labels_come_from_scores_of_another_program() {
    let lab = prepared();
    assert!(lab.run(XML0).done().contains("xml0, 4 labels"));
    let first = lab.tree("xml0");
    assert!(first.contains_key("xml0/parts/classifier/rankings.jsonl"));
    let tagged = json_lines(&lab.run("predict xml0 --in task/dev.jsonl --device cpu").done());
    for line in &tagged {
        let mut ids: Vec<&str> =
            line["labels"].as_array().unwrap().iter().map(|l| l["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["bees", "glue"], "unseen labels alone");
        assert!(line["labels"].as_array().unwrap().iter().all(|label| label["seen"] == false));
    }
    let report = json(&lab.run("evaluate xml0 task --split dev --device cpu --replicates 0 --json -").done());
    assert!(report["metrics"]["unseen nDCG@5"].as_f64().unwrap() > 0.0, "{report}");
    let why = lab.run("explain xml0 --text honey --id 4 --label bees --device cpu").done();
    assert!(why.contains("through \"labels 0.") && why.contains("among the predicted labels"), "{why}");
    assert!(lab.refuses("explain xml0 --text honey --device cpu").contains("without an id"));
    // The number of threads changes the time, not the bytes, and neither does a second fit.
    lab.run(&format!("{XML0} --threads 1")).done();
    assert_eq!(lab.tree("xml0"), first);
    let one = lab.run("predict xml0 --in task/dev.jsonl --device cpu --threads 1").done();
    assert_eq!(json_lines(&one), tagged);
    lab.run_all(&["labels", "xml0", "add", "--id", "ash", "--name", "volcanic ash", "--device", "cpu"])
        .done();
    let more = json_lines(&lab.run("predict xml0 --in task/dev.jsonl --device cpu").done());
    assert_eq!(more[0]["labels"].as_array().unwrap().len(), 3);
}

#[test]
fn bad_scores_and_parts_are_refused_with_a_place() {
    let lab = prepared();
    lab.write(
        "nan.jsonl",
        "{\"id\":\"4\",\"labels\":[[\"tea\", 0.5]]}\n{\"id\":\"5\",\"labels\":[[\"tea\", NaN]]}\n",
    );
    lab.write("negative.txt", "2 4\n0:0.5\n3:-1\n");
    lab.write("short.txt", "1 4\n0:0.5\n");
    for (settings, parts) in [
        ("recorded --set scores=nan.jsonl", ["nan.jsonl, line 2", "NaN is no score"]),
        (
            "recorded --set scores=negative.txt --set split=dev",
            ["negative.txt, line 3", "\"glue\" has the score -1"],
        ),
        ("recorded --set scores=short.txt --set split=dev", ["short.txt, line 1", "2 documents"]),
        ("recorded --set scores=short.txt", ["test.jsonl", "split"]),
        ("recorded --set scores=none.txt", ["none.txt", "No such file"]),
        ("recorded", ["--set scores=FILE", "which scores"]),
        ("xml0", ["--set classifier=MODEL", "which classifier"]),
        ("xml0 --set classifier=classifier --set semantics=classifier", ["classifier", "few-shot"]),
        (
            "conse --set classifier=semantics --set semantics=semantics --set most=99",
            ["most = 99", "1 to 64"],
        ),
    ] {
        let told = lab.refuses(&format!("fit task --out new --device cpu --method {settings}"));
        assert!(parts.iter().all(|part| told.contains(part)), "{settings}: {told}");
    }
    let told = lab.refuses("fit task --method xml0 --set classifier=classifier --set semantics=semantics --device cpu --out classifier");
    assert!(told.contains("classifier"), "{told}");
}
