//! `polytag predict`: documents in, labels out, as streams.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::Args;
use polytag::data::{DataError, DocumentRecord, LabelSpace, Passage, Place};
use polytag::index::Allowed;
use polytag::method;
use polytag::predict::{Ask, Predictor};
use polytag::progress::Event;
use polytag::ranking::Ranking;
use polytag::storage::{self, Lines};
use serde::Serialize;

use super::{DONE, Done};
use crate::failure::{USER, say, user_error};
use crate::input::Stdin;
use crate::output;
use crate::settings::Session;

/// Documents tagged at once: enough for all cores, few enough to stay small.
const BATCH: usize = 512;
/// Bytes of text tagged at once, whichever is reached first.
const BATCH_BYTES: usize = 16 << 20;

/// Tag documents: JSON lines in, JSON lines out
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag predict MODEL < docs.jsonl > tags.jsonl
  polytag predict MODEL --k 10 --allow mine.txt --in docs.jsonl.gz --out tags.jsonl
  echo 'Rules for the import of tea' | polytag predict MODEL --plain

A line in is {\"id\", \"title\"?, \"text\"}, as in a task folder, or with --plain just a text.
A line out is {\"id\", \"labels\": [{\"id\", \"name\", \"score\", \"seen\"}]}, in the same order.")]
pub(crate) struct Predict {
    /// The model folder
    model: PathBuf,
    /// How many labels at most
    #[arg(long, default_value_t = 5)]
    k: usize,
    /// Answer only with the labels of this file: an id a line, or JSON lines with an "id"
    #[arg(long, value_name = "FILE")]
    allow: Option<PathBuf>,
    /// Leave out labels that score less
    #[arg(long, value_name = "SCORE")]
    threshold: Option<f32>,
    /// Read from a file (.gz and .zst are unpacked) instead of standard input
    #[arg(long = "in", value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write to a file, which appears when all is done, instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Each line is a text, not JSON; its number becomes its id
    #[arg(long)]
    plain: bool,
    /// Report lines that cannot be read and go on; the exit code still tells
    #[arg(long)]
    keep_going: bool,
}

#[derive(Serialize)]
struct Tagged<'a> {
    id: &'a str,
    labels: Vec<TaggedLabel<'a>>,
}

#[derive(Serialize)]
struct TaggedLabel<'a> {
    id: &'a str,
    name: &'a str,
    score: f32,
    seen: bool,
}

impl Predict {
    pub(crate) fn run(&self, session: &Session) -> Done {
        if self.k == 0 {
            return Err(user_error("--k 0 asks for no label; say at least 1"));
        }
        if self.threshold.is_some_and(f32::is_nan) {
            return Err(user_error("--threshold is not a number; say a score such as 0.2"));
        }
        let model = method::load(&self.model)?;
        let allowed =
            self.allow.as_deref().map(|path| read_allowed(path, model.label_space(), session)).transpose()?;
        let ask = Ask { k: self.k, allowed: allowed.as_ref() };
        let (name, input): (PathBuf, Box<dyn BufRead + Send>) = match &self.input {
            Some(path) => (path.clone(), storage::open(path).map_err(polytag::Error::from)?),
            None => (PathBuf::from("standard input"), Box::new(Stdin::start(&session.stop))),
        };
        let inputs: Vec<&Path> = self.input.iter().chain(&self.allow).map(PathBuf::as_path).collect();
        let mut out = output::Lines::to(self.out.as_deref(), &inputs)?;
        let mut lines = Lines::new(&name, input, session.read.max_line);
        let (mut documents, mut bad_lines) = (0, 0);
        session.progress.report(Event::Started { stage: "tagging documents", total: None });
        loop {
            let read = self.read_batch(&mut lines, session, &mut bad_lines);
            if session.stop.is_asked() {
                return Err(polytag::Error::from(DataError::Stopped).into());
            }
            let (batch, ended) = read?;
            documents += batch.len();
            self.tag(model.as_ref(), &batch, &ask, &mut out)?;
            session.progress.report(Event::Advanced(batch.len() as u64));
            if ended {
                break;
            }
        }
        session.progress.report(Event::Finished);
        if documents == 0 && bad_lines == 0 {
            let empty = DataError::Empty { path: name, expected: "one document a line" };
            return Err(polytag::Error::from(empty).into());
        }
        out.finish()?;
        if bad_lines > 0 {
            say(&format!("{bad_lines} lines could not be read and were passed over"));
            return Ok(USER.into());
        }
        Ok(DONE)
    }

