//! All labels: found as one types, renamed, added, retired.

use serde_json::json;

use crate::browser::ESCAPE;
use crate::site::Site;

#[test]
fn labels_are_found_as_one_types_and_renamed() {
    let Some(site) = Site::open() else { return };
    let browser = site.view("labels");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 30");
    assert_eq!(browser.text("#labels-note"), "30 of 617 labels");
    site.picture("labels");
    browser.click("[data-test=labels-more]");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 60");

    browser.type_into("[data-test=label-search]", "goph");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 1");
    let gopher = "[data-test=label-row][data-label='protocol::gopher']";
    assert!(browser.text(gopher).contains("unseen"));
    browser.click(&format!("{gopher} [data-test=label-edit]"));
    browser.until("document.activeElement.dataset.test === 'edit-name'");
    browser.press(&[ESCAPE]);
    browser.click(&format!("{gopher} [data-test=label-edit]"));
    browser.replace("[data-test=edit-name]", "Burrowing <b>protocol</b>");
    browser.click("[data-test=edit-save]");
    browser
        .until("document.querySelector('[data-test=label-row] strong')?.textContent.startsWith('Burrowing')");
    assert_eq!(browser.text(&format!("{gopher} strong")), "Burrowing <b>protocol</b>");

    browser.replace("[data-test=label-search]", "burrow");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 1");
    browser.wait(gopher);
    // The new name is on the disk and among the answers.
    let browser = site.tag();
    assert!(browser.text("[data-test=result][data-label='protocol::gopher']").contains("Burrowing"));
    site.close();
}

#[test]
fn a_label_is_added_and_retired() {
    let Some(site) = Site::open() else { return };
    let browser = site.view("labels");
    browser.wait("[data-test=label-row]");
    browser.click("#labels-add > summary");
    browser.click("#labels-add [data-test=add-submit]");
    assert!(browser.text("#labels-add [role=alert]").contains("A label needs a name."));
    browser.type_into("#labels-add [data-test=add-name]", "Keeping bees");
    browser.click("#labels-add [data-test=add-submit]");
    browser.wait(".label-row.fresh");
    assert_eq!(browser.text(".label-row.fresh strong"), "Keeping bees");

    browser.type_into("[data-test=label-search]", "keeping bees");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 1");
    browser.click("[data-test=label-retire]");
    browser.wait("dialog[open]");
    browser.press(&[ESCAPE]);
    browser.until("!document.querySelector('dialog')");
    assert_eq!(browser.count("[data-test=label-row]"), 1);
    browser.click("[data-test=label-retire]");
    browser.click("[data-test=confirm]");
    browser.until("document.querySelectorAll('[data-test=label-row]').length === 0");
    browser.until("document.getElementById('labels-note').textContent === 'No label is like that.'");
    assert_eq!(browser.value("document.activeElement.id"), json!("label-search"));
    site.close();
}
