//! Many texts, one answer a line. Memory holds a batch of documents, however many there are.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use polytag::data::WrittenId;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::error::Failure;
use super::tag::{K, TagQuery, TaggedText};
use super::{ApiError, App};
use crate::desk::{self, DeskError, Question};
use crate::served::Document;

/// The type of one JSON value a line.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Answers that are ready wait here while the client reads those before them.
const AHEAD: usize = 4;
/// How long a stream may pause until what has come is answered.
const PAUSE: Duration = Duration::from_millis(20);

/// Results that are all there, one a line.
pub(super) fn lines(results: impl Iterator<Item = TaggedText>) -> Response {
    let mut body = Vec::new();
    results.for_each(|result| push(&mut body, &result));
    ([(header::CONTENT_TYPE, NDJSON)], body).into_response()
}

fn push(body: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory does not fail, and what is written are strings and finite numbers.
    let _ = serde_json::to_writer(&mut *body, value);
    body.push(b'\n');
}

/// A line that could not be answered.
#[derive(Serialize)]
struct BadLine {
    line: u64,
    #[serde(flatten)]
    failure: Failure,
}

/// A line of the body: what `polytag predict` reads, but that it may lack an id. Whatever else it says, such as the labels
/// in a file of a task, is passed over.
#[derive(Deserialize)]
struct DocumentLine {
    id: Option<WrittenId>,
    title: Option<String>,
    text: String,
}

/// What a line of the body came to.
enum Read {
    Document(Document),
    Bad(BadLine),
}

/// Answers a stream of documents while it comes in.
pub(super) fn documents(app: Arc<App>, name: String, query: TagQuery, body: Body) -> Response {
    let (answers, answered) = mpsc::channel::<Result<Bytes, std::io::Error>>(AHEAD);
    tokio::spawn(async move {
        let answering = Answering { app: &app, name: &name, query, answers: &answers };
        if let Err(error) = answering.run(body).await {
            let mut line = Vec::new();
            push(&mut line, &error.failure());
            // The client may have gone; then nobody misses the line.
            answers.send(Ok(line.into())).await.ok();
        }
    });
    let answered = stream::unfold(answered, |mut answered| async move {
        let next = answered.recv().await?;
        Some((next, answered))
    });
    ([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(answered)).into_response()
}

struct Answering<'a> {
    app: &'a App,
    name: &'a str,
    query: TagQuery,
    answers: &'a mpsc::Sender<Result<Bytes, std::io::Error>>,
}

impl Answering<'_> {
    async fn run(&self, body: Body) -> Result<(), ApiError> {
        let limits = &self.app.server.limits;
        let most = (limits.answers / self.query.k.unwrap_or(K)).clamp(1, limits.documents);
        let mut parts = body.into_data_stream();
        // What has come of the next line, and how much of it has been looked through.
        let (mut rest, mut scanned, mut line) = (Vec::new(), 0, 0);
        let (mut gathered, mut tokens) = (Vec::new(), 0);
        loop {
            let mut next = parts.next();
            let part = match tokio::time::timeout(PAUSE, &mut next).await {
                Ok(part) => part,
                Err(_) => {
                    // Nothing comes for a while: whoever waits for answers gets them.
                    self.answer(std::mem::take(&mut gathered)).await?;
                    tokens = 0;
                    let seconds = self.app.server.receive.as_secs_f64();
                    let next = tokio::time::timeout(self.app.server.receive, next).await;
                    next.map_err(|_| ApiError::TooSlow { seconds })?
                }
            };
            let ended = part.is_none();
            if let Some(part) = part {
                let part = part.map_err(|error| ApiError::Malformed { problem: error.to_string() })?;
                rest.extend_from_slice(&part);
            } else if !rest.is_empty() {
                rest.push(b'\n');
            }
            let mut start = 0;
            while let Some(end) = rest[scanned..].iter().position(|&byte| byte == b'\n') {
                line += 1;
                let text = &rest[start..scanned + end];
                // Some programs begin a file with a mark.
                let text =
                    text.strip_prefix(b"\xef\xbb\xbf").filter(|_| line == 1).unwrap_or(text).trim_ascii();
                scanned += end + 1;
                start = scanned;
                if text.is_empty() {
                    continue;
                }
                // A line counts whole, whatever is in it.
                tokens += text.len() / desk::BYTES_A_TOKEN + 1;
                gathered.push(parse(text, line));
                if tokens >= limits.batch_tokens || gathered.len() >= most {
                    self.answer(std::mem::take(&mut gathered)).await?;
                    tokens = 0;
                }
            }
            rest.drain(..start);
            scanned = rest.len();
            if rest.len() > limits.body {
                return Err(ApiError::TooLarge { most: limits.body });
            }
            if ended {
                return self.answer(gathered).await;
            }
        }
    }

    /// Answers lines in their order.
    async fn answer(&self, lines: Vec<Read>) -> Result<(), ApiError> {
        // Nobody reads any more: there is nothing left to do.
        if self.answers.is_closed() {
            return Err(ApiError::Ours);
        }
        if lines.is_empty() {
            return Ok(());
        }
        let served = self.app.model(self.name)?;
        let documents: Vec<Document> = lines
            .iter()
            .filter_map(|line| match line {
                Read::Document(document) => Some(document.clone()),
                Read::Bad(_) => None,
            })
            .collect();
        let question = Question {
            documents,
            k: self.query.k.unwrap_or(K),
            threshold: self.query.threshold,
            ..Question::default()
        };
        // A stream that has begun waits for room instead of being sent away.
        let labels = served.desk.tag(question, (served.facts.reads, self.app.deadline()), true).await?;
        let mut labels = labels.into_iter();
        let mut body = Vec::new();
        for line in lines {
            match line {
                Read::Bad(bad) => push(&mut body, &bad),
                Read::Document(document) => {
                    let labels = labels.next().unwrap_or_default();
                    push(&mut body, &TaggedText { id: document.id, labels });
                }
            }
        }
        // Whoever does not read what is ready is not waited for without end.
        let sent = tokio::time::timeout(self.app.server.deadline, self.answers.send(Ok(body.into()))).await;
        sent.map_err(|_| DeskError::Late)?.map_err(|_| ApiError::Ours)
    }
}

fn parse(line: &[u8], number: u64) -> Read {
    // A list would be read as an object without the names of its fields.
    let read = match line.starts_with(b"{") {
        true => serde_json::from_slice::<DocumentLine>(line).map_err(|error| error.to_string()),
        false => Err("the line is not a JSON object".to_owned()),
    };
    match read {
        Ok(DocumentLine { id, title, text }) => {
            Read::Document(Document { id: id.map(|id| id.0), title, text })
        }
        Err(problem) => {
            // A complaint may repeat what it complains of.
            let problem = problem.chars().take(200).collect();
            let failure = ApiError::Malformed { problem }.failure();
            Read::Bad(BadLine { line: number, failure })
        }
    }
}
