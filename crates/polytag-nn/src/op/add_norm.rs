//! Residual connections and layer norm: `y = norm(dropout(x + b) + r) · gamma + beta`.
//!
//! The bias is that of the product before: it costs nothing here, and its gradient is summed in the same
//! pass as those of gamma and beta.

use super::check_width;
use super::column_sums::finish;
use crate::cpu;
use crate::cuda::{Buffer, Cuda, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::{ParameterId, Parameters};
use crate::random::Dropout;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

/// The kernels for rows of up to 256, 512, 768 and 1024 numbers, which a warp keeps in its registers.
const KERNELS: [KernelSource; 4] =
    [kernels("CHUNKS=1"), kernels("CHUNKS=2"), kernels("CHUNKS=3"), kernels("CHUNKS=4")];

const fn kernels(define: &'static str) -> KernelSource {
    KernelSource { module: "add_norm", text: include_str!("add_norm.cu"), define }
}

/// How many rows a block of threads works on at a time: one a warp.
const WARPS: usize = 8;

/// What is added to the input, and how the sum is normalised.
#[derive(Clone, Copy, Debug)]
pub struct AddNorm<'a> {
    /// Added to every row of the input, before dropout.
    pub bias: Option<ParameterId>,
    /// Added to the input, after dropout.
    pub residual: Option<&'a Var>,
    /// What normal rows are multiplied by.
    pub gamma: ParameterId,
    /// What is added then.
    pub beta: ParameterId,
    /// Added to the variance, so that a constant row does not divide by zero.
    pub epsilon: f32,
    /// The probability that a value of the input is dropped, in training.
    pub dropout: f32,
}

/// What the way back needs of the forward pass.
struct Saved {
    /// What was normalised.
    sum: Tensor,
    /// The mean of each row of it, and one over its deviation.
    statistics: Tensor,
}

/// Adds a bias and a residual to the input, with dropout between them, and normalises each row.
pub fn add_norm(tape: &mut Tape<'_>, input: &Var, norm: AddNorm<'_>) -> Result<Var, Error> {
    let mask = tape.next_dropout(norm.dropout);
    let tensor = input.tensor();
    if let Some(residual) = norm.residual {
        let shape = (residual.tensor().rows(), residual.tensor().columns());
        assert_eq!(shape, (tensor.rows(), tensor.columns()), "a residual is of its input's shape");
    }
    let inputs: Vec<&Var> = [Some(input), norm.residual].into_iter().flatten().collect();
    let weights = Weights { gamma: norm.gamma, beta: norm.beta, bias: norm.bias };
    let ids: Vec<ParameterId> =
        [norm.bias, Some(norm.gamma), Some(norm.beta)].into_iter().flatten().collect();
    let wanted = tape.wants(&inputs, &ids);

    let device = tensor.device();
    let scratch = |columns, element| Tensor::scratch(&device, tensor.rows(), columns, element);
    let mut out = scratch(tensor.columns(), tensor.element())?;
    let mut saved = match wanted {
        true => Some(Saved {
            sum: scratch(tensor.columns(), tensor.element())?,
            statistics: scratch(2, Element::F32)?,
        }),
        false => None,
    };
    match &device {
        Device::Cpu(_) => {
            let kept = saved.as_mut().map(|saved| cpu::NormKept {
                sum: saved.sum.values_mut(),
                moments: saved.statistics.values_mut(),
            });
            let residual = norm.residual.map(|residual| residual.tensor().values());
            let norm = on_cpu(tape.parameters(), weights, norm.epsilon, mask);
            cpu::add_norm(&norm, tensor.values(), residual, out.values_mut(), kept);
        }
        Device::Cuda(cuda) => {
            let (parameters, hidden) = (tape.parameters(), tensor.columns());
            assert_eq!(tensor.element(), Element::Bf16, "activations on a GPU are bf16");
            let (sum, statistics) =
                saved.as_ref().map_or((0, 0), |saved| (saved.sum.address(), saved.statistics.address()));
            Launch::new(cuda, kernels_for(hidden)?, "add_norm")
                .shape(tensor.rows().div_ceil(WARPS), 1, 32 * WARPS)
                .address(tensor.address())
                .address(norm.bias.map_or(0, |bias| parameters.master_address(bias)))
                .address(norm.residual.map_or(0, |residual| residual.tensor().address()))
                .address(parameters.master_address(norm.gamma))
                .address(parameters.master_address(norm.beta))
                .address(out.address())
                .address(sum)
                .address(statistics)
                .int(tensor.rows())
                .int(hidden)
                .float(norm.epsilon)
                .dropout(mask)
                .run()?;
        }
    }
    let op = saved.map(|saved| -> Box<dyn Backward> {
        Box::new(AddNormBack {
            saved,
            weights,
            mask,
            input: input.link(),
            residual: norm.residual.and_then(Var::link),
        })
    });
    Ok(tape.push(out, op))
}

