//! How far apart two matrices are.

use crate::cuda::{Buffer, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

use super::total::Total;

const KERNELS: KernelSource =
    KernelSource { module: "mean_squared_error", text: include_str!("mean_squared_error.cu"), define: "" };

/// `Σ ‖leftᵢ − rightᵢ‖² / 2n` over the `n` rows of two matrices in f32 (paper 002, eq. 2).
pub fn mean_squared_error(tape: &mut Tape<'_>, left: &Var, right: &Var) -> Result<Var, Error> {
    let (a, b) = (left.tensor(), right.tensor());
    if (a.rows(), a.columns(), a.element()) != (b.rows(), b.columns(), Element::F32)
        || b.element() != Element::F32
    {
        return Err(Error::Unfit(format!("the distance of {a:?} and {b:?} is not defined")));
    }
    let share = 1.0 / a.rows().max(1) as f32;
    let loss = match a.device() {
        Device::Cpu(_) => {
            let squares =
                a.values().iter().zip(b.values()).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
            let loss = 0.5 * f64::from(share) * squares.sum::<f64>();
            Tensor::new(&a.device(), (1, 1), &[loss as f32], Element::F32)?
        }
        Device::Cuda(cuda) => {
            let length = a.rows() * a.columns();
            let blocks = length.div_ceil(1024).clamp(1, 4 * cuda.multiprocessors());
            let partial = Buffer::take(&cuda, 4 * blocks)?;
            Launch::new(&cuda, &KERNELS, "squared_distance")
                .shape(blocks, 1, 256)
                .address(a.address())
                .address(b.address())
                .long(length)
                .buffer(&partial)
                .run()?;
            let loss = Tensor::scratch(&a.device(), 1, 1, Element::F32)?;
            let (values, to, factor) = (partial.pointer(), loss.address(), 0.5 * share);
            Total { values, count: blocks, factor, to, accumulate: false }.run(&cuda)?;
            loss
        }
    };
    let op = tape.wants(&[left, right], &[]).then(|| -> Box<dyn Backward> {
        Box::new(MeanSquaredError {
            sides: [a.clone(), b.clone()],
            links: [left.link(), right.link()],
            share,
        })
    });
    Ok(tape.push(loss, op))
}

struct MeanSquaredError {
    sides: [Tensor; 2],
    links: [Link; 2],
    share: f32,
}

impl Backward for MeanSquaredError {
    fn name(&self) -> &'static str {
        "mean squared error"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        for (side, link) in self.links.into_iter().enumerate() {
            let Some(to) = link else { continue };
            let (own, other) = (&self.sides[side], &self.sides[1 - side]);
            let (mut place, accumulate) = flow.slot(to, own)?;
            match own.device() {
                Device::Cpu(_) => {
                    let factor = gradient.values()[0] * self.share;
                    let differences = own.values().iter().zip(other.values()).map(|(a, b)| factor * (a - b));
                    for (place, difference) in place.values_mut().iter_mut().zip(differences) {
                        *place = if accumulate { *place + difference } else { difference };
                    }
                }
                Device::Cuda(cuda) => {
                    let length = own.rows() * own.columns();
                    Launch::new(&cuda, &KERNELS, "distance_gradient")
                        .shape(length.div_ceil(256), 1, 256)
                        .address(own.address())
                        .address(other.address())
                        .address(place.address())
                        .long(length)
                        .address(gradient.address())
                        .float(self.share)
                        .int(usize::from(accumulate))
                        .run()?;
                }
            }
            flow.put(to, place)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::*;
    use crate::op::testing::{Case, Matrix};

    fn case(rows: usize, columns: usize) -> Case {
        Case::new("mean squared error")
            .element(Element::F32)
            .input(Matrix::random(rows, columns, 1))
            .input(Matrix::random(rows, columns, 2))
    }

    #[test]
    fn the_value_is_the_formulas() {
        let (a, b) = (Matrix::random(5, 7, 1), Matrix::random(5, 7, 2));
        let exact: f64 = a.values.iter().zip(&b.values).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let found =
            evaluate(&[&a, &b], &[], |tape, inputs, _| mean_squared_error(tape, &inputs[0], &inputs[1]));
        assert_close(found, exact / 10.0);
    }

    #[test]
    fn gradients_match_finite_differences() {
        case(5, 4).check_gradients(|tape, inputs, _| mean_squared_error(tape, &inputs[0], &inputs[1]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        case(70, 130).compare_devices(|tape, inputs, _| mean_squared_error(tape, &inputs[0], &inputs[1]));
    }

    #[test]
    fn matrices_of_other_shapes_are_refused() {
        let (a, b) = (Matrix::random(5, 7, 1), Matrix::random(7, 5, 2));
        evaluate(&[&a, &b], &[], |tape, inputs, _| {
            let error = mean_squared_error(tape, &inputs[0], &inputs[1]).unwrap_err().to_string();
            assert!(error.contains("5 x 7") && error.contains("7 x 5"), "{error}");
            mean_squared_error(tape, &inputs[0], &inputs[0])
        });
    }
}
