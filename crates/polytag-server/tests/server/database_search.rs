//! Labels that are searched in the database: the same answers as from memory, changes in the next of them, and clear words
//! while the database is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use polytag_server::ServerConfig;
use polytag_server::store::LabelSearch;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::database::{Line, Proxy, shared};
use crate::lab::Lab;
use crate::postgres::{
    LABELS, LONG, TIMEOUT, add, best, config, encoding_model, figure, has, model, open, refused, until,
};

const TEXTS: [&str; 4] =
    ["a library to read pictures", "games for children", "", "mathematics and statistics in Python"];

fn in_database(url: &str, create: bool) -> ServerConfig {
    ServerConfig { labels_search: LabelSearch::Database, ..config(url, create) }
}

fn open_in_database(folder: &Arc<TempDir>, url: &str) -> Lab {
    Lab::open(Arc::clone(folder), in_database(url, true))
}

/// Labels and scores for some texts.
async fn tagged(lab: &Lab, more: &Value) -> Vec<Vec<(String, f64)>> {
    let mut body = json!({"texts": TEXTS});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = lab.post("/v1/models/tags/tag", &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let label = |label: &Value| (label["id"].as_str().unwrap().to_owned(), label["score"].as_f64().unwrap());
    let labels = |result: &Value| result["labels"].as_array().unwrap().iter().map(label).collect();
    answer.json()["results"].as_array().unwrap().iter().map(labels).collect()
}

/// The same labels with the same scores, but for what rounding does to them.
fn assert_alike(ours: &[Vec<(String, f64)>], theirs: &[Vec<(String, f64)>]) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours.len(), theirs.len());
        for ((id, score), (other, theirs)) in ours.iter().zip(theirs) {
            // Labels of the same score may change places.
            assert!((score - theirs).abs() < 1e-5, "{id} {score}, {other} {theirs}");
        }
    }
}

#[tokio::test]
async fn the_database_finds_what_memory_finds() {
    let Some(database) = shared() else { return };
    let (folder, url) = (encoding_model(), database.database("searched"));
    let (memory, searching) = (open(&folder, &url), open_in_database(&folder, &url));
    assert!(searching.journal().contains("labels are searched in the database"), "{}", searching.journal());
    assert!(!memory.journal().contains("searched in the database"), "{}", memory.journal());
    let ids: Vec<String> = memory.labels().iter().map(|(_, label)| label.id.clone()).collect();
    let (few, many) = (&ids[..20], &ids[..ids.len() * 2 / 3]);
    for more in [
        json!({"k": 5}),
        json!({"k": 100}),
        json!({"k": 1000}),
        json!({"k": 7, "allowed": few}),
        json!({"k": 7, "allowed": many}),
        json!({"k": 300, "allowed": many}),
    ] {
        assert_alike(&tagged(&searching, &more).await, &tagged(&memory, &more).await);
    }
    let question = json!({"text": TEXTS[0], "label": best(&memory, TEXTS[0]).await});
    let why = async |lab: &Lab| lab.post("/v1/models/tags/explain", &question).await.json();
    let (ours, theirs) = (why(&searching).await, why(&memory).await);
    let score = |told: &Value| told["score"].as_f64().unwrap();
    assert!((score(&ours) - score(&theirs)).abs() < 1e-5, "{ours} {theirs}");
}

