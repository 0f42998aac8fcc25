//! `polytag import`: foreign formats in, a task folder out.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use polytag::data::import::annif::Annif;
use polytag::data::import::csv::Csv;
use polytag::data::import::debian::{DEFAULT_LISTS, Debian, DebianLabels};
use polytag::data::import::eurlex57k::Eurlex57k;
use polytag::data::import::lightxml::LightXml;
use polytag::data::import::skos::Skos;
use polytag::data::import::table::Tables;
use polytag::data::import::wordnet::{DEFAULT_WORDNET, Wordnet};
use polytag::data::import::xc::Xc;
use polytag::data::import::{ImportContext, Importer, import};
use polytag::data::{Split, TaskSummary};

use super::{DONE, Done};
use crate::columns::{RowArguments, ShareArguments};
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
    /// EU laws as one JSON file each, with EuroVoc concepts
    #[command(after_help = "\
Example:
  polytag import eurlex57k EURLEX57K tasks/eurlex

IN holds the folders train, dev and test, and the concept file EURLEX57K.json.")]
    Eurlex57k {
        #[command(flatten)]
        places: Places,
        /// The concept file, where it is called something else
        #[arg(long, value_name = "FILE")]
        concepts: Option<PathBuf>,
    },
    /// The Extreme Classification Repository: sparse rows, or titles and contents
    #[command(after_help = "\
Examples:
  polytag import xc LF-Amazon-131K tasks/amazon      trn.json.gz, tst.json.gz, lbl.json.gz
  polytag import xc Eurlex-4K tasks/eurlex4k         train.txt, test.txt, Y.txt

Sparse rows hold no text: the names of their features stand for it, and without label names no method can
read what a label means.")]
    Xc {
        #[command(flatten)]
        places: Places,
        /// The rows to train on, where they are not in train.txt
        #[arg(long, value_name = "FILE")]
        train: Option<PathBuf>,
        /// The rows to test on, where they are not in test.txt
        #[arg(long, value_name = "FILE")]
        test: Option<PathBuf>,
        /// Names of the features, one a line, where they are not in Xf.txt
        #[arg(long, value_name = "FILE")]
        features: Option<PathBuf>,
        /// Names of the labels, one a line, where they are not in Y.txt
        #[arg(long, value_name = "FILE")]
        labels: Option<PathBuf>,
    },
    /// One text a line beside one list of labels a line
    #[command(after_help = "\
Example:
  polytag import lightxml Wiki10-31K tasks/wiki10

IN holds train_texts.txt, train_labels.txt, test_texts.txt and test_labels.txt.")]
    Lightxml {
        #[command(flatten)]
        places: Places,
        /// Names of the labels: `label TAB name`, or a name a line
        #[arg(long, value_name = "FILE")]
        label_map: Option<PathBuf>,
    },
    /// Annif's corpora: TSV files, or folders of texts with their subjects
    #[command(after_help = "\
Examples:
  polytag import annif corpus tasks/yso --vocabulary yso-skos.ttl --language fi
  polytag import annif jyu-theses tasks/theses --vocabulary yso.rdf")]
    Annif {
        #[command(flatten)]
        places: Places,
        /// The vocabulary: SKOS in Turtle or RDF/XML, or Annif's TSV or CSV
        #[arg(long, value_name = "FILE")]
        vocabulary: Option<PathBuf>,
        /// The language of names and descriptions
        #[arg(long, default_value = "en")]
        language: String,
        #[command(flatten)]
        shares: ShareArguments,
    },
    /// A SKOS thesaurus, as labels without documents
    #[command(after_help = "Example:\n  polytag import skos eurovoc.rdf tasks/eurovoc --language de")]
    Skos {
        #[command(flatten)]
        places: Places,
        /// The language of names and descriptions
        #[arg(long, default_value = "en")]
        language: String,
    },
    /// Tables with a header
    #[command(after_help = "\
Examples:
  polytag import csv products.csv tasks/shop --text-column description --labels-column categories
  polytag import csv notes.tsv tasks/notes --label-file codes.csv --label-separator '|'")]
    Csv(CsvArguments),
    /// Tables of columns: a Parquet or Arrow file, or a folder of them
    #[command(after_help = "\
