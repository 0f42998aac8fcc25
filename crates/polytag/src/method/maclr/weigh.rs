//! How much guesses count beside cosines and words, where given pairs can say: a tenth of the documents that have any is
//! kept out of learning, and the weight that ranks their labels best is taken. How far `lexical`'s guesses can be
//! trusted differs from task to task, and from encoder to encoder.
//!
//! What enters are the lists of given labels and, in the end, the model as it will be; what leaves is a number. Labels
//! are ranked as the model ranks them, so that nothing of the size of documents times labels is made.

use polytag_nn::train::Order;
use rustc_hash::FxHashMap;

use crate::data::{DataError, Dataset, Document, Passage};
use crate::ids::{DocId, LabelId};
use crate::method::TrainContext;
use crate::method::beside::gains;
use crate::method::embedding::EmbeddingModel;
use crate::method::error::MethodError;
use crate::predict::{Ask, Predictor as _};
use crate::progress::{Event, Stage};
use crate::ranking::Ranking;

/// How much guesses may count where nobody says how much.
const WEIGHTS: [f32; 6] = [0.0, 0.02, 0.05, 0.08, 0.12, 0.16];

/// And how much they do where no pairs can tell.
const USUAL: f32 = 0.05;

/// Of how many documents with pairs one is kept out of learning, and how many are at most.
const SHARE: usize = 10;
const MOST: usize = 1000;

/// Fewer pairs than these say nothing, and all are learned from.
const LEAST: usize = 50;

/// As many pairs as all of one label together count for at most: one label that most documents have is not to decide.
const OF_ONE_LABEL: f64 = 50.0;

/// How far down its ranking a label still counts.
const DEPTH: usize = 100;

/// Documents that are not learned from, with their labels.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    documents: Vec<(DocId, Vec<LabelId>)>,
}

impl Withheld {
    /// Takes documents out of `lists`, which are rows of labels by document; `ids` says whose rows they are.
    pub(super) fn draw(lists: &mut [Vec<u32>], ids: &[LabelId], seed: u64) -> Withheld {
        let labelled: Vec<usize> = (0..lists.len()).filter(|&place| !lists[place].is_empty()).collect();
        let count = (labelled.len() / SHARE).min(MOST);
        if count == 0 {
            return Withheld::default();
        }
        let drawn = Order::new(labelled.len(), seed ^ 0x7765_6967).examples(0, count);
        let mut drawn: Vec<usize> = drawn.into_iter().map(|place| labelled[place]).collect();
        if drawn.iter().map(|&place| lists[place].len()).sum::<usize>() < LEAST {
            return Withheld::default();
        }
        drawn.sort_unstable();
        let taken = |place: usize| {
            let rows = std::mem::take(&mut lists[place]);
            (DocId(place as u32), rows.into_iter().map(|row| ids[row as usize]).collect())
        };
        Withheld { documents: drawn.into_iter().map(taken).collect() }
    }

