//! A learned matrix and bias that label embeddings are multiplied by, once training is over.
//!
//! It works on the CPU whatever trained it, so that a label added later has the same numbers as one that
//! was there from the beginning, if the encoder of labels runs on the same kind of device: a GPU rounds.

use polytag_nn::device::Device;
use polytag_nn::element::Element;
use polytag_nn::op::linear;
use polytag_nn::parameters::{ParameterId, Parameters, ParametersBuilder};
use polytag_nn::tape::{Tape, Var};
use polytag_nn::tensor::Tensor;

/// Rows worked on at a time.
const CHUNK: usize = 4096;

/// `y = x · wᵀ + b`.
pub(in crate::method) struct Projection {
    parameters: Parameters,
    weight: ParameterId,
    bias: ParameterId,
}

impl Projection {
    /// `weight` has a row for each of the numbers that leave.
    pub(in crate::method) fn new(weight: &[f32], bias: &[f32]) -> Result<Projection, polytag_nn::Error> {
        let mut builder = ParametersBuilder::default();
        let columns = weight.len() / bias.len().max(1);
        let weight = builder.add("weight", (bias.len(), columns), weight);
        let bias = builder.add("bias", (1, bias.len()), bias);
        Ok(Projection { parameters: builder.build(&Device::cpu())?, weight, bias })
    }

    /// How many numbers enter a row.
    pub(in crate::method) fn input(&self) -> usize {
        self.parameters.info(self.weight).columns
    }

    /// The rows of `x` projected.
    pub(in crate::method) fn apply(&self, x: &[f32]) -> Result<Vec<f32>, polytag_nn::Error> {
        let columns = self.input();
        let mut projected = Vec::with_capacity(x.len() / columns * self.parameters.info(self.weight).rows);
        for chunk in x.chunks(CHUNK * columns) {
            let shape = (chunk.len() / columns, columns);
            let input = Var::constant(Tensor::new(&Device::cpu(), shape, chunk, Element::F32)?);
            let mut tape = Tape::inference(&self.parameters);
            let out = linear(&mut tape, &input, self.weight, Some(self.bias))?;
            projected.extend_from_slice(out.tensor().values());
        }
        Ok(projected)
    }

    /// The matrix and the bias.
    pub(in crate::method) fn values(&self) -> Result<[Vec<f32>; 2], polytag_nn::Error> {
        Ok([self.parameters.to_vec(self.weight)?, self.parameters.to_vec(self.bias)?])
    }
}
