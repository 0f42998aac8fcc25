//! What a loss over labels is of: `documents · labelsᵀ · scale + bias`, and in which chunks that is made. Or
//! somebody else made the products, and `scale` and `bias` are all that is left to do.

use std::ops::Range;

use crate::cuda::Operand;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::{ParameterId, Parameters};
use crate::tape::{Tape, Var};

/// A number that is given, or learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Given.
    Constant(f32),
    /// A weight: of one value or, for a bias, of one a label.
    Learned(ParameterId),
}

impl Number {
    /// The weight that holds it, if there is one.
    pub(super) fn learned(self) -> Option<ParameterId> {
        match self {
            Number::Constant(_) => None,
            Number::Learned(id) => Some(id),
        }
    }
}

/// Scores of documents and labels, described and not made: they are made a chunk of labels at a time.
#[derive(Clone, Debug)]
pub struct Scores {
    pub(super) documents: Var,
    pub(super) labels: Vec<Labels>,
    pub(super) scale: Number,
    pub(super) bias: Number,
    pub(super) chunk_memory: Option<usize>,
}

/// A matrix with a row for every label, or what stands for it.
#[derive(Clone, Debug)]
pub(super) enum Labels {
    Weight(ParameterId),
    Value(Var),
    /// No matrix: the documents hold their products with every label already.
    Given(Var),
}

impl Scores {
    /// The products of documents `[B, D]` with a weight that has a row for every label `[L, D]`.
    pub fn with_weight(documents: &Var, labels: ParameterId) -> Scores {
        Scores::new(documents, Labels::Weight(labels))
    }

    /// The products of documents `[B, D]` with labels `[L, D]` that an encoder made, or constant ones.
    pub fn with_value(documents: &Var, labels: &Var) -> Scores {
        Scores::new(documents, Labels::Value(labels.clone()))
    }

    /// Values `[B, L]` in f32 that are the scores, but for scale and bias.
    pub fn given(values: &Var) -> Scores {
        Scores::new(values, Labels::Given(values.clone()))
    }

    fn new(documents: &Var, labels: Labels) -> Scores {
        Scores {
            documents: documents.clone(),
            labels: vec![labels],
            scale: Number::Constant(1.0),
            bias: Number::Constant(0.0),
            chunk_memory: None,
        }
    }

    /// Appends more labels; they are numbered on from those before. Given scores have all theirs.
    pub fn and_value(mut self, labels: &Var) -> Scores {
        self.labels.push(Labels::Value(labels.clone()));
        self
    }

    /// What products are multiplied by.
    pub fn scale(mut self, scale: Number) -> Scores {
        self.scale = scale;
        self
    }

    /// What is added then; a learned bias has one value, or one a label.
    pub fn bias(mut self, bias: Number) -> Scores {
        self.bias = bias;
        self
    }

    /// How many bytes the scores that are there at once may take. A default suits the device.
    pub fn chunk_memory(mut self, bytes: usize) -> Scores {
        self.chunk_memory = Some(bytes);
        self
    }

    /// Whether the scores are given.
    pub(super) fn are_given(&self) -> bool {
        matches!(self.labels[..], [Labels::Given(_)])
    }

    /// How many labels there are.
    pub(super) fn label_count(&self, parameters: &Parameters) -> usize {
        self.labels.iter().map(|labels| labels.shape(parameters).0).sum()
    }

    /// The matrices of labels, each with the chunks of at most `length` labels that it is gone through in.
    pub(super) fn parts(&self, parameters: &Parameters, length: usize) -> Vec<(&Labels, Vec<Chunk>)> {
        let mut before = 0;
        let part = |labels| {
            let count = Labels::shape(labels, parameters).0;
            before += count;
            (labels, chunks(count, before - count, length).collect())
        };
        self.labels.iter().map(part).collect()
    }

    /// Whether the way back is wanted.
    pub(super) fn wanted(&self, tape: &Tape<'_>) -> bool {
        let mut values = vec![&self.documents];
        let mut weights: Vec<ParameterId> =
            [self.scale, self.bias].into_iter().filter_map(Number::learned).collect();
        for labels in &self.labels {
            match labels {
                Labels::Weight(id) => weights.push(*id),
                Labels::Value(labels) | Labels::Given(labels) => values.push(labels),
            }
        }
        tape.wants(&values, &weights)
    }

