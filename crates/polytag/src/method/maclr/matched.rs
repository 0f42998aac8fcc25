//! Stage two, and given pairs: documents against the labels of the other pairs of a step (paper 001, eq. 2 and 3), or each
//! against its own label and one that it does not have (paper 000, section III-B).

use std::collections::BTreeSet;

use polytag_nn::batch::Batch;
use polytag_nn::element::Element;
use polytag_nn::error::Error;
use polytag_nn::loss::{Positives, supervised_contrastive, wanted_products};
use polytag_nn::op::rows;
use polytag_nn::parameters::Parameters;
use polytag_nn::random::Key;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::tensor::Tensor;
use polytag_nn::train::{Ahead, Evaluation, Objective, Order, Place};
use sha2::{Digest as _, Sha256};

use super::config::{MaclrConfig, PairLoss};
use super::labels::Labels;
use super::siamese::{DevMeasures, Siamese};
use crate::method::training::Texts;

/// Which labels each document has, given or guessed.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// Rows of the label texts, in order, each once.
    lists: Vec<Vec<u32>>,
    /// All pairs of a document and one of its labels, label by label.
    pairs: Vec<(u32, u32)>,
    /// The labels that some document has, in order.
    labels: Vec<u32>,
    /// What is seen once an epoch.
    examples: Vec<Example>,
    /// How many of them a label has at most.
    most: usize,
}

/// A pair that an epoch sees: one of a label's, another one each epoch where there are more than an epoch takes.
#[derive(Debug)]
struct Example {
    /// Where the label's pairs begin, and how many there are to take turns.
    first: usize,
    count: u32,
    /// Which of them is the first epoch's.
    turn: u32,
}

impl Matches {
    /// From a list of labels a document.
    pub(super) fn new(lists: Vec<Vec<u32>>) -> Matches {
        Matches::in_turns(lists, usize::MAX, Key::new(0))
    }

    /// The same, where an epoch sees at most so many pairs of one label, in an order that `key` draws.
    pub(super) fn in_turns(mut lists: Vec<Vec<u32>>, most: usize, key: Key) -> Matches {
        lists.iter_mut().for_each(|list| {
            list.sort_unstable();
            list.dedup();
        });
        let pairs = |(list, document): (&Vec<u32>, u32)| {
            list.iter().map(move |&label| (document, label)).collect::<Vec<_>>()
        };
        let mut pairs: Vec<(u32, u32)> = lists.iter().zip(0..).flat_map(pairs).collect();
        // Files are often in some order, so that the first documents of a label would be much alike.
        pairs.sort_by_cached_key(|&(document, label)| (label, key.bits(document, label), document));
        let (mut labels, mut examples, mut first) = (Vec::new(), Vec::new(), 0);
        for of_label in pairs.chunk_by(|a, b| a.1 == b.1) {
            labels.push(of_label[0].1);
            let count = of_label.len() as u32;
            let seen = of_label.len().min(most) as u32;
            // Where an epoch takes them all, each stands for itself.
            let example = |turn| {
                if seen == count {
                    Example { first: first + turn as usize, count: 1, turn: 0 }
                } else {
                    Example { first, count, turn }
                }
            };
            examples.extend((0..seen).map(example));
            first += of_label.len();
        }
        Matches { lists, pairs, labels, examples, most }
    }

    /// Adds them to a checksum.
    pub(super) fn add_to(&self, hash: &mut Sha256) {
        for (document, label) in &self.pairs {
            hash.update(document.to_le_bytes());
            hash.update(label.to_le_bytes());
        }
    }

    /// How many pairs an epoch sees.
    pub(super) fn len(&self) -> usize {
        self.examples.len()
    }

    /// The pair of an example in an epoch.
    fn pair(&self, example: usize, epoch: u64) -> (u32, u32) {
        let Example { first, count, turn } = self.examples[example];
        let turn = (u64::from(turn) + epoch.wrapping_mul(self.most as u64)) % u64::from(count);
        self.pairs[first + turn as usize]
    }