Examples:
  polytag import parquet products.parquet tasks/shop --text-column description --labels-column categories
  polytag import parquet dataset/data tasks/news --label-file topics.jsonl

Labels are lists of texts or numbers, or one text with something between them; null means that nobody labelled the
document. In a folder, train-….parquet, validation-….parquet and test-….parquet are the splits.")]
    Parquet(TableArguments),
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

#[derive(Debug, Args)]
struct CsvArguments {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    rows: RowArguments,
    /// What stands between fields; unless given, a tab for .tsv, else a comma
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<char>,
    /// Quotation marks are ordinary characters
    #[arg(long)]
    no_quoting: bool,
}

impl CsvArguments {
    fn importer(&self) -> Csv {
        Csv { rows: self.rows.rows(), delimiter: self.delimiter, quoting: !self.no_quoting }
    }
}

#[derive(Debug, Args)]
struct TableArguments {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    rows: RowArguments,
}

impl TableArguments {
    fn importer(&self) -> Tables {
        Tables { rows: self.rows.rows() }
    }
}

/// A source and a target.
type FromTo<'a> = (&'a Path, &'a Path);

/// Where to read and where to write.
#[derive(Debug, Args)]
struct Places {
    /// The source
    #[arg(value_name = "IN")]
    source: PathBuf,
    /// The task folder to write
    #[arg(value_name = "OUT")]
    target: PathBuf,
}

impl Places {
    fn pair(&self) -> FromTo<'_> {
        (&self.source, &self.target)
    }
}

/// A source that has a usual place, and the folder to write.
#[derive(Debug, Args)]
struct DefaultPlaces {
    /// The source, unless it is in its usual place, and the task folder to write
    #[arg(required = true, num_args = 1..=2, value_names = ["IN", "OUT"])]
    places: Vec<PathBuf>,
}

impl DefaultPlaces {
    fn pair<'a>(&'a self, usual: &'a str) -> FromTo<'a> {
        match &self.places[..] {
            [source, target] => (source, target),
            places => (Path::new(usual), &places[0]),
        }
    }
}

impl Import {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let (importer, (source, target)) = self.format.importer();
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
    fn importer(&self) -> (Box<dyn Importer>, FromTo<'_>) {
        match self {
            Format::Eurlex57k { places, concepts } => {
                (Box::new(Eurlex57k { concepts: concepts.clone() }), places.pair())
            }
            Format::Xc { places, train, test, features, labels } => {
                let (train, test) = (train.clone(), test.clone());
                let importer = Xc { train, test, features: features.clone(), labels: labels.clone() };
                (Box::new(importer), places.pair())
            }
            Format::Lightxml { places, label_map } => {
                (Box::new(LightXml { label_map: label_map.clone() }), places.pair())
            }
            Format::Annif { places, vocabulary, language, shares } => {
                let (vocabulary, language) = (vocabulary.clone(), language.clone());
                (Box::new(Annif { vocabulary, language, shares: shares.shares() }), places.pair())
            }
            Format::Skos { places, language } => {
                (Box::new(Skos { language: language.clone() }), places.pair())
            }
            Format::Csv(arguments) => (Box::new(arguments.importer()), arguments.places.pair()),
            Format::Parquet(arguments) => (Box::new(arguments.importer()), arguments.places.pair()),
            Format::Debian { places, labels, vocabulary, shares } => {
                let (labels, vocabulary) = (*labels, vocabulary.clone());
                let importer = Debian { labels, vocabulary, shares: shares.shares() };
                (Box::new(importer), places.pair(DEFAULT_LISTS))
            }
            Format::Wordnet { places, shares } => {
                (Box::new(Wordnet { shares: shares.shares() }), places.pair(DEFAULT_WORDNET))
            }
        }
    }
}

fn describe(target: &Path, summary: &TaskSummary) -> String {
    let documents = Split::ALL.iter().filter_map(|split| {
        let documents = summary.documents.get(split.as_str())?;
        Some(format!("{split} {}", count(*documents)))
    });
    let documents: Vec<String> = documents.collect();
    format!(
        "{}: {} labels, {} pairs, documents: {}\n",
        target.display(),
        count(summary.labels as u64),
        count(summary.pairs),
        documents.join(", ")
    )
}
