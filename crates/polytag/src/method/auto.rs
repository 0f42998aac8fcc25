//! Which method suits a task, when nobody says.

use serde_json::Value;

use super::config::MethodConfig;
use super::error::MethodError;
use crate::data::{DataError, Split, Task};
use crate::encoder::{EncoderCache, EncoderError};
use crate::progress::Stop;

/// Documents that an encoder is trained on without a GPU where somebody names one, at most.
const FEW_DOCUMENTS: u64 = 500;

/// Below this share of labels or documents with a pair, pairs are few.
const FEW: f64 = 0.1;

/// Labelled documents from which on a part of them can be held out for a rehearsal.
const REHEARSED: f64 = 100.0;

/// Labelled documents from which on trees and words together are better than words alone.
const SOME: f64 = 40.0;

/// Labelled documents from which on words add little to trees that know every label, and cost as much again.
const MANY: f64 = 20_000.0;

/// A method, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method's name.
    pub method: &'static str,
    /// Why, for a person.
    pub why: &'static str,
}

/// What there is to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Whether the encoder is on this machine.
    pub encoder: bool,
    /// Whether somebody named it, and so wants it used.
    pub named: bool,
    /// Whether there is a GPU.
    pub gpu: bool,
}

impl Means {
    /// Whether settings name an encoder.
    pub fn names_encoder(settings: &Value) -> bool {
        settings.get("encoder").is_some_and(Value::is_string)
    }

    /// Whether the encoder that settings name is on this machine, or where they name none, the usual one.
    ///
    /// # Errors
    /// If one is named that is not there.
    pub fn has_encoder(settings: &Value, encoders: &EncoderCache) -> Result<bool, EncoderError> {
        match settings.get("encoder").and_then(Value::as_str) {
            Some(name) => encoders.locate(name).map(|_| true),
            None => Ok(encoders.locate("minilm").is_ok()),
        }
    }
}

impl Choice {
    /// The method with these settings, less the encoder, where it has none.
    ///
    /// # Errors
    /// If it has no such setting.
    pub fn config(&self, mut settings: Value) -> Result<MethodConfig, MethodError> {
        if !self.has_encoder() {
            settings.as_object_mut().map(|settings| settings.remove("encoder"));
        }
        MethodConfig::named(self.method, &settings)
    }

    /// Whether the method has an encoder.
    pub fn has_encoder(&self) -> bool {
        !matches!(self.method, "lexical" | "label-tree" | "blend")
    }

    /// The method for a task: its train split is read once, for its documents and pairs.
    pub fn of(task: &Task, means: Means, stop: &Stop) -> Result<Choice, DataError> {
        let (mut documents, mut labelled) = (0, 0);
        let mut has_pair = vec![false; task.labels().positions()];
        if task.file(Split::Train)?.is_some() {
            for document in task.documents(Split::Train)? {
                if stop.is_asked() {
                    return Err(DataError::Stopped);
                }
                let document = document?;
                document.gold().iter().for_each(|label| has_pair[label.index()] = true);
                labelled += u64::from(!document.gold().is_empty());
                documents += 1;
            }
        }
        let with_pairs = has_pair.iter().filter(|has| **has).count();
        let share = |part: f64, of: f64| if of > 0.0 { part / of } else { 0.0 };
        let labels = share(with_pairs as f64, task.labels().len() as f64);
        Ok(choose(means, documents, labels, share(labelled as f64, documents as f64)))
    }
}

/// The method for so many documents; shares of the labels and of the documents have a pair.
fn choose(means: Means, documents: u64, labels: f64, labelled: f64) -> Choice {
    let choice = |method, why| Choice { method, why };
    // Training takes minutes and gigabytes without a GPU even where documents are few: nobody gets that unasked.
    let is_feasible = means.encoder && (means.gpu || means.named && documents <= FEW_DOCUMENTS);
    let pairs = documents as f64 * labelled;
    let share = labels.min(labelled);
    // Pairs are worth more than an encoder that must do with few steps; how many documents have none does not matter.
    let words_do = if is_feasible { !means.gpu && share >= FEW } else { labels >= FEW };
    match share {
        _ if words_do && pairs >= MANY && labels >= 1.0 => {
            choice("label-tree", "which needs no GPU, as every label has examples")
        }
        _ if words_do && pairs >= SOME => choice(
            "blend",
            "of trees for labels that documents carry and words for all of them; it needs no GPU",
        ),
        _ if documents < 2 => choice("lexical", "which needs no documents"),
        _ if !means.gpu && (share >= FEW || share > 0.0 && !is_feasible) => {
            choice("lexical", "which needs no GPU; there are too few examples to learn from by words alone")
        }
        _ if !means.gpu && !is_feasible => choice(
            "lexical",
            "which needs neither examples nor a GPU; `maclr` may find more, and takes long without one",
        ),
        _ if !means.encoder => choice(
            "lexical",
            "which needs no encoder; `polytag encoders pull minilm` gives it one to choose from",
        ),
        0.0 => choice("maclr", "which learns from the texts alone, as no document has a label"),
        share if share < FEW => {
            choice("maclr-few-shot", "which learns from the texts, then from the few pairs that there are")
        }
        _ if labels >= 1.0 => choice("guided-experts", "which is best where every label has examples"),
        _ if pairs >= REHEARSED => choice(
            "blend-neural",
            "of encoders, trees and words: one ranking of labels that documents carry and of the others",
        ),
        _ => choice("of-lan", "which learns from the labelled documents and still finds other labels"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_documents_and_means_decide() {
        let all = Means { encoder: true, named: false, gpu: true };
        let slow = Means { gpu: false, ..all };
        let method = |means, documents, share| choose(means, documents, share, share).method;
        assert_eq!(method(all, 100_000, 0.0), "maclr");
        assert_eq!(method(all, 100_000, 0.01), "maclr-few-shot");
        assert_eq!(method(all, 100_000, 0.8), "blend-neural");
        assert_eq!(method(all, 20, 0.8), "of-lan");
        for documents in [100, 100_000] {
            assert_eq!(method(slow, documents, 0.0), "lexical");
            assert_eq!(method(slow, documents, 0.0001), "lexical");
        }
        assert_eq!(method(all, 0, 0.0), "lexical");
        // Who names an encoder wants it used, where that is no matter of hours.
        let named = Means { named: true, ..slow };
        assert_eq!(method(named, 100, 0.0), "maclr");
        assert_eq!(method(named, 100, 0.01), "maclr-few-shot");
        assert_eq!(method(named, 100, 0.8), "blend");
        assert_eq!(method(named, 30, 0.8), "lexical");
        assert_eq!(method(named, 100_000, 0.0), "lexical");
        let bare = Means { encoder: false, ..all };
        for means in [slow, bare, Means { encoder: false, ..slow }] {
            assert_eq!(method(means, 100_000, 0.8), "blend");
            assert_eq!(choose(means, 100_000, 1.0, 0.8).method, "label-tree");
            assert_eq!(choose(means, 1000, 1.0, 0.8).method, "blend");
            assert_eq!(method(means, 200, 0.8), "blend");
            assert_eq!(method(means, 20, 0.8), "lexical");
            assert_eq!(method(means, 100_000, 0.05), "lexical");
            // Documents without labels are in nobody's way.
            assert_eq!(choose(means, 100_000, 0.8, 0.01).method, "blend");
        }
        assert_eq!(method(bare, 100, 0.0), "lexical");
        assert_eq!(method(bare, 100, 0.05), "lexical");
        assert_eq!(choose(all, 100_000, 1.0, 0.8).method, "guided-experts");
    }
}
