//! How far the products of pairs of rows are from what is wanted of them.

use crate::cuda::{Buffer, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

use super::total::Total;

const KERNELS: KernelSource =
    KernelSource { module: "wanted_products", text: include_str!("wanted_products.cu"), define: "" };

/// `Σ (leftᵢ · rightᵢ − wantedᵢ)² / n` over the `n` rows of two matrices in f32; `wanted` is `[n, 1]`. With unit rows a
/// product is a cosine, and this is how paper 000 (section III-B) tunes an encoder on single pairs.
pub fn wanted_products(
    tape: &mut Tape<'_>,
    (left, right): (&Var, &Var),
    wanted: &Tensor,
) -> Result<Var, Error> {
    let (a, b) = (left.tensor(), right.tensor());
    let shape = |tensor: &Tensor| (tensor.rows(), tensor.columns(), tensor.element());
    let (rows, columns) = (a.rows(), a.columns());
    if [shape(a), shape(b), shape(wanted)]
        != [(rows, columns, Element::F32), (rows, columns, Element::F32), (rows, 1, Element::F32)]
    {
        return Err(Error::Unfit(format!("products of {a:?} and {b:?} cannot be held against {wanted:?}")));
    }
    let device = a.device();
    let mut errors = Tensor::scratch(&device, rows, 1, Element::F32)?;
    let share = 1.0 / rows.max(1) as f32;
    let loss = match &device {
        Device::Cpu(_) => {
            let pairs = a.values().chunks_exact(columns.max(1)).zip(b.values().chunks_exact(columns.max(1)));
            let mut squares = 0.0;
            for ((error, wanted), (a, b)) in errors.values_mut().iter_mut().zip(wanted.values()).zip(pairs) {
                let product: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                *error = (product - f64::from(*wanted)) as f32;
                squares += f64::from(*error).powi(2);
            }
            Tensor::new(&device, (1, 1), &[(squares * f64::from(share)) as f32], Element::F32)?
        }
        Device::Cuda(cuda) => {
            let squares = Buffer::take(cuda, 4 * rows)?;
            Launch::new(cuda, &KERNELS, "product_errors")
                .shape(rows.div_ceil(8), 1, 256)
                .address(a.address())
                .address(b.address())
                .address(wanted.address())
                .address(errors.address())
                .buffer(&squares)
                .int(rows)
                .int(columns)
                .run()?;
            let loss = Tensor::scratch(&device, 1, 1, Element::F32)?;
            let (values, to) = (squares.pointer(), loss.address());
            Total { values, count: rows, factor: share, to, accumulate: false }.run(cuda)?;
            loss
        }
    };
    let op = tape.wants(&[left, right], &[]).then(|| -> Box<dyn Backward> {
        let (sides, links) = ([a.clone(), b.clone()], [left.link(), right.link()]);
        Box::new(WantedProducts { sides, links, errors, factor: 2.0 * share })
    });
    Ok(tape.push(loss, op))
}

struct WantedProducts {
    sides: [Tensor; 2],
    links: [Link; 2],
    errors: Tensor,
    factor: f32,
}

impl Backward for WantedProducts {
    fn name(&self) -> &'static str {
        "wanted products"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        for (side, link) in self.links.into_iter().enumerate() {
            let Some(to) = link else { continue };
            let other = &self.sides[1 - side];
            let columns = other.columns();
            let (mut place, accumulate) = flow.slot(to, &self.sides[side])?;
            match other.device() {
                Device::Cpu(_) => {
                    let factor = gradient.values()[0] * self.factor;
                    let rows = other.values().chunks_exact(columns.max(1)).zip(self.errors.values());
                    let places = place.values_mut().chunks_exact_mut(columns.max(1));
                    for (place, (other, error)) in places.zip(rows) {
                        for (place, other) in place.iter_mut().zip(other) {
                            let value = factor * error * other;
                            *place = if accumulate { *place + value } else { value };
                        }
                    }
                }
                Device::Cuda(cuda) => Launch::new(&cuda, &KERNELS, "product_gradient")
                    .shape(other.rows().div_ceil(8), 1, 256)
                    .address(other.address())
                    .address(self.errors.address())
                    .address(place.address())
                    .int(other.rows())
                    .int(columns)
                    .address(gradient.address())
                    .float(self.factor)
                    .int(usize::from(accumulate))
                    .run()?,
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

    fn loss(tape: &mut Tape<'_>, inputs: &[Var]) -> Result<Var, Error> {
        let rows = inputs[0].tensor().rows();
        let wanted: Vec<f32> = (0..rows).map(|row| (row % 2) as f32).collect();
        let wanted = Tensor::new(&inputs[0].tensor().device(), (rows, 1), &wanted, Element::F32)?;
        wanted_products(tape, (&inputs[0], &inputs[1]), &wanted)
    }

    fn case(rows: usize, columns: usize) -> Case {
        Case::new("wanted products")
            .element(Element::F32)
            .input(Matrix::random(rows, columns, 1))
            .input(Matrix::random(rows, columns, 2))
    }

    #[test]
    fn the_value_is_the_formulas() {
        let (a, b) = (Matrix::random(5, 7, 1), Matrix::random(5, 7, 2));
        let exact: f64 = (0..5)
            .map(|row| {
                let products = (0..7).map(|at| f64::from(a.values[row * 7 + at] * b.values[row * 7 + at]));
                (products.sum::<f64>() - (row % 2) as f64).powi(2)
            })
            .sum();
        assert_close(evaluate(&[&a, &b], &[], |tape, inputs, _| loss(tape, inputs)), exact / 5.0);
    }

    #[test]
    fn gradients_match_finite_differences() {
        case(5, 4).check_gradients(|tape, inputs, _| loss(tape, inputs));
        // One matrix on both sides: its gradients add up.
        let own = Case::new("wanted products").element(Element::F32).input(Matrix::random(4, 3, 5));
        own.check_gradients(|tape, inputs, _| loss(tape, &[inputs[0].clone(), inputs[0].clone()]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        case(70, 130).compare_devices(|tape, inputs, _| loss(tape, inputs));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let (a, b) = (Matrix::random(5, 7, 1), Matrix::random(4, 7, 2));
        evaluate(&[&a, &b], &[], |tape, inputs, _| {
            let error = loss(tape, inputs).unwrap_err().to_string();
            assert!(error.contains("5 x 7") && error.contains("4 x 7"), "{error}");
            loss(tape, &[inputs[0].clone(), inputs[0].clone()])
        });
    }
}
