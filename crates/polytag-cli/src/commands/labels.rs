//! `polytag labels`: what a model can answer with, and changing that without training.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use polytag::data::{Label, LabelChange, LabelSpace, Place};
use polytag::method;
use polytag::predict::PredictError;
use polytag::storage::Lines;
use serde::Serialize;

use super::{DONE, Done};
use crate::device::EngineArguments;
use crate::failure::{say, user_error};
use crate::output;
use crate::settings::Session;
use crate::table::{Table, count};

/// List, add, remove, rename or describe the labels of a model
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag labels MODEL list --match trade
  polytag labels MODEL add --id 9000 --name 'carbon border levy' --alias CBAM
  polytag labels MODEL add new-labels.jsonl
  polytag labels MODEL rename 9000 'carbon border adjustment'
  polytag labels MODEL describe 9000 'A levy on imports by the carbon they took'
  polytag labels MODEL remove 9000

A change is on the disk before the command ends, and in the next answer.")]
pub(crate) struct Labels {
    /// The model folder
    model: PathBuf,
    #[command(subcommand)]
    action: Action,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    engine: EngineArguments,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the labels
    #[command(after_help = "Example:\n  polytag labels MODEL list --match trade --json")]
    List {
        /// Only those whose id, name or alias contains this
        #[arg(long = "match", value_name = "TEXT")]
        matching: Option<String>,
    },
    /// Add one label, or all of a file
    #[command(
        after_help = "Examples:\n  polytag labels MODEL add --id ID --name NAME [--description D] [--alias A]\n  polytag labels MODEL add FILE.jsonl"
    )]
    Add(Add),
    /// Take labels out
    #[command(after_help = "Example:\n  polytag labels MODEL remove 9000 9001")]
    Remove {
        /// Their ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Give a label another name
    #[command(after_help = "Example:\n  polytag labels MODEL rename 9000 'carbon border adjustment'")]
    Rename {
        /// Its id
        id: String,
        /// Its new name
        name: String,
    },
    /// Say what a label means
    #[command(
        after_help = "Example:\n  polytag labels MODEL describe 9000 'A levy on imports by the carbon they took'"
    )]
    Describe {
        /// Its id
        id: String,
        /// What it means; nothing takes the description away
        #[arg(default_value = "")]
        description: String,
    },
}

#[derive(Debug, Args)]
struct Add {
    /// JSON lines of labels, as in a task's labels.jsonl, with no other fields
    #[arg(required_unless_present = "id", conflicts_with_all = ["id", "name", "description", "alias", "parent"])]
    file: Option<PathBuf>,
    /// Its id
    #[arg(long, requires = "name")]
    id: Option<String>,
    /// Its name
    #[arg(long, requires = "id")]
    name: Option<String>,
    /// What it means
    #[arg(long, requires = "id")]
    description: Option<String>,
    /// Another name for it
    #[arg(long, requires = "id")]
    alias: Vec<String>,
    /// The id of a broader label
    #[arg(long, requires = "id")]
    parent: Vec<String>,
}

#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    label: &'a Label,
    train_documents: u32,
    seen: bool,
}

