//! A file in, the same file with labels out.

use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::PATIENCE;
use crate::site::{Site, TEXT};

const DOCUMENTS: usize = 120;

#[test]
fn a_file_is_tagged_and_downloaded() {
    let Some(site) = Site::open() else { return };
    let mut table = String::from("id,note,text\n");
    for document in 0..DOCUMENTS {
        writeln!(table, "{document},\"said \"\"so\"\",\n=1+1\",\"{TEXT} {document}\"").unwrap();
    }
    fs::write(site.path("in.csv"), &table).unwrap();
    let browser = site.view("batch");
    let downloads = json!({"behavior": "allow", "downloadPath": site.path("")});
    browser.chromium("Browser.setDownloadBehavior", &downloads);
    assert!(browser.attribute("[data-test=batch-start]", "disabled").is_some());
    browser.type_into("[data-test=batch-file]", site.path("in.csv").to_str().unwrap());
    browser.wait("[data-test=batch-start]:enabled");
    let about = browser.text("#batch-about");
    assert!(about.contains("120 documents") && about.contains("id, note, text"), "{about}");
    browser.click("[data-test=batch-start]");
    browser.wait("#batch-result:not([hidden])");
    assert_eq!(browser.attribute("[data-test=batch-progress]", "value").unwrap(), "120");
    assert_eq!(browser.text("#batch-note"), "Done: 120 of 120 documents.");
    assert_eq!(browser.text("[data-test=batch-download]"), "Download the tagged file");
    assert_eq!(browser.count("#batch-rows tr"), 10);
    site.picture("batch");

    browser.click("[data-test=batch-download]");
    let started = Instant::now();
    while !site.path("in.tagged.csv").exists() {
        assert!(started.elapsed() < PATIENCE, "nothing was downloaded");
        thread::sleep(Duration::from_millis(20));
    }
    let tagged = fs::read_to_string(site.path("in.tagged.csv")).unwrap();
    let (header, body) = tagged.split_once('\n').unwrap();
    assert_eq!(header.trim_end(), "id,note,text,labels,label_names,label_scores");
    assert_eq!(body.matches(",protocol::gopher;network::client;").count(), DOCUMENTS);
    assert!(body.starts_with(&format!("0,\"said \"\"so\"\",\n=1+1\",\"{TEXT} 0\",")), "{}", &body[..400]);
    site.close();
}

#[test]
fn a_file_without_texts_is_refused_with_a_remedy() {
    let Some(site) = Site::open() else { return };
    fs::write(site.path("in.csv"), "id,body\n1,gopher\n").unwrap();
    let browser = site.view("batch");
    browser.type_into("[data-test=batch-file]", site.path("in.csv").to_str().unwrap());
    let told = browser.text("#batch-trouble [role=alert]");
    assert!(told.contains("no column “text” among: id, body") && told.contains("Name the column"), "{told}");
    assert!(browser.attribute("[data-test=batch-start]", "disabled").is_some());
    site.close();
}
