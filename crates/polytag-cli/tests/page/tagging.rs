//! One text: its labels, why they fit, what people say of them, and a label that was missing.

use serde_json::json;

use crate::site::{Site, TEXT, TITLE};

const GOPHER: &str = "[data-test=result][data-label='protocol::gopher']";
const CLIENT: &str = "[data-test=result][data-label='network::client']";
const HOSTILE: &str = "<script>window.hacked=1</script>";

#[test]
fn a_text_gets_labels_with_bars_and_marks() {
    let Some(site) = Site::open() else { return };
    let browser = site.tag();
    assert_eq!(browser.count("[data-test=result]"), 10);
    let first = browser.text("[data-test=result]:first-child");
    assert!(first.contains("Gopher") && first.contains("unseen") && first.contains("0."), "{first}");
    let second = browser.text("[data-test=result]:nth-child(2)");
    assert!(second.contains("Client") && !second.contains("unseen"), "{second}");
    assert_eq!(browser.text(&format!("{CLIENT} .badge")), "seen");

    // Two labels have the same name; only these show their ids.
    let ids =
        browser.value("[...document.querySelectorAll('.result .path')].map((path) => path.textContent)");
    assert_eq!(ids, json!(["made-of::html", "works-with-format::html"]));

    let widths =
        browser.value("[...document.querySelectorAll('.result .fill')].map((bar) => bar.offsetWidth)");
    let widths: Vec<u64> = serde_json::from_value(widths).unwrap();
    assert!(widths.is_sorted_by(|a, b| a >= b) && widths[0] > 2 * widths[9] && widths[9] > 0, "{widths:?}");

    browser.replace("[data-test=k]", "3");
    browser.click("[data-test=tag]");
    browser.until("document.querySelectorAll('[data-test=result]').length === 3");
    site.close();
}

#[test]
fn no_text_is_told_where_it_is_missing() {
    let Some(site) = Site::open() else { return };
    let browser = site.view("tag");
    browser.click("[data-test=tag]");
    assert!(browser.text("#tag-trouble [role=alert]").contains("There is no text yet"));
    assert_eq!(browser.value("document.activeElement.id"), json!("tag-text"));
    site.close();
}

#[test]
fn a_label_tells_why_it_fits() {
    let Some(site) = Site::open() else { return };
    let browser = site.tag();
    let why = format!("{CLIENT} [data-test=why]");
    assert_eq!(browser.attribute(&why, "aria-expanded").unwrap(), "false");
    browser.click(&why);
    let panel = format!("{CLIENT} [data-test=why-panel]");
    browser.wait(&format!("{panel} .reasons li"));
    assert_eq!(browser.attribute(&why, "aria-expanded").unwrap(), "true");
    let reasons = browser.text(&format!("{panel} .reasons"));
    assert!(reasons.contains("client in the title") && reasons.contains("client in the text"), "{reasons}");
    let told = browser.text(&panel);
    for part in ["network::client", "It fits best by: Client", "Nearest training documents", "similarity 0."]
    {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    assert!(browser.count(&format!("{panel} .nearest li")) >= 3);
    // Where it says so in the text: once in the title, twice in what follows.
    assert_eq!(browser.count(&format!("{panel} .passage.title mark")), 1);
    assert_eq!(browser.count(&format!("{panel} .passage.text mark")), 2);

    // No training document carries this one.
    browser.click(&format!("{GOPHER} [data-test=why]"));
    browser.wait(&format!("{GOPHER} .reasons li"));
    assert!(!browser.text(&format!("{GOPHER} [data-test=why-panel]")).contains("Nearest"));
    browser.click(&format!("{GOPHER} [data-test=why]"));
    browser.wait(&format!("{GOPHER} [data-test=why-panel][hidden]"));
    site.close();
}

#[test]
fn what_is_accepted_and_rejected_is_kept() {
    let Some(site) = Site::open() else { return };
    let browser = site.tag();
    assert!(browser.attribute("[data-test=save-feedback]", "disabled").is_some());
    browser.click(&format!("{GOPHER} [data-test=accept]"));
    browser.click(&format!("{CLIENT} [data-test=accept]"));
    browser.click(&format!("{CLIENT} [data-test=reject]"));
    browser.wait(&format!("{CLIENT} [data-test=accept][aria-pressed=false]"));
    browser.wait(&format!("{CLIENT} [data-test=reject][aria-pressed=true]"));
    browser.click("[data-test=save-feedback]");
    browser.until("document.querySelector('[data-test=feedback-note]').textContent.startsWith('Saved. 1 ')");
    let lines = site.json_lines("demo/model/feedback.jsonl");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["labels"], json!(["protocol::gopher"]));
    assert_eq!(lines[0]["rejected"], json!(["network::client"]));
    assert_eq!((lines[0]["title"].as_str(), lines[0]["text"].as_str()), (Some(TITLE), Some(TEXT)));
    site.close();
}

#[test]
fn a_label_named_like_a_script_is_ranked_as_text() {
    let Some(site) = Site::open() else { return };
    let browser = site.tag();
    browser.click("#tag-add > summary");
    browser.type_into("#tag-add [data-test=add-name]", HOSTILE);
    let description = format!("A client of the gopher protocol {HOSTILE}");
    browser.type_into("#tag-add [data-test=add-description]", &description);
    browser.click("#tag-add [data-test=add-submit]");
    browser.wait("[data-test=result].fresh");
    assert_eq!(browser.text(".fresh [data-test=why]"), HOSTILE);
    assert!(browser.text(".fresh").contains("unseen"));
    let note = browser.text("#result-note");
    assert!(note.contains(HOSTILE) && note.contains("place"), "{note}");
    assert_eq!(browser.value("document.activeElement.textContent"), json!(HOSTILE));
    browser.click(".fresh [data-test=why]");
    browser.wait(".fresh .reasons li");
    assert!(browser.text(".fresh [data-test=why-panel]").contains(HOSTILE));

    site.view("labels");
    browser.type_into("[data-test=label-search]", "hacked");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 1");
    assert_eq!(browser.text("[data-test=label-row] strong"), HOSTILE);
    browser.click("[data-test=label-retire]");
    assert!(browser.text("dialog").contains(HOSTILE));
    browser.click("[data-test=confirm]");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 0");
    assert_eq!(browser.value("typeof window.hacked"), json!("undefined"));
    assert_eq!(browser.count("main script"), 0);
    site.close();
}
