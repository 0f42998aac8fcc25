//! Tagging without a mouse.

use serde_json::json;

use crate::browser::{Browser, CONTROL, ENTER, TAB};
use crate::site::{Site, TEXT};

/// Goes on with Tab until the focus is on such an element; each stop on the way must show that it has the focus.
fn tab_to(browser: &Browser, css: &str) {
    for _ in 0..60 {
        browser.press(&[TAB]);
        assert_eq!(browser.value("document.activeElement.matches(':focus-visible')"), json!(true));
        let there = browser.script("return document.activeElement.matches(arguments[0])", &[json!(css)]);
        if there == json!(true) {
            return;
        }
    }
    panic!("Tab never came to {css}");
}

#[test]
fn a_text_is_tagged_and_judged_by_keyboard_alone() {
    let Some(site) = Site::open() else { return };
    let browser = site.view("tag");
    tab_to(browser, ".skip");
    browser.press(&[ENTER]);
    assert_eq!(browser.value("document.activeElement.id"), json!("main"));
    tab_to(browser, "[data-test=title]");
    browser.type_here("Gopher");
    tab_to(browser, "[data-test=text]");
    browser.type_here(&TEXT[..130]);
    browser.press(&[CONTROL, ENTER]);
    browser.wait("[data-test=result]");
    assert!(browser.text("#announcer").contains("10 labels. The first is"));

    tab_to(browser, "[data-test=why]");
    browser.press(&[ENTER]);
    browser.wait("[data-test=result]:first-child .reasons li");
    tab_to(browser, "[data-test=accept]");
    browser.press(&[" "]);
    browser.wait("[data-test=result]:first-child [data-test=accept][aria-pressed=true]");
    tab_to(browser, "[data-test=save-feedback]");
    browser.press(&[ENTER]);
    browser.until("document.querySelector('[data-test=feedback-note]').textContent.startsWith('Saved.')");
    assert_eq!(site.json_lines("demo/model/feedback.jsonl")[0]["labels"], json!(["protocol::gopher"]));

    tab_to(browser, "#tag-add > summary");
    browser.press(&[ENTER]);
    tab_to(browser, "#tag-add [data-test=add-name]");
    browser.type_here("gopher client");
    browser.press(&[ENTER]);
    browser.wait("[data-test=result].fresh");
    assert_eq!(browser.value("document.activeElement.textContent"), json!("gopher client"));
    site.close();
}
