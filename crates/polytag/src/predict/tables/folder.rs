//! A folder of files, which goes on where it was stopped.
//!
//! Each file in gets one file out, under the same name with the ending of its format. The answers of a piece lie in a file
//! of their own until all pieces of a file are there; then they are put together, and the answer appears whole. What is done
//! stands in a journal in the hidden folder [`WORK`], which stays: run again, only files that are new are tagged. A file
//! that changed after it was tagged, another model or other settings are refused; one that changed before it was done is begun
//! anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;
use sha2::{Digest as _, Sha256};

use super::answers::{AnswerForm, Answers};
use super::error::TablesError;
use super::flow::{PieceSink as _, Tally, tag_rows};
use super::inputs::{Input, inputs, output_of};
use super::journal::{Identity, Journal, Piece, Settings};
use super::pieces::Pieces;
use super::rows::{Rows, RowsConfig};
use crate::columns::{Form, JsonRows, Table, TableError, join_parquet};
use crate::predict::BatchTagger;
use crate::progress::{Event, Watch};
use crate::storage::{self, StagedFile, StorageError, hex};

/// The folder, in the one that is written to, of what is begun and of the journal.
const WORK: &str = ".polytag-tagging";
const JOURNAL: &str = "journal";

/// Tags a folder of files, or one file, into a folder.
pub struct TagFolder<'a> {
    /// Who tags, and what is asked.
    pub tagger: BatchTagger<'a>,
    /// How files are read.
    pub rows: RowsConfig,
    /// What answers are written as.
    pub form: AnswerForm,
    /// What else makes answers what they are, such as the precision of numbers: a folder that was begun goes on with the same
    /// only.
    pub settings: BTreeMap<String, String>,
    /// Whether the other files are tagged when one cannot be.
    pub keep_going: bool,
}

/// What came of a folder.
#[derive(Debug, Default)]
pub struct FolderDone {
    /// Files whose answers are in their places, those of earlier runs among them.
    pub files: usize,
    /// The rows of this run.
    pub now: Tally,
    /// The rows that earlier runs had done.
    pub before: Tally,
    /// Files that could not be tagged, where the work was to go on without them.
    pub failed: Vec<TablesError>,
}

