//! The two products of a transformer's layer: `y = gelu(x · upᵀ + b) · downᵀ`.
//!
//! Between the two stands the widest matrix of an encoder. Only what GELU takes is kept for the way
//! back; what it gives is computed again there, in the pass that needs both anyway. The bias of the
//! second product belongs to the [`add_norm`](super::add_norm) after it.

use super::column_sums::{column_sums, finish, row_blocks};
use super::{check_width, linear};
use crate::cpu::{self, Then, View};
use crate::cuda::{Buffer, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::{Layout, ParameterId};
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "feed_forward", text: include_str!("feed_forward.cu"), define: "" };

/// The weights of the two products.
#[derive(Clone, Copy, Debug)]
pub struct FeedForward {
    /// `[wide, hidden]`.
    pub up: ParameterId,
    /// `[wide]`.
    pub up_bias: ParameterId,
    /// `[hidden, wide]`.
    pub down: ParameterId,
}

/// Multiplies up, takes GELU, multiplies down.
pub fn feed_forward(tape: &mut Tape<'_>, input: &Var, weights: FeedForward) -> Result<Var, Error> {
    let FeedForward { up, up_bias, down } = weights;
    let wanted = tape.wants(&[input], &[up, up_bias, down]);
    let (taken, given) = match tape.parameters().device() {
        Device::Cpu(_) => wide_on_cpu(tape, input.tensor(), weights, wanted)?,
        Device::Cuda(cuda) => {
            let wide = linear::forward(tape, input.tensor(), up, Some(up_bias))?;
            check_width(wide.columns())?;
            assert_eq!(wide.element(), Element::Bf16, "activations on a GPU are bf16");
            let given = match wanted {
                true => like(&wide)?,
                false => wide.clone(),
            };
            let length = wide.rows() * wide.columns();
            Launch::new(cuda, &KERNELS, "gelu")
                .shape(length.div_ceil(8 * 256), 1, 256)
                .address(wide.address())
                .address(given.address())
                .long(length)
                .run()?;
            (wanted.then_some(wide), given)
        }
    };
    let out = linear::forward(tape, &given, down, None)?;
    let op = taken.map(|taken| -> Box<dyn Backward> {
        Box::new(FeedForwardBack { input: input.tensor().clone(), link: input.link(), taken, weights })
    });
    Ok(tape.push(out, op))
}

/// What GELU took, if that is to be kept, and what it gave.
fn wide_on_cpu(
    tape: &Tape<'_>,
    input: &Tensor,
    weights: FeedForward,
    wanted: bool,
) -> Result<(Option<Tensor>, Tensor), Error> {
    let parameters = tape.parameters();
    let columns = parameters.info(weights.up).rows;
    let scratch = || Tensor::scratch(parameters.device(), input.rows(), columns, Element::F32);
    let (mut taken, mut given) = (wanted.then(scratch).transpose()?, scratch()?);
    let before = taken.as_mut().map(Tensor::values_mut);
    let then = Then::BiasGelu { bias: parameters.values(weights.up_bias), before };
    let packed = parameters.packed(weights.up, Layout::Transposed);
    let input = View::new(input.values(), input.rows(), input.columns());
    cpu::multiply(input, &packed, given.values_mut(), then);
    Ok((taken, given))
}

fn like(tensor: &Tensor) -> Result<Tensor, Error> {
    Tensor::scratch(&tensor.device(), tensor.rows(), tensor.columns(), tensor.element())
}

struct FeedForwardBack {
    input: Tensor,
    link: Link,
    /// What GELU took.
    taken: Tensor,
    weights: FeedForward,
}