#[tokio::test]
async fn what_is_changed_is_in_the_next_answer_of_the_database() {
    let Some(database) = shared() else { return };
    let (folder, url) = (encoding_model(), database.database("searched_changes"));
    let (memory, searching) = (open(&folder, &url), open_in_database(&folder, &url));
    let body = json!({"id": "ash", "name": "volcanic ash"});
    assert_eq!(memory.post(LABELS, &body).await.status, StatusCode::CREATED);
    until(LONG, async || has(&searching, "ash").await).await;
    assert_eq!(best(&searching, "volcanic ash").await, "ash");
    // And the other way round.
    let body = json!({"id": "lava", "name": "streams of lava"});
    assert_eq!(searching.post(LABELS, &body).await.status, StatusCode::CREATED);
    assert_eq!(best(&searching, "streams of lava").await, "lava");
    until(LONG, async || has(&memory, "lava").await).await;
    assert_eq!(best(&memory, "streams of lava").await, "lava");
    let renamed = json!({"name": "ash of a volcano far away"});
    let answer = memory.ask(Method::PATCH, &format!("{LABELS}/ash"), &renamed).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    until(LONG, async || best(&searching, "ash of a volcano far away").await == "ash").await;
    let gone = searching.ask(Method::DELETE, &format!("{LABELS}/lava"), &Value::Null).await;
    assert!(gone.status.is_success(), "{}", gone.text);
    assert_ne!(best(&searching, "streams of lava").await, "lava");
    assert_alike(&tagged(&searching, &json!({"k": 50})).await, &tagged(&memory, &json!({"k": 50})).await);
    // Whoever comes later finds the graph, and all that was changed.
    let later = Lab::open(Arc::clone(&folder), in_database(&url, false));
    assert_alike(&tagged(&later, &json!({"k": 50})).await, &tagged(&memory, &json!({"k": 50})).await);
    assert_eq!(best(&later, "ash of a volcano far away").await, "ash");
    // Labels that are read anew are searched there, too.
    database.sql(
        "searched_changes",
        "BEGIN; UPDATE polytag.changes SET chain = '\\x00' WHERE revision = 4; UPDATE polytag.models SET chain = '\\x00'; COMMIT",
    );
    until(LONG, async || figure(&searching, "store_rebuilds_total").await == 1.0).await;
    assert_eq!(best(&searching, "ash of a volcano far away").await, "ash");
}

#[tokio::test]
async fn while_the_database_is_away_nothing_is_found_and_that_is_said() {
    let Some(database) = shared() else { return };
    let (folder, url) = (encoding_model(), database.database("searched_away"));
    let proxy = Proxy::to(database.port);
    let through = url.replace(&format!(":{}", database.port), &format!(":{}", proxy.port));
    let hasty = ServerConfig { labels_timeout: TIMEOUT.as_secs_f64(), ..in_database(&through, true) };
    let lab = Lab::open(Arc::clone(&folder), hasty);
    let before = tagged(&lab, &json!({"k": 10})).await;
    for line in [Line::Cut, Line::Stalled] {
        proxy.set(line);
        // What is on its way may still arrive.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        let answer = lab.post("/v1/models/tags/tag", &json!({"texts": TEXTS})).await;
        assert!(begun.elapsed() < TIMEOUT * 4, "{:?}", begun.elapsed());
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
        assert_eq!(answer.code(), "store_away");
        assert!(answer.text.contains("the labels cannot be searched"), "{}", answer.text);
        assert!(answer.headers.contains_key("retry-after") && !answer.text.contains("only-here"));
        assert!(!add(&lab, "meanwhile").await.status.is_success());
        let ready = lab.get("/readyz").await;
        assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE, "{}", ready.text);
        assert!(ready.text.starts_with("not ready\nlabels of tags cannot be searched"), "{}", ready.text);
        proxy.set(Line::Open);
        until(LONG, async || lab.get("/readyz").await.text == "ready\n").await;
        until(LONG, async || {
            lab.post("/v1/models/tags/tag", &json!({"texts": TEXTS})).await.status == StatusCode::OK
        })
        .await;
        assert_alike(&tagged(&lab, &json!({"k": 10})).await, &before);
        assert!(!has(&lab, "meanwhile").await);
    }
}

#[tokio::test]
async fn what_cannot_be_searched_there_is_refused_before_anything_is_served() {
    let Some(database) = shared() else { return };
    let url = database.database("searched_not");
    let words = model();
    let told = refused(&words, in_database(&url, true));
    assert!(told.contains("it does not compare vectors of labels"), "{told}");
    let url = database.database("searched_unmade");
    let vectors = encoding_model();
    drop(open(&vectors, &url));
    let told = refused(&vectors, in_database(&url, false));
    assert!(told.contains("has no index") && told.contains("--create and --label-search database"), "{told}");
    // One that somebody made by hand has no figures, and serves all the same.
    let dim = database.sql("searched_unmade", "SELECT vector_dims(embedding) FROM polytag.labels LIMIT 1");
    let number = database.sql("searched_unmade", "SELECT number FROM polytag.models");
    database.sql(
        "searched_unmade",
        &format!(
            "CREATE INDEX labels_near_{number} ON polytag.labels USING hnsw ((embedding::halfvec({dim})) halfvec_ip_ops) \
             WHERE model = {number} AND NOT removed"
        ),
    );
    let (memory, by_hand) = (open(&vectors, &url), Lab::open(Arc::clone(&vectors), in_database(&url, false)));
    assert_alike(&tagged(&by_hand, &json!({"k": 20})).await, &tagged(&memory, &json!({"k": 20})).await);
}
