//! The API, in process: what is asked is answered, and what is wrong is told.

use axum::body::Body;
use axum::http::{Method, StatusCode};

use polytag_server::ServerConfig;
use polytag_server::keys::{KeyConfig, Scope};
use serde_json::{Value, json};

use crate::lab::{Lab, request, sample};

const TEXT: &str = "A small web server that speaks TLS and serves static files over HTTP";

#[tokio::test]
async fn texts_get_labels_with_names_scores_and_reasons() {
    let lab = Lab::new();
    let answer = lab
        .post(
            "/v1/models/tags/tag",
            &json!({"texts": [TEXT, {"id": "b", "title": "Bees", "text": "keeping"}], "k": 3, "explain": true}),
        )
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let results = answer.json()["results"].clone();
    let labels = results[0]["labels"].as_array().unwrap();
    assert_eq!(labels.len(), 3);
    assert!(labels[0]["score"].as_f64() >= labels[1]["score"].as_f64());
    assert!(labels[0]["seen"].is_boolean() && labels[0]["path"].is_array());
    assert!(!labels[0]["why"]["reasons"].as_array().unwrap().is_empty());
    assert_eq!((&results[0]["id"], &results[1]["id"]), (&Value::Null, &json!("b")));

    // The same labels as the library gives.
    let model = lab.get("/v1/models").await.json()["models"][0].clone();
    assert_eq!((&model["name"], &model["method"]), (&json!("tags"), &json!("lexical")));
    assert_eq!(model["labels"].as_u64().unwrap() as usize, lab.labels().len());

    let best = labels[0]["id"].as_str().unwrap();
    let only = lab.post("/v1/models/tags/tag", &json!({"texts": [TEXT], "allowed": [best]})).await.json();
    assert_eq!(only["results"][0]["labels"].as_array().unwrap().len(), 1);
    let none = lab.post("/v1/models/tags/tag", &json!({"texts": [TEXT], "threshold": 1e9})).await.json();
    assert_eq!(none["results"][0]["labels"], json!([]));
}

#[tokio::test]
async fn a_label_is_explained_with_training_documents_like_the_text() {
    let lab = Lab::new();
    let found = lab.post("/v1/models/tags/tag", &json!({"texts": [TEXT], "k": 1})).await.json();
    let label = found["results"][0]["labels"][0]["id"].clone();
    let why = lab.post("/v1/models/tags/explain", &json!({"text": TEXT, "label": label})).await;
    assert_eq!(why.status, StatusCode::OK, "{}", why.text);
    let why = why.json();
    assert_eq!(why["label"]["id"], label);
    assert!(why["reasons"][0]["words"].is_string());
    let documents = why["documents"].as_array().unwrap();
    assert!(!documents.is_empty() && documents[0]["similarity"].as_f64().unwrap() > 0.0);
    let missing = lab.post("/v1/models/tags/explain", &json!({"text": TEXT, "label": "none"})).await;
    assert_eq!((missing.status, missing.code().as_str()), (StatusCode::NOT_FOUND, "no_label"));
}

