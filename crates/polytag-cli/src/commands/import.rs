//! `polytag import`: foreign formats in, a task folder out.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use polytag::data::import::debian::{DEFAULT_LISTS, Debian, DebianConfig, DebianLabels};
use polytag::data::import::wordnet::{DEFAULT_WORDNET, Wordnet, WordnetConfig};
use polytag::data::import::{ImportContext, Importer, Shares, import};
use polytag::data::{Share, TaskSummary};

use super::{DONE, Done};
use crate::output;
use crate::settings::Session;
use crate::table::count;

/// Turn a foreign format into a task folder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag import debian --labels tags tasks/debtags
  polytag import csv products.csv tasks/shop --labels-column category

`polytag import FORMAT --help` tells what a format expects.")]
pub(crate) struct Import {
    #[command(subcommand)]
    format: Format,
    /// Print what was imported as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Format {
    /// Packages of the machine's own apt lists
    #[command(after_help = "\
Examples:
  polytag import debian --labels tags tasks/debtags
  polytag import debian --labels related /var/lib/apt/lists tasks/packages")]
    Debian {
        #[command(flatten)]
        places: DefaultPlaces,
        /// What packages are labelled with: `tags` (some 600), or `related` packages (some 42,000)
        #[arg(long, default_value = "tags")]
        labels: DebianLabels,
        /// The debtags vocabulary, which names and describes tags
        #[arg(long, value_name = "FILE")]
        vocabulary: Option<PathBuf>,
        #[command(flatten)]
        shares: ShareArguments,
    },
    /// Synsets of WordNet, by their glosses
    #[command(after_help = "Example:\n  polytag import wordnet tasks/wordnet")]
    Wordnet {
        #[command(flatten)]
        places: DefaultPlaces,
        #[command(flatten)]
        shares: ShareArguments,
    },
}

/// A source that has a usual place, and the folder to write.
#[derive(Debug, Args)]
struct DefaultPlaces {
    /// The source, unless it is in its usual place, and the task folder to write
    #[arg(required = true, num_args = 1..=2, value_names = ["IN", "OUT"])]
    places: Vec<PathBuf>,
}

impl DefaultPlaces {
    fn pair<'a>(&'a self, usual: &'a str) -> (&'a Path, &'a Path) {
        match &self.places[..] {
            [source, target] => (source, target),
            places => (Path::new(usual), &places[0]),
        }
    }
}

/// Shares for sources without splits of their own.
#[derive(Debug, Args)]
struct ShareArguments {
    /// Share of documents for dev
    #[arg(long, default_value = "5%")]
    dev: Share,
    /// Share of documents for test
    #[arg(long, default_value = "5%")]
    test: Share,
    /// What makes one drawing of dev and test differ from another
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl ShareArguments {
    fn shares(&self) -> Shares {
        Shares { dev: self.dev.fraction(), test: self.test.fraction(), seed: self.seed }
    }
}

impl Import {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let (importer, source, target) = self.format.importer()?;
        let context = ImportContext {
            progress: session.progress.as_ref(),
            stop: &session.stop,
            max_line: session.read.max_line,
        };
        let imported = import(importer.as_ref(), source, target, &context);
        let summary = imported.map_err(polytag::Error::from)?;
        if self.json {
            output::print_json(&summary)?;
        } else {
            output::print_text(&describe(target, &summary))?;
        }
        Ok(DONE)
    }
}

impl Format {
    /// The importer, its source and its target.
    fn importer(&self) -> Result<(Box<dyn Importer>, &Path, &Path), polytag::Error> {
        Ok(match self {
            Format::Debian { places, labels, vocabulary, shares } => {
                let (source, target) = places.pair(DEFAULT_LISTS);
                let config =
                    DebianConfig { labels: *labels, vocabulary: vocabulary.clone(), shares: shares.shares() };
                (Box::new(Debian::try_from(config)?), source, target)
            }
            Format::Wordnet { places, shares } => {
                let (source, target) = places.pair(DEFAULT_WORDNET);
                (Box::new(Wordnet::try_from(WordnetConfig { shares: shares.shares() })?), source, target)
            }
        })
    }
}

fn describe(target: &Path, summary: &TaskSummary) -> String {
    let documents: Vec<String> =
        summary.documents.iter().map(|(split, documents)| format!("{split} {}", count(*documents))).collect();
    format!(
        "{}: {} labels, {} pairs, documents: {}\n",
        target.display(),
        count(summary.labels as u64),
        count(summary.pairs),
        documents.join(", ")
    )
}
