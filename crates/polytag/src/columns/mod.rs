//! Tables of columns: Arrow batches in memory, Parquet and Arrow files on the disk.
//!
//! Columns enter as any of the types that Arrow has for the same thing; what leaves are texts and ids that are read where
//! they lie ([`Texts`], [`Ids`]). Files enter as a [`Table`], of which batches are read from any row on; a [`TableWriter`]
//! makes them. Nothing here knows what a document or a label is.

mod error; // what can be wrong with a column or a table
mod cells; // texts and ids of a column, whatever its type
mod form; // what kind of file they lie in
mod arrow; // Arrow files, block by block
mod table; // files of columns, and what they say of themselves
mod batches; // their rows, batch by batch
mod writer; // files of columns, row group by row group
mod json; // rows as lines of JSON

pub use batches::Batches;
pub(crate) use batches::memory_batches;
pub use cells::{Ids, Lists, Texts, column, find_column};
pub use error::{ColumnError, TableError};
pub use form::Form;
pub use json::JsonRows;
pub use table::Table;
pub use writer::{TableWriter, join_parquet};
