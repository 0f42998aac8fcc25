//! The model's charts, narrow windows, dark ones, and what the browser forbids.

use serde_json::json;

use crate::site::Site;

#[test]
fn the_model_shows_its_tail() {
    let Some(site) = Site::open() else { return };
    let browser = site.view("model");
    browser.wait("[data-test=tail] rect.hollow");
    assert!(browser.count("[data-test=tail] rect") >= 4);
    let told = browser.text("[data-test=tail]");
    assert!(told.contains("617 labels, 157 of them without a training document"), "{told}");
    browser.click("[data-test=tail] details:last-child summary");
    browser.until("document.querySelectorAll('[data-test=tail] details[open] tbody tr').length === 10");
    let facts = browser.text("#facts");
    assert!(facts.contains("lexical") && facts.contains("1,400"), "{facts}");
    assert!(facts.contains(concat!("Fitted by\npolytag ", env!("CARGO_PKG_VERSION"))), "{facts}");
    // Short tables are seen whole.
    let hidden = "[...document.querySelectorAll('#facts .scroll, [data-test=tail] details[open] .scroll')]
        .map((box) => box.scrollHeight - box.clientHeight)";
    assert_eq!(browser.value(hidden), json!([0, 0]));
    // This model was not trained in steps, and its labels have no vectors.
    browser.until("document.querySelector('[data-test=curve]').textContent.includes('not trained in steps')");
    browser.until("document.querySelector('#map').textContent.includes('no map')");
    site.picture("model");
    site.close();
}

#[test]
fn dark_systems_get_a_dark_page() {
    let Some(site) = Site::open() else { return };
    let browser = site.tag();
    browser.click("[data-test=result]:nth-child(2) [data-test=why]");
    browser.wait("[data-test=result]:nth-child(2) .nearest");
    let ground = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.value(ground), json!("rgb(245, 246, 248)"));
    site.picture("tag-light"); // docs/serve.png is the upper part of it
    site.prefer("dark");
    browser.until(&format!("{ground} === 'rgb(18, 19, 23)'"));
    site.picture("tag-dark");
    site.close();
}

#[test]
fn a_narrow_window_does_not_scroll_sideways() {
    let Some(site) = Site::open() else { return };
    site.browser.resize(360, 740);
    let fits = |view: &str| {
        // A scroll bar at the side takes its part of the window.
        let overhang = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        let found = site.browser.value(&format!("[innerWidth, {overhang}]"));
        assert_eq!(found, json!([360, 0]), "{view}");
        site.picture(&format!("narrow-{view}"));
    };
    let browser = site.tag();
    browser.click("[data-test=result]:nth-child(2) [data-test=why]");
    browser.wait("[data-test=result]:nth-child(2) .nearest");
    browser.click("#tag-add > summary");
    fits("tag");
    site.view("labels").click("[data-test=label-edit]");
    browser.wait("[data-test=edit-name]");
    fits("labels");
    site.view("model").wait("[data-test=tail] rect");
    fits("model");
    site.view("batch");
    fits("batch");
    site.close();
}

#[test]
fn scripts_and_strangers_are_forbidden_and_the_log_says_so() {
    let Some(site) = Site::open() else { return };
    let browser = site.view("tag");
    browser.script(
        "const script = document.createElement('script');
         script.textContent = 'window.hacked = 1';
         document.body.append(script);
         fetch('http://127.0.0.1:9/').catch(() => { window.refused = true; });",
        &[],
    );
    browser.until("window.refused === true");
    assert_eq!(browser.value("typeof window.hacked"), json!("undefined"));
    let complaints = browser.complaints();
    for forbidden in ["script-src", "connect-src"] {
        let told = complaints.iter().any(|line| line.contains(forbidden));
        assert!(told, "no {forbidden} among {complaints:#?}");
    }
    site.close();
}
