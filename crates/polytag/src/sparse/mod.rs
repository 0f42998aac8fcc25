//! Sparse vectors out of words.
//!
//! Terms enter; what leaves are rows of a [`Csr`] matrix over a [`Vocabulary`], weighted by
//! [`Tfidf`]. Work runs in parallel over fixed chunks, so that results do not depend on the number
//! of threads, and memory grows with the vocabulary and the result alone.

mod vocabulary; // terms and their numbers
mod csr; // sparse matrices
mod tfidf; // how much a term says
mod groups; // like rows together
mod row_store; // rows that may lie on the disk

pub use csr::{Csr, CsrError, Row};
pub use groups::balanced_groups;
pub(crate) use groups::{GOLDEN, mixed};
pub(crate) use row_store::keep_greatest;
pub use row_store::{Entry, Room, RowStore};
pub use tfidf::{Tfidf, TfidfConfig, TfidfError, Weighing};
pub use vocabulary::{Vocabulary, VocabularyError};