#[tokio::test]
async fn an_added_label_is_on_the_disk_and_in_the_next_answer() {
    let lab = Lab::new();
    let bees = json!({"texts": ["Plan the year of your bees and hives"], "k": 1});
    let added =
        lab.post("/v1/models/tags/labels", &json!({"name": "Keeping bees", "aliases": ["hives"]})).await;
    assert_eq!(added.status, StatusCode::CREATED, "{}", added.text);
    assert_eq!(added.json()["labels"][0]["id"], "keeping-bees");
    let first = |answer: &Value| answer["results"][0]["labels"][0]["id"].clone();
    assert_eq!(first(&lab.post("/v1/models/tags/tag", &bees).await.json()), "keeping-bees");
    assert!(lab.labels().find("keeping-bees").is_some());

    let path = "/v1/models/tags/labels/keeping-bees";
    let renamed =
        lab.ask(Method::PATCH, path, &json!({"name": "Beekeeping", "description": "With hives."})).await;
    assert_eq!(renamed.json()["description"], "With hives.", "{}", renamed.text);
    let space = lab.labels();
    assert_eq!(space.label(space.find("keeping-bees").unwrap()).name, "Beekeeping");
    assert_eq!(lab.ask(Method::DELETE, path, &Value::Null).await.status, StatusCode::NO_CONTENT);
    assert_eq!(lab.get(path).await.status, StatusCode::NOT_FOUND);
    assert_ne!(first(&lab.post("/v1/models/tags/tag", &bees).await.json()), "keeping-bees");

    // Each change left a line that names it.
    let journal = lab.journal();
    let lines: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<&str> = lines.iter().map(|line| line["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["add", "rename", "describe", "remove"]);
    assert!(lines.iter().all(|line| line["by"] == "nobody" && line["model"] == "tags"));
}

#[tokio::test]
async fn labels_that_cannot_be_are_refused_and_nothing_is_changed() {
    let lab = Lab::new();
    let taken = lab.labels().iter().next().unwrap().1.id.clone();
    let path = "/v1/models/tags/labels";
    let many: Vec<Value> = (0..1001).map(|number| json!({"name": format!("n{number}")})).collect();
    for (body, status) in [
        (json!({"id": taken, "name": "again"}), StatusCode::CONFLICT),
        (json!({"labels": [{"name": "fine"}, {"id": taken, "name": "x"}]}), StatusCode::CONFLICT),
        (json!({"labels": [{"id": "twin", "name": "a"}, {"id": "twin", "name": "b"}]}), StatusCode::CONFLICT),
        (json!({"name": " "}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"id": "", "name": "x"}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"labels": []}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"labels": many}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"name": "x".repeat(2000)}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"id": "..", "name": "x"}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"name": 7}), StatusCode::BAD_REQUEST),
        (json!({"nom": "x"}), StatusCode::BAD_REQUEST),
        (json!([]), StatusCode::BAD_REQUEST),
    ] {
        let before = lab.labels().len();
        let answer = lab.post(path, &body).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        answer.code();
        assert_eq!(lab.labels().len(), before);
    }
    let nothing = lab.ask(Method::PATCH, &format!("{path}/{taken}"), &json!({})).await;
    assert_eq!(nothing.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(lab.journal(), "");
}

#[tokio::test]
async fn names_may_be_anything_and_come_back_as_they_were() {
    let lab = Lab::new();
    for (number, name) in
        ["<script>alert(1)</script>", "تجارة الشاي", "a\u{0}b\u{1b}[31m", "\u{202e}evil", "💩", "a/b?c#d%20"]
            .into_iter()
            .enumerate()
    {
        let id = format!("odd/{number} ?");
        let added = lab.post("/v1/models/tags/labels", &json!({"id": id, "name": name})).await;
        assert_eq!(added.status, StatusCode::CREATED, "{}", added.text);
        let one = lab.get(&format!("/v1/models/tags/labels/odd%2F{number}%20%3F")).await;
        assert_eq!((one.json()["id"].as_str(), one.json()["name"].as_str()), (Some(id.as_str()), Some(name)));
        assert_eq!(one.headers["content-type"], "application/json");
        assert_eq!(one.headers["x-content-type-options"], "nosniff");
    }
}

#[tokio::test]
async fn labels_are_found_as_one_types() {
    let lab = Lab::new();
    let all = lab.get("/v1/models/tags/labels?limit=3").await.json();
    assert_eq!(
        (all["total"].as_u64().unwrap() as usize, 3),
        (lab.labels().len(), all["labels"].as_array().unwrap().len())
    );
    let web = lab.get("/v1/models/tags/labels?match=WEB&limit=50").await.json();
    assert!(web["total"].as_u64().unwrap() > 0);
    assert!(web["total"].as_u64() < all["total"].as_u64());
    let second = lab.get("/v1/models/tags/labels?match=web&limit=1&offset=1").await.json();
    assert_eq!(second["labels"][0], web["labels"][1]);
    let unseen = lab.get("/v1/models/tags/labels?only=unseen&limit=1000").await.json();
    assert!(unseen["labels"].as_array().unwrap().iter().all(|label| label["seen"] == false));
    for bad in ["limit=x", "limit=-1", "only=old", "what=1"] {
        assert_eq!(lab.get(&format!("/v1/models/tags/labels?{bad}")).await.code(), "malformed", "{bad}");
    }
    assert_eq!(lab.get("/v1/models/tags/labels?limit=1001").await.code(), "too_many");
}

