//! Unseen labels on top of any classifier (paper 000, XML0; ConSE).

mod gram; // products of predicted labels with each other
mod exact; // the best of all combinations
mod beam; // a good one of very many
mod combination; // combinations of predicted labels, by unseen label

pub use combination::{Combination, EXACT, Effort, MOST, Predicted};
