//! Labels that several servers share in PostgreSQL: what one adds, all have; what was acknowledged stays, whatever becomes
//! of the database; and what is wrong with it is said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use polytag_server::ServerConfig;
use polytag_server::store::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::database::{Installed, Line, Proxy, private_line, shared, skip};
use crate::lab::{Answer, Lab, added, fit, fit_method};

pub(crate) const LABELS: &str = "/v1/models/tags/labels";

/// A folder with a small model.
pub(crate) fn model() -> Arc<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    fit(&folder.path().join("tags"));
    Arc::new(folder)
}

/// A folder with a small model that compares vectors.
pub(crate) fn encoding_model() -> Arc<TempDir> {
    let encoder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../polytag-nn/testdata/encoders/bert");
    let folder = tempfile::tempdir().unwrap();
    fit_method(&folder.path().join("tags"), "frozen", &json!({"encoder": encoder.canonicalize().unwrap()}));
    Arc::new(folder)
}

pub(crate) fn config(url: &str, create: bool) -> ServerConfig {
    ServerConfig {
        labels: Some(Secret::new(url)),
        labels_password: Some(Secret::new("only-here")),
        labels_create: create,
        labels_timeout: 10.0,
        ..ServerConfig::default()
    }
}

pub(crate) fn open(folder: &Arc<TempDir>, url: &str) -> Lab {
    Lab::open(Arc::clone(folder), config(url, true))
}

pub(crate) fn refused(folder: &Arc<TempDir>, config: ServerConfig) -> String {
    let error = Lab::try_open(Arc::clone(folder), config).err().expect("it must not open").to_string();
    assert!(!error.contains("only-here"), "{error}");
    error
}

pub(crate) async fn add(lab: &Lab, id: &str) -> Answer {
    lab.post(LABELS, &json!({"id": id, "name": format!("name of {id}")})).await
}