#[tokio::test]
async fn what_people_said_is_kept_for_the_next_fit() {
    let lab = Lab::new();
    let space = lab.labels();
    let ids: Vec<&str> = space.iter().take(2).map(|(_, label)| label.id.as_str()).collect();
    let said = json!({"text": TEXT, "accepted": [ids[0]], "rejected": [ids[1]]});
    assert_eq!(lab.post("/v1/models/tags/feedback", &said).await.json()["stored"], 1);
    let learn = json!([{"text": "Bees", "subjects": [{"uri": ids[1], "label": "x"}]}]);
    assert_eq!(lab.post("/v1/projects/tags/learn", &learn).await.status, StatusCode::NO_CONTENT);
    let lines = lab.get("/v1/models/tags/feedback").await.text;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines.len(), &lines[0]["labels"], &lines[0]["rejected"]),
        (2, &json!([ids[0]]), &json!([ids[1]]))
    );
    for bad in [
        json!({"text": TEXT, "accepted": ["none"]}),
        json!({"text": " ", "accepted": [ids[0]]}),
        json!({"text": TEXT, "accepted": [ids[0]], "rejected": [ids[0]]}),
    ] {
        let answer = lab.post("/v1/models/tags/feedback", &bad).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text);
    }
}

#[tokio::test]
async fn clients_of_annif_are_answered_as_they_are_used_to() {
    let lab = Lab::new();
    let projects = lab.get("/v1/projects").await.json();
    assert_eq!(projects["projects"][0]["project_id"], "tags");
    assert_eq!(lab.get("/v1/projects/tags").await.json()["is_trained"], true);
    let form = "text=A+web+server+%26+proxy&limit=2&threshold=0";
    let sent = request(Method::POST, "/v1/projects/tags/suggest")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form));
    let answer = lab.send(sent.unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let results = answer.json()["results"].clone();
    assert_eq!(results.as_array().unwrap().len(), 2);
    assert!(
        results[0]["uri"].is_string() && results[0]["label"].is_string() && results[0]["score"].is_number()
    );
    // A text of any length: a form is no address.
    let long = format!("text={}", "web+server+".repeat(20_000));
    let sent = request(Method::POST, "/v1/projects/tags/suggest")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(long));
    assert_eq!(lab.send(sent.unwrap()).await.status, StatusCode::OK);
    let batch = json!({"documents": [{"text": "web", "document_id": "7"}, {"text": "mail"}]});
    let answer = lab.post("/v1/projects/tags/suggest-batch?limit=1", &batch).await.json();
    assert_eq!((&answer[0]["document_id"], answer[0]["results"].as_array().unwrap().len()), (&json!("7"), 1));
}

