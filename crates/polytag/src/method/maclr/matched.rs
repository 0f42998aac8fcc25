//! Stage two, and given pairs: documents against the labels of the other pairs of a step (paper 001, eq. 2 and 3).

use std::collections::BTreeSet;

use polytag_nn::batch::Batch;
use polytag_nn::error::Error;
use polytag_nn::loss::{Positives, supervised_contrastive};
use polytag_nn::op::rows;
use polytag_nn::parameters::Parameters;
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
    /// All pairs of a document and one of its labels.
    pairs: Vec<(u32, u32)>,
}

impl Matches {
    /// From a list of labels a document.
    pub(super) fn new(mut lists: Vec<Vec<u32>>) -> Matches {
        lists.iter_mut().for_each(|list| {
            list.sort_unstable();
            list.dedup();
        });
        let pairs = |(list, document): (&Vec<u32>, u32)| {
            list.iter().map(move |&label| (document, label)).collect::<Vec<_>>()
        };
        let pairs = lists.iter().zip(0..).flat_map(pairs).collect();
        Matches { lists, pairs }
    }

    /// Adds them to a checksum.
    pub(super) fn add_to(&self, hash: &mut Sha256) {
        for (document, label) in &self.pairs {
            hash.update(document.to_le_bytes());
            hash.update(label.to_le_bytes());
        }
    }

    /// How many pairs.
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
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
        let chosen = self.order.examples(place.step * count as u64, count);
        let pairs: Vec<(u32, u32)> = chosen.into_iter().map(|pair| self.matches.pairs[pair]).collect();
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
        assert_eq!((matches.len(), &matches.pairs[..]), (3, &[(0, 1), (0, 3), (2, 0)][..]));
    }
}