fn kernels_for(hidden: usize) -> Result<&'static KernelSource, Error> {
    check_width(hidden)?;
    KERNELS.get(hidden.div_ceil(256).saturating_sub(1)).ok_or_else(|| {
        Error::Unfit(format!("the GPU takes hidden sizes up to 1024, and this one is {hidden}; use the CPU"))
    })
}

struct AddNormBack {
    saved: Saved,
    weights: Weights,
    mask: Option<Dropout>,
    input: Link,
    residual: Link,
}

/// The weights that the way back needs.
#[derive(Clone, Copy)]
struct Weights {
    gamma: ParameterId,
    beta: ParameterId,
    bias: Option<ParameterId>,
}

impl Weights {
    /// Gamma, beta and bias, in the order that their sums lie in; `None` for those not trained.
    fn trained(self, flow: &Flow<'_>) -> [Option<ParameterId>; 3] {
        [Some(self.gamma), Some(self.beta), self.bias].map(|weight| weight.filter(|&id| flow.trains(id)))
    }
}

/// How the CPU takes an op's weights.
fn on_cpu(
    parameters: &Parameters,
    weights: Weights,
    epsilon: f32,
    mask: Option<Dropout>,
) -> cpu::AddNorm<'_> {
    cpu::AddNorm {
        gamma: parameters.values(weights.gamma),
        beta: parameters.values(weights.beta),
        epsilon,
        bias: weights.bias.map(|bias| parameters.values(bias)),
        dropout: mask,
    }
}

impl AddNormBack {
    /// The gradients of what was normalised and, if something was dropped, of the input. On a GPU
    /// each only if it is wanted.
    fn places(&self) -> Result<(Option<Tensor>, Option<Tensor>), Error> {
        let sum = &self.saved.sum;
        let device = sum.device();
        let always = matches!(device, Device::Cpu(_));
        let scratch = || Tensor::scratch(&device, sum.rows(), sum.columns(), sum.element());
        let whole = always || self.residual.is_some() || (self.mask.is_none() && self.input.is_some());
        let dropped = self.mask.is_some() && (always || self.input.is_some());
        Ok((whole.then(scratch).transpose()?, dropped.then(scratch).transpose()?))
    }

    fn on_gpu(
        &self,
        cuda: &Cuda,
        gradient: &Tensor,
        (whole, dropped): (u64, u64),
        flow: &mut Flow<'_>,
    ) -> Result<(), Error> {
        let (rows, hidden) = (gradient.rows(), gradient.columns());
        let blocks = rows.div_ceil(WARPS).clamp(1, 2 * cuda.multiprocessors());
        let trained = self.weights.trained(flow);
        let partial = match trained.iter().any(Option::is_some) {
            true => Some(Buffer::take(cuda, 4 * trained.len() * blocks * hidden)?),
            false => None,
        };
        Launch::new(cuda, kernels_for(hidden)?, "add_norm_gradient")
            .shape(blocks, 1, 32 * WARPS)
            .address(gradient.address())
            .address(self.saved.sum.address())
            .address(self.saved.statistics.address())
            .address(flow.parameters().master_address(self.weights.gamma))
            .address(whole)
            .address(dropped)
            .address(partial.as_ref().map_or(0, Buffer::pointer))
            .int(rows)
            .int(hidden)
            .dropout(self.mask)
            .run()?;
        match partial {
            Some(partial) => finish(cuda, flow.parameters(), (&partial, blocks), &trained),
            None => Ok(()),
        }
    }

    fn on_cpu(
        &self,
        gradient: &Tensor,
        whole: &mut Tensor,
        dropped: Option<&mut Tensor>,
        flow: &mut Flow<'_>,
    ) {
        let hidden = gradient.columns();
        let mut sums = vec![0.0; 3 * hidden];
        let (gamma, others) = sums.split_at_mut(hidden);
        let (beta, bias) = others.split_at_mut(hidden);
        let saved = cpu::NormSaved { sum: self.saved.sum.values(), moments: self.saved.statistics.values() };
        let to = cpu::NormGradients {
            sum: whole.values_mut(),
            x: dropped.map(Tensor::values_mut),
            gamma,
            beta,
            bias: self.weights.bias.map(|_| bias),
        };
        // The way back divides by the deviations that were saved; epsilon is in them.
        let op = on_cpu(flow.parameters(), self.weights, 0.0, self.mask);
        cpu::add_norm_backward(&op, saved, gradient.values(), to);
        for (weight, sums) in self.weights.trained(flow).into_iter().zip(sums.chunks(hidden)) {
            let Some(weight) = weight else { continue };
            for (place, sum) in flow.parameters().cleared_gradient(weight).iter_mut().zip(sums) {
                *place += sum;
            }
        }
    }
}