    /// The model with what labels gain by how often each was `guessed`, at the weight that is best for these documents.
    pub(super) fn weighed(
        &self,
        mut model: EmbeddingModel,
        guessed: &[u32],
        (dataset, context): (&dyn Dataset, &TrainContext<'_>),
    ) -> Result<EmbeddingModel, MethodError> {
        let labels = model.label_space().len();
        let mut best = (USUAL, f64::MIN);
        if !self.documents.is_empty() {
            let stage =
                Stage::start(context.progress, "weighing guesses by given pairs", Some(WEIGHTS.len() as u64));
            let read = |(place, _): &(DocId, _)| dataset.document(*place);
            let documents: Vec<Document> =
                self.documents.iter().map(read).collect::<Result<_, DataError>>()?;
            let passages: Vec<Passage<'_>> = documents.iter().map(Document::passage).collect();
            let vectors = model.vectors_of(&passages)?;
            let ask = Ask { k: DEPTH + usize::from(model.item_to_item()), allowed: None };
            for weight in WEIGHTS {
                if context.stop.is_asked() {
                    return Err(MethodError::Stopped);
                }
                model = model.with_gains(gains(guessed, labels, weight))?;
                let rankings = model.ranked((&passages, &vectors), &ask)?;
                let found = self.reciprocal_rank(&rankings, |place| {
                    let itself = model.label_space().find(&documents[place].id);
                    itself.filter(|_| model.item_to_item())
                });
                if found > best.1 {
                    best = (weight, found);
                }
                stage.advance(1);
            }
            stage.finish();
            let name =
                format!("label_prior, best for {} documents that were not learned from:", documents.len());
            context.progress.report(Event::Measured { name: &name, value: best.0.into() });
        }
        // Nothing at all rather than zeros, so that a graph may be made of the labels.
        let gains = if best.0 > 0.0 { gains(guessed, labels, best.0) } else { Vec::new() };
        model.with_gains(gains)
    }

    /// The mean of one over the place of each label in its document's ranking; `itself` is what a document does not count
    /// among its labels.
    fn reciprocal_rank(&self, rankings: &[Ranking], itself: impl Fn(usize) -> Option<LabelId>) -> f64 {
        let mut counts: FxHashMap<LabelId, f64> = FxHashMap::default();
        for &label in self.documents.iter().flat_map(|(_, labels)| labels) {
            *counts.entry(label).or_default() += 1.0;
        }
        let (mut sum, mut all) = (0.0, 0.0);
        for (place, ((_, labels), ranking)) in self.documents.iter().zip(rankings).enumerate() {
            let itself = itself(place);
            for label in labels {
                let share = (OF_ONE_LABEL / counts[label]).min(1.0);
                let mut others = ranking.labels().filter(|found| Some(*found) != itself).take(DEPTH);
                let at = others.position(|found| found == *label);
                sum += at.map_or(0.0, |at| share / (at + 1) as f64);
                all += share;
            }
        }
        sum / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranking::Scored;

    fn ids(count: u32) -> Vec<LabelId> {
        (0..count).map(|row| LabelId(10 + row)).collect()
    }

    #[test]
    fn a_tenth_of_the_documents_with_pairs_is_kept_out() {
        let lists =
            || (0..1200).map(|i| if i % 2 == 0 { vec![i % 7, 7] } else { vec![] }).collect::<Vec<_>>();
        let drawn = |seed| {
            let mut left = lists();
            (Withheld::draw(&mut left, &ids(8), seed).documents, left)
        };
        let (withheld, left) = drawn(1);
        assert_eq!(withheld.len(), 60);
        for (place, labels) in &withheld {
            let i = place.0;
            assert_eq!(*labels, [LabelId(10 + i % 7), LabelId(17)]);
            assert!(left[i as usize].is_empty() && i % 2 == 0);
        }
        assert_eq!(left.iter().filter(|list| !list.is_empty()).count(), 540);
        assert_eq!(drawn(1), (withheld.clone(), left));
        assert_ne!(drawn(2).0, withheld);
        // Too few to say anything: all are learned from.
        let mut few = lists()[..400].to_vec();
        assert!(Withheld::draw(&mut few, &ids(8), 1).documents.is_empty());
        assert_eq!(few, lists()[..400]);
        assert!(Withheld::draw(&mut [Vec::new()], &[], 1).documents.is_empty());
        let mut many = vec![vec![0]; 30_000];
        assert_eq!(Withheld::draw(&mut many, &ids(1), 1).documents.len(), MOST);
    }

    #[test]
    fn labels_count_by_their_places_and_one_that_all_have_does_not_decide() {
        let ranking = |labels: &[u32]| {
            let scored = labels
                .iter()
                .zip(0..)
                .map(|(&label, place)| Scored { label: LabelId(label), score: -(place as f32) });
            Ranking::new(scored.collect(), labels.len()).unwrap()
        };
        let of = |documents: &[(u32, &[u32])]| Withheld {
            documents: documents
                .iter()
                .map(|(place, labels)| (DocId(*place), labels.iter().copied().map(LabelId).collect()))
                .collect(),
        };
        let two = of(&[(0, &[4, 9]), (1, &[5])]);
        let rankings = [ranking(&[3, 4, 5]), ranking(&[3, 4, 5])];
        // Second, not found, and third, or second where the document is the first label itself.
        assert!((two.reciprocal_rank(&rankings, |_| None) - (0.5 + 1.0 / 3.0) / 3.0).abs() < 1e-12);
        let itself = |place| (place == 1).then_some(LabelId(3));
        assert!((two.reciprocal_rank(&rankings, itself) - (0.5 + 0.5) / 3.0).abs() < 1e-12);
        // A hundred pairs of one label count as fifty.
        let many: Vec<(u32, &[u32])> = (0..100).map(|i| (i, &[3][..])).chain([(100, &[4][..])]).collect();
        let rankings = vec![ranking(&[3, 4]); 101];
        let found = of(&many).reciprocal_rank(&rankings, |_| None);
        assert!((found - 50.5 / 51.0).abs() < 1e-12, "{found}");
    }
}
