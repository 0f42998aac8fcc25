//! Why an index takes no vector or gives no answer.

use crate::ids::LabelId;
use crate::ranking::NotFinite;

/// A failure of a [`LabelIndex`](super::LabelIndex).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum IndexError {
    /// An index for vectors without numbers.
    #[error("an index needs vectors of at least one number")]
    NoDimensions,
    /// Vectors too long for sums of 8-bit products.
    #[error("vectors of {dim} numbers cannot be kept in 8 bits, which {most} can; keep them in 16")]
    TooLong {
        /// How many numbers a vector has.
        dim: usize,
        /// How many it may have.
        most: usize,
    },
    /// Codes, or a graph, that are not those of the vectors.
    #[error("{problem}")]
    Unfit {
        /// What is wrong.
        problem: String,
    },
    /// A vector of another length than the index holds.
    #[error("{label}: its vector holds {found} numbers, and this index holds vectors of {expected}")]
    Dimension {
        /// The label.
        label: LabelId,
        /// The length of its vector.
        found: usize,
        /// The length the index takes.
        expected: usize,
    },
    /// A vector holds a number that the index cannot hold.
    #[error("{label}: number {place} of its vector is {value}, and {limit}")]
    Value {
        /// The label.
        label: LabelId,
        /// Where in the vector, from zero.
        place: usize,
        /// The number.
        value: f32,
        /// What the index holds.
        limit: &'static str,
    },
    /// What a label gains is no number to add.
    #[error("{label}: what it gains is {value}, which is not finite")]
    Gain {
        /// The label.
        label: LabelId,
        /// What it was to gain.
        value: f32,
    },
    /// Queries that are not whole vectors.
    #[error("{found} numbers are no whole number of queries of {dim} numbers each")]
    Queries {
        /// How many numbers there were.
        found: usize,
        /// How many a query has.
        dim: usize,
    },
    /// A query holds a number that is not finite.
    #[error("query {query}: number {place} is {value}, which is not finite")]
    Query {
        /// The query, from zero.
        query: usize,
        /// Where in it, from zero.
        place: usize,
        /// The number.
        value: f32,
    },
    /// Vectors that are not one a position.
    #[error("{found} numbers are not {positions} vectors of {dim} numbers each")]
    Shape {
        /// How many numbers there were.
        found: usize,
        /// How many vectors were announced.
        positions: usize,
        /// How many numbers each has.
        dim: usize,
    },
    /// The vectors lie elsewhere, and cannot be had.
    #[error("the labels cannot be searched: {problem}")]
    Away {
        /// What is wrong.
        problem: String,
        /// Whether the same may succeed later, without anybody doing something about it.
        may_pass: bool,
    },
    /// The product of a query and a vector is too large for a score.
    #[error(transparent)]
    Score(#[from] NotFinite),
    /// The vectors do not fit in memory.
    #[error(
        "no memory for {positions} vectors of {dim} numbers each; take fewer labels, or keep them in 16 bits"
    )]
    Memory {
        /// How many vectors were to be held.
        positions: usize,
        /// How many numbers each has.
        dim: usize,
    },
}
