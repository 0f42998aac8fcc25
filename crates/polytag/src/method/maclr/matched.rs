//! Stage two, and given pairs: documents against the labels of the other pairs of a step (paper 001, eq. 2 and 3).

use std::collections::BTreeSet;

use polytag_nn::batch::Batch;
use polytag_nn::error::Error;
use polytag_nn::loss::{Positives, supervised_contrastive};
use polytag_nn::op::rows;
use polytag_nn::parameters::Parameters;
use polytag_nn::random::Key;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::train::{Ahead, Evaluation, Objective, Order, Place};
use sha2::{Digest as _, Sha256};

use super::config::MaclrConfig;
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
        let (mut examples, mut first) = (Vec::new(), 0);
        for of_label in pairs.chunk_by(|a, b| a.1 == b.1) {
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
        Matches { lists, pairs, examples, most }
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
}

/// What such a stage trains.
pub(super) struct Matched<'a> {
    pub(super) config: &'a MaclrConfig,
    pub(super) siamese: Siamese<'a>,
    pub(super) documents: &'a Texts,
    pub(super) labels: &'a Labels,
    pub(super) matches: &'a Matches,
    pub(super) measures: Option<&'a DevMeasures>,
    pub(super) order: Order,
    pub(super) prepared: Ahead<Prepared>,
}

/// The texts of a step, documents before labels, and which labels are whose.
pub(super) struct Prepared {
    batch: Batch,
    count: usize,
    positives: Positives,
}

impl Matched<'_> {
    fn make(&self, place: Place) -> Result<Prepared, Error> {
        let count = self.config.per_step(self.matches.len());
        let begin = place.step * count as u64;
        let chosen = self.order.examples(begin, count).into_iter().zip(begin..);
        let epoch = |seen: u64| seen / self.matches.len() as u64;
        let pairs: Vec<(u32, u32)> =
            chosen.map(|(example, seen)| self.matches.pair(example, epoch(seen))).collect();
        // A label of the step that the document has by another pair is right, too, and so is one that reads the same.
        let lists: Vec<Vec<u32>> = pairs
            .iter()
            .map(|&(document, _)| {
                let list = &self.matches.lists[document as usize];
                let texts: BTreeSet<u32> = list.iter().map(|&label| self.labels.text_of(label)).collect();
                let is_right = |label: u32| texts.contains(&self.labels.text_of(label));
                pairs.iter().zip(0..).filter(|((_, label), _)| is_right(*label)).map(|(_, row)| row).collect()
            })
            .collect();
        let positives = Positives::new(&self.siamese.device, count, lists.iter().map(Vec::as_slice))?;
        let documents = pairs.iter().map(|&(document, _)| self.documents.get(document as usize));
        let labels = pairs.iter().map(|&(_, label)| self.labels.texts.get(label as usize));
        let batch = self.siamese.batch(documents.chain(labels))?;
        Ok(Prepared { batch, count, positives })
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
        let Prepared { batch, count, positives } = prepared;
        let all = self.siamese.embed(tape, &batch)?;
        let documents = rows(tape, &all, 0..count)?;
        let labels = rows(tape, &all, count..2 * count)?;
        let temperature = self.config.temperature;
        let loss = supervised_contrastive(tape, &documents, &labels, &positives, temperature)?;
        Ok(vec![(loss, 1.0 / count as f32)])
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
}
