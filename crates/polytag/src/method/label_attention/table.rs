//! The queries and output vectors of some labels, on the device where they attend.

use polytag_nn::batch::Batch;
use polytag_nn::device::Device;
use polytag_nn::element::Element;
use polytag_nn::error::Error;
use polytag_nn::op::{ChunkMemory, Comparison, LabelAttention, label_attention};
use polytag_nn::tape::{Tape, Var};
use polytag_nn::tensor::Tensor;

use super::model::Vectors;
use crate::ids::LabelId;

/// Labels that attend.
pub(super) struct Table {
    labels: Vec<LabelId>,
    queries: Var,
    outputs: Var,
    biases: Vec<f32>,
}

impl Table {
    /// The table of `labels`, which all have vectors.
    pub(super) fn new(vectors: &Vectors, labels: Vec<LabelId>, device: &Device) -> Result<Table, Error> {
        let upload = |index: &crate::index::Exact| {
            let dim = crate::index::LabelIndex::dim(index);
            let mut rows = Vec::with_capacity(labels.len() * dim);
            labels.iter().for_each(|&label| index.extend_with(label, &mut rows));
            Tensor::new(device, (labels.len(), dim), &rows, Element::F32).map(Var::constant)
        };
        let (queries, outputs) = (upload(&vectors.queries)?, upload(&vectors.outputs)?);
        let biases = labels.iter().map(|&label| vectors.bias(label)).collect();
        Ok(Table { labels, queries, outputs, biases })
    }

    /// The labels, in the order of the scores.
    pub(super) fn labels(&self) -> &[LabelId] {
        &self.labels
    }

    /// How well each label fits what it finds in each sequence of `sequences`: a row a sequence.
    pub(super) fn attend(
        &self,
        tape: &mut Tape<'_>,
        (tokens, batch): (&Var, &Batch),
        sequences: std::ops::Range<usize>,
        (memory, comparison): (&ChunkMemory, Comparison),
    ) -> Result<Vec<f32>, Error> {
        if self.labels.is_empty() {
            return Ok(Vec::new());
        }
        let (queries, outputs) = (&self.queries, &self.outputs);
        let labels = LabelAttention { sequences, queries, outputs, comparison, memory };
        let mut found = label_attention(tape, tokens, batch, &labels)?.tensor().to_vec()?;
        for row in found.chunks_exact_mut(self.labels.len()) {
            row.iter_mut().zip(&self.biases).for_each(|(score, bias)| *score += bias);
        }
        Ok(found)
    }
}
