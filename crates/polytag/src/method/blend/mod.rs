//! One ranking over seen and unseen labels, out of any methods: their scores become probabilities that mean the same.
//!
//! Methods are good at different labels, and their scores mean different things: a classifier gives an unseen label
//! nothing at all, and an encoder gives it less than it deserves beside labels that it was trained on. So the sources of a
//! blend are fitted twice. First comes a rehearsal: they learn from a part of the train documents, from which some labels
//! are hidden, and are tried on the others. What they say there, beside what is right, teaches two logistic
//! regressions, one for labels that they had seen and one for those that were hidden; truly unseen labels are not
//! needed. Then they are fitted on everything, and answer as they were judged:
//!
//! ```text
//! ln odds(label) = Σ over sources of (score, its square, place, or that it is not there) · weights  +  how often it was carried
//!                  + unseen (for unseen labels)  + tail · ln inverse propensity (for seen ones)
//! ```
//!
//! `unseen` trades one kind of label for the other. It is chosen in the rehearsal, as much as costs `give` points of nDCG@5
//! where documents suffice to tell, or said. Probabilities below `least` are not given, so that a blend can say nothing.
//!
//! Cost: sources are fitted twice, and all of them answer. Memory: all sources at once when they answer; in the rehearsal one
//! at a time, and 12 bytes a label of each ranking, for 5,000 documents at most.

mod config; // settings
mod rehearsal; // some documents held out, some labels hidden
mod evidence; // what sources say, as features
mod logistic; // logistic regression
mod judgement; // from what sources say to log-odds
mod shared; // reasons of several sources as one list
mod model; // the predictor

pub(super) use config::NAMES;
pub use config::{BlendConfig, OwnStem, SourceStem};
pub use model::BlendModel;

use std::path::Path;

use self::judgement::{Judgement, Lesson, Tried};
use self::rehearsal::Rehearsal;
use super::config::MethodConfig;
use super::error::MethodError;
use super::parts::Part;
use super::{Method, TrainContext, run};
use crate::artifact::{ModelWriter, Provenance};
use crate::data::{Dataset, Document, Passage};
use crate::ids::{DocId, LabelId};
use crate::predict::{Ask, Predictor};
use crate::progress::Event;
use crate::ranking::Scored;
use crate::storage::StorageError;

/// Documents that a source is tried on at once.
const WINDOW: usize = 256;

/// The method, its settings checked.
pub struct Blend {
    name: &'static str,
    config: BlendConfig,
}

impl Blend {
    /// The method called `name`.
    ///
    /// # Errors
    /// If a setting makes no sense, of its own or of a source.
    pub fn new(name: &'static str, config: BlendConfig) -> Result<Blend, MethodError> {
        config.check(name)?;
        Ok(Blend { name, config })
    }

    /// Fits sources on a part of the documents and learns from what they make of the others.
    fn rehearse(&self, dataset: &dyn Dataset, context: &TrainContext<'_>) -> Result<Judgement, MethodError> {
        let labelled =
            (0..dataset.len() as u32).filter(|&id| !dataset.labels_of(DocId(id)).is_empty()).count();
        let space = dataset.label_space();
        let unseen = space.iter().filter(|(label, _)| !space.is_seen(*label)).count();
        let shares = self.config.shares(labelled, unseen as f64 / space.len().max(1) as f64);
        let rehearsal = Rehearsal::new(dataset, shares, context.seed).ok_or_else(|| {
            let problem = format!(
                "{labelled} documents with labels are too few to hold some out; fit one of its sources by itself"
            );
            MethodError::Config { method: self.name, problem }
        })?;
        let hidden = rehearsal.hidden.iter().filter(|hidden| **hidden).count();
        let told = |name: &str, value: f64| context.progress.report(Event::Measured { name, value });
        told("rehearsal: documents held out:", rehearsal.held_out.len() as f64);
        told("rehearsal: labels hidden:", hidden as f64);
        if hidden == 0 {
            let message =
                "no label is rare enough to be hidden, so that unseen ones are judged as rare ones are";
            context.progress.report(Event::Warned(message));
        }
        // Held-out documents are to be new to sources, so that they must not choose by them either.
        let context = TrainContext { dev: None, folder: None, ..*context };
        let mut rankings: Vec<Vec<Vec<Scored>>> = Vec::new();
        let mut item_to_item = false;
        for (number, config) in self.config.methods()?.into_iter().enumerate() {
            told(&format!("rehearsing {}, source", config.name()), number as f64 + 1.0);
            let source = config.method()?.train(&rehearsal.rest, &context)?;
            item_to_item |= source.item_to_item();
            rankings.push(self.tried(source.as_ref(), &rehearsal.held_out, &context)?);
        }
        if item_to_item {
            without_themselves(&rehearsal.held_out, &mut rankings)?;
        }
        let space = rehearsal.rest.label_space();
        let lesson = Lesson {
            tried: (0..rehearsal.held_out.len())
                .map(|place| Tried {
                    rankings: rankings.iter().map(|of_source| &of_source[place][..]).collect(),
                    gold: rehearsal.held_out.labels_of(DocId(place as u32)),
                })
                .collect(),
            counts: (0..space.positions() as u32).map(|label| space.train_count(LabelId(label))).collect(),
            hidden: &rehearsal.hidden,
        };
        let judgement = lesson.learn(self.config.unseen.map(f64::from), self.config.give / 100.0);
        let quality = lesson.quality(judgement.shift);
        told("rehearsal: nDCG@5:", 100.0 * quality.ndcg);
        told("rehearsal: hidden labels found among ten, %:", 100.0 * quality.hidden_at_10);
        told("rehearsal: calibration error, %:", 100.0 * quality.calibration_error);
        told("log-odds added to unseen labels:", judgement.shift);
        Ok(judgement)
    }

