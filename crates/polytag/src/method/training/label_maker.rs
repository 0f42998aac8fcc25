//! The vectors of labels once they are learned: from a label's text, at any time.

use polytag_nn::cpu;
use polytag_nn::sentence::SentenceEncoder;

use super::projection::Projection;
use crate::data::{Changed, LabelSpace};
use crate::ids::LabelId;
use crate::index::Exact;
use crate::method::label_text::LabelText;
use crate::predict::PredictError;

/// What reads the text of a label.
pub(in crate::method) enum Reader {
    /// An encoder of labels.
    Own(Box<SentenceEncoder>),
    /// The encoder of documents.
    Documents,
    /// Nothing: each label's vector was learned for itself.
    Nobody,
}

/// Makes the vectors of labels.
pub(in crate::method) struct LabelMaker {
    pub(in crate::method) reader: Reader,
    pub(in crate::method) label_text: LabelText,
    pub(in crate::method) label_tokens: usize,
    pub(in crate::method) outputs: Option<Projection>,
    pub(in crate::method) queries: Option<Projection>,
    /// What labels learned for themselves, added to what their texts give them.
    pub(in crate::method) residuals: Option<Exact>,
}

/// The vectors of some labels, end to end.
pub(in crate::method) struct LabelVectors {
    /// What documents are compared with.
    pub(in crate::method) outputs: Vec<f32>,
    /// What labels look for in a document; empty where they do not.
    pub(in crate::method) queries: Vec<f32>,
}

impl LabelMaker {
    /// Whether it can make vectors for labels that were not trained.
    pub(in crate::method) fn takes_new_labels(&self) -> bool {
        !matches!(self.reader, Reader::Nobody)
    }

    /// The labels that want other vectors after a change. Numbers that were learned for a label by itself stay
    /// whatever it is called, but a label that was added has none: `has_vector` tells.
    ///
    /// # Errors
    /// If a label has no vector and cannot be given one.
    pub(in crate::method) fn rewritten(
        &self,
        space: &LabelSpace,
        changed: &Changed,
        has_vector: impl Fn(LabelId) -> bool,
    ) -> Result<Vec<LabelId>, PredictError> {
        match self.reader {
            Reader::Own(_) | Reader::Documents => Ok(self.label_text.rewritten(space, changed)),
            Reader::Nobody if changed.written.iter().all(|&label| has_vector(label)) => Ok(Vec::new()),
            Reader::Nobody => Err(PredictError::OnlyTrained),
        }
    }

    /// The vectors of labels, one of which may be added to a model at any time. `documents` is the encoder of
    /// documents.
    pub(in crate::method) fn make(
        &self,
        documents: &SentenceEncoder,
        space: &LabelSpace,
        labels: &[LabelId],
    ) -> Result<LabelVectors, PredictError> {
        let encoder = match &self.reader {
            Reader::Own(encoder) => encoder,
            Reader::Documents => documents,
            Reader::Nobody => return Err(PredictError::OnlyTrained),
        };
        let longest = self.label_tokens.min(encoder.settings().max_tokens);
        let texts = self.label_text.tokens(space, labels, encoder.tokenizer(), longest)?;
        Ok(self.project(labels, encoder.encode_tokens(&texts)?)?)
    }

    /// The vectors of labels from their embeddings.
    pub(in crate::method) fn project(
        &self,
        labels: &[LabelId],
        embeddings: Vec<f32>,
    ) -> Result<LabelVectors, polytag_nn::Error> {
        let queries = match &self.queries {
            Some(projection) => projection.apply(&embeddings)?,
            None => Vec::new(),
        };
        let mut outputs = match &self.outputs {
            Some(projection) => projection.apply(&embeddings)?,
            None => embeddings,
        };
        let dimension = outputs.len() / labels.len().max(1);
        for (&label, output) in labels.iter().zip(outputs.chunks_exact_mut(dimension.max(1))) {
            if let Some(own) = self.residuals.as_ref().and_then(|residuals| residuals.kept(label)) {
                cpu::axpy(1.0, &own, output);
            }
            let length = cpu::dot(output, output).sqrt().max(1e-12);
            output.iter_mut().for_each(|value| *value /= length);
        }
        Ok(LabelVectors { outputs, queries })
    }
}
