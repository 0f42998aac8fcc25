//! Task folders: documents and labels, read as streams and checked on the way.
//!
//! A folder of `labels.jsonl` and `train|dev|test.jsonl` (each plain, `.gz` or `.zst`) enters as a
//! [`Task`]. What leaves are [`Document`]s whose labels are known to the [`LabelSpace`], either one
//! after the other ([`DocumentReader`]) or by position ([`Dataset`]); [`Statistics`] over them; new
//! task folders made by [`split`] or by an [`import`]er. Every complaint names file, line and remedy.

pub mod import;
pub mod split;

mod change;
mod dataset;
mod document;
mod error;
mod label;
mod reader;
mod record;
mod share;
mod space;
mod statistics;
mod task;
mod writer;

pub use change::LabelChange;
pub use dataset::{Dataset, FileDataset, LabelsOnly};
pub use document::{Document, Passage};
pub use error::{DataError, Place};
pub use label::Label;
pub use reader::{DocumentReader, ReadOptions};
pub use record::DocumentRecord;
pub use share::Share;
pub use space::{Frequency, LabelSpace, SpaceError};
pub use statistics::{SplitStatistics, Statistics, TailBin};
pub use task::{Split, Task};
pub use writer::{TaskSummary, TaskWriter};
