//! The vectors of labels while they are learned.
//!
//! What they are made of is the tower's kind; what is done to them then (projections, unit length) and the
//! numbers that turn a comparison into a score are the same for all.

use polytag_nn::batch::Batch;
use polytag_nn::device::Device;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::loss::Number;
use polytag_nn::op::{Comparison, Pooling, add_rows, linear, normalise, pool, rows, weight};
use polytag_nn::parameters::{ParameterId, Parameters, ParametersBuilder};
use polytag_nn::random::Key;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::tensor::Tensor;

use super::config::HEADS;
use super::projection::Projection;

/// What label vectors are made of.
pub(super) enum Source {
    /// Embeddings that stay as they are.
    Frozen(Tensor),
    /// An encoder that is trained, and the texts of all labels.
    Encoded { encoder: Encoder, texts: Batch, pooling: Pooling },
    /// Weights of each label's own.
    Free { outputs: ParameterId, queries: Option<ParameterId> },
}

/// A matrix that label embeddings are multiplied by, and what is added then.
#[derive(Clone, Copy)]
pub(super) struct Learned {
    weight: ParameterId,
    bias: ParameterId,
}

/// What a label with training documents learns for itself, besides what its text gives it.
#[derive(Clone, Copy)]
pub(super) struct Residual {
    /// A row for each of the first labels, zero at the beginning.
    pub(super) own: ParameterId,
    /// How often a label has to do without it.
    pub(super) rate: f32,
}

/// The label side of a model in training.
pub(super) struct Tower {
    pub(super) source: Source,
    pub(super) outputs: Option<Learned>,
    pub(super) queries: Option<Learned>,
    pub(super) residual: Option<Residual>,
    pub(super) comparison: Comparison,
    pub(super) scale: Number,
    pub(super) bias: Number,
}

/// The vectors of labels on a tape.
pub(super) struct LabelVars {
    /// What a document is compared with.
    pub(super) outputs: Var,
    /// What a label looks for in a document, where labels attend.
    pub(super) queries: Option<Var>,
    /// How the two sides are compared.
    pub(super) comparison: Comparison,
    /// What a comparison is multiplied by.
    pub(super) scale: Number,
    /// What is added then.
    pub(super) bias: Number,
}

impl LabelVars {
    /// Those of the first `count` labels.
    pub(super) fn first(&self, tape: &mut Tape<'_>, count: usize) -> Result<LabelVars, Error> {
        let mut first = |all: &Var| match all.tensor().rows() > count {
            true => rows(tape, all, 0..count),
            false => Ok(all.clone()),
        };
        let outputs = first(&self.outputs)?;
        let queries = self.queries.as_ref().map(first).transpose()?;
        Ok(LabelVars { outputs, queries, ..*self })
    }
}

impl Learned {
    /// A projection from `from` to `to` numbers that begins as the identity, or, where there is none, as random
    /// directions that keep lengths on average.
    pub(super) fn begin(
        builder: &mut ParametersBuilder,
        name: &str,
        (from, to): (usize, usize),
        key: Key,
    ) -> Learned {
        let mut values = vec![0.0; from * to];
        for (row, values) in values.chunks_exact_mut(from).enumerate() {
            if from == to {
                values[row] = 1.0;
            } else {
                for (column, value) in values.iter_mut().enumerate() {
                    *value = key.normal(row as u32, column as u32) / (to as f32).sqrt();
                }
            }
        }
        let weight = builder.add(&format!("{name} projection"), (to, from), &values);
        let bias = builder.add(&format!("{name} bias"), (1, to), &vec![0.0; to]);
        for id in [weight, bias] {
            builder.info_mut(id).group = HEADS;
        }
        Learned { weight, bias }
    }

    fn apply(self, tape: &mut Tape<'_>, embeddings: &Var) -> Result<Var, Error> {
        linear(tape, embeddings, self.weight, Some(self.bias))
    }

    /// What was learned, on the host.
    pub(super) fn finish(self, parameters: &Parameters) -> Result<Projection, Error> {
        Projection::new(&parameters.to_vec(self.weight)?, &parameters.to_vec(self.bias)?)
    }
}

/// A weight of each label's own, small random numbers at the beginning, as BERT's classifiers have.
pub(super) fn free(
    builder: &mut ParametersBuilder,
    name: &str,
    shape: (usize, usize),
    key: Key,
) -> ParameterId {
    let id = builder.add(name, shape, &key.small_normals(shape));
    builder.info_mut(id).group = HEADS;
    id
}

impl Source {
    fn on(&self, device: &Device) -> Result<Source, Error> {
        Ok(match self {
            Source::Frozen(embeddings) => Source::Frozen(embeddings.on(device)?),
            Source::Encoded { encoder, texts, pooling } => {
                Source::Encoded { encoder: encoder.clone(), texts: texts.on(device)?, pooling: *pooling }
            }
            Source::Free { outputs, queries } => Source::Free { outputs: *outputs, queries: *queries },
        })
    }
}

impl Tower {
    /// The same over weights that lie on another device.
    pub(super) fn on(&self, device: &Device) -> Result<Tower, Error> {
        Ok(Tower { source: self.source.on(device)?, ..*self })
    }

    /// The vectors of all labels that have one.
    pub(super) fn all(&self, tape: &mut Tape<'_>) -> Result<LabelVars, Error> {
        let embeddings = match &self.source {
            Source::Frozen(embeddings) => Var::constant(embeddings.clone()),
            Source::Encoded { encoder, texts, pooling } => {
                let states = encoder.forward(tape, texts, &[encoder.last()])?;
                pool(tape, &states[0], texts, *pooling)?
            }
            Source::Free { outputs, queries } => {
                let queries = queries.map(|queries| weight(tape, queries)).transpose()?;
                return Ok(self.vars(weight(tape, *outputs)?, queries));
            }
        };
        let queries = self.queries.map(|learned| learned.apply(tape, &embeddings)).transpose()?;
        let mut outputs = match self.outputs {
            Some(learned) => learned.apply(tape, &embeddings)?,
            None => embeddings,
        };
        if let Some(Residual { own, rate }) = self.residual {
            outputs = add_rows(tape, &outputs, own, rate)?;
        }
        if self.comparison == Comparison::Cosine {
            outputs = normalise(tape, &outputs)?;
        }
        Ok(self.vars(outputs, queries))
    }

    fn vars(&self, outputs: Var, queries: Option<Var>) -> LabelVars {
        let Tower { comparison, scale, bias, .. } = *self;
        LabelVars { outputs, queries, comparison, scale, bias }
    }

    /// What is added to each label's score.
    pub(super) fn biases(&self, parameters: &Parameters, labels: usize) -> Result<Vec<f32>, Error> {
        let one_each = match self.bias {
            Number::Constant(bias) => vec![bias],
            Number::Learned(id) => parameters.to_vec(id)?,
        };
        Ok(if one_each.len() == 1 { vec![one_each[0]; labels] } else { one_each })
    }

    /// What a comparison is multiplied by.
    pub(super) fn scale(&self, parameters: &Parameters) -> Result<f32, Error> {
        match self.scale {
            Number::Constant(scale) => Ok(scale),
            Number::Learned(id) => Ok(parameters.to_vec(id)?[0]),
        }
    }
}

/// A single learned number.
pub(super) fn number(builder: &mut ParametersBuilder, name: &str, value: f32) -> Number {
    let id = builder.add(name, (1, 1), &[value]);
    builder.info_mut(id).group = HEADS;
    Number::Learned(id)
}