impl TagFolder<'_> {
    /// Tags `input`, a folder or a file, into the folder `target`.
    ///
    /// # Errors
    /// If a file cannot be read, tagged or written, or the work is asked to stop. What is done by then is done.
    pub fn run(&self, input: &Path, target: &Path, watch: &Watch<'_>) -> Result<FolderDone, TablesError> {
        let inputs = inputs(input, self.form)?;
        self.refuse_overlap(input, target)?;
        refuse_itself(&inputs, target)?;
        let mut done = FolderDone::default();
        let (inputs, rows) = self.check(inputs, &mut done)?;
        let work = target.join(WORK);
        begin_folder(target, &work)?;
        let mut journal = Journal::open(&work.join(JOURNAL), target)?;
        journal.start(self.settings(), target)?;
        self.refuse_taken(&inputs, &journal, target)?;
        let mut job = Job { folder: self, target, work: &work, journal: &mut journal, watch };
        job.sweep(&inputs)?;
        watch.progress.report(Event::Started { stage: "tagging rows", total: rows });
        for input in &inputs {
            match job.input(input, &mut done) {
                Ok(()) => done.files += 1,
                Err(error) if self.keep_going && error.is_of_one_file() => {
                    watch.progress.report(Event::Warned(&error.to_string()));
                    done.failed.push(error);
                }
                Err(TablesError::Stopped { .. }) => {
                    watch.progress.report(Event::Finished);
                    return Err(TablesError::Stopped { done: job.rows_on_disk() });
                }
                Err(error) => return Err(error),
            }
        }
        watch.progress.report(Event::Finished);
        Ok(done)
    }

    fn refuse_overlap(&self, input: &Path, target: &Path) -> Result<(), TablesError> {
        let (input, real) = (storage::resolve(input), storage::resolve(target));
        if real.starts_with(&input) || (input.is_dir() && input.starts_with(&real)) {
            return Err(StorageError::SameAsInput { path: target.to_owned() }.into());
        }
        Ok(())
    }

    /// An error if an answer would take the place of another file's that an earlier run made.
    fn refuse_taken(&self, inputs: &[Input], journal: &Journal, target: &Path) -> Result<(), TablesError> {
        let is_done =
            |name: &str| journal.inputs.get(name).is_some_and(|progress| progress.finished.is_some());
        let done = journal.inputs.keys().filter(|name| is_done(name));
        let made: BTreeMap<String, &String> = done.map(|name| (output_of(name, self.form), name)).collect();
        for input in inputs.iter().filter(|input| !is_done(&input.name)) {
            // One that somebody took away is nobody's.
            if let Some(&earlier) = made.get(&input.output).filter(|_| target.join(&input.output).is_file()) {
                let (path, output) = (input.path.clone(), input.output.clone());
                return Err(TablesError::OutputTaken { path, earlier: earlier.clone(), output });
            }
        }
        Ok(())
    }

    /// Opens every file before any is tagged, so that a fault in the last shows now and not after hours. Gives those that can
    /// be tagged, and the rows of all where each says how many it has.
    fn check(
        &self,
        inputs: Vec<Input>,
        done: &mut FolderDone,
    ) -> Result<(Vec<Input>, Option<u64>), TablesError> {
        let (mut sound, mut rows) = (Vec::new(), Some(0));
        for input in inputs {
            let checked = if Rows::is_known(&input.path) || self.rows.plain {
                self.check_input(&input)
            } else {
                Err(TablesError::UnknownInput { path: input.path.clone() })
            };
            match checked {
                Ok(counted) => {
                    rows = rows.zip(counted).map(|(sum, rows): (u64, u64)| sum.saturating_add(rows));
                    sound.push(input);
                }
                Err(error) if self.keep_going && error.is_of_one_file() => done.failed.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok((sound, rows))
    }

    fn check_input(&self, input: &Input) -> Result<Option<u64>, TablesError> {
        let rows = Rows::open(&input.path, &self.rows, 0)?;
        if self.form == AnswerForm::Lines {
            JsonRows::check(rows.schema()).map_err(TableError::column(&input.path))?;
        }
        match Form::from_name(&input.path).filter(|_| !self.rows.plain) {
            Some(_) => Ok(Some(Table::open(&input.path)?.rows()?)),
            None => Ok(None),
        }
    }

    /// What must be the same when the folder goes on.
    fn settings(&self) -> Settings {
        let columns = &self.rows.columns;
        let space = self.tagger.model.label_space();
        let allowed = self.tagger.ask.allowed.map(|allowed| {
            let mut hash = Sha256::new();
            allowed.iter().for_each(|label| hash.update(format!("{:?}\n", space.label(label).id)));
            hex(&hash.finalize())
        });
        let mut labels = Sha256::new();
        for (id, label) in space.iter() {
            labels.update(format!("{} {:?} {:?} {}\n", id.0, label.id, label.name, space.is_seen(id)));
        }
        let mut settings: Settings =
            self.settings.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        settings.extend([
            ("labels of the model".to_owned(), hex(&labels.finalize()).into()),
            ("k".to_owned(), self.tagger.ask.k.into()),
            ("threshold".to_owned(), self.tagger.threshold.into()),
            ("set of allowed labels".to_owned(), allowed.into()),
            ("id column".to_owned(), columns.id.clone().into()),
            ("title column".to_owned(), columns.title.clone().into()),
            ("text column".to_owned(), columns.text.clone().into()),
            ("list of kept columns".to_owned(), columns.keep.clone().into()),
            ("way of reading lines".to_owned(), if self.rows.plain { "plain" } else { "JSON" }.into()),
            ("format".to_owned(), self.form.ending().into()),
        ]);
        // As they will be read again: a threshold of 32 bits comes back as one of 64.
        let text = serde_json::to_string(&settings).expect("texts and numbers always make JSON");
        serde_json::from_str(&text).expect("what was just written")
    }
}

/// An error if a file would be answered in its own place, before hours are spent on the answer.
fn refuse_itself(inputs: &[Input], target: &Path) -> Result<(), TablesError> {
    let target = storage::resolve(target);
    for input in inputs {
        let output = target.join(&input.output);
        if output.is_file() && storage::resolve(&output) == storage::resolve(&input.path) {
            return Err(StorageError::SameAsInput { path: output }.into());
        }
    }
    Ok(())
}

/// Makes the folder and what lies in it. One that holds something else is left alone.
fn begin_folder(target: &Path, work: &Path) -> Result<(), TablesError> {
    if !work.is_dir() && target.is_dir() {
        let mut entries = fs::read_dir(target).map_err(StorageError::io(target, "read"))?;
        if entries.next().is_some() {
            let why = "is not empty, nor was it begun by an earlier run".to_owned();
            return Err(StorageError::Exists { path: target.to_owned(), why }.into());
        }
    }
    if target.exists() && !target.is_dir() {
        return Err(StorageError::Exists { path: target.to_owned(), why: "is no folder".to_owned() }.into());
    }
    fs::create_dir_all(work).map_err(StorageError::io(target, "create"))?;
    Ok(())
}

/// A folder being tagged.
struct Job<'a> {
    folder: &'a TagFolder<'a>,
    target: &'a Path,
    work: &'a Path,
    journal: &'a mut Journal,
    watch: &'a Watch<'a>,
}

