//! The best labels for a vector.
//!
//! Label vectors enter by position and can be added and removed at any time; a query leaves as the
//! best `k` labels, exactly, out of all of them or an allowed part. A sparse query is answered by
//! [`Inverted`], a dense one by a [`LabelIndex`], of which [`Exact`] is one.

mod allowed; // sets of labels
mod error; // why a vector is not taken or a query not answered
mod inverted; // sparse, exact
mod rows; // dense vectors by position, in 32 or 16 bits
mod codes; // the same in 8 bits
mod kernel; // products of vectors, by instruction set
mod kernel8; // products of those in 8 bits
mod vectors; // where a label's vector lies
mod exact; // dense, exact
mod bounds; // how far sums in another order are from each other
mod on_device; // the same with a GPU's help
mod graph; // labels linked to those like them
mod build; // how such a graph is made
mod hnsw; // dense, through a graph

#[cfg(test)]
mod exact_tests;
#[cfg(test)]
mod hnsw_tests;
#[cfg(test)]
mod on_device_tests;

pub use allowed::Allowed;
pub use codes::Codes;
pub use error::IndexError;
pub use exact::Exact;
pub use hnsw::{GraphArrays, Hnsw, HnswConfig, MEASURED_AT, Measured, recall};
pub use inverted::{FormEntry, Inverted, Query, SearchScratch};
pub use on_device::{DEVICE_FROM, OnDevice};
pub use rows::{Precision, Rows};

use crate::ids::LabelId;
use crate::ranking::Ranking;

/// Labels by dense vectors: the score of a label for a query is their inner product.
///
/// Labels are known by their position, which is theirs for life: a label that is removed leaves it
/// empty. The score of a label depends on the query and its own vector alone, to the last bit: not on
/// other labels, other queries of the batch, or the number of threads.
///
/// ```
/// use polytag::ids::LabelId;
/// use polytag::index::{Allowed, Exact, LabelIndex, Precision};
///
/// let mut index: Box<dyn LabelIndex> = Box::new(Exact::new(2, Precision::F32)?);
/// index.set(LabelId(0), &[1.0, 0.0])?;
/// index.set(LabelId(1), &[0.0, 1.0])?;
/// index.set(LabelId(2), &[0.6, 0.8])?;
///
/// // Two queries at once: the label vectors are read from memory once.
/// let rankings = index.search(&[1.0, 0.0, 0.0, 1.0], 2, None)?;
/// assert_eq!(rankings[0].labels().collect::<Vec<_>>(), [LabelId(0), LabelId(2)]);
/// assert_eq!(rankings[1].labels().collect::<Vec<_>>(), [LabelId(1), LabelId(2)]);
///
/// index.remove(LabelId(0));
/// let allowed: Allowed = [LabelId(0), LabelId(1)].into_iter().collect();
/// let rankings = index.search(&[1.0, 0.0], 2, Some(&allowed))?;
/// assert_eq!(rankings[0].labels().collect::<Vec<_>>(), [LabelId(1)]);
/// # Ok::<(), polytag::index::IndexError>(())
/// ```
pub trait LabelIndex: Send + Sync {
    /// How many numbers a vector has.
    fn dim(&self) -> usize;

    /// The labels that have a vector.
    fn labels(&self) -> &Allowed;

    /// How many labels have a vector.
    fn len(&self) -> usize {
        self.labels().len()
    }

    /// Whether no label has a vector.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector of a label, if it has one.
    fn vector(&self, label: LabelId) -> Result<Option<Vec<f32>>, IndexError>;

    /// Whether the index takes this vector.
    fn check(&self, label: LabelId, vector: &[f32]) -> Result<(), IndexError>;

    /// Whether these are queries, one after the other.
    fn check_queries(&self, queries: &[f32]) -> Result<(), IndexError> {
        let dim = self.dim();
        if !queries.len().is_multiple_of(dim) {
            return Err(IndexError::Queries { found: queries.len(), dim });
        }
        match queries.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(IndexError::Query { query: at / dim, place: at % dim, value: queries[at] }),
        }
    }

    /// Gives a label its vector, in place of the one it had. After an error nothing has changed.
    fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError>;

    /// Takes a label out, if it is there.
    fn remove(&mut self, label: LabelId);

    /// The best `k` labels of each query, out of `allowed` or of all. `queries` lie end to end, so
    /// that their number is a whole multiple of [`dim`](LabelIndex::dim).
    fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError>;
}
