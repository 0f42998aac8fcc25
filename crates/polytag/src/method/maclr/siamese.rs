//! One encoder for everything: texts as unit vectors, in training and while it is measured.

use std::collections::BTreeMap;

use polytag_nn::batch::Batch;
use polytag_nn::device::Device;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::op::{Pooling, normalise, pool};
use polytag_nn::parameters::Parameters;
use polytag_nn::sentence::in_batches;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::train::Evaluation;

use super::labels::Labels;
use crate::ids::LabelId;
use crate::index::{Allowed, Exact, LabelIndex as _, Rows};
use crate::method::training::Dev;

/// What is shown and written while training, in this order.
pub(super) const MEASURES: [&str; 5] = ["P@1", "P@5", "R@10", "R@100", "ZSR@100"];

/// Texts made into vectors at once.
const CHUNK: usize = 8192;

/// An encoder in training.
pub(super) struct Siamese<'a> {
    pub(super) encoder: &'a Encoder,
    pub(super) pooling: Pooling,
    pub(super) max_tokens: usize,
    pub(super) device: Device,
}

impl Siamese<'_> {
    /// Packs the texts of a step.
    pub(super) fn batch<'t>(&self, texts: impl IntoIterator<Item = &'t [u32]>) -> Result<Batch, Error> {
        self.encoder.batch(&self.device, texts)
    }

    /// The unit vectors of a batch.
    pub(super) fn embed(&self, tape: &mut Tape<'_>, batch: &Batch) -> Result<Var, Error> {
        let states = self.encoder.forward(tape, batch, &[self.encoder.last()])?;
        let pooled = pool(tape, &states[0], batch, self.pooling)?;
        normalise(tape, &pooled)
    }

    /// The unit vectors of any number of texts, end to end.
    pub(super) fn vectors(&self, parameters: &Parameters, texts: &[&[u32]]) -> Result<Vec<f32>, Error> {
        let hidden = self.encoder.config().hidden;
        let mut all = Vec::with_capacity(texts.len() * hidden);
        // In chunks, so that a row a text is not kept twice for all of them.
        for chunk in texts.chunks(CHUNK) {
            let rows = in_batches(self.encoder, parameters, chunk, |tape, states, batch| {
                let pooled = pool(tape, states, batch, self.pooling)?;
                let vectors = normalise(tape, &pooled)?.tensor().to_vec()?;
                Ok(vectors.chunks_exact(hidden).map(<[f32]>::to_vec).collect::<Vec<_>>())
            })?;
            rows.iter().for_each(|row| all.extend_from_slice(row));
        }
        Ok(all)
    }

    /// An index of the vectors of labels, by row.
    pub(super) fn index(&self, parameters: &Parameters, labels: &Labels) -> Result<Exact, Error> {
        let rows = Rows::F32(self.vectors(parameters, &labels.texts.iter().collect::<Vec<_>>())?.into());
        let all: Allowed = (0..labels.len()).map(LabelId::from_index).collect();
        Exact::from_rows(self.encoder.config().hidden, rows, all)
            .map_err(|error| Error::Unfit(error.to_string()))
    }
}

/// The dev split, and what is measured on it.
pub(super) struct DevMeasures {
    pub(super) dev: Dev,
    /// For each document the label that it is itself, where documents are labels.
    pub(super) itself: Vec<Option<LabelId>>,
}

impl DevMeasures {
    /// The measures of an encoder as it stands. Nothing is chosen by them: no pair is used.
    pub(super) fn measure(
        &self,
        siamese: &Siamese<'_>,
        parameters: &Parameters,
        labels: &Labels,
    ) -> Result<Evaluation, Error> {
        let index = siamese.index(parameters, labels)?;
        let texts: Vec<&[u32]> = self.dev.documents().texts.iter().collect();
        let documents = siamese.vectors(parameters, &texts)?;
        // One more: the document itself is left out.
        let found = index.search(&documents, self.dev.depth() + 1, None);
        let found = found.map_err(|error| Error::Unfit(error.to_string()))?;
        let rankings: Vec<Vec<LabelId>> = found
            .iter()
            .zip(&self.itself)
            .map(|(ranking, itself)| {
                let found = ranking.labels().map(|row| labels.ids[row.index()]);
                found.filter(|label| Some(*label) != *itself).take(self.dev.depth()).collect()
            })
            .collect();
        let report = self.dev.report(&rankings);
        let measures: BTreeMap<String, f64> =
            MEASURES.iter().filter_map(|&name| Some((name.to_owned(), report.value(name)?))).collect();
        Ok(Evaluation { score: None, measures })
    }
}
