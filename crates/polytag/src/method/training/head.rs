//! How documents and labels are compared.

use std::ops::Range;

use polytag_nn::batch::Batch;
use polytag_nn::error::Error;
use polytag_nn::loss::Scores;
use polytag_nn::op::{
    ChunkMemory, Comparison, LabelAttention, Pooling, dropout, label_attention, normalise, pool, rows,
};
use polytag_nn::tape::{Tape, Var};

use super::tower::LabelVars;

/// How the tokens of a document become what labels are compared with.
#[derive(Clone)]
pub(super) enum Head {
    /// One vector for all labels. Before a classifier there is dropout.
    Pooled { pooling: Pooling, dropout: f32 },
    /// A vector for each label: each attends to the tokens it looks for.
    Attended(ChunkMemory),
}

/// The documents of a batch, ready to be compared.
pub(super) enum Ready {
    Vectors(Var),
    Tokens(Var),
}

impl Head {
    /// Makes a batch ready.
    pub(super) fn ready(
        &self,
        tape: &mut Tape<'_>,
        states: &Var,
        batch: &Batch,
        comparison: Comparison,
    ) -> Result<Ready, Error> {
        match self {
            Head::Attended(_) => Ok(Ready::Tokens(states.clone())),
            Head::Pooled { pooling, dropout: rate } => {
                let pooled = pool(tape, states, batch, *pooling)?;
                Ok(Ready::Vectors(match comparison {
                    Comparison::Cosine => normalise(tape, &pooled)?,
                    Comparison::Product => dropout(tape, &pooled, *rate)?,
                }))
            }
        }
    }

    /// Documents in parts, when each takes so many bytes.
    pub(super) fn parts(&self, documents: usize, bytes_each: usize) -> Vec<Range<usize>> {
        match self {
            Head::Attended(memory) => memory.in_parts(documents, bytes_each).collect(),
            Head::Pooled { .. } => std::iter::once(0..documents).collect(),
        }
    }

    /// The scores of some documents of a batch, described for a loss.
    pub(super) fn scores(
        &self,
        tape: &mut Tape<'_>,
        (ready, batch): (&Ready, &Batch),
        documents: Range<usize>,
        labels: &LabelVars,
    ) -> Result<Scores, Error> {
        let scores = match ready {
            Ready::Vectors(vectors) if documents.len() == vectors.tensor().rows() => {
                Scores::with_value(vectors, &labels.outputs)
            }
            Ready::Vectors(vectors) => {
                let vectors = rows(tape, vectors, documents)?;
                Scores::with_value(&vectors, &labels.outputs)
            }
            Ready::Tokens(tokens) => Scores::given(&self.attend(tape, (tokens, batch), documents, labels)?),
        };
        Ok(scores.scale(labels.scale).bias(labels.bias))
    }

    /// How well each label fits what it found in each document: `[documents, labels]`.
    pub(super) fn attend(
        &self,
        tape: &mut Tape<'_>,
        (tokens, batch): (&Var, &Batch),
        sequences: Range<usize>,
        labels: &LabelVars,
    ) -> Result<Var, Error> {
        let (Head::Attended(memory), Some(queries)) = (self, &labels.queries) else {
            unreachable!("labels that attend have queries");
        };
        let LabelVars { outputs, comparison, .. } = labels;
        let labels = LabelAttention { sequences, queries, outputs, comparison: *comparison, memory };
        label_attention(tape, tokens, batch, &labels)
    }
}