    /// Whether everything fits together.
    pub(super) fn check(
        &self,
        parameters: &Parameters,
        documents: usize,
        labels: usize,
    ) -> Result<(), Error> {
        let tensor = self.documents.tensor();
        let unfit = |what: String| Err(Error::Unfit(what));
        if tensor.rows() == 0 || tensor.columns() == 0 {
            return unfit("a loss was asked for of no documents".to_owned());
        }
        if tensor.element() != Element::F32 {
            return unfit("scores are made of documents in f32".to_owned());
        }
        if tensor.rows() != documents {
            return unfit(format!("labels of {documents} documents were given for {}", tensor.rows()));
        }
        if self.labels.len() > 1 && self.labels.iter().any(|part| matches!(part, Labels::Given(_))) {
            return unfit("no labels can be appended to scores that are given".to_owned());
        }
        let count = self.label_count(parameters);
        if count != labels {
            return unfit(format!("positives out of {labels} labels were given for {count}"));
        }
        for part in &self.labels {
            let (_, columns) = part.shape(parameters);
            if columns != tensor.columns() {
                let dimensions = tensor.columns();
                return unfit(format!("labels of {columns} dimensions do not fit documents of {dimensions}"));
            }
            if matches!(part, Labels::Value(labels) if labels.tensor().element() != Element::F32) {
                return unfit("scores are made of labels in f32".to_owned());
            }
        }
        if self.scale.learned().is_some_and(|id| parameters.info(id).len() != 1) {
            return unfit("a learned scale is a single number".to_owned());
        }
        match self.bias.learned().map(|id| parameters.info(id).len()) {
            Some(length) if length != 1 && length != count => {
                unfit(format!("a learned bias is one number or one a label, not {length}"))
            }
            _ => Ok(()),
        }
    }
}

impl Labels {
    /// How many labels of how many dimensions. Given scores are products with labels of a dimension each.
    pub(super) fn shape(&self, parameters: &Parameters) -> (usize, usize) {
        match self {
            Labels::Weight(id) => (parameters.info(*id).rows, parameters.info(*id).columns),
            Labels::Value(labels) => (labels.tensor().rows(), labels.tensor().columns()),
            Labels::Given(values) => (values.tensor().columns(), values.tensor().columns()),
        }
    }

    /// The values on the CPU.
    pub(super) fn values<'a>(&'a self, parameters: &'a Parameters) -> &'a [f32] {
        match self {
            Labels::Weight(id) => parameters.values(*id),
            Labels::Value(labels) | Labels::Given(labels) => labels.tensor().values(),
        }
    }

    /// The rows from `first` on as an operand of a product on the GPU.
    pub(super) fn operand(&self, parameters: &Parameters, first: usize) -> Operand {
        let whole = match self {
            Labels::Weight(id) => parameters.operand(*id, Element::F32),
            Labels::Value(labels) | Labels::Given(labels) => labels.tensor().operand(),
        };
        rows_of(whole, first)
    }
}

/// The rows from `first` on of a matrix in f32 on the GPU.
pub(super) fn rows_of(whole: Operand, first: usize) -> Operand {
    Operand { address: whole.address + 4 * (first * whole.stride) as u64, ..whole }
}

/// A run of labels whose scores are there at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Which rows of its matrix of labels.
    pub(super) rows: Range<usize>,
    /// Which labels they are among all.
    pub(super) labels: Range<usize>,
}

/// How many labels a chunk has when the scores of `documents` may take `bytes`: whole segments, at least
/// one, and no more than there are labels.
pub(super) fn chunk_length(bytes: usize, documents: usize, segment: usize, labels: usize) -> usize {
    let fitting = bytes / (4 * documents.max(1)) / segment * segment;
    fitting.clamp(segment, labels.next_multiple_of(segment).max(segment))
}

/// The rows of a matrix of labels in chunks of at most `length`, when `before` labels come before it.
fn chunks(count: usize, before: usize, length: usize) -> impl Iterator<Item = Chunk> {
    (0..count).step_by(length).map(move |first| {
        let rows = first..count.min(first + length);
        Chunk { labels: before + rows.start..before + rows.end, rows }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_the_memory_and_cover_every_label_once() {
        assert_eq!(chunk_length(1 << 20, 64, 256, 1_000_000), 4096);
        assert_eq!(chunk_length(1 << 20, 64, 256, 300), 512);
        assert_eq!(chunk_length(10, 64, 256, 1_000_000), 256);
        let all: Vec<Chunk> = chunks(5, 7, 4).collect();
        assert_eq!(all, [Chunk { rows: 0..4, labels: 7..11 }, Chunk { rows: 4..5, labels: 11..12 }]);
        assert_eq!(chunks(0, 7, 4).count(), 0);
    }
}