    /// The next documents, and whether they are the last.
    fn read_batch(
        &self,
        lines: &mut Lines,
        session: &Session,
        bad_lines: &mut u64,
    ) -> Result<(Vec<DocumentRecord>, bool), polytag::Error> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            match self.read_document(lines) {
                Ok(None) => return Ok((batch, true)),
                Ok(Some(document)) => {
                    bytes += document.text.len();
                    batch.push(document);
                }
                Err(error) if self.keep_going && error.is_of_one_line() => {
                    *bad_lines += 1;
                    session.progress.report(Event::Warned(&error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((batch, false))
    }

    fn read_document(&self, lines: &mut Lines) -> Result<Option<DocumentRecord>, DataError> {
        let path = lines.path().to_owned();
        let Some(line) = lines.next_line()? else { return Ok(None) };
        if self.plain {
            let (id, text) = (line.number.to_string(), line.text.to_owned());
            return Ok(Some(DocumentRecord { id, text, ..DocumentRecord::default() }));
        }
        DocumentRecord::parse(line.text, || Place::line(&path, line.number)).map(Some)
    }

    fn tag(
        &self,
        model: &dyn Predictor,
        batch: &[DocumentRecord],
        ask: &Ask<'_>,
        out: &mut output::Lines,
    ) -> anyhow::Result<()> {
        let passages: Vec<Passage<'_>> = batch
            .iter()
            .map(|document| Passage { title: document.title.as_deref(), text: &document.text })
            .collect();
        let rankings = model.predict(&passages, ask).map_err(polytag::Error::from)?;
        for (document, ranking) in batch.iter().zip(&rankings) {
            let labels = self.tagged(model.label_space(), ranking);
            out.json(&Tagged { id: &document.id, labels })?;
        }
        Ok(out.flush()?)
    }

    fn tagged<'a>(&self, space: &'a LabelSpace, ranking: &Ranking) -> Vec<TaggedLabel<'a>> {
        let threshold = self.threshold.unwrap_or(f32::NEG_INFINITY);
        let kept = ranking.entries().iter().filter(|entry| entry.score >= threshold);
        kept.map(|entry| {
            let label = space.label(entry.label);
            TaggedLabel {
                id: &label.id,
                name: &label.name,
                score: entry.score,
                seen: space.is_seen(entry.label),
            }
        })
        .collect()
    }
}

/// The labels that a file names.
fn read_allowed(path: &Path, space: &LabelSpace, session: &Session) -> anyhow::Result<Allowed> {
    #[derive(serde::Deserialize)]
    struct Named {
        id: String,
    }
    let mut lines = Lines::open(path, session.read.max_line).map_err(polytag::Error::from)?;
    let mut labels = Vec::new();
    while let Some(line) = lines.next_line().map_err(polytag::Error::from)? {
        let text = line.text.trim();
        let id = match serde_json::from_str::<Named>(text) {
            Ok(named) if text.starts_with('{') => named.id,
            _ => text.to_owned(),
        };
        let label = space.find(&id).ok_or_else(|| {
            let place = Place::line(path, line.number);
            user_error(format!("{place}: the model has no label with the id {id:?}; take the line out"))
        })?;
        labels.push(label);
    }
    if labels.is_empty() {
        let empty = DataError::Empty { path: path.to_owned(), expected: "the id of a label a line" };
        return Err(polytag::Error::from(empty).into());
    }
    Ok(labels.into_iter().collect())
}