/// The way back through GELU: turns the gradient of what it gave into that of what it took, adds the
/// latter's column sums to the gradient of `bias`, and gives what it gave once more.
fn gelu_backward(
    gradient: Tensor,
    taken: Tensor,
    bias: ParameterId,
    flow: &mut Flow<'_>,
) -> Result<(Tensor, Tensor), Error> {
    match gradient.device() {
        Device::Cpu(_) => {
            let (mut before, mut given) = (like(&taken)?, like(&taken)?);
            cpu::gelu(taken.values(), given.values_mut());
            cpu::gelu_backward(taken.values(), gradient.values(), before.values_mut());
            if flow.trains(bias) {
                column_sums(flow.parameters(), &before, bias)?;
            }
            Ok((before, given))
        }
        Device::Cuda(cuda) => {
            // Both in place: nobody else has them.
            let (gradient, taken) = (gradient.into_unshared()?, taken.into_unshared()?);
            let (rows, columns) = (taken.rows(), taken.columns());
            let blocks = row_blocks(&cuda, rows);
            let partial = match flow.trains(bias) {
                true => Some(Buffer::take(&cuda, 4 * blocks * columns)?),
                false => None,
            };
            Launch::new(&cuda, &KERNELS, "gelu_gradient")
                .shape(columns.div_ceil(256), blocks, 256)
                .address(gradient.address())
                .address(taken.address())
                .address(partial.as_ref().map_or(0, Buffer::pointer))
                .int(rows)
                .int(columns)
                .run()?;
            if let Some(partial) = partial {
                finish(&cuda, flow.parameters(), (&partial, blocks), &[Some(bias)])?;
            }
            Ok((gradient, taken))
        }
    }
}

impl Backward for FeedForwardBack {
    fn name(&self) -> &'static str {
        "feed_forward"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let FeedForwardBack { input, link, taken, weights: FeedForward { up, up_bias, down } } = *self;
        let mut wide = like(&taken)?;
        linear::input_gradient(flow.parameters(), &gradient, down, (&mut wide, false))?;
        let (wide, given) = gelu_backward(wide, taken, up_bias, flow)?;
        if flow.trains(down) {
            linear::weight_gradient(flow, &gradient, &given, down)?;
        }
        // The residual beside this op has the same gradient; given up here, it need not be copied to
        // be added to.
        drop((gradient, given));
        linear::backward(flow, &wide, &input, up, link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Build, Case, Matrix, relative_error, sum};
    use crate::parameters::ParametersBuilder;

    fn case(rows: usize, hidden: usize, wide: usize) -> Case {
        let scale = |depth: usize| 1.0 / (depth as f32).sqrt();
        Case::new("feed_forward")
            .input(Matrix::random(rows, hidden, 1))
            .weight(Matrix::random(wide, hidden, 2).scaled(scale(hidden), 0.0))
            .weight(Matrix::random(1, wide, 3))
            .weight(Matrix::random(hidden, wide, 4).scaled(scale(wide), 0.0))
    }

    /// Twice with the same weights, with a residual: gradients are added to what is there.
    fn build() -> impl Build {
        |tape: &mut Tape<'_>, inputs: &[Var], weights: &[ParameterId]| {
            let weights = FeedForward { up: weights[0], up_bias: weights[1], down: weights[2] };
            let once = feed_forward(tape, &inputs[0], weights)?;
            let with_residual = sum(tape, &once, &inputs[0])?;
            feed_forward(tape, &with_residual, weights)
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        case(3, 4, 5).check_gradients(build());
    }

    #[test]
    fn frozen_weights_have_no_gradient() {
        case(30, 64, 128).check_frozen(build());
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for (rows, hidden, wide) in [(1, 64, 128), (77, 384, 1536), (300, 64, 264), (90, 768, 3072)] {
            case(rows, hidden, wide).compare_devices(build());
        }
    }

    #[test]
    fn inference_gives_what_training_gives() {
        for device in crate::op::testing::devices("feed_forward in inference") {
            let (mut builder, scale) = (ParametersBuilder::default(), 0.125);
            let mut add = |name, rows: usize, columns: usize, seed| {
                let matrix = Matrix::random(rows, columns, seed).scaled(scale, 0.0);
                builder.add(name, (rows, columns), &matrix.values)
            };
            let weights = FeedForward {
                up: add("up", 128, 64, 1),
                up_bias: add("up bias", 1, 128, 2),
                down: add("down", 64, 128, 3),
            };
            let parameters = builder.build(&device).unwrap();
            let input = Matrix::random(9, 64, 4);
            let input = Tensor::new(&device, (9, 64), &input.values, device.activations()).unwrap();
            let run = |mut tape: Tape<'_>| {
                let out = feed_forward(&mut tape, &Var::constant(input.clone()), weights).unwrap();
                out.tensor().to_vec().unwrap()
            };
            let trained = run(Tape::training(&parameters, crate::random::Key::new(1)));
            assert!(relative_error(&run(Tape::inference(&parameters)), &trained) < 1e-6);
        }
    }
}
