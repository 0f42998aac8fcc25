//! How good the model is on the dev split, while it trains.

use std::collections::BTreeMap;

use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::op::Comparison;
use polytag_nn::parameters::Parameters;
use polytag_nn::sentence::in_batches;
use polytag_nn::tape::Tape;
use rayon::prelude::*;

use super::dev::Dev;
use super::head::{Head, Ready};
use super::label_rows::LabelRows;
use super::texts::Documents;
use super::tower::Tower;
use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::index::{Allowed, Exact, LabelIndex, Rows};
use crate::ranking::{Scored, TopK};

/// What is shown and written while training, in this order.
pub(super) const MEASURES: [&str; 5] = ["nDCG@5", "PSP@5", "ZSR@10", "ZSR@50", "ZSR@100"];

/// The dev split, and what the best weights are chosen by.
pub(super) struct Course {
    dev: Dev,
    zero_shot_share: f64,
}

impl Course {
    /// `space` has the counts of the train split.
    pub(super) fn new(documents: Documents, space: &LabelSpace, zero_shot_share: f64) -> Course {
        Course { dev: Dev::new(documents, space, (&[5], &[])), zero_shot_share }
    }

    /// The documents that are measured on.
    pub(super) fn documents(&self) -> &Documents {
        self.dev.documents()
    }

    /// The measures, and what the best weights are chosen by: `nDCG@5`, or where dev documents carry unseen
    /// labels its mean with `ZSR@100`, weighted by the share that was asked for.
    pub(super) fn measure(&self, model: &Measured<'_>) -> Result<(f64, BTreeMap<String, f64>), Error> {
        let report = self.dev.report(&model.rank(self.documents(), self.dev.depth())?);
        let value = |name: &str| report.value(name);
        let measures = MEASURES.iter().filter_map(|&name| Some((name.to_owned(), value(name)?))).collect();
        let overall = value("nDCG@5").unwrap_or(0.0);
        let score = match value("ZSR@100") {
            None => overall,
            Some(zero_shot) => overall * (1.0 - self.zero_shot_share) + zero_shot * self.zero_shot_share,
        };
        Ok((score, measures))
    }
}

/// A model as it stands.
pub(super) struct Measured<'a> {
    pub(super) encoder: &'a Encoder,
    pub(super) head: &'a Head,
    pub(super) tower: &'a Tower,
    pub(super) rows: &'a LabelRows,
    pub(super) parameters: &'a Parameters,
}

impl Measured<'_> {
    /// The best labels of each document.
    fn rank(&self, documents: &Documents, depth: usize) -> Result<Vec<Vec<LabelId>>, Error> {
        let texts: Vec<&[u32]> = documents.texts.iter().collect();
        match self.head {
            Head::Pooled { .. } => self.rank_pooled(&texts, depth),
            Head::Attended(_) => self.rank_attended(&texts, depth),
        }
    }

    fn rank_pooled(&self, texts: &[&[u32]], depth: usize) -> Result<Vec<Vec<LabelId>>, Error> {
        let mut tape = Tape::inference(self.parameters);
        let outputs = self.tower.all(&mut tape)?.outputs;
        let labels = outputs.tensor().rows();
        // A label's own bias is one more number of its vector.
        let mut rows = Vec::new();
        let biases = self.tower.biases(self.parameters, labels)?;
        for (row, bias) in outputs.tensor().to_vec()?.chunks_exact(outputs.tensor().columns()).zip(biases) {
            rows.extend_from_slice(row);
            rows.push(if self.tower.comparison == Comparison::Product { bias } else { 0.0 });
        }
        let all: Allowed = (0..labels).map(LabelId::from_index).collect();
        let index = Exact::from_rows(outputs.tensor().columns() + 1, Rows::F32(rows.into()), all);
        let index = index.map_err(|error| Error::Unfit(error.to_string()))?;
        let vectors = in_batches(self.encoder, self.parameters, texts, |tape, states, batch| {
            let Ready::Vectors(vectors) = self.head.ready(tape, states, batch, self.tower.comparison)? else {
                unreachable!("a head that pools makes vectors");
            };
            let columns = vectors.tensor().columns();
            let with_one = |row: &[f32]| row.iter().copied().chain([1.0]).collect();
            Ok(vectors.tensor().to_vec()?.chunks_exact(columns).map(with_one).collect::<Vec<Vec<f32>>>())
        })?;
        let rankings = index.search(&vectors.concat(), depth, None);
        let rankings = rankings.map_err(|error| Error::Unfit(error.to_string()))?;
        let label = |row: LabelId| self.rows.labels()[row.index()];
        Ok(rankings.iter().map(|ranking| ranking.labels().map(label).collect()).collect())
    }

    fn rank_attended(&self, texts: &[&[u32]], depth: usize) -> Result<Vec<Vec<LabelId>>, Error> {
        let mut tape = Tape::inference(self.parameters);
        let labels = self.tower.all(&mut tape)?;
        let biases = match self.tower.comparison {
            Comparison::Cosine => Vec::new(),
            Comparison::Product => self.tower.biases(self.parameters, labels.outputs.tensor().rows())?,
        };
        in_batches(self.encoder, self.parameters, texts, |tape, states, batch| {
            let count = labels.outputs.tensor().rows();
            let best = |row: &[f32]| {
                let mut top = TopK::new(depth);
                for (place, (&score, &label)) in row.iter().zip(self.rows.labels()).enumerate() {
                    let score = score + biases.get(place).copied().unwrap_or(0.0);
                    top.push(Scored { label, score }).map_err(|error| Error::Unfit(error.to_string()))?;
                }
                Ok(top.into_ranking().labels().collect())
            };
            let mut rankings = Vec::with_capacity(batch.len());
            for range in self.head.parts(batch.len(), 4 * count) {
                let found = self.head.attend(tape, (states, batch), range, &labels)?.tensor().to_vec()?;
                let best: Vec<Vec<LabelId>> =
                    found.par_chunks_exact(count).map(best).collect::<Result<_, Error>>()?;
                rankings.extend(best);
            }
            Ok(rankings)
        })
    }
}