    /// What a source makes of documents.
    fn tried(
        &self,
        source: &dyn Predictor,
        documents: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Vec<Vec<Scored>>, MethodError> {
        let mut rankings = Vec::with_capacity(documents.len());
        // One more where a document may be among its own labels, which is left out.
        let ask = Ask { k: self.config.depth + usize::from(source.item_to_item()), allowed: None };
        for start in (0..documents.len()).step_by(WINDOW) {
            if context.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            let end = documents.len().min(start + WINDOW);
            let window: Vec<Document> =
                (start..end).map(|id| documents.document(DocId(id as u32))).collect::<Result<_, _>>()?;
            let passages: Vec<Passage<'_>> = window.iter().map(Document::passage).collect();
            let found = source.predict(&passages, &ask)?;
            rankings.extend(found.iter().map(|ranking| ranking.entries().to_vec()));
        }
        Ok(rankings)
    }

    /// Fits a source on everything and writes it into a folder, which it is copied from when the blend is written.
    fn source(
        config: MethodConfig,
        (dataset, dir): (&dyn Dataset, &Path),
        context: &TrainContext<'_>,
    ) -> Result<(), crate::Error> {
        let provenance = Provenance { config: config.to_value(), seed: context.seed, sources: Vec::new() };
        let writer = ModelWriter::create(dir, config.name(), &provenance, &[])?;
        let dev = context.dev.filter(|_| config.measures());
        run::fit_into(writer, config, dataset, &TrainContext { dev, folder: None, ..*context })?;
        Ok(())
    }
}

/// Takes documents that are labels themselves out of their own rankings.
fn without_themselves(documents: &dyn Dataset, rankings: &mut [Vec<Vec<Scored>>]) -> Result<(), MethodError> {
    for place in 0..documents.len() {
        let document = documents.document(DocId(place as u32))?;
        if let Some(itself) = documents.label_space().find(&document.id) {
            for of_source in rankings.iter_mut() {
                of_source[place].retain(|scored| scored.label != itself);
            }
        }
    }
    Ok(())
}

impl Method for Blend {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        let judgement = self.rehearse(dataset, context)?;
        let spool = context.task.map_or_else(std::env::temp_dir, |task| task.options().spool.clone());
        let folders = tempfile::tempdir_in(&spool).map_err(StorageError::io(&spool, "create a folder in"))?;
        let of_part = |error: crate::Error| match error {
            crate::Error::Method(error) => error,
            error => MethodError::Part(Box::new(error)),
        };
        let mut parts = Vec::new();
        for (config, name) in self.config.methods()?.into_iter().zip(NAMES) {
            let dir = folders.path().join(name);
            let said = format!("fitting {}, source", config.name());
            context.progress.report(Event::Measured { name: &said, value: parts.len() as f64 + 1.0 });
            Blend::source(config, (dataset, &dir), context).map_err(of_part)?;
            parts.push(
                Part::from_folder(name, &dir, |dir| run::load_part(dir, context.device)).map_err(of_part)?,
            );
        }
        let space = dataset.label_space().clone();
        Ok(Box::new(BlendModel::new(self.config.clone(), judgement, space, parts).kept_in(folders)))
    }
}
