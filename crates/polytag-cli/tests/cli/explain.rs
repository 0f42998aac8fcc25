//! `polytag explain`.

use crate::support::{Lab, json};

#[test]
fn the_words_that_speak_for_a_label_are_shown() {
    let lab = Lab::with_model();
    let told = lab.run_all(&["explain", "model", "--text", "Rules for green tea"]).done();
    assert!(told.contains("tea trade (tea)") && told.contains("\"green tea\" in the text"), "{told}");
    assert!(told.contains("through \"green tea\""), "{told}");

    let arguments = ["explain", "model", "--title", "Bees", "--text", "honey", "--k", "1", "--json"];
    let told = json(&lab.run_all(&arguments).done());
    assert_eq!((&told[0]["id"], told.as_array().unwrap().len()), (&"bees".into(), 1));
    assert!(told[0]["score"].as_f64().unwrap() > 0.0);
    assert!(!told[0]["reasons"].as_array().unwrap().is_empty());

    lab.run_all(&["explain", "model", "--text", "green <tea>", "--html", "why.html"]).done();
    let page = lab.read("why.html");
    assert!(page.contains("tea trade (tea)") && page.contains("green &lt;tea&gt;"), "{page}");
    assert!(!page.contains("<mark"), "words are not marked where nothing is known of them: {page}");
}

#[test]
fn a_label_that_does_not_fit_is_explained_on_request() {
    let lab = Lab::with_model();
    let told = lab.run("explain model --text honey --label glue").done();
    assert!(told.contains("adhesive (glue)") && told.contains("nothing in the text speaks for it"), "{told}");
    let told = lab.run("explain model --text xyzzy").done();
    assert_eq!(told, "No label has anything in common with this text.\n");
}

#[test]
fn senseless_questions_are_refused() {
    let lab = Lab::with_model();
    for (line, part) in [
        ("explain model --text x --label nobody", "no label with the id \"nobody\""),
        ("explain model --text x --k 0", "--k 0 asks for no label; say at least 1"),
        ("explain model", "--text"),
    ] {
        let complaint = lab.refuses(line);
        assert!(complaint.contains(part), "{line}: {complaint}");
    }
}