impl Labels {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let changes = match &self.action {
            Action::List { matching } => return self.list(matching.as_deref()),
            Action::Add(add) => add.changes(session)?,
            Action::Remove { ids } => ids.iter().map(|id| LabelChange::Remove { id: id.clone() }).collect(),
            Action::Rename { id, name } => vec![LabelChange::Rename { id: id.clone(), name: name.clone() }],
            Action::Describe { id, description } => {
                let description = Some(description.clone()).filter(|text| !text.trim().is_empty());
                vec![LabelChange::Describe { id: id.clone(), description }]
            }
        };
        let device = self.engine.for_model(&self.model, session)?;
        let before = match &self.action {
            Action::Remove { .. } => Some(method::load_labels(&self.model)?),
            _ => None,
        };
        let model = method::change_labels(&self.model, &changes, &device)
            .map_err(|error| self.place(error, session))?;
        let (changed, labels) = (changes.len(), model.label_space().len());
        if self.json {
            output::print_json(&serde_json::json!({ "changed": changed, "labels": labels }))?;
        } else {
            output::print_text(&format!(
                "{} changed; {} labels now\n",
                count(changed as u64),
                count(labels as u64)
            ))?;
        }
        if let (Some(before), Action::Remove { ids }) = (before, &self.action)
            && !session.quiet
        {
            tell_of_learned(&before, ids);
        }
        Ok(DONE)
    }

    /// Says on which line of the file a label stands that cannot be added.
    fn place(&self, error: polytag::Error, session: &Session) -> anyhow::Error {
        let (Action::Add(Add { file: Some(path), .. }), polytag::Error::Predict(PredictError::Space(space))) =
            (&self.action, &error)
        else {
            return error.into();
        };
        let labels = read_labels(path, session).unwrap_or_default();
        let line = labels.iter().rfind(|(_, label)| space.id() == Some(&label.id)).map(|(line, _)| *line);
        user_error(format!("{}: {error}", Place { path: path.clone(), line }))
    }

    fn list(&self, matching: Option<&str>) -> Done {
        let space = method::load_labels(&self.model)?;
        let wanted = matching.map(str::to_lowercase);
        let fits = |label: &Label| {
            wanted.as_ref().is_none_or(|wanted| {
                label.id.to_lowercase().contains(wanted)
                    || label.names().any(|name| name.to_lowercase().contains(wanted))
            })
        };
        let listed = space.iter().filter(|(_, label)| fits(label)).map(|(id, label)| Listed {
            label,
            train_documents: space.train_count(id),
            seen: space.is_seen(id),
        });
        if self.json {
            output::print_json(&listed.collect::<Vec<_>>())?;
            return Ok(DONE);
        }
        let mut table = Table::default();
        table.row(["id", "name", "training documents"]);
        for entry in listed {
            let documents =
                if entry.seen { count(entry.train_documents.into()) } else { "unseen".to_owned() };
            table.row([entry.label.id.clone(), entry.label.name.clone(), documents]);
        }
        output::print_text(&table.render(0))?;
        Ok(DONE)
    }
}

impl Add {
    fn changes(&self, session: &Session) -> anyhow::Result<Vec<LabelChange>> {
        let Some(path) = &self.file else {
            let label = Label {
                id: self.id.clone().unwrap_or_default(),
                name: self.name.clone().unwrap_or_default(),
                description: self.description.clone(),
                aliases: self.alias.clone(),
                parents: self.parent.clone(),
            };
            return Ok(vec![LabelChange::Add { label }]);
        };
        let labels = read_labels(path, session)?;
        if labels.is_empty() {
            return Err(user_error(format!("{}: the file is empty; write one label a line", path.display())));
        }
        Ok(labels.into_iter().map(|(_, label)| LabelChange::Add { label }).collect())
    }
}

/// Says of labels that were removed what does not come back with their names.
fn tell_of_learned(before: &LabelSpace, ids: &[String]) {
    let counts = ids.iter().filter_map(|id| before.find(id)).map(|label| before.train_count(label));
    let learned: Vec<u32> = counts.filter(|&documents| documents > 0).collect();
    if !learned.is_empty() {
        let documents = learned.iter().map(|&documents| u64::from(documents)).sum();
        say(&format!(
            "note: training documents carry {} of them ({} pairs in all): what a method that learns labels one by one knew \
             of these is gone, and one that is added again is an unseen label until the next fit",
            count(learned.len() as u64),
            count(documents)
        ));
    }
}

/// The labels of a file, with their lines.
fn read_labels(path: &Path, session: &Session) -> Result<Vec<(u64, Label)>, polytag::Error> {
    let mut lines = Lines::open(path, session.read.max_line)?;
    let mut labels = Vec::new();
    while let Some(line) = lines.next_line()? {
        labels.push((line.number, Label::parse_strict(line.text, || Place::line(path, line.number))?));
    }
    Ok(labels)
}