#[tokio::test]
async fn streams_are_answered_line_by_line() {
    let lab = Lab::new();
    let mut body = String::new();
    for number in 0..2500 {
        body.push_str(&json!({"id": number.to_string(), "text": "mail server"}).to_string());
        body.push_str(if number % 2 == 0 { "\n" } else { "\r\n\n" });
    }
    body.push_str("{\"text\": 7}\n{\"id\": \"last\", \"text\": \"web\"}");
    let sent =
        request(Method::POST, "/v1/models/tags/tag?k=2").header("content-type", "application/x-ndjson");
    let answer = lab.send(sent.body(Body::from(body)).unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2502);
    assert!(
        lines[..2500]
            .iter()
            .zip(0..)
            .all(|(line, number)| line["id"].as_str() == Some(&*format!("{number}")))
    );
    assert_eq!((&lines[2500]["error"]["code"], &lines[2500]["line"]), (&json!("malformed"), &json!(3751)));
    assert_eq!(lines[2501]["id"], "last");
    assert_eq!(lines[2501]["labels"].as_array().unwrap().len(), 2);

    let lines = lab
        .send(
            request(Method::POST, "/v1/models/tags/tag")
                .header("content-type", "application/json")
                .header("accept", "application/x-ndjson")
                .body(Body::from(json!({"texts": ["a web", "b mail"]}).to_string()))
                .unwrap(),
        )
        .await;
    assert_eq!(lines.text.lines().count(), 2);
}

#[tokio::test]
async fn a_stream_takes_the_lines_that_predict_takes() {
    let lab = Lab::new();
    let ask = async |body: String| {
        let sent =
            request(Method::POST, "/v1/models/tags/tag?k=1").header("content-type", "application/x-ndjson");
        let answer = lab.send(sent.body(Body::from(body)).unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    // A file of a task, with labels.
    let dev = std::fs::read_to_string(sample().join("dev.jsonl")).unwrap();
    assert!(dev.lines().all(|line| line.contains("\"labels\"")));
    let ids: Vec<Value> =
        dev.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    let answers = ask(dev).await;
    assert_eq!(answers.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(), ids);
    assert!(answers.iter().all(|answer| answer["labels"].is_array()));

    let lines = [
        "\u{feff}{\"id\":7,\"title\":null,\"text\":\"web\",\"labels\":[1,\"b\"],\"note\":{\"mine\":[1]}}",
        "{\"id\":-3,\"text\":\"web\",\"labels\":null}",
        "{\"id\":null,\"text\":\"web\"}",
        "{\"text\":\"web\"}",
    ];
    let answers = ask(lines.join("\n")).await;
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!("7"), &json!("-3"), &Value::Null, &Value::Null]);
    assert!(answers.iter().all(|answer| answer["labels"][0] == answers[0]["labels"][0]), "{answers:?}");

    let lines = [
        "{\"id\":1.5,\"text\":\"web\"}",
        "{\"id\":true,\"text\":\"web\"}",
        "{\"id\":\"a\"}",
        "[\"a\", null, \"web\"]",
        "web",
        "{\"text\":\"web\"}",
        "\u{feff}{\"text\":\"web\"}",
    ];
    let answers = ask(lines.join("\n")).await;
    for (answer, line) in answers.iter().zip(1..).filter(|(_, line)| *line != 6) {
        assert_eq!((&answer["error"]["code"], &answer["line"]), (&json!("malformed"), &json!(line)));
    }
    let said = answers[0]["error"]["message"].as_str().unwrap();
    assert!(said.contains("a string or a whole number"), "{said}");
    assert_eq!((answers.len(), answers[5]["labels"].as_array().unwrap().len()), (7, 1));
}

