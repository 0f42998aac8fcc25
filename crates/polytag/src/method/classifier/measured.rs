//! How good the experts are together on the dev split, and the best labels by them.

use std::collections::BTreeMap;

use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::op::RowIds;
use polytag_nn::parameters::Parameters;
use polytag_nn::sentence::layers_in_batches;
use polytag_nn::train::Evaluation;
use rayon::prelude::*;

use super::network::Network;
use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::method::training::{Dev, Documents};
use crate::ranking::{NotFinite, Ranking, Scored, TopK};

/// What is shown and written while training, in this order. The last one is the share of a document's labels that are
/// among those judged for it, where labels are in clusters.
pub(super) const MEASURES: [&str; 6] = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", CANDIDATES];

const CANDIDATES: &str = "candidates";

/// The dev split.
pub(super) struct Measured(Dev);

impl Measured {
    pub(super) fn new(documents: Documents, space: &LabelSpace) -> Measured {
        Measured(Dev::new(documents, space, (&[1, 3, 5], &[])))
    }

    /// The documents that are measured on.
    pub(super) fn documents(&self) -> &Documents {
        self.0.documents()
    }

    /// The measures of a model as it stands; the best weights are those with the best `nDCG@5`.
    pub(super) fn evaluate(
        &self,
        model: (&Encoder, &Parameters),
        network: &Network,
        labels: &[LabelId],
    ) -> Result<Evaluation, Error> {
        let texts: Vec<&[u32]> = self.documents().texts.iter().collect();
        let found = rank(model, network, (&texts, None), |found| {
            let ranking = found.best(labels, self.0.depth(), |_| true);
            let candidates: Option<Vec<LabelId>> = found
                .rows
                .map(|rows| rows.iter().filter_map(|&row| labels.get(row as usize).copied()).collect());
            (ranking, candidates)
        })?;
        let (mut rankings, mut shares) = (Vec::with_capacity(found.len()), Vec::new());
        for (document, (ranking, candidates)) in found.into_iter().enumerate() {
            let ranking = ranking.map_err(|error| Error::Unfit(error.to_string()))?;
            rankings.push(ranking.labels().collect::<Vec<LabelId>>());
            if let Some(mut candidates) = candidates {
                candidates.sort_unstable();
                let gold = self.documents().labels(document);
                let hit = gold.iter().filter(|label| candidates.binary_search(label).is_ok()).count();
                shares.push(100.0 * hit as f64 / gold.len() as f64);
            }
        }
        let report = self.0.report(&rankings);
        let value = |&name: &&str| Some((name.to_owned(), report.value(name)?));
        let mut measures: BTreeMap<String, f64> = MEASURES.iter().filter_map(value).collect();
        if !shares.is_empty() {
            measures.insert(CANDIDATES.to_owned(), shares.iter().sum::<f64>() / shares.len() as f64);
        }
        Ok(Evaluation { score: report.value("nDCG@5"), measures })
    }
}

/// What was judged for a text.
pub(super) struct Found<'a> {
    /// The rows that were, if not all in their order.
    rows: Option<&'a [u32]>,
    probabilities: &'a [f32],
}

impl Found<'_> {
    /// The best `k` labels by their probabilities, of those that may be given; `labels` are those of the rows.
    pub(super) fn best(
        &self,
        labels: &[LabelId],
        k: usize,
        may: impl Fn(LabelId) -> bool,
    ) -> Result<Ranking, NotFinite> {
        let mut top = TopK::new(k);
        for (place, &score) in self.probabilities.iter().enumerate() {
            let row = self.rows.map_or(place, |rows| rows[place] as usize);
            // Rows that fill up are no labels.
            if let Some(&label) = labels.get(row).filter(|&&label| may(label)) {
                top.push(Scored { label, score })?;
            }
        }
        Ok(top.into_ranking())
    }
}

/// What `best` makes of what was judged for each text. Where labels are in clusters, rows that are named are judged for
/// all texts, whatever their clusters are.
pub(super) fn rank<R: Send>(
    (encoder, parameters): (&Encoder, &Parameters),
    network: &Network,
    (texts, named): (&[&[u32]], Option<&[u32]>),
    best: impl Fn(&Found<'_>) -> R + Sync,
) -> Result<Vec<R>, Error> {
    layers_in_batches((encoder, &network.layers, network.top), parameters, texts, |tape, states, batch| {
        let reads = network.read(tape, states, batch)?;
        let mut found = Vec::with_capacity(batch.len());
        if let (Some(_), Some(rows)) = (&network.recall, named) {
            let chosen = RowIds::new(parameters.device(), rows)?;
            for range in network.memory.in_parts(batch.len(), 8 * rows.len()) {
                let found_rows = network.probabilities(tape, (&reads, batch), (range, Some(&chosen)))?;
                let texts = found_rows.chunks_exact(rows.len());
                found.extend(texts.map(|probabilities| best(&Found { rows: Some(rows), probabilities })));
            }
            return Ok(found);
        }
        if let Some(recall) = &network.recall {
            let scores =
                network.recall_scores(tape, recall, (states, batch), 0..batch.len())?.tensor().to_vec()?;
            for (sequence, scores) in scores.chunks_exact(recall.columns).enumerate() {
                let rows = recall.clusters.best(scores, recall.beam);
                let chosen = RowIds::new(parameters.device(), &rows)?;
                let one = sequence..sequence + 1;
                let probabilities = network.probabilities(tape, (&reads, batch), (one, Some(&chosen)))?;
                found.push(best(&Found { rows: Some(&rows), probabilities: &probabilities }));
            }
            return Ok(found);
        }
        for range in network.memory.in_parts(batch.len(), 8 * network.columns) {
            let rows = network.probabilities(tape, (&reads, batch), (range, None))?;
            let rows = rows.par_chunks_exact(network.columns);
            found.par_extend(rows.map(|probabilities| best(&Found { rows: None, probabilities })));
        }
        Ok(found)
    })
}
