//! Tables of columns: Arrow batches in memory.
//!
//! Columns enter as any of the types that Arrow has for the same thing; what leaves are texts and ids that are read where
//! they lie ([`Texts`], [`Ids`]). Nothing here knows what a document or a label is.

mod error; // what can be wrong with a column
mod cells; // texts and ids of a column, whatever its type

pub use cells::{Ids, Texts, column, find_column};
pub use error::ColumnError;
