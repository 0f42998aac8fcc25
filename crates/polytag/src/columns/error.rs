//! What can be wrong with a column, each with its remedy.

use arrow_schema::DataType;

/// A column that is not as it should be. Every variant is about the user's table or settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// No column has the name.
    #[error("no column is called {column:?}; there are {}; name one of them", listed(there))]
    Missing {
        /// The name.
        column: String,
        /// The names there are.
        there: Vec<String>,
    },
    /// Two columns have the name.
    #[error("two columns are called {column:?}; rename one of them, or name another column")]
    Twice {
        /// The name.
        column: String,
    },
    /// The column has a type that cannot be read for what it is.
    #[error("the column {column:?} is of type {found}, where {expected} is expected; {remedy}")]
    Kind {
        /// The name.
        column: String,
        /// Its type.
        found: Box<DataType>,
        /// Which types there may be.
        expected: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A column is to be carried through under a name that the answer uses itself.
    #[error("the answer would have two columns called {column:?}; rename it in the input, or do not keep it")]
    Clash {
        /// The name.
        column: String,
    },
    /// The labels of a batch are more than Arrow's offsets can count.
    #[error("the labels of one batch take 2 GiB or more; ask for fewer labels, or give smaller batches")]
    TooLarge,
}

impl ColumnError {
    /// The column in question, where it is about one.
    pub fn column(&self) -> Option<&str> {
        match self {
            ColumnError::Missing { column, .. }
            | ColumnError::Twice { column }
            | ColumnError::Kind { column, .. }
            | ColumnError::Clash { column } => Some(column),
            ColumnError::TooLarge => None,
        }
    }
}

/// Names for a person: all of a few, the first of many.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut words: Vec<String> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    if names.len() > SHOWN {
        words.push(format!("{} more", names.len() - SHOWN));
    }
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