impl Backward for AddNormBack {
    fn name(&self) -> &'static str {
        "add_norm"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let (mut whole, mut dropped) = self.places()?;
        match (gradient.device(), &mut whole) {
            (Device::Cuda(cuda), whole) => {
                let places = [whole.as_ref(), dropped.as_ref()].map(|to| to.map_or(0, Tensor::address));
                self.on_gpu(&cuda, &gradient, places.into(), flow)?;
            }
            (Device::Cpu(_), Some(whole)) => self.on_cpu(&gradient, whole, dropped.as_mut(), flow),
            (Device::Cpu(_), None) => unreachable!("the CPU always has a place for the whole gradient"),
        }
        if let Some(behind) = dropped.or_else(|| whole.clone()) {
            flow.give(self.input, behind)?;
        }
        match whole {
            Some(whole) => flow.give(self.residual, whole),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Build, Case, Matrix, sum};
    use crate::parameters::ParametersBuilder;

    fn case(rows: usize, hidden: usize) -> Case {
        Case::new("add_norm")
            .input(Matrix::random(rows, hidden, 1))
            .input(Matrix::random(rows, hidden, 2))
            .weight(Matrix::random(1, hidden, 3).scaled(0.3, 1.0))
            .weight(Matrix::random(1, hidden, 4).scaled(0.3, 0.0))
            .weight(Matrix::random(1, hidden, 5).scaled(0.3, 0.0))
    }

    fn build(dropout: f32) -> impl Build {
        move |tape: &mut Tape<'_>, inputs: &[Var], weights: &[ParameterId]| {
            let (gamma, beta, bias) = (weights[0], weights[1], Some(weights[2]));
            let residual = Some(&inputs[1]);
            add_norm(tape, &inputs[0], AddNorm { bias, residual, gamma, beta, epsilon: 1e-5, dropout })
        }
    }

    /// Without bias and residual, and with the same weights once more.
    fn build_bare(dropout: f32) -> impl Build {
        move |tape: &mut Tape<'_>, inputs: &[Var], weights: &[ParameterId]| {
            let (gamma, beta) = (weights[0], weights[1]);
            let norm = AddNorm { bias: None, residual: None, gamma, beta, epsilon: 1e-5, dropout };
            let once = add_norm(tape, &inputs[0], norm)?;
            let residual = Some(&inputs[0]);
            let twice = add_norm(tape, &once, AddNorm { residual, ..norm })?;
            sum(tape, &twice, &inputs[1])
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for dropout in [0.0, 0.3] {
            case(3, 6).check_gradients(build(dropout));
            case(2, 6).check_gradients(build_bare(dropout));
        }
    }

    #[test]
    fn frozen_weights_have_no_gradient() {
        for dropout in [0.0, 0.1] {
            case(30, 64).check_frozen(build(dropout));
        }
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for dropout in [0.0, 0.1] {
            for (rows, hidden) in [(1, 64), (77, 384), (5000, 768), (9, 1024), (300, 8)] {
                case(rows, hidden).compare_devices(build(dropout));
            }
            case(77, 384).compare_devices(build_bare(dropout));
        }
    }

    #[test]
    fn rows_come_out_normal_outside_of_training() {
        let mut builder = ParametersBuilder::default();
        let gamma = builder.add("gamma", (1, 2), &[2.0, 3.0]);
        let beta = builder.add("beta", (1, 2), &[0.5, 0.0]);
        let parameters = builder.build(&Device::cpu()).unwrap();
        let tensor = Tensor::new(&Device::cpu(), (2, 2), &[1.0, 3.0, 4.0, 4.0], Element::F32).unwrap();
        let norm = AddNorm { bias: None, residual: None, gamma, beta, epsilon: 1e-12, dropout: 0.9 };
        let out = add_norm(&mut Tape::inference(&parameters), &Var::constant(tensor), norm).unwrap();
        assert_eq!(out.tensor().values(), [-1.5, 3.0, 0.5, 0.0]);
    }
}
