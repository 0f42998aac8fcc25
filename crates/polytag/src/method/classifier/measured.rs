//! How good the experts are together on the dev split, and the best labels by them.

use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::parameters::Parameters;
use polytag_nn::sentence::layers_in_batches;
use polytag_nn::train::Evaluation;
use rayon::prelude::*;

use super::network::Network;
use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::method::training::{Dev, Documents};
use crate::ranking::{NotFinite, Ranking, Scored, TopK};

/// What is shown and written while training, in this order.
pub(super) const MEASURES: [&str; 5] = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5"];

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
        let best = |row: &[f32]| best(row, labels, self.0.depth(), |_| true);
        let rankings = rank(model, network, &texts, best)?;
        let found: Vec<Vec<LabelId>> = rankings
            .into_iter()
            .map(|ranking| ranking.map(|ranking| ranking.labels().collect()))
            .collect::<Result<_, NotFinite>>()
            .map_err(|error| Error::Unfit(error.to_string()))?;
        let report = self.0.report(&found);
        let value = |&name: &&str| Some((name.to_owned(), report.value(name)?));
        Ok(Evaluation {
            score: report.value("nDCG@5"),
            measures: MEASURES.iter().filter_map(value).collect(),
        })
    }
}

/// What `best` makes of the probabilities of all labels, for each text.
pub(super) fn rank<R: Send>(
    (encoder, parameters): (&Encoder, &Parameters),
    network: &Network,
    texts: &[&[u32]],
    best: impl Fn(&[f32]) -> R + Sync,
) -> Result<Vec<R>, Error> {
    layers_in_batches((encoder, &network.layers), parameters, texts, |tape, states, batch| {
        let reads = network.read(tape, states, batch)?;
        let mut found = Vec::with_capacity(batch.len());
        for range in network.memory.in_parts(batch.len(), 8 * network.columns) {
            let rows = network.probabilities(tape, (&reads, batch), range)?;
            found.par_extend(rows.par_chunks_exact(network.columns).map(&best));
        }
        Ok(found)
    })
}

/// The best `k` labels of a document by their probabilities, of those that may be given.
pub(super) fn best(
    probabilities: &[f32],
    labels: &[LabelId],
    k: usize,
    may: impl Fn(LabelId) -> bool,
) -> Result<Ranking, NotFinite> {
    let mut top = TopK::new(k);
    for (&label, &score) in labels.iter().zip(probabilities).filter(|(label, _)| may(**label)) {
        top.push(Scored { label, score })?;
    }
    Ok(top.into_ranking())
}
