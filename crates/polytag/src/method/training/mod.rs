//! Training an encoder on documents and their labels: what all methods share that do so.
//!
//! A [`Plan`] says which towers there are and how they are compared; documents and label texts enter as
//! token ids, and a trained encoder, the vectors of all labels and the means to make vectors of further ones
//! leave as [`Trained`]. While it trains, the model is measured on the dev split, if there is one.

mod steps; // settings of its course
mod config; // settings of a training
mod texts; // documents as token ids, with their labels
mod label_rows; // which row a label has: seen ones first
mod projection; // a learned matrix, on the host
mod tower; // the vectors of labels while they are learned
mod head; // how documents and labels are compared
mod dev; // the dev split, and what rankings of it are worth
mod course; // how good the model is on the dev split
mod objective; // the losses of a step
mod told; // what the user is told meanwhile
mod label_maker; // the vectors of labels once they are learned
mod scoring; // how a comparison becomes a score
mod label_side; // the label side: begun, and what it has become
mod together; // a training on one device or on several
mod run; // from a plan to what was learned
mod record; // the course of a training, as lines and as a page
mod stored; // what every trained model has, in a model folder

pub use config::{Loss, TrainingConfig, Unseen};
pub(super) use dev::Dev;
pub(super) use label_rows::LabelRows;
pub(super) use record::{as_lines, record};
pub use run::LabelTower;
pub(super) use run::{HeadKind, Plan, Trained, add_documents, train};
pub(super) use scoring::probability;
pub use steps::Steps;
pub(super) use steps::{at_least_one, number, rate_by_width, tokens};
pub(super) use stored::{Core, VECTORS, labels_with_vectors, read_vectors};
pub(super) use texts::{Documents, Reading, Texts};
pub(super) use together::Training;
pub(super) use told::Told;
