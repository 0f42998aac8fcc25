//! Options that say which columns of a table are what, the same wherever tables are read.

use std::path::PathBuf;

use clap::Args;
use polytag::data::Share;
use polytag::data::import::{DocumentRows, Shares};
use polytag::predict::Columns;

/// The columns of a document.
#[derive(Debug, Args)]
pub(crate) struct ColumnArguments {
    /// The column of ids, text or whole numbers; unless given, `id`, or else the number of the row
    #[arg(long, value_name = "NAME")]
    id_column: Option<String>,
    /// The column of titles; unless given, `title`, if there is one
    #[arg(long, value_name = "NAME")]
    title_column: Option<String>,
    /// The column of texts
    #[arg(long, value_name = "NAME", default_value = "text")]
    text_column: String,
}

impl ColumnArguments {
    /// The columns of documents to tag, and those that are carried through.
    pub(crate) fn columns(&self, keep: &[String]) -> Columns {
        Columns {
            id: self.id_column.clone(),
            title: self.title_column.clone(),
            text: self.text_column.clone(),
            keep: keep.to_owned(),
        }
    }
}

/// The columns of a document that has labels, and what else is known of such documents.
#[derive(Debug, Args)]
pub(crate) struct RowArguments {
    #[command(flatten)]
    columns: ColumnArguments,
    /// The column of labels; unless given, `labels`, if there is one
    #[arg(long, value_name = "NAME")]
    labels_column: Option<String>,
    /// The column that says train, dev or test; unless given, names of Parquet and Arrow files do, or splits are drawn
    #[arg(long, value_name = "NAME")]
    split_column: Option<String>,
    /// What stands between the labels of a document, where they are one text
    #[arg(long, value_name = "TEXT", default_value = ";")]
    label_separator: String,
    /// A table or JSON lines with the labels' id, name, description, aliases and parents
    #[arg(long, value_name = "FILE")]
    label_file: Option<PathBuf>,
    #[command(flatten)]
    shares: ShareArguments,
}

impl RowArguments {
    /// How rows become documents.
    pub(crate) fn rows(&self) -> DocumentRows {
        let Columns { id, title, text, .. } = self.columns.columns(&[]);
        DocumentRows {
            id,
            title,
            text,
            labels: self.labels_column.clone(),
            split: self.split_column.clone(),
            label_separator: self.label_separator.clone(),
            label_file: self.label_file.clone(),
            shares: self.shares.shares(),
        }
    }
}

/// Shares for sources without splits of their own.
#[derive(Debug, Args)]
pub(crate) struct ShareArguments {
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
    pub(crate) fn shares(&self) -> Shares {
        Shares { dev: self.dev.fraction(), test: self.test.fraction(), seed: self.seed }
    }
}
