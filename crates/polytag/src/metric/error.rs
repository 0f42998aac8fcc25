//! What can be wrong with an evaluation, each with its remedy.

use std::path::PathBuf;

/// A setting or a split that cannot be evaluated. All are the user's to change.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    /// No document says what would be right.
    #[error("{}: none of its {documents} documents carries a label, so there is nothing to measure against; \
             choose a labelled split", path.display())]
    NoGold {
        /// The split's file.
        path: PathBuf,
        /// How many documents it has.
        documents: u64,
    },
    /// There is nothing to measure at.
    #[error("`ks` is empty; give at least one cutoff, such as 5")]
    NoCutoff,
    /// A cutoff of zero places.
    #[error("`{field}` holds the cutoff 0; cutoffs count places of a ranking and start at 1")]
    ZeroCutoff {
        /// The setting.
        field: &'static str,
    },
    /// A cutoff so deep that rankings would not fit in memory.
    #[error("`{field}` holds the cutoff {k}; the deepest that can be measured is {limit}")]
    DeepCutoff {
        /// The setting.
        field: &'static str,
        /// The cutoff.
        k: usize,
        /// The deepest cutoff.
        limit: usize,
    },
    /// More replicates than are worth their memory.
    #[error("`replicates` is {replicates}; choose at most {limit}, or 0 for no intervals")]
    ManyReplicates {
        /// How many were asked for.
        replicates: usize,
        /// How many there can be.
        limit: usize,
    },
    /// A parameter of the propensity model without meaning.
    #[error("`propensity.{field}` is {value}; choose a number {range} (the usual one is {usual})")]
    Propensity {
        /// The parameter.
        field: &'static str,
        /// What it was.
        value: f64,
        /// What it may be.
        range: &'static str,
        /// Its default.
        usual: f64,
    },
}
