//! Unseen labels on top of any classifier, without training: XML0 (paper 000), and ConSE as its peer.
//!
//! A classifier predicts seen labels with probabilities `p_i`; an encoder gives vectors `e_i` to them, `u` to an unseen label
//! and `d` to the document. An unseen label scores as
//!
//! ```text
//! (1 − w) · f(max over sets S of cos(Σ_{i in S} p_i e_i, u))  +  w · cos(d, u)
//! ```
//!
//! over sets of the labels that are above a threshold (label fusion, section III-A, algorithm 1) and the document itself
//! (semantic similarity, section III-B). The paper says that both are combined and not how; `document` is `w`. In the paper
//! vectors are compared as the encoder has them and `f(c) = c`: that is `vectors = plain`. With `vectors = together`
//! `e` and `u` are turned first so that labels which documents carry together are near each other, and `f` is how far
//! a cosine is above what is usual for the label ([`together`] says how). `auto`, the preset, tries both on labels that it
//! hides. ConSE is the one set of all such labels, plain, and `w = 0`.
//!
//! Labels above the threshold count up to `most`, the most probable first. Where none is above it the most probable one
//! stands alone; where the classifier predicts nothing at all the document decides, and with `w = 0` there is no answer. Only
//! labels that no training document carries are answered with: the seen ones are the classifier's.
//!
//! Cost for a document: what classifier and encoder cost, and some microseconds to some tens of them an unseen label. Memory: both models, and
//! 4 bytes a number of the unseen labels' vectors.

mod kernel; // the innermost loops, by instruction set
mod gram; // products of predicted labels with each other
mod exact; // the best of all combinations
mod walk; // the same, of few labels, by walking through all
mod beam; // a good one of very many
mod combination; // combinations of predicted labels, by unseen label
mod together; // label vectors by what documents carry together
mod config; // settings
mod model; // the predictor

pub use combination::{Combination, EXACT, Effort, MOST, Predicted};
pub use config::{Combine, Fusion, FusionConfig, LabelVectorKind};
pub use model::FusionModel;
pub(super) use model::PARTS;

use std::path::Path;

use super::error::MethodError;
use super::parts::Part;
use super::run;
use super::{Method, TrainContext};
use crate::data::Dataset;
use crate::predict::Predictor;
use crate::progress::Event;

impl Method for Fusion {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        let refused = |problem: String| MethodError::Config { method: self.name, problem };
        for (setting, folder) in PARTS.iter().zip([&self.config.classifier, &self.config.semantics]) {
            if folder.is_empty() {
                return Err(refused(format!("which {setting}? say --set {setting}=MODEL")));
            }
        }
        let of_part = |error: crate::Error| MethodError::Part(Box::new(error));
        let (classifier, semantics) = (Path::new(&self.config.classifier), Path::new(&self.config.semantics));
        let classifier = Part::from_folder(PARTS[0], classifier, |dir| run::load_part(dir, context.device));
        let semantics =
            Part::from_folder(PARTS[1], semantics, |dir| run::load_embedding(dir, context.device));
        let space = dataset.label_space().clone();
        let (classifier, semantics) = (classifier.map_err(of_part)?, semantics.map_err(of_part)?);
        let mut model = FusionModel::new(self.settings, space, classifier, semantics)?;
        let turns = match self.config.vectors {
            LabelVectorKind::Plain => false,
            LabelVectorKind::Together => true,
            LabelVectorKind::Auto => model.goes_together(dataset, context)?,
        };
        if turns && !model.turn_together(dataset) {
            context.progress.report(Event::Warned(
                "too few documents carry several labels to learn which go together: label vectors stay as the encoder has \
                 them",
            ));
        }
        if !model.takes_probabilities() {
            context.progress.report(Event::Warned(&format!(
                "{}: its scores are no probabilities, and labels are combined as if they were: those above the threshold \
                 and the share of each may mean little",
                self.config.classifier
            )));
        }
        let (seen, unseen) = model.counts();
        if seen == 0 {
            return Err(refused(format!(
                "{}: knows no label that a training document carries, so there is nothing to combine; fit it on the same \
                 labels",
                self.config.classifier
            )));
        }
        if unseen == 0 {
            context.progress.report(Event::Warned(
                "every label is carried by a training document: answers will be empty until labels are added",
            ));
        }
        Ok(Box::new(model))
    }
}
