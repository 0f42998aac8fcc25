//! Batches, limits, clients that go, and a server that is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use polytag_server::ServerConfig;
use serde_json::json;

use crate::lab::Lab;

/// How often a count of the metrics stands at.
async fn counted(lab: &Lab, name: &str) -> u64 {
    let text = lab.get("/metrics").await.text;
    let line = text.lines().find(|line| line.starts_with(&format!("polytag_{name} "))).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_find_no_room_are_told_when_to_come_again_and_nobody_else_is_harmed() {
    let config = ServerConfig { batch_tokens: 200, queue_tokens: 200, ..ServerConfig::default() };
    let lab = Arc::new(Lab::with(config));
    let body = Arc::new(json!({"texts": ["a web server that speaks TLS ".repeat(20)], "k": 20}));
    let asked: Vec<_> = (0..200)
        .map(|_| {
            let (lab, body) = (Arc::clone(&lab), Arc::clone(&body));
            tokio::spawn(async move {
                let answer = lab.post("/v1/models/tags/tag", &body).await;
                match answer.status {
                    StatusCode::OK => assert!(answer.json()["results"][0]["labels"].is_array()),
                    status => {
                        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.text);
                        let retry: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
                        assert!((1..60).contains(&retry));
                    }
                }
                answer.status
            })
        })
        .collect();
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(asked.await.unwrap());
    }
    let refused = answers.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count() as u64;
    assert!(refused > 0 && refused < 200, "{refused} of 200 were refused");
    assert_eq!(counted(&lab, "refused_total").await, refused);
    assert_eq!(counted(&lab, "documents_total").await, 200 - refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_texts_are_done_in_pieces_and_come_back_in_order() {
    let config = ServerConfig { batch_tokens: 50, queue_tokens: 50, ..ServerConfig::default() };
    let lab = Lab::with(config);
    let texts: Vec<_> = (0..300)
        .map(|number| json!({"id": number.to_string(), "text": "mail ".repeat(number % 60)}))
        .collect();
    let answer = lab.post("/v1/models/tags/tag", &json!({"texts": texts, "k": 1})).await.json();
    let ids: Vec<String> =
        answer["results"].as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (0..300).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(counted(&lab, "batches_total").await > 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_take_too_long_are_given_up() {
    let lab = Lab::with(ServerConfig { deadline: 0.000_001, ..ServerConfig::default() });
    let answer = lab.post("/v1/models/tags/tag", &json!({"texts": ["web"]})).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::GATEWAY_TIMEOUT, "late"));
    for _ in 0..100 {
        if counted(&lab, "dropped_total").await == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nobody noticed that nobody waits");
}

#[test]
fn a_server_that_is_told_to_stop_finishes_and_frees_the_model() {
    let Lab { folder, app, router, .. } =
        Lab::with(ServerConfig { listen: "127.0.0.1:0".to_owned(), ..ServerConfig::default() });
    drop(router);
    let app = Arc::into_inner(app).unwrap();
    let asked = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&asked);
    let (send, address) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        polytag_server::serve(
            app,
            move || stop.load(Ordering::Relaxed),
            move |serving| send.send(serving.address).unwrap(),
        )
    });
    let address = address.recv().unwrap();
    use std::io::{Read as _, Write as _};
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let body = json!({"texts": ["web server"]}).to_string();
    let head = "POST /v1/models/tags/tag HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close";
    write!(client, "{head}\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    // It is told to stop while a request is on its way, and answers it.
    asked.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(300));
    client.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.join().unwrap().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
    // Nobody holds the model any more.
    Lab::open(folder, ServerConfig::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_pauses_is_answered_so_far() {
    use futures_util::StreamExt as _;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;
    let lab = Lab::new();
    let (send, lines) = tokio::sync::mpsc::channel::<String>(1);
    let lines = futures_util::stream::unfold(lines, |mut lines| async move {
        Some((Ok::<_, std::io::Error>(lines.recv().await?), lines))
    });
    let sent = crate::lab::request(axum::http::Method::POST, "/v1/models/tags/tag?k=1")
        .header("content-type", "application/x-ndjson")
        .body(axum::body::Body::from_stream(lines.boxed()));
    let mut answers = lab.router.clone().oneshot(sent.unwrap()).await.unwrap().into_body();
    // Whoever waits for each answer gets it.
    for number in 0..3 {
        send.send(format!("{{\"id\":\"{number}\",\"text\":\"web\"}}\n")).await.unwrap();
        let answer = answers.frame().await.unwrap().unwrap().into_data().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["id"], number.to_string());
    }
    drop(send);
    assert!(answers.frame().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_for_more_than_memory_holds() {
    let lab = Lab::new();
    let body = json!({"texts": vec!["x"; 1000], "k": 1000});
    assert_eq!(lab.post("/v1/models/tags/tag", &body).await.code(), "too_many");
    let aliases: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    let label = json!({"name": "many", "aliases": aliases});
    assert_eq!(lab.post("/v1/models/tags/labels", &label).await.code(), "too_many");
}