#[tokio::test]
async fn bad_requests_get_a_status_and_a_sentence() {
    let lab = Lab::with(ServerConfig { max_body: 100_000, max_documents: 10, ..ServerConfig::default() });
    let tag = "/v1/models/tags/tag";
    for (body, status) in [
        (json!({}), StatusCode::BAD_REQUEST),
        (json!({"texts": "one"}), StatusCode::BAD_REQUEST),
        (json!({"texts": [7]}), StatusCode::BAD_REQUEST),
        (json!({"texts": [{"text": "x", "titel": "y"}]}), StatusCode::BAD_REQUEST),
        (json!({"texts": ["x"], "k": -1}), StatusCode::BAD_REQUEST),
        (json!({"texts": ["x"], "k": 0}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"texts": ["x"], "k": 100_000}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"texts": ["x"], "allowed": ["none"]}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"texts": vec!["x"; 11]}), StatusCode::PAYLOAD_TOO_LARGE),
        (json!({"texts": vec!["x"; 10], "k": 10, "explain": true}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"texts": ["x".repeat(200_000)]}), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let answer = lab.post(tag, &body).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        answer.code();
    }
    // What says nothing is answered with nothing.
    for empty in [json!({"texts": []}), json!({"texts": [""]}), json!({"texts": ["\u{0}\u{202e}"]})] {
        assert_eq!(lab.post(tag, &empty).await.status, StatusCode::OK, "{empty}");
    }
    for text in ["", "{", "null", "\u{feff}{}", "{\"texts\": [\"\\ud800\"]}", &"[".repeat(10_000)] {
        let sent = request(Method::POST, tag).header("content-type", "application/json");
        let answer = lab.send(sent.body(Body::from(text.to_owned())).unwrap()).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::BAD_REQUEST, "malformed"),
            "{text:.20}"
        );
    }
    let bytes = request(Method::POST, tag).header("content-type", "application/json");
    assert_eq!(lab.send(bytes.body(Body::from(vec![0xff, 0xfe])).unwrap()).await.code(), "malformed");
    let plain = request(Method::POST, tag).header("content-type", "text/plain");
    assert_eq!(lab.send(plain.body(Body::from("{}")).unwrap()).await.code(), "media_type");
    assert_eq!(lab.post("/v1/models/none/tag", &json!({"texts": []})).await.code(), "no_model");
    assert_eq!(lab.get("/v1/nothing").await.code(), "nothing_there");
    assert_eq!(lab.get("/v1/models/%FF").await.code(), "malformed");
    assert_eq!(lab.post(&format!("{tag}?k=1"), &json!({"texts": []})).await.code(), "malformed");
    assert_eq!(lab.get(tag).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn slow_bodies_are_not_waited_for() {
    let lab = Lab::with(ServerConfig { receive: 0.2, ..ServerConfig::default() });
    let endless = futures_util::stream::once(async { Ok::<_, std::io::Error>("{\"texts\":") });
    let endless = futures_util::StreamExt::chain(endless, futures_util::stream::pending());
    let sent = request(Method::POST, "/v1/models/tags/tag").header("content-type", "application/json");
    let answer = lab.send(sent.body(Body::from_stream(endless)).unwrap()).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::REQUEST_TIMEOUT, "too_slow"));
}

