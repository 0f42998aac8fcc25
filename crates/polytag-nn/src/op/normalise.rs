//! Rows to unit length, so that their products are cosines.

use rayon::prelude::*;

use crate::cuda::{KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "normalise", text: include_str!("normalise.cu"), define: "" };

/// A row that is shorter counts as this long, so that zero stays zero. `normalise.cu` has the same.
const TINY: f32 = 1e-12;

/// Divides each row by its length; f32 enters and leaves. A row of zeros stays, and has no gradient.
pub fn normalise(tape: &mut Tape<'_>, input: &Var) -> Result<Var, Error> {
    let tensor = input.tensor();
    assert_eq!(tensor.element(), Element::F32, "embeddings are f32");
    let (rows, columns) = (tensor.rows(), tensor.columns());
    let device = tensor.device();
    let mut out = Tensor::scratch(&device, rows, columns, Element::F32)?;
    let mut lengths = Tensor::scratch(&device, rows, 1, Element::F32)?;
    match &device {
        Device::Cpu(_) => {
            let rows = tensor.values().par_chunks(columns.max(1)).zip(lengths.values_mut());
            out.values_mut().par_chunks_mut(columns.max(1)).zip(rows).for_each(|(out, (row, length))| {
                *length = row.iter().map(|value| value * value).sum::<f32>().sqrt().max(TINY);
                for (out, value) in out.iter_mut().zip(row) {
                    *out = value / *length;
                }
            });
        }
        Device::Cuda(cuda) => Launch::new(cuda, &KERNELS, "normalise")
            .shape(rows.div_ceil(8), 1, 256)
            .address(tensor.address())
            .address(out.address())
            .address(lengths.address())
            .int(rows)
            .int(columns)
            .run()?,
    }
    let op = tape.wants(&[input], &[]).then(|| -> Box<dyn Backward> {
        Box::new(Normalise { link: input.link(), unit: out.clone(), lengths })
    });
    Ok(tape.push(out, op))
}

struct Normalise {
    link: Link,
    unit: Tensor,
    lengths: Tensor,
}

impl Normalise {
    /// Adds the part of each gradient that is across its row, over the row's length.
    fn add_across(&self, gradient: &[f32], out: &mut [f32]) {
        let columns = self.unit.columns().max(1);
        let rows = self.unit.values().par_chunks(columns).zip(self.lengths.values());
        let gradients = gradient.par_chunks(columns).zip(rows);
        out.par_chunks_mut(columns).zip(gradients).for_each(|(out, (gradient, (unit, &length)))| {
            let factor = if length > TINY { 1.0 / length } else { 0.0 };
            let along: f32 = gradient.iter().zip(unit).map(|(gradient, unit)| gradient * unit).sum();
            for ((out, gradient), unit) in out.iter_mut().zip(gradient).zip(unit) {
                *out += factor * (gradient - along * unit);
            }
        });
    }
}

impl Backward for Normalise {
    fn name(&self) -> &'static str {
        "normalise"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let Some(to) = self.link else { return Ok(()) };
        let (mut place, accumulate) = flow.slot(to, &self.unit)?;
        match gradient.device() {
            Device::Cpu(_) => {
                if !accumulate {
                    place.values_mut().fill(0.0);
                }
                self.add_across(gradient.values(), place.values_mut());
            }
            Device::Cuda(cuda) => Launch::new(&cuda, &KERNELS, "normalise_gradient")
                .shape(gradient.rows().div_ceil(8), 1, 256)
                .address(gradient.address())
                .address(self.unit.address())
                .address(self.lengths.address())
                .address(place.address())
                .int(gradient.rows())
                .int(gradient.columns())
                .int(usize::from(accumulate))
                .run()?,
        }
        flow.put(to, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{self, Case, Matrix};
    use crate::parameters::ParametersBuilder;

    fn case(rows: usize, columns: usize) -> Case {
        Case::new("normalise").input(Matrix::random(rows, columns, 1)).element(Element::F32)
    }

    #[test]
    fn gradients_match_finite_differences() {
        case(4, 5).check_gradients(|tape, inputs, _| normalise(tape, &inputs[0]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for (rows, columns) in [(1, 64), (77, 384), (300, 768), (9, 5)] {
            case(rows, columns).compare_devices(|tape, inputs, _| {
                let once = normalise(tape, &inputs[0])?;
                let again = normalise(tape, &inputs[0])?;
                testing::sum(tape, &once, &again)
            });
        }
    }

    #[test]
    fn a_row_of_zeros_stays() {
        for device in testing::devices("a row of zeros") {
            let parameters = ParametersBuilder::default().build(&device).unwrap();
            let values = [0.0, 0.0, 3.0, 4.0];
            let input = Var::constant(Tensor::new(&device, (2, 2), &values, Element::F32).unwrap());
            let unit = normalise(&mut Tape::inference(&parameters), &input).unwrap();
            let unit = unit.tensor().to_vec().unwrap();
            assert_eq!(unit[..2], [0.0, 0.0]);
            assert!((unit[2] - 0.6).abs() < 1e-6 && (unit[3] - 0.8).abs() < 1e-6, "{unit:?}");
        }
    }
}
