//! `polytag predict`: documents in, labels out, as streams. Lines that come in and go out are here, tables in `predict/`.

mod tables; // tables, and folders of files

use std::io::{self, BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use polytag::data::{DataError, DocumentRecord, LabelSpace, Passage, Place};
use polytag::ids::LabelId;
use polytag::index::Allowed;
use polytag::predict::tables::TablesError;
use polytag::predict::{Ask, Predictor};
use polytag::progress::Event;
use polytag::ranking::{Ranking, Scored};
use polytag::storage::{self, Lines};
use serde::Serialize;

use super::{DONE, Done};
use crate::device::{EngineArguments, PrecisionArgument};
use crate::failure::{USER, say, user_error};
use crate::output;
use crate::settings::Session;
use tables::TableArguments;

/// Documents tagged at once: enough for all cores, few enough to stay small.
const BATCH: usize = 512;
/// Bytes of text tagged at once, whichever is reached first.
const BATCH_BYTES: usize = 16 << 20;
/// Documents read ahead of the batch.
const AHEAD: usize = 16;
/// How long a batch waits for one more document: a person who sends one line gets one answer.
const GATHERING: Duration = Duration::from_millis(5);
/// How often Ctrl-C is looked for while there is nothing to do.
const HEARING: Duration = Duration::from_millis(100);

type Read = Result<DocumentRecord, Unread>;

/// Why a document was not read.
enum Unread {
    /// The line, or the file.
    Data(DataError),
    /// Reading broke down.
    Broken,
}

/// Tag documents: lines, tables or folders of them in, lines or tables out
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag predict MODEL < docs.jsonl > tags.jsonl
  polytag predict MODEL --under 3798 < docs.jsonl
  polytag predict MODEL --k 10 --allow mine.txt --in docs.jsonl.gz --out tags.jsonl
  polytag predict MODEL --precision int8 --device cpu < docs.jsonl > tags.jsonl
  echo 'Rules for the import of tea' | polytag predict MODEL --plain
  polytag predict MODEL --in docs.parquet --text-column body --keep date --out tags.parquet
  polytag predict MODEL --in documents/ --out tags/

A line in is {\"id\", \"title\"?, \"text\"}, as in a task folder, or with --plain just a text.
A line out is {\"id\", \"labels\": [{\"id\", \"name\", \"score\", \"seen\"}]}, in the same order.

Tables (.parquet, .arrow, .feather) have a row a document, and the answer has the columns id and labels. A row whose
text is null comes out with null labels. A folder of files is answered with a folder of files; run again, a command that
was stopped or killed goes on where it was.")]
pub(crate) struct Predict {
    /// The model folder
    model: PathBuf,
    /// How many labels at most
    #[arg(long, default_value_t = 5)]
    k: usize,
    /// Answer only with the labels of this file: an id a line, or JSON lines with an "id"
    #[arg(long, value_name = "FILE")]
    allow: Option<PathBuf>,
    /// Answer only with this label and those below it, by their broader labels; say it again for more
    #[arg(long, value_name = "LABEL_ID")]
    under: Vec<String>,
    /// Leave out labels that score less
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    threshold: Option<f32>,
    /// Read from a file (.gz and .zst are unpacked), or from all files of a folder, instead of standard input (`-`)
    #[arg(long = "in", value_name = "FILE|FOLDER")]
    input: Option<PathBuf>,
    /// Write to a file, which appears when all is done, or to a folder, instead of standard output (`-`)
    #[arg(long, value_name = "FILE|FOLDER")]
    out: Option<PathBuf>,
    /// Each line is a text, not JSON; its number becomes its id
    #[arg(long)]
    plain: bool,
    /// Report lines, and files of a folder, that cannot be read and go on; the exit code still tells
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    precision: PrecisionArgument,
    #[command(flatten)]
    engine: EngineArguments,
    // Last, as what stands behind it would be under the same heading.
    #[command(flatten, next_help_heading = "Tables")]
    tables: TableArguments,
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
        if self.threshold.is_some_and(|threshold| !threshold.is_finite()) {
            return Err(user_error("--threshold must be a finite number"));
        }
        // Refused before a model is read, which may take a while.
        self.form()?;
        let device = self.engine.for_prediction(&self.model, self.precision, session)?;
        let model = session.model(&self.model, &device)?;
        let allowed =
            self.allow.as_deref().map(|path| read_allowed(path, model.label_space(), session)).transpose()?;
        let allowed = within(allowed, &self.under, model.label_space())?;
        if self.is_of_tables()? {
            return self.tag_tables(&*model, allowed.as_ref(), session);
        }
        // One more where a document may be among its own labels.
        let k = self.k.saturating_add(usize::from(model.item_to_item()));
        let ask = Ask { k, allowed: allowed.as_ref() };
        let mut out = output::Lines::to(self.out(), &self.inputs())?;
        let documents = self.read_documents(session.read.max_line)?;
        let (mut tagged, mut bad_lines) = (0, 0u64);
        session.progress.report(Event::Started { stage: "tagging documents", total: None });
        loop {
            let (batch, ended) = self.gather(&documents, session, &mut bad_lines)?;
            self.tag(&*model, &batch, &ask, &mut out)?;
            tagged += batch.len();
            session.progress.report(Event::Advanced(batch.len() as u64));
            if ended {
                break;
            }
        }
        session.progress.report(Event::Finished);
        if tagged == 0 && bad_lines == 0 {
            let empty = DataError::Empty { path: self.input_name(), expected: "one document a line" };
            return Err(polytag::Error::from(empty).into());
        }
        out.finish()?;
        if bad_lines > 0 {
            say(&format!("{bad_lines} lines could not be read and were passed over"));
            return Ok(USER.into());
        }
        Ok(DONE)
    }

    /// The file or folder to read; none for standard input.
    fn input(&self) -> Option<&Path> {
        self.input.as_deref().filter(|path| !output::is_stream(path))
    }

    /// The file or folder to write; none for standard output.
    fn out(&self) -> Option<&Path> {
        self.out.as_deref().filter(|path| !output::is_stream(path))
    }

    /// What is read, and so is not written to.
    fn inputs(&self) -> Vec<&Path> {
        self.input().into_iter().chain(self.allow.as_deref()).chain([self.model.as_path()]).collect()
    }

    /// Reads documents in a thread of its own, so that those that are there can be tagged while more are
    /// awaited, and Ctrl-C is heard.
    fn read_documents(&self, max_line: usize) -> Result<Receiver<Read>, polytag::Error> {
        let input: Box<dyn BufRead + Send> = match self.input() {
            Some(path) => storage::open(path)?,
            None => Box::new(BufReader::new(io::stdin())),
        };
        let mut lines = Lines::new(&self.input_name(), input, max_line);
        if self.plain {
            lines = lines.keeping_blank();
        }
        let plain = self.plain;
        let (sender, receiver) = mpsc::sync_channel(AHEAD);
        thread::spawn(move || {
            let mut send_all = || {
                while let Some(read) = read_document(&mut lines, plain).transpose() {
                    let ended = read.as_ref().is_err_and(|error| !error.is_of_one_line());
                    if sender.send(read.map_err(Unread::Data)).is_err() || ended {
                        break;
                    }
                }
            };
            // One that broke down must not look like the end of the input.
            if catch_unwind(AssertUnwindSafe(&mut send_all)).is_err() {
                let _ = sender.send(Err(Unread::Broken));
            }
        });
        Ok(receiver)
    }

    /// What errors call the input.
    fn input_name(&self) -> PathBuf {
        self.input().unwrap_or(Path::new("standard input")).to_owned()
    }

    /// The documents that are there, one at least, and whether they are the last.
    fn gather(
        &self,
        documents: &Receiver<Read>,
        session: &Session,
        bad_lines: &mut u64,
    ) -> Result<(Vec<DocumentRecord>, bool), polytag::Error> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let patience = if batch.is_empty() { HEARING } else { GATHERING };
            match documents.recv_timeout(patience) {
                Ok(Ok(document)) => {
                    bytes += passage(&document, self.plain).bytes();
                    batch.push(document);
                }
                Ok(Err(Unread::Data(error))) if self.keep_going && error.is_of_one_line() => {
                    *bad_lines += 1;
                    session.progress.report(Event::Warned(&error.to_string()));
                    if session.stop.is_asked() {
                        return Err(DataError::Stopped.into());
                    }
                }
                Ok(Err(Unread::Data(error))) => return Err(error.into()),
                Ok(Err(Unread::Broken)) => {
                    return Err(TablesError::Broken { path: self.input_name() }.into());
                }
                Err(RecvTimeoutError::Disconnected) => return Ok((batch, true)),
                Err(RecvTimeoutError::Timeout) if session.stop.is_asked() => {
                    return Err(DataError::Stopped.into());
                }
                Err(RecvTimeoutError::Timeout) if batch.is_empty() => {}
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        if session.stop.is_asked() {
            return Err(DataError::Stopped.into());
        }
        Ok((batch, false))
    }

    fn tag(
        &self,
        model: &dyn Predictor,
        batch: &[DocumentRecord],
        ask: &Ask<'_>,
        out: &mut output::Lines,
    ) -> anyhow::Result<()> {
        let passages: Vec<Passage<'_>> = batch.iter().map(|document| passage(document, self.plain)).collect();
        let rankings = model.predict(&passages, ask).map_err(polytag::Error::from)?;
        for (document, ranking) in batch.iter().zip(&rankings) {
            let space = model.label_space();
            let itself = if model.item_to_item() && !self.plain { space.find(&document.id) } else { None };
            let labels = self.tagged(space, ranking, itself);
            out.json(&Tagged { id: &document.id, labels })?;
        }
        out.flush()
    }

    /// The labels that are asked for, without the one that the document is itself.
    fn tagged<'a>(
        &self,
        space: &'a LabelSpace,
        ranking: &Ranking,
        itself: Option<LabelId>,
    ) -> Vec<TaggedLabel<'a>> {
        let threshold = self.threshold.unwrap_or(f32::NEG_INFINITY);
        let is_kept = |entry: &&Scored| entry.score >= threshold && Some(entry.label) != itself;
        let kept = ranking.entries().iter().filter(is_kept).take(self.k);
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

/// The next document, or `None` at the end.
fn read_document(lines: &mut Lines, plain: bool) -> Result<Option<DocumentRecord>, DataError> {
    let path = lines.path().to_owned();
    let Some(line) = lines.next_line()? else { return Ok(None) };
    if plain {
        let (id, text) = (line.number.to_string(), line.text.to_owned());
        return Ok(Some(DocumentRecord { id, text, ..DocumentRecord::default() }));
    }
    DocumentRecord::parse(line.text, || Place::line(&path, line.number)).map(Some)
}

/// Lines of plain text have numbers, which are no ids of documents.
fn passage(document: &DocumentRecord, plain: bool) -> Passage<'_> {
    Passage {
        id: (!plain).then_some(document.id.as_str()),
        title: document.title.as_deref(),
        text: &document.text,
    }
}

/// The allowed labels that are below one of `under`, if there are any of these.
fn within(allowed: Option<Allowed>, under: &[String], space: &LabelSpace) -> anyhow::Result<Option<Allowed>> {
    if under.is_empty() {
        return Ok(allowed);
    }
    let mut below = Allowed::default();
    for id in under {
        let label = space.find(id).ok_or_else(|| {
            user_error(format!(
                "--under {id}: the model has no label with that id; `polytag labels MODEL list` shows them"
            ))
        })?;
        space.below(label).into_iter().for_each(|label| _ = below.insert(label));
    }
    Ok(Some(below.intersected(allowed.as_ref())))
}

/// The labels that a file names.
fn read_allowed(path: &Path, space: &LabelSpace, session: &Session) -> anyhow::Result<Allowed> {
    let mut lines = Lines::open(path, session.read.max_line).map_err(polytag::Error::from)?;
    let mut labels = Vec::new();
    while let Some(line) = lines.next_line().map_err(polytag::Error::from)? {
        let id = named_id(line.text.trim());
        let label = space.find(&id).ok_or_else(|| {
            let place = Place::line(path, line.number);
            user_error(format!("{place}: the model has no label with the id {id:?}; take the line out"))
        })?;
        labels.push(label);
    }
    if labels.is_empty() {
        return Err(user_error(format!("{}: names no label; write the id of one a line", path.display())));
    }
    Ok(labels.into_iter().collect())
}

/// The id that a line names: the "id" of an object, or the line itself.
fn named_id(line: &str) -> String {
    let object: Option<serde_json::Value> =
        line.starts_with('{').then(|| serde_json::from_str(line).ok()).flatten();
    match object.as_ref().and_then(|object| object.get("id")) {
        Some(serde_json::Value::String(id)) => id.clone(),
        Some(serde_json::Value::Number(id)) => id.to_string(),
        _ => line.to_owned(),
    }
}