    /// A label that some document has, drawn by `key`; the same few draws always, should one after the other be refused.
    fn drawn(&self, key: Key, is_right: impl Fn(u32) -> bool) -> Option<u32> {
        let label = |turn| {
            let place = (u64::from(key.bits(turn, 0)) * self.labels.len() as u64) >> 32;
            self.labels[place as usize]
        };
        (0..DRAWS).map(label).find(|&label| !is_right(label))
    }
}

/// How often a label is drawn that a document does not have: in vain only where it has nearly all of them.
const DRAWS: u32 = 64;

/// What such a stage trains.
pub(super) struct Matched<'a> {
    pub(super) config: &'a MaclrConfig,
    pub(super) loss: PairLoss,
    /// What labels are drawn by.
    pub(super) key: Key,
    pub(super) siamese: Siamese<'a>,
    pub(super) documents: &'a Texts,
    pub(super) labels: &'a Labels,
    pub(super) matches: &'a Matches,
    pub(super) measures: Option<&'a DevMeasures>,
    pub(super) order: Order,
    pub(super) prepared: Ahead<Prepared>,
}

/// The texts of a step, documents before labels, and what is wanted of them.
pub(super) struct Prepared {
    batch: Batch,
    count: usize,
    wanted: Wanted,
}

/// What is wanted of the documents and labels of a step.
enum Wanted {
    /// Which labels are whose, a label a document.
    Contrast(Positives),
    /// What the cosine of each document is to be with its label, and with the one that was drawn for it; labels lie in this
    /// order.
    Cosine([Tensor; 2]),
}

impl Matched<'_> {
    fn make(&self, place: Place) -> Result<Prepared, Error> {
        let count = self.config.per_step(self.matches.len());
        let begin = place.step * count as u64;
        let chosen = self.order.examples(begin, count).into_iter().zip(begin..);
        let epoch = |seen: u64| seen / self.matches.len() as u64;
        let pairs: Vec<(u32, u32)> =
            chosen.map(|(example, seen)| self.matches.pair(example, epoch(seen))).collect();
        let documents = pairs.iter().map(|&(document, _)| self.documents.get(document as usize));
        let (drawn, wanted) = match self.loss {
            PairLoss::Contrast => (Vec::new(), Wanted::Contrast(self.positives(&pairs)?)),
            PairLoss::Cosine => {
                let (drawn, cosines) = self.others(&pairs, self.key.part(place.step));
                let tensor =
                    |cosines: &[f32]| Tensor::new(&self.siamese.device, (count, 1), cosines, Element::F32);
                (drawn, Wanted::Cosine([tensor(&vec![1.0; count])?, tensor(&cosines)?]))
            }
        };
        let labels = pairs.iter().map(|&(_, label)| label).chain(drawn);
        let labels = labels.map(|label| self.labels.texts.get(label as usize));
        let batch = self.siamese.batch(documents.chain(labels))?;
        Ok(Prepared { batch, count, wanted })
    }

    /// Whether a label is right for a document: one that it has, or one that reads the same.
    fn is_right(&self, document: u32) -> impl Fn(u32) -> bool {
        let list = &self.matches.lists[document as usize];
        let texts: BTreeSet<u32> = list.iter().map(|&label| self.labels.text_of(label)).collect();
        move |label| texts.contains(&self.labels.text_of(label))
    }

    /// Which labels of the step are right for which document. One that the document has by another pair is right, too.
    fn positives(&self, pairs: &[(u32, u32)]) -> Result<Positives, Error> {
        let list = |&(document, _): &(u32, u32)| {
            let is_right = self.is_right(document);
            pairs.iter().zip(0..).filter(|((_, label), _)| is_right(*label)).map(|(_, row)| row).collect()
        };
        let lists: Vec<Vec<u32>> = pairs.iter().map(list).collect();
        Positives::new(&self.siamese.device, pairs.len(), lists.iter().map(Vec::as_slice))
    }

    /// A label for each pair's document that is not right for it, and the cosine that is wanted of them. A document that has
    /// every label is shown its own once more.
    fn others(&self, pairs: &[(u32, u32)], key: Key) -> (Vec<u32>, Vec<f32>) {
        let other = |(&(document, label), row): (&(u32, u32), u64)| {
            let drawn = self.matches.drawn(key.part(row), self.is_right(document));
            drawn.map_or((label, 1.0), |drawn| (drawn, 0.0))
        };
        pairs.iter().zip(0..).map(other).unzip()
    }
}

