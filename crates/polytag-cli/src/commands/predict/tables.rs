//! Tables tagged, and folders of files.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::path::Path;

use clap::Args;
use polytag::artifact::ModelFolder;
use polytag::columns::Form;
use polytag::index::Allowed;
use polytag::predict::tables::{AnswerForm, FolderDone, Rows, RowsConfig, TagFolder, Tally, tag_file};
use polytag::predict::{Ask, BatchTagger, Columns, Predictor};
use polytag::progress::Event;
use polytag::storage::{Lines, StagedFile, StorageError, resolve};

use super::Predict;
use crate::columns::ColumnArguments;
use crate::commands::{DONE, Done};
use crate::failure::{USER, say, user_error};
use crate::settings::Session;
use crate::table::count;

/// The options for tables.
#[derive(Debug, Args)]
pub(super) struct TableArguments {
    #[command(flatten)]
    columns: ColumnArguments,
    /// Carry this column through; may be given several times
    #[arg(long, value_name = "NAME")]
    keep: Vec<String>,
    /// What to write: parquet, arrow or jsonl; unless given, what the file's name says (.parquet, .arrow, .feather, .jsonl,
    /// .ndjson, .json), jsonl where it has no ending, in a folder parquet
    #[arg(long)]
    format: Option<AnswerForm>,
}

impl TableArguments {
    fn columns(&self) -> Columns {
        self.columns.columns(&self.keep)
    }
}

impl Predict {
    /// Whether tables or folders come in or go out.
    pub(super) fn is_of_tables(&self) -> anyhow::Result<bool> {
        let names_table = |path: &Path| Form::from_name(path).is_some();
        let input = self.input().is_some_and(|path| path.is_dir() || (names_table(path) && !self.plain));
        let out = self.out().is_some_and(|path| names_table(path) || is_folder(path));
        let is = input || out || self.tables.format.is_some_and(|form| form != AnswerForm::Lines);
        if !is && self.tables.columns() != Columns::default() {
            let problem = "columns can be named for tables only, and neither the input nor the output is one";
            return Err(user_error(format!("{problem}; name a .parquet or .arrow file")));
        }
        Ok(is)
    }

    /// What answers are written as: what is asked for, or what the file's name says; in a folder Parquet, in a stream lines.
    pub(super) fn form(&self) -> Result<AnswerForm, polytag::Error> {
        match (self.tables.format, self.out()) {
            (Some(form), _) => Ok(form),
            (None, None) => Ok(AnswerForm::Lines),
            (None, Some(out)) if self.is_from_folder() || is_folder(out) => {
                Ok(AnswerForm::Table(Form::Parquet))
            }
            (None, Some(out)) => Ok(AnswerForm::from_name(out)?),
        }
    }

    fn is_from_folder(&self) -> bool {
        self.input().is_some_and(Path::is_dir)
    }

    pub(super) fn tag_tables(
        &self,
        model: &dyn Predictor,
        allowed: Option<&Allowed>,
        session: &Session,
    ) -> Done {
        let config = RowsConfig {
            columns: self.tables.columns(),
            max_line: session.read.max_line,
            plain: self.plain,
            keep_going: self.keep_going,
        };
        let tagger = BatchTagger {
            model,
            columns: &config.columns,
            ask: Ask { k: self.k, allowed },
            threshold: self.threshold,
        };
        let from_folder = self.is_from_folder();
        match (self.input(), self.out()) {
            (Some(input), Some(out)) if from_folder || is_folder(out) => {
                let (form, settings) = (self.form()?, self.settings()?);
                let rows = config.clone();
                let folder = TagFolder { tagger, rows, form, settings, keep_going: self.keep_going };
                self.refuse_inputs(out)?;
                let done = folder.run(input, out, &session.watch()).map_err(polytag::Error::from)?;
                Ok(told_folder(&done, session))
            }
            (_, None) if from_folder => Err(user_error("a folder in needs a folder out; name it with --out")),
            (None, Some(out)) if is_folder(out) => {
                Err(user_error("a folder out needs files to go on from; name them with --in"))
            }
            _ => self.tag_one(&config, &tagger, session),
        }
    }

    /// One file, or standard input, into one file or standard output.
    fn tag_one(&self, config: &RowsConfig, tagger: &BatchTagger<'_>, session: &Session) -> Done {
        let rows = match self.input() {
            Some(path) => Rows::open(path, config, 0),
            None => {
                let lines =
                    Lines::new(&self.input_name(), Box::new(BufReader::new(io::stdin())), config.max_line);
                Rows::lines(lines, config, 0)
            }
        };
        let rows = rows.map_err(polytag::Error::from)?;
        session.progress.report(Event::Started { stage: "tagging rows", total: None });
        let form = self.form()?;
        let tally = match self.out() {
            Some(path) => {
                let mut file = StagedFile::create(path, &self.inputs()).map_err(polytag::Error::from)?;
                let out = (file.sink(), path, form);
                let tally = tag_file(rows, tagger, out, &session.watch()).map_err(polytag::Error::from)?;
                file.commit().map_err(polytag::Error::from)?;
                tally
            }
            None => {
                if form != AnswerForm::Lines {
                    return Err(user_error(
                        "a table cannot be written to standard output; name a file with --out",
                    ));
                }
                let out = (io::BufWriter::new(io::stdout()), Path::new("standard output"), AnswerForm::Lines);
                tag_file(rows, tagger, out, &session.watch()).map_err(polytag::Error::from)?
            }
        };
        session.progress.report(Event::Finished);
        told_nulls(tally, session);
        if tally.unreadable > 0 {
            say(&format!("{} lines could not be read and were passed over", tally.unreadable));
            return Ok(USER.into());
        }
        Ok(DONE)
    }

    /// An error if a folder would be written into the model.
    fn refuse_inputs(&self, out: &Path) -> Result<(), polytag::Error> {
        match resolve(out).starts_with(resolve(&self.model)) {
            true => Err(StorageError::SameAsInput { path: out.to_owned() }.into()),
            false => Ok(()),
        }
    }

    /// What makes answers what they are, besides what is asked.
    fn settings(&self) -> Result<BTreeMap<String, String>, polytag::Error> {
        let model = ModelFolder::open(&self.model)?.manifest().fingerprint();
        let precision = if self.precision.is_int8() { "int8" } else { "f32" };
        Ok([("model".to_owned(), model), ("precision".to_owned(), precision.to_owned())].into())
    }
}

/// Whether a place to write to is a folder: it is one, or is named like one.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().to_string_lossy().ends_with(std::path::MAIN_SEPARATOR)
}

/// Says what came of a folder; the exit code for it.
fn told_folder(done: &FolderDone, session: &Session) -> std::process::ExitCode {
    if !session.quiet {
        let before = match done.before.rows {
            0 => String::new(),
            rows => format!("; {} rows were there already", count(rows)),
        };
        say(&format!(
            "{} rows tagged, {} files are done{before}",
            count(done.now.rows),
            count(done.files as u64)
        ));
    }
    let mut all = done.before;
    all.add(done.now);
    told_nulls(all, session);
    if all.unreadable > 0 {
        say(&format!("{} lines could not be read and were passed over", all.unreadable));
    }
    for error in &done.failed {
        say(&format!("not done: {error}"));
    }
    if done.failed.is_empty() && all.unreadable == 0 { DONE } else { USER.into() }
}

fn told_nulls(tally: Tally, session: &Session) {
    if tally.without_text > 0 && !session.quiet {
        say(&format!("{} rows have no text; their labels are null", count(tally.without_text)));
    }
}
