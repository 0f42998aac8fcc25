//! Task folders: documents and labels, read as streams and checked on the way.
//!
//! A folder of `labels.jsonl` and `train|dev|test.jsonl` (each plain, `.gz`, `.zst`, or a table: `.parquet`, `.arrow`) enters as a
//! [`Task`]. What leaves are [`Document`]s whose labels are known to the [`LabelSpace`], either one
//! after the other ([`DocumentReader`]) or by position ([`Dataset`]); [`Statistics`] over them; new
//! task folders made by [`split`] or by an [`import`]er. Every complaint names file, line and remedy.

mod error; // what can be wrong with a task
mod label; // what a label says
mod space; // all labels, and which of them training has seen
mod change; // labels that come and go
mod document; // what a document says
mod record; // lines of JSON
mod table_lines; // rows of a table as such lines
mod reader; // documents one after the other
mod task; // the folder
mod unread; // what lies in it under names that are not read
mod dataset; // documents by position
mod statistics; // what a task holds
mod writer; // new task folders, whole or not at all
mod share; // parts of a whole

pub mod split; // tasks with less supervision
pub mod import; // tasks from foreign formats

pub use change::{Changed, LabelChange};
pub use dataset::{Dataset, FileDataset, LabelsOnly};
pub use document::{Document, Passage};
pub use error::{DataError, Place};
pub use label::Label;
pub use reader::{DocumentReader, ReadOptions};
pub use record::{DocumentRecord, WrittenId};
pub use share::Share;
pub use space::{Frequency, LabelSpace, SpaceError};
pub use statistics::{SplitStatistics, Statistics, TailBin};
pub use task::{Split, Task};
pub use unread::UnreadFile;
pub use writer::{TaskSummary, TaskWriter};