#[tokio::test]
async fn keys_open_what_their_scope_says() {
    let key = |name: &str, scope| KeyConfig::of(&format!("key of {name}"), name, scope);
    let keys = vec![key("reader", Scope::Read), key("editor", Scope::LabelWrite), key("chief", Scope::Admin)];
    let lab = Lab::with(ServerConfig { keys, ..ServerConfig::default() });
    let ask = async |who: Option<&str>, method: Method, path: &str, body: Value| {
        let mut sent = request(method, path).header("content-type", "application/json");
        if let Some(who) = who {
            sent = sent.header("authorization", format!("Bearer key of {who}"));
        }
        lab.send(sent.body(Body::from(body.to_string())).unwrap()).await.status
    };
    let (tag, labels) = ("/v1/models/tags/tag", "/v1/models/tags/labels");
    let texts = json!({"texts": ["web"]});
    assert_eq!(ask(None, Method::POST, tag, texts.clone()).await, StatusCode::UNAUTHORIZED);
    assert_eq!(ask(Some("nobody"), Method::POST, tag, texts.clone()).await, StatusCode::UNAUTHORIZED);
    assert_eq!(ask(Some("reader"), Method::POST, tag, texts).await, StatusCode::OK);
    let label = json!({"name": "new"});
    assert_eq!(ask(Some("reader"), Method::POST, labels, label.clone()).await, StatusCode::FORBIDDEN);
    assert_eq!(ask(Some("editor"), Method::POST, labels, label).await, StatusCode::CREATED);
    assert!(lab.journal().contains("\"by\":\"editor\""));
    let feedback = "/v1/models/tags/feedback";
    assert_eq!(ask(Some("editor"), Method::GET, feedback, Value::Null).await, StatusCode::FORBIDDEN);
    assert_eq!(ask(Some("chief"), Method::GET, feedback, Value::Null).await, StatusCode::OK);
    // The page and the checks of a watching machine are open.
    assert_eq!(ask(None, Method::GET, "/", Value::Null).await, StatusCode::OK);
    assert_eq!(ask(None, Method::GET, "/healthz", Value::Null).await, StatusCode::OK);
    assert_eq!(ask(None, Method::GET, "/metrics", Value::Null).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn pages_from_elsewhere_cannot_ask_this_machine() {
    let lab = Lab::new();
    let ask = async |name: &'static str, value: &'static str, method: Method| {
        let mut sent = request(method, "/v1/models").body(Body::empty()).unwrap();
        sent.headers_mut().insert(name, value.parse().unwrap());
        lab.send(sent).await.status
    };
    assert_eq!(ask("host", "evil.example:8080", Method::GET).await, StatusCode::FORBIDDEN);
    assert_eq!(ask("host", "127.0.0.1:1", Method::GET).await, StatusCode::OK);
    assert_eq!(ask("sec-fetch-site", "cross-site", Method::POST).await, StatusCode::FORBIDDEN);
    assert_eq!(ask("sec-fetch-site", "same-origin", Method::GET).await, StatusCode::OK);
}

#[tokio::test]
async fn the_page_holds_to_its_policy_and_the_api_is_described() {
    let lab = Lab::new();
    let page = lab.get("/").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.headers["content-security-policy"].to_str().unwrap().contains("script-src 'self'"));
    assert!(!page.text.contains("style=\"") && !page.text.contains("<script>"));
    let named: Vec<&str> =
        page.text.split('"').filter(|part| part.trim_start_matches('/').starts_with("page/")).collect();
    assert!(named.len() >= 2);
    for name in named {
        let path = format!("/{}", name.trim_start_matches('/'));
        assert_eq!(lab.get(&path).await.status, StatusCode::OK, "{name}");
    }
    assert_eq!(lab.get("/docs").await.status, StatusCode::OK);
    let api = lab.get("/openapi.json").await.json();
    let text = api.to_string();
    for named in text.split("#/components/schemas/").skip(1) {
        let name = named.split('"').next().unwrap();
        assert!(api["components"]["schemas"][name].is_object(), "{name} is spoken of and not described");
    }
    let paths = api["paths"].as_object().unwrap();
    assert!(paths.contains_key("/v1/models/{model}/tag") && paths.len() >= 18, "{:?}", paths.keys());
    assert!(
        lab.get("/metrics")
            .await
            .text
            .contains("polytag_requests_total{route=\"/openapi.json\",status=\"200\"} 1")
    );
    assert_eq!(lab.get("/readyz").await.text, "ready\n");
}

#[tokio::test]
async fn models_tell_how_often_their_labels_occur() {
    let lab = Lab::new();
    let tail = lab.get("/v1/models/tags/tail").await.json();
    let buckets = tail["buckets"].as_array().unwrap();
    let sum: u64 = buckets.iter().map(|bucket| bucket["labels"].as_u64().unwrap()).sum();
    assert_eq!(sum as usize, lab.labels().len());
    assert!(
        buckets
            .windows(2)
            .all(|pair| pair[0]["to"].as_u64().unwrap() + 1 == pair[1]["from"].as_u64().unwrap())
    );
    let unseen = lab.labels().iter().filter(|(label, _)| !lab.labels().is_seen(*label)).count();
    assert_eq!(buckets[0]["labels"].as_u64().unwrap() as usize, unseen);
    assert_eq!(tail["most"].as_array().unwrap().len(), 10);
    assert_eq!(lab.get("/v1/models/tags/curve").await.json(), json!({"points": []}));
    assert_eq!(lab.get("/v1/models/tags/map").await.json(), json!({"points": []}));
    assert!(lab.get("/v1/models/tags").await.json()["config"].is_object());
}