impl Job<'_> {
    /// Removes what a run that was killed had begun and not noted.
    fn sweep(&self, inputs: &[Input]) -> Result<(), TablesError> {
        let unfinished = self.journal.inputs.values().filter(|progress| progress.finished.is_none());
        let mut kept: BTreeSet<&str> =
            unfinished.flat_map(|progress| progress.pieces.iter().map(|piece| piece.file.as_str())).collect();
        kept.insert(JOURNAL);
        sweep(self.work, |name| !kept.contains(name))?;
        let outputs = inputs.iter().map(|input| self.target.join(&input.output));
        let folders: BTreeSet<PathBuf> = outputs.filter_map(|path| Some(path.parent()?.to_owned())).collect();
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            sweep(folder, |name| name.starts_with(".partial-"))?;
        }
        Ok(())
    }

    fn rows_on_disk(&self) -> u64 {
        let rows = |progress: &super::journal::Progress| match progress.finished {
            Some(tally) => tally.rows,
            None => progress.pieces.iter().map(|piece| piece.mark.tally.rows).sum(),
        };
        self.journal.inputs.values().map(rows).sum()
    }

    /// Tags what is left of a file.
    fn input(&mut self, input: &Input, done: &mut FolderDone) -> Result<(), TablesError> {
        let identity = Identity::of(&input.path)?;
        let (mut before, mut position, mut files) = (Tally::default(), 0, Vec::new());
        match self.journal.inputs.get(&input.name) {
            None => self.journal.begin(&input.name, identity.clone())?,
            Some(progress) => {
                let changed = progress.identity.difference(&identity);
                let is_there = self.target.join(&input.output).is_file();
                match (changed, progress.finished.filter(|_| is_there)) {
                    (Some(what), Some(_)) => {
                        return Err(TablesError::Changed { path: input.path.clone(), what });
                    }
                    (None, Some(tally)) => {
                        done.before.add(tally);
                        self.watch.progress.report(Event::Advanced(tally.rows));
                        return Ok(());
                    }
                    (Some(what), None) => {
                        let begun_anew =
                            format!("{}: {what} since it was begun; it is begun anew", input.path.display());
                        self.watch.progress.report(Event::Warned(&begun_anew));
                    }
                    (None, None) => {}
                }
                let is_whole = |piece: &Piece| {
                    fs::metadata(self.work.join(&piece.file)).is_ok_and(|about| about.len() == piece.bytes)
                };
                let goes_on = changed.is_none() && progress.finished.is_none();
                if goes_on && progress.pieces.iter().all(is_whole) {
                    for piece in &progress.pieces {
                        before.add(piece.mark.tally);
                        position = piece.mark.position;
                        files.push(self.work.join(&piece.file));
                    }
                } else {
                    // Answers that somebody took away are made again, too.
                    self.journal.begin(&input.name, identity.clone())?;
                }
            }
        }
        done.before.add(before);
        self.watch.progress.report(Event::Advanced(before.rows));
        let rows = Rows::open(&input.path, &self.folder.rows, position)?;
        let schema = rows.schema().clone();
        let mut pieces = Pieces {
            work: self.work,
            journal: &mut *self.journal,
            input,
            schema: schema.clone(),
            files,
            open: None,
            last: position,
        };
        let now = tag_rows(rows, &self.folder.tagger, self.watch, &mut pieces)?;
        let files = pieces.files;
        if Identity::of(&input.path)? != identity {
            return Err(TablesError::Changed {
                path: input.path.clone(),
                what: "it was written again meanwhile",
            });
        }
        self.put_together(input, &files, schema)?;
        done.now.add(now);
        let mut all = before;
        all.add(now);
        self.journal.finish(&input.name, all)?;
        for file in files {
            // What stays is swept by the next run.
            let _ = fs::remove_file(file);
        }
        Ok(())
    }

    /// Makes the answer of its pieces.
    fn put_together(&self, input: &Input, pieces: &[PathBuf], schema: SchemaRef) -> Result<(), TablesError> {
        let path = self.target.join(&input.output);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(StorageError::io(parent, "create"))?;
        }
        let mut file = StagedFile::create(&path, &[&input.path])?;
        match self.folder.form {
            AnswerForm::Table(Form::Parquet) => join_parquet(pieces, file.sink(), &path)?,
            form => {
                let mut answers = Answers::new(file.sink(), &path, form, schema)?;
                for piece in pieces {
                    let table = Table::open(piece)?;
                    let all: Vec<usize> = (0..table.schema().fields().len()).collect();
                    for batch in table.batches(&all, 0)? {
                        answers.write(&batch?)?;
                    }
                }
                answers.finish()?;
            }
        }
        Ok(file.commit()?)
    }
}

fn sweep(folder: &Path, unwanted: impl Fn(&str) -> bool) -> Result<(), TablesError> {
    for entry in fs::read_dir(folder).map_err(StorageError::io(folder, "read"))? {
        let path = entry.map_err(StorageError::io(folder, "read"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if unwanted(&name) && path.is_file() {
            fs::remove_file(&path).map_err(StorageError::io(&path, "remove"))?;
        }
    }
    Ok(())
}
