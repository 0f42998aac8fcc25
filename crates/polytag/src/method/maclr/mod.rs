//! An encoder trained on a task's own documents and label texts, without a labelled pair, then with a few: MACLR
//! (paper 001) and what it is measured against.
//!
//! Documents enter as pairs of a text and its title. Stage one pulls the two together and apart from the other pairs of
//! a step, clusters of documents first, single ones in the end, and keeps documents away from labels drawn at random.
//! Stage two trains on labels that the encoder and `lexical` guess. Given pairs, where there are any and they are
//! wanted, come last. What leaves is an encoder for documents and labels alike, so that the model is the same as
//! `frozen`'s; beside its cosines count the words that a document and a label share, and how often a label is guessed,
//! which is our own addition. The peers are configurations: `ict`, `simcse`, `rts`, and `few-shot`, which is given pairs alone.

mod config; // settings, and the presets
mod pairs; // two texts out of a document
mod labels; // labels as texts
mod clusters; // which documents count as alike at a step
mod siamese; // one encoder for everything, and how good it is on the dev split
mod stage_one; // pairs against pairs, and against labels
mod matched; // documents against labels, guessed or given
mod pseudo; // guessed labels
mod stage; // a stage from its first step to its encoder
mod run; // one stage after the other

pub use config::{MaclrConfig, PairKind, PairLoss};
use run::Trained;
pub(super) use stage::STAGES;

use super::embedding::{EmbeddingModel, EmbeddingSettings};
use super::error::MethodError;
use super::training::as_lines;
use super::{Method, TrainContext};
use crate::data::Dataset;
use crate::predict::Predictor;

/// The method, its settings checked.
pub struct Maclr {
    name: &'static str,
    config: MaclrConfig,
}

impl Maclr {
    /// The method called `name`.
    pub fn new(name: &'static str, config: MaclrConfig) -> Result<Maclr, MethodError> {
        config.check(name)?;
        Ok(Maclr { name, config })
    }
}

impl Method for Maclr {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        let Trained { left, words, gains } = run::train(self.name, &self.config, dataset, context)?;
        let config = &self.config;
        let settings = EmbeddingSettings {
            max_tokens: Some(config.max_tokens),
            label_tokens: Some(config.label_tokens),
            label_text: config.label_text,
            precision: config.precision,
            index: config.index,
            words: config.words,
            item_to_item: config.item_to_item,
            own_names: config.own_names,
        };
        let space = dataset.label_space().clone();
        let mut model = EmbeddingModel::new(settings, left.encoder, space, context)?;
        if let Some(gains) = gains {
            model = model.with_gains(gains)?;
        }
        model = model.indexed(self.name, dataset, context)?;
        if let Some(words) = words {
            model = model.with_words(words);
        }
        Ok(Box::new(model.with_course(as_lines(&left.points))))
    }
}
