//! Labels that were acknowledged stay, whatever happens to the disk.

use std::fs;

use axum::http::StatusCode;

use polytag::artifact::{ArtifactError, LABEL_LOG, LABEL_SNAPSHOT, LabelLog};
use polytag::method::LiveModel;
use polytag_nn::device::Device;
use polytag_server::ServerConfig;
use serde_json::json;

use crate::lab::{Lab, added, fit};

#[tokio::test]
async fn a_second_server_on_one_folder_refuses() {
    let lab = Lab::new();
    let second = LiveModel::open(&lab.folder.path().join("tags"), &Device::cpu());
    let error = second.err().unwrap().to_string();
    assert!(error.contains("another program"), "{error}");
}

#[tokio::test]
async fn a_server_that_comes_back_has_every_label_that_was_acknowledged() {
    let lab = Lab::new();
    for number in 0..20 {
        let answer = lab.post("/v1/models/tags/labels", &json!({"name": format!("new {number}")})).await;
        assert_eq!(answer.status, StatusCode::CREATED);
    }
    let Lab { folder, app, router, .. } = lab;
    drop((app, router));
    // What a crash cut short was never acknowledged.
    let log = folder.path().join("tags").join(LABEL_LOG);
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(b"0123abcd [{\"change\":\"add\",\"label\":{\"id\":\"half\"");
    fs::write(&log, bytes).unwrap();
    let again = Lab::open(folder, ServerConfig::default());
    let found = again.get("/v1/models/tags/labels?match=new%20&limit=100").await.json();
    assert_eq!(found["labels"].as_array().unwrap().iter().filter(|label| label["seen"] == false).count(), 20);
    assert_eq!(again.get("/v1/models/tags/labels/half").await.status, StatusCode::NOT_FOUND);
}

#[test]
fn long_logs_become_snapshots_and_damaged_ones_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("tags");
    fit(&dir);
    let mut live = LiveModel::open(&dir, &Device::cpu()).unwrap();
    let fitted = live.predictor().label_space().len();
    for chunk in (0..1500).collect::<Vec<_>>().chunks(100) {
        let changes: Vec<_> = chunk.iter().map(|number| added(&format!("new-{number}"))).collect();
        live.change(&changes).unwrap();
    }
    drop(live);
    let snapshot = dir.join(LABEL_SNAPSHOT);
    let whole = fs::read(&snapshot).unwrap();
    assert!(whole.len() > 20_000 && fs::metadata(dir.join(LABEL_LOG)).unwrap().len() < whole.len() as u64);
    let live = LiveModel::open(&dir, &Device::cpu()).unwrap();
    assert_eq!(live.predictor().label_space().len(), fitted + 1500);
    drop(live);
    for cut in (0..whole.len()).step_by(512) {
        fs::write(&snapshot, &whole[..cut]).unwrap();
        let error = LiveModel::open(&dir, &Device::cpu()).err().unwrap();
        assert!(matches!(error, polytag::Error::Artifact(ArtifactError::Damaged { .. })), "{error}");
        assert!(error.to_string().contains(LABEL_SNAPSHOT), "{error}");
    }
    fs::write(&snapshot, &whole).unwrap();
    assert_eq!(LabelLog::read(&dir).unwrap().len(), 1500);
}