/// Waits until something holds, and how long that took.
pub(crate) async fn until(limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < limit, "it does not hold after {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

pub(crate) async fn has(lab: &Lab, id: &str) -> bool {
    lab.get(&format!("{LABELS}/{id}")).await.status == StatusCode::OK
}

async fn ids(lab: &Lab) -> BTreeSet<String> {
    let found = lab.get(&format!("{LABELS}?limit=1000")).await.json();
    found["labels"].as_array().unwrap().iter().map(|label| label["id"].as_str().unwrap().to_owned()).collect()
}

pub(crate) async fn best(lab: &Lab, text: &str) -> String {
    let answer = lab.post("/v1/models/tags/tag", &json!({"texts": [text], "k": 1})).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json()["results"][0]["labels"][0]["id"].as_str().unwrap_or("nothing").to_owned()
}

pub(crate) async fn figure(lab: &Lab, name: &str) -> f64 {
    let text = lab.get("/metrics").await.text;
    let line = text.lines().find(|line| line.starts_with(&format!("polytag_{name}{{"))).unwrap_or(&text);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

const SECOND: Duration = Duration::from_secs(1);
/// How long the database may take where it is kept from answering.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
pub(crate) const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_one_server_changes_all_have_within_a_second() {
    let Some(database) = shared() else { return };
    let (folder, url) = (model(), database.database("several"));
    let (a, b) = (open(&folder, &url), open(&folder, &url));
    let mut shortest = LONG;
    for number in 0..10 {
        let id = format!("zeppelin-{number}");
        assert_eq!(add(&a, &id).await.status, StatusCode::CREATED);
        assert!(has(&a, &id).await, "whoever acknowledges has it");
        shortest = shortest.min(until(LONG, async || has(&b, &id).await).await);
    }
    // On a busy machine some take longer; what is only looked for each second takes a second.
    assert!(shortest < SECOND / 2, "no label came sooner than {shortest:?}");
    assert_eq!(best(&b, "name of zeppelin-7 zeppelin 7").await.split('-').next(), Some("zeppelin"));
    let renamed = json!({"name": "airship", "description": "it flies"});
    assert_eq!(b.ask(Method::PATCH, &format!("{LABELS}/zeppelin-3"), &renamed).await.status, StatusCode::OK);
    let name = async || a.get(&format!("{LABELS}/zeppelin-3")).await.json()["name"] == "airship";
    until(LONG, name).await;
    assert_eq!(best(&a, "an airship").await, "zeppelin-3");
    let gone = b.ask(Method::DELETE, &format!("{LABELS}/zeppelin-4"), &Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    until(LONG, async || !has(&a, "zeppelin-4").await).await;
    // The same id again is another label, at another position.
    assert_eq!(add(&a, "zeppelin-4").await.status, StatusCode::CREATED);
    until(LONG, async || has(&b, "zeppelin-4").await).await;
    // Whoever comes later has it all.
    let c = Lab::open(Arc::clone(&folder), config(&url, false));
    assert_eq!(ids(&c).await, ids(&a).await);
    assert_eq!(ids(&b).await, ids(&a).await);
    assert_eq!((figure(&c, "store_revision").await, figure(&c, "store_up").await), (13.0, 1.0));
    assert_eq!(best(&c, "an airship").await, "zeppelin-3");
    let rows = "SELECT count(*) FROM polytag.labels WHERE NOT removed";
    assert_eq!(database.sql("several", rows), ids(&a).await.len().to_string());
    let order = "SELECT string_agg(revision::text, ' ' ORDER BY revision) FROM polytag.changes";
    assert_eq!(
        database.sql("several", order),
        (0..14).map(|at| at.to_string()).collect::<Vec<_>>().join(" ")
    );
    // A zero byte is text to us, and none to PostgreSQL.
    let answer = a.post(LABELS, &json!({"id": "zero", "name": "a\u{0}b"})).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "unfit"));
    assert_eq!(
        database.sql("several", "SELECT string_agg(DISTINCT by, ',') FROM polytag.changes"),
        "fit,nobody"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_add_the_same_label_at_once_one_is_told_that_it_is_taken() {
    let Some(database) = shared() else { return };
    let (folder, url) = (model(), database.database("clash"));
    let (a, b) = (Arc::new(open(&folder, &url)), Arc::new(open(&folder, &url)));
    for number in 0..10 {
        let ask = |lab: &Arc<Lab>, body: Value| {
            let lab = Arc::clone(lab);
            tokio::spawn(async move { lab.post(LABELS, &body).await })
        };
        let body = json!({"id": format!("same-{number}"), "name": "the same"});
        let (one, other) = (ask(&a, body.clone()), ask(&b, body));
        let (one, other) = (one.await.unwrap(), other.await.unwrap());
        let (won, lost) = if one.status == StatusCode::CREATED { (one, other) } else { (other, one) };
        assert_eq!((won.status, lost.status), (StatusCode::CREATED, StatusCode::CONFLICT), "{}", lost.text);
        assert_eq!(lost.code(), "taken");
        // Ids that are made of names are made anew.
        let body = json!({"name": format!("twin {number}")});
        let (one, other) = (ask(&a, body.clone()), ask(&b, body));
        for answer in [one.await.unwrap(), other.await.unwrap()] {
            assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        }
    }
    until(LONG, async || ids(&a).await == ids(&b).await).await;
    let made: Vec<String> =
        ids(&a).await.into_iter().filter(|id| id.starts_with("twin-") || id.starts_with("same-")).collect();
    assert_eq!(made.len(), 30, "{made:?}");
}

#[tokio::test]
async fn labels_of_the_folder_are_where_the_database_begins() {
    let Some(database) = shared() else { return };
    let (folder, url) = (model(), database.database("begins"));
    let dir = folder.path().join("tags");
    let mut live = polytag::method::LiveModel::open(&dir, &polytag_nn::device::Device::cpu()).unwrap();
    let first = live.predictor().label_space().iter().next().unwrap().1.id.clone();
    live.change(&[added("from-before"), polytag::data::LabelChange::Remove { id: first.clone() }]).unwrap();
    drop(live);
    let lab = open(&folder, &url);
    assert!(has(&lab, "from-before").await && !has(&lab, &first).await);
    assert_eq!(add(&lab, "later").await.status, StatusCode::CREATED);
    // Nobody changes the folder meanwhile.
    let own = polytag::method::LiveModel::open(&dir, &polytag_nn::device::Device::cpu());
    assert!(own.err().unwrap().to_string().contains("another program"));
    drop(lab);
    assert!(has(&Lab::open(Arc::clone(&folder), config(&url, false)), "later").await);
    // A folder that went its own way since is not left out silently. Whoever followed the database lets go of it soon.
    until(LONG, async || {
        let live = polytag::method::LiveModel::open(&dir, &polytag_nn::device::Device::cpu());
        live.map(|mut live| live.change(&[added("own")]).unwrap()).is_ok()
    })
    .await;
    let told = refused(&folder, config(&url, true));
    assert!(told.contains("3 changes of labels of its own") && told.contains("labels.log"), "{told}");
}

#[tokio::test]
async fn a_database_that_refuses_is_told_with_what_to_do() {
    let Some(database) = shared() else { return };
    let folder = model();
    let url = database.database("refuses");
    let told = refused(&folder, config(&url, false));
    assert!(told.contains("no labels of \"tags\" yet") && told.contains("--create"), "{told}");
    let told =
        refused(&folder, ServerConfig { labels_password: Some(Secret::new("wrong")), ..config(&url, true) });
    assert!(told.contains("password authentication failed") && told.contains("PGPASSWORD"), "{told}");
    let told = refused(&folder, config(&database.url("postgres", "none"), true));
    assert!(told.contains("\"none\" does not exist") && told.contains("createdb"), "{told}");
    let told = refused(&folder, config("postgres://postgres@127.0.0.1:1/none", true));
    assert!(told.contains("127.0.0.1:1/none") && told.contains("cannot be reached"), "{told}");
    database.sql("refuses", "CREATE USER guest PASSWORD 'only-here'; CREATE EXTENSION vector");
    let told = refused(&folder, config(&database.url("guest", "refuses"), true));
    assert!(told.contains("permission denied") && told.contains("docs/postgres.md"), "{told}");
    drop(open(&folder, &url));
    let told = refused(&folder, config(&database.url("guest", "refuses"), true));
    assert!(told.contains("permission denied"), "{told}");
    // What a server needs once the tables are there, as the page says.
    database.sql(
        "refuses",
        "GRANT USAGE ON SCHEMA polytag TO guest; GRANT SELECT ON polytag.store TO guest; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON polytag.models, polytag.labels, polytag.changes TO guest",
    );
    let guest = Lab::open(Arc::clone(&folder), config(&database.url("guest", "refuses"), true));
    assert_eq!(add(&guest, "of-a-guest").await.status, StatusCode::CREATED);
    let password = folder.path().join("password");
    std::fs::write(&password, "only-here\n").unwrap();
    let from_file =
        ServerConfig { labels_password: None, labels_password_file: Some(password), ..config(&url, false) };
    assert!(has(&Lab::open(Arc::clone(&folder), from_file), "of-a-guest").await);
    // Another model under the same name.
    let other = tempfile::tempdir().unwrap();
    fit_method(&other.path().join("tags"), "lexical", &json!({"title_weight": 0.5}));
    let told = refused(&Arc::new(other), config(&url, true));
    assert!(told.contains("belong to another model") && told.contains("NAME=FOLDER"), "{told}");
    database.sql("refuses", "UPDATE polytag.models SET dimension = 7");
    let told = refused(&folder, config(&url, false));
    assert!(told.contains("7 numbers") && told.contains("each label"), "{told}");
    database.sql("refuses", "UPDATE polytag.store SET version = 2");
    assert!(refused(&folder, config(&url, false)).contains("update polytag"));
    let Some(bare) = Installed::find(false) else { return skip() };
    let bare = bare.primary();
    let told = refused(&folder, config(&bare.database("bare"), true));
    assert!(told.contains("no pgvector") && told.contains("CREATE EXTENSION vector"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_line_is_used_and_its_certificate_checked() {
    let Some(database) = shared() else { return };
    let folder = model();
    database.database("private");
    let (port, certificate) = private_line(database.port, folder.path()).await;
    let url = |host: &str| format!("postgres://postgres@{host}:{port}/private?sslmode=require");
    let trusting = ServerConfig { labels_ca: Some(certificate), ..config(&url("localhost"), true) };
    let lab = Lab::open(Arc::clone(&folder), trusting.clone());
    assert_eq!(add(&lab, "in-private").await.status, StatusCode::CREATED);
    let told = refused(&folder, config(&url("localhost"), true));
    assert!(told.contains("certificate"), "{told}");
    let told =
        refused(&folder, ServerConfig { labels: Some(Secret::new(url("127.0.0.1"))), ..trusting.clone() });
    assert!(told.contains("certificate"), "another name: {told}");
    let open = format!("{}?sslmode=require", database.url("postgres", "private"));
    let told = refused(&folder, ServerConfig { labels: Some(Secret::new(open)), ..trusting });
    assert!(told.contains("TLS"), "{told}");
    let none = ServerConfig { labels_ca: Some("none.pem".into()), ..config(&url("localhost"), true) };
    assert!(refused(&folder, none).contains("labels_ca: none.pem"));
}

#[tokio::test]
async fn while_the_database_is_away_answers_go_on_and_changes_are_refused() {
    let Some(database) = shared() else { return };
    let (folder, url) = (model(), database.database("away"));
    let other = open(&folder, &url);
    let proxy = Proxy::to(database.port);
    let through = url.replace(&format!(":{}", database.port), &format!(":{}", proxy.port));
    let hasty = ServerConfig { labels_timeout: TIMEOUT.as_secs_f64(), ..config(&through, true) };
    let lab = Lab::open(Arc::clone(&folder), hasty);
    assert_eq!(add(&lab, "before").await.status, StatusCode::CREATED);
    assert_eq!(lab.get("/readyz").await.text, "ready\n");
    for (line, code) in [(Line::Stalled, "store_away"), (Line::Cut, "store_away")] {
        proxy.set(line);
        let answer = add(&lab, "meanwhile").await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, code),
            "{line:?}"
        );
        assert!(answer.text.contains("nothing was changed") && answer.headers.contains_key("retry-after"));
        let begun = Instant::now();
        assert_eq!(best(&lab, "name of before").await, "before", "answers go on");
        assert!(begun.elapsed() < TIMEOUT, "it did not wait for the database");
        let ready = lab.get("/readyz").await;
        assert_eq!(ready.status, StatusCode::OK);
        assert!(ready.text.contains("labels of tags cannot be changed"), "{}", ready.text);
        assert!(!ready.text.contains("127.0.0.1"), "{}", ready.text);
        assert_eq!(figure(&lab, "store_up").await, 0.0);
        assert!(figure(&lab, "store_failures_total").await >= 1.0);
        // What others do meanwhile is there when the line is.
        let id = format!("beside-{line:?}");
        assert_eq!(add(&other, &id).await.status, StatusCode::CREATED);
        proxy.set(Line::Open);
        until(LONG, async || has(&lab, &id).await).await;
        until(LONG, async || lab.get("/readyz").await.text == "ready\n").await;
        assert!(!has(&lab, "meanwhile").await && !has(&other, "meanwhile").await);
    }
    let journal = lab.journal();
    assert!(journal.contains("answers go on, labels cannot be changed"), "{journal}");
    assert!(journal.contains("the database is back") && !journal.contains("only-here"), "{journal}");
    // The commit arrives, its confirmation does not: nobody says that it was not done.
    proxy.set(Line::CutAfterCommit);
    let answer = loop {
        let answer = add(&lab, "perhaps").await;
        // The commit of reading on may come first.
        if answer.code() != "store_away" {
            break answer;
        }
        proxy.set(Line::Open);
        until(LONG, async || figure(&lab, "store_up").await == 1.0).await;
        proxy.set(Line::CutAfterCommit);
    };
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "store_unsure"));
    assert!(answer.text.contains("may hold or not"), "{}", answer.text);
    proxy.set(Line::Open);
    until(LONG, async || has(&lab, "perhaps").await && has(&other, "perhaps").await).await;
    // Somebody holds the table.
    let mut holder = database.sql_meanwhile(
        "away",
        "BEGIN; LOCK TABLE polytag.models IN EXCLUSIVE MODE; SELECT pg_sleep(6); COMMIT",
    );
    until(LONG, async || {
        database.sql("away", "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND granted AND locktype = 'relation'") != "0"
    })
    .await;
    let answer = add(&lab, "held").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    assert!(["store_busy", "store_away"].contains(&answer.code().as_str()), "{}", answer.text);
    assert_eq!(best(&lab, "name of before").await, "before");
    holder.wait().unwrap();
    until(LONG, async || add(&lab, "held").await.status == StatusCode::CREATED).await;
    until(LONG, async || ids(&lab).await == ids(&other).await).await;
}

#[tokio::test]
async fn vectors_are_made_once_and_wrong_ones_are_told() {
    let Some(database) = shared() else { return };
    let url = database.database("vectors");
    let folder = encoding_model();
    let (a, b) = (open(&folder, &url), open(&folder, &url));
    let missing = "SELECT count(*) FROM polytag.labels WHERE embedding IS NULL AND NOT removed";
    assert_eq!(database.sql("vectors", missing), "0");
    let body = json!({"id": "ash", "name": "volcanic ash"});
    assert_eq!(a.post(LABELS, &body).await.status, StatusCode::CREATED);
    until(LONG, async || has(&b, "ash").await).await;
    assert_eq!(best(&b, "volcanic ash").await, "ash");
    // A server takes the vector that is there instead of making one.
    database.sql(
        "vectors",
        "UPDATE polytag.labels SET embedding = (SELECT array_agg(-x ORDER BY n)::vector \
         FROM unnest(embedding::real[]) WITH ORDINALITY AS v(x, n)) WHERE id = 'ash'",
    );
    let c = Lab::open(Arc::clone(&folder), config(&url, false));
    assert_ne!(best(&c, "volcanic ash").await, "ash");
    // One of another length is refused, nothing is lost, and all is well once it is mended.
    database.sql("vectors", "CREATE TABLE kept AS SELECT embedding FROM polytag.labels WHERE id = 'ash'");
    database
        .sql("vectors", "UPDATE polytag.labels SET embedding = '[1,2,3]', name = 'ashes' WHERE id = 'ash'");
    let told = refused(&folder, config(&url, false));
    assert!(told.contains("3 numbers in the vector of the label \"ash\""), "{told}");
    database.sql("vectors", "UPDATE polytag.labels SET revision = 2 WHERE id = 'ash'");
    database.sql("vectors", "UPDATE polytag.models SET revision = 2; INSERT INTO polytag.changes SELECT model, 2, chain, at, by, changes FROM polytag.changes WHERE revision = 1");
    until(LONG, async || figure(&b, "store_up").await == 0.0).await;
    let answer = add(&b, "refused").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    assert_eq!(best(&b, "volcanic ash").await, "ash", "answers go on");
    database.sql(
        "vectors",
        "UPDATE polytag.labels SET embedding = (SELECT embedding FROM kept) WHERE id = 'ash'",
    );
    until(LONG, async || figure(&b, "store_up").await == 1.0).await;
    assert_eq!(b.get(&format!("{LABELS}/ash")).await.json()["name"], "ashes");
    until(LONG, async || add(&b, "taken").await.status == StatusCode::CREATED).await;
    until(LONG, async || has(&a, "taken").await).await;
}

#[tokio::test]
async fn a_database_that_went_back_in_time_is_followed_and_told() {
    let Some(database) = shared() else { return };
    let (folder, url) = (model(), database.database("back"));
    let (a, b) = (open(&folder, &url), open(&folder, &url));
    assert_eq!(add(&a, "kept").await.status, StatusCode::CREATED);
    assert_eq!(add(&a, "lost").await.status, StatusCode::CREATED);
    until(LONG, async || has(&b, "lost").await).await;
    // As after a failover to a replica that did not have the last change, and on which another was made since.
    database.sql(
        "back",
        "BEGIN; DELETE FROM polytag.labels WHERE revision = 2; \
         UPDATE polytag.changes SET chain = '\\x00' WHERE revision = 2; UPDATE polytag.models SET chain = '\\x00'; COMMIT",
    );
    for lab in [&a, &b] {
        until(LONG, async || !has(lab, "lost").await).await;
        assert!(has(lab, "kept").await);
        assert!(lab.journal().contains("labels are read anew"), "{}", lab.journal());
        assert_eq!(figure(lab, "store_rebuilds_total").await, 1.0);
    }
    assert_eq!(add(&b, "next").await.status, StatusCode::CREATED);
    until(LONG, async || has(&a, "next").await).await;
    assert_eq!(ids(&a).await, ids(&b).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_primary_is_killed_and_the_replica_takes_over() {
    let Some(installed) = Installed::find(true) else { return skip() };
    let primary = installed.primary();
    primary.database("fails");
    let replica = primary.replica();
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/fails", primary.port, replica.port);
    let folder = model();
    let (a, b) = (Arc::new(open(&folder, &url)), open(&folder, &url));
    let adding = {
        let a = Arc::clone(&a);
        tokio::spawn(async move {
            let (mut sure, mut unsure, mut after) = (Vec::new(), Vec::new(), 0);
            for number in 0.. {
                let id = format!("n-{number}");
                // No more than one list of labels shows.
                tokio::time::sleep(Duration::from_millis(4)).await;
                let answer = add(&a, &id).await;
                match answer.status {
                    StatusCode::CREATED => {
                        sure.push(id);
                        after += usize::from(!unsure.is_empty());
                    }
                    StatusCode::SERVICE_UNAVAILABLE => {
                        unsure.push((id, answer.code()));
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    other => panic!("{other}: {}", answer.text),
                }
                if after == 20 {
                    break;
                }
            }
            (sure, unsure)
        })
    };
    tokio::time::sleep(Duration::from_millis(600)).await;
    primary.kill();
    assert!(!best(&b, "a text").await.is_empty(), "answers go on");
    tokio::time::sleep(Duration::from_millis(300)).await;
    replica.promote();
    let (sure, unsure) = tokio::time::timeout(LONG * 2, adding).await.expect("it goes on").unwrap();
    assert!(sure.len() > 20 && !unsure.is_empty());
    until(LONG, async || has(&b, sure.last().unwrap()).await).await;
    let (of_a, of_b) = (ids(&a).await, ids(&b).await);
    assert_eq!(of_a, of_b);
    for id in &sure {
        assert!(of_a.contains(id), "{id} was acknowledged and is gone");
    }
    // Of what was refused, only what was left open may be there.
    for (id, code) in &unsure {
        assert!(code == "store_unsure" || !of_a.contains(id), "{id} was refused with {code} and is there");
    }
    let twice = "SELECT count(*) FROM (SELECT id FROM polytag.labels WHERE NOT removed GROUP BY id HAVING count(*) > 1) AS t";
    assert_eq!(replica.sql("fails", twice), "0");
    assert_eq!(
        replica.sql("fails", "SELECT count(*) FROM polytag.labels WHERE NOT removed"),
        of_a.len().to_string()
    );
    assert_eq!(figure(&b, "store_rebuilds_total").await, 0.0, "nothing that was seen went away");
}