impl Objective for Matched<'_> {
    fn prepare(&mut self, place: Place) -> Result<(), Error> {
        self.prepared.put(place, self.make(place)?);
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        let prepared = match self.prepared.take(place) {
            Some(prepared) => prepared,
            None => self.make(place)?,
        };
        let Prepared { batch, count, wanted } = prepared;
        let all = self.siamese.embed(tape, &batch)?;
        let documents = rows(tape, &all, 0..count)?;
        let labels = rows(tape, &all, count..2 * count)?;
        match wanted {
            Wanted::Contrast(positives) => {
                let temperature = self.config.temperature;
                let loss = supervised_contrastive(tape, &documents, &labels, &positives, temperature)?;
                Ok(vec![(loss, 1.0 / count as f32)])
            }
            Wanted::Cosine([own, others]) => {
                let drawn = rows(tape, &all, 2 * count..3 * count)?;
                let near = wanted_products(tape, (&documents, &labels), &own)?;
                let far = wanted_products(tape, (&documents, &drawn), &others)?;
                Ok(vec![(near, 0.5), (far, 0.5)])
            }
        }
    }

    fn evaluate(&mut self, parameters: &Parameters) -> Result<Option<Evaluation>, Error> {
        self.measures.map(|measures| measures.measure(&self.siamese, parameters, self.labels)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_each_document_with_each_of_its_labels_once() {
        let matches = Matches::new(vec![vec![3, 1, 3], Vec::new(), vec![0]]);
        assert_eq!(matches.lists, [vec![1, 3], vec![], vec![0]]);
        for epoch in [0, 1, u64::MAX] {
            let pairs: Vec<(u32, u32)> = (0..matches.len()).map(|pair| matches.pair(pair, epoch)).collect();
            assert_eq!(pairs, [(2, 0), (0, 1), (0, 3)]);
        }
    }

    #[test]
    fn a_label_with_many_pairs_shows_others_in_the_next_epoch() {
        let lists = || (0..40).map(|document| if document == 1 { vec![7, 8] } else { vec![7] }).collect();
        let drawn = |seed| {
            let matches = Matches::in_turns(lists(), 8, Key::new(seed));
            assert_eq!((matches.len(), matches.pair(8, 5)), (9, (1, 8)));
            let pairs = (0..5).flat_map(|epoch| (0..8).map(move |example| (example, epoch)));
            pairs.map(|(example, epoch)| matches.pair(example, epoch).0).collect::<Vec<u32>>()
        };
        let mut all = drawn(1);
        assert_ne!(all, drawn(2), "other seeds, other turns");
        assert_ne!(all[..8], [0, 1, 2, 3, 4, 5, 6, 7], "not by their order in the file");
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<u32>>(), "five epochs see each once");
    }

    #[test]
    fn labels_are_drawn_among_those_that_documents_have() {
        let matches = Matches::new(vec![vec![3, 1], Vec::new(), vec![9]]);
        let drawn = |of: u64, is_right: fn(u32) -> bool| {
            (0..of).filter_map(|key| matches.drawn(Key::new(key), is_right)).collect::<Vec<u32>>()
        };
        let any = drawn(300, |_| false);
        assert!([1, 3, 9].iter().all(|label| any.iter().filter(|drawn| *drawn == label).count() > 60));
        assert_eq!(any.len(), 300);
        assert_eq!(any, drawn(300, |_| false));
        assert!(drawn(300, |label| label != 9).iter().all(|&label| label == 9));
        assert!(drawn(300, |_| true).is_empty(), "a document may have them all");
    }
}
