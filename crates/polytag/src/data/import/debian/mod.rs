//! Debian's packages as a task: what apt knows about them in, documents and labels out.
//!
//! The source is the folder where apt keeps its lists, `/var/lib/apt/lists` on every Debian machine,
//! so that a real task is at hand where no benchmark can be fetched. A document is a package: its
//! one-line description is the title, its long one the text. Labels are of two kinds: some 600
//! debtags given by people ([`DebianLabels::Tags`]), or some 42,000 other packages that it depends
//! on or recommends ([`DebianLabels::Related`]).

mod control; // paragraphs out of control files
mod lists; // packages out of the folder, each once
mod related;
mod tags;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use self::lists::{Lists, Package};
use super::{ImportContext, Importer, Shares};
use crate::data::error::DataError;
use crate::data::record::DocumentRecord;
use crate::data::writer::TaskWriter;

/// Where apt keeps its lists.
pub const DEFAULT_LISTS: &str = "/var/lib/apt/lists";

/// Where the package debtags installs the vocabulary.
pub const DEFAULT_VOCABULARY: &str = "/usr/share/debtags/vocabulary";

/// What packages are labelled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DebianLabels {
    /// Their debtags.
    #[default]
    Tags,
    /// Packages that they depend on, recommend, suggest or enhance.
    Related,
}

impl FromStr for DebianLabels {
    type Err = String;

    fn from_str(name: &str) -> Result<DebianLabels, String> {
        match name {
            "tags" => Ok(DebianLabels::Tags),
            "related" => Ok(DebianLabels::Related),
            _ => Err(format!("packages have no labels called {name:?}; say tags or related")),
        }
    }
}

/// Imports Debian's packages.
///
/// ```no_run
/// use polytag::data::import::debian::{DEFAULT_LISTS, Debian};
/// use polytag::data::import::{ImportContext, import};
/// use polytag::progress::{Silent, Stop};
///
/// let context = ImportContext { progress: &Silent, stop: &Stop::default(), max_line: 1 << 20 };
/// let summary = import(&Debian::default(), DEFAULT_LISTS.as_ref(), "tasks/debtags".as_ref(), &context)?;
/// assert!(summary.labels > 500);
/// # Ok::<(), polytag::data::DataError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Debian {
    /// What packages are labelled with.
    pub labels: DebianLabels,
    /// The debtags vocabulary, which names and describes tags; by default the installed one, and
    /// tags are named by their ids where there is none.
    pub vocabulary: Option<PathBuf>,
    /// Which packages go to dev and test.
    pub shares: Shares,
}

impl Importer for Debian {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        self.shares.check()?;
        let lists = Lists::open(source, context)?;
        match self.labels {
            DebianLabels::Tags => tags::import(self, &lists, task, context),
            DebianLabels::Related => related::import(self, &lists, task, context),
        }
    }
}

/// A package as a document. Where there is no long description the short one is the text, and the
/// document goes without a title rather than saying everything twice.
fn document_of(package: Package, labels: Vec<String>) -> DocumentRecord {
    let (title, text) = match package.long {
        Some(long) => (Some(package.short), long),
        None => (None, package.short),
    };
    DocumentRecord { id: package.name, title, text, labels: Some(labels) }
}
