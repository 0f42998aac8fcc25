//! An encoder with a classifier, for tasks whose labels all have examples: one-vs-all, GUDN (paper 002) and ME-XML (paper
//! 004), which are switches of one method.
//!
//! Experts read layers of the encoder and judge all labels; guides stand beside documents while they are learned, and
//! are gone when tags are given. A label that no training document carries is not known, and cannot be added later.

mod expert; // what an expert reads
mod config;
mod clusters; // labels in clusters, where there are too many
mod network; // the experts' weights and scores
mod measured; // how good they are, and the best labels by them
mod objective; // the losses of a step
mod train;
mod missed; // what is missing of a score without a word
mod model;

pub use config::{ClassifierConfig, Guide, Together};
pub use expert::{Expert, Layers, Reads};
pub use model::ClassifierModel;

use super::error::MethodError;
use super::{Method, TrainContext};
use crate::data::Dataset;
use crate::predict::Predictor;

/// The method, its settings checked.
pub struct Classifier {
    name: &'static str,
    config: ClassifierConfig,
}

impl Classifier {
    /// The method called `name`.
    pub fn new(name: &'static str, config: ClassifierConfig) -> Result<Classifier, MethodError> {
        config.check(name)?;
        Ok(Classifier { name, config })
    }
}

impl Method for Classifier {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        Ok(Box::new(train::train(self.name, &self.config, dataset, context)?))
    }
}
