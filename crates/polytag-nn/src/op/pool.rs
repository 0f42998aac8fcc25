//! From a row a token to a row a sequence: an embedding of each text.

use rayon::prelude::*;

use super::check_width;
use crate::batch::Batch;
use crate::cuda::{KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource = KernelSource { module: "pool", text: include_str!("pool.cu"), define: "" };

/// What of a sequence's tokens stands for the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first one, which is there for that.
    Cls,
    /// Their mean.
    Mean,
}

/// Pools `[tokens, hidden]` to `[sequences, hidden]`, in f32 whatever the tokens are in.
pub fn pool(tape: &mut Tape<'_>, input: &Var, batch: &Batch, pooling: Pooling) -> Result<Var, Error> {
    let tensor = input.tensor();
    assert_eq!(tensor.rows(), batch.tokens(), "there is a row for each token of the batch");
    let hidden = tensor.columns();
    let device = tensor.device();
    let mut out = Tensor::scratch(&device, batch.len(), hidden, Element::F32)?;
    match &device {
        Device::Cpu(_) => pool_values(tensor.values(), batch, pooling, out.values_mut()),
        Device::Cuda(cuda) => {
            check_width(hidden)?;
            assert_eq!(tensor.element(), Element::Bf16, "activations on a GPU are bf16");
            Launch::new(cuda, &KERNELS, "pool")
                .shape(batch.len(), hidden.div_ceil(256), 256)
                .address(tensor.address())
                .address(out.address())
                .address(batch.offsets_address())
                .int(hidden)
                .int(usize::from(pooling == Pooling::Cls))
                .run()?;
        }
    }
    let link = input.link();
    let op = tape
        .wants(&[input], &[])
        .then(|| -> Box<dyn Backward> { Box::new(Pool { link, batch: batch.clone(), pooling }) });
    Ok(tape.push(out, op))
}

fn pool_values(tokens: &[f32], batch: &Batch, pooling: Pooling, out: &mut [f32]) {
    let Some(hidden) = out.len().checked_div(batch.len()).filter(|&hidden| hidden > 0) else { return };
    out.par_chunks_mut(hidden).zip(batch.offsets().par_windows(2)).for_each(|(out, ends)| {
        let rows = &tokens[ends[0] as usize * hidden..ends[1] as usize * hidden];
        out.copy_from_slice(&rows[..hidden]);
        if pooling == Pooling::Mean {
            for row in rows.chunks(hidden).skip(1) {
                for (sum, value) in out.iter_mut().zip(row) {
                    *sum += value;
                }
            }
            let count = (ends[1] - ends[0]) as f32;
            out.iter_mut().for_each(|sum| *sum /= count);
        }
    });
}

/// Adds each sequence's gradient to those of its tokens.
fn spread(gradient: &[f32], batch: &Batch, pooling: Pooling, out: &mut [f32]) {
    let Some(hidden) = gradient.len().checked_div(batch.len()).filter(|&hidden| hidden > 0) else { return };
    for (gradient, ends) in gradient.chunks(hidden).zip(batch.offsets().windows(2)) {
        let tokens = match pooling {
            Pooling::Cls => 1,
            Pooling::Mean => (ends[1] - ends[0]) as usize,
        };
        let first = ends[0] as usize;
        for row in out[first * hidden..(first + tokens) * hidden].chunks_mut(hidden) {
            for (sum, value) in row.iter_mut().zip(gradient) {
                *sum += value / tokens as f32;
            }
        }
    }
}

struct Pool {
    link: Link,
    batch: Batch,
    pooling: Pooling,
}

impl Backward for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let Some(to) = self.link else { return Ok(()) };
        let device = gradient.device();
        let shape = (self.batch.tokens(), gradient.columns());
        let (mut place, accumulate) = flow.slot_shaped(to, shape, device.activations())?;
        match &device {
            Device::Cpu(_) => {
                if !accumulate {
                    place.values_mut().fill(0.0);
                }
                spread(gradient.values(), &self.batch, self.pooling, place.values_mut());
            }
            Device::Cuda(cuda) => Launch::new(cuda, &KERNELS, "pool_gradient")
                .shape(self.batch.len(), gradient.columns().div_ceil(256), 256)
                .address(gradient.address())
                .address(place.address())
                .address(self.batch.offsets_address())
                .int(gradient.columns())
                .int(usize::from(self.pooling == Pooling::Cls))
                .int(usize::from(accumulate))
                .run()?,
        }
        flow.put(to, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Build, Case, Matrix, sum};
    use crate::parameters::ParameterId;

    fn batch(device: &Device, lengths: &[usize]) -> Result<Batch, Error> {
        let sequences: Vec<Vec<u32>> = lengths.iter().map(|&length| vec![0; length]).collect();
        Batch::new(device, sequences.iter().map(Vec::as_slice), 0)
    }

    fn case(lengths: &[usize], hidden: usize) -> Case {
        Case::new("pool").input(Matrix::random(lengths.iter().sum(), hidden, 1))
    }

    fn build(lengths: &[usize], pooling: Pooling) -> impl Build {
        move |tape: &mut Tape<'_>, inputs: &[Var], _: &[ParameterId]| {
            let batch = batch(tape.parameters().device(), lengths)?;
            pool(tape, &inputs[0], &batch, pooling)
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        for pooling in [Pooling::Cls, Pooling::Mean] {
            case(&[3, 1, 4], 3).check_gradients(build(&[3, 1, 4], pooling));
        }
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for pooling in [Pooling::Cls, Pooling::Mean] {
            for hidden in [64, 384, 768] {
                case(&[77, 1, 2, 512, 9], hidden).compare_devices(build(&[77, 1, 2, 512, 9], pooling));
            }
            case(&[1], 64).compare_devices(build(&[1], pooling));
        }
    }

    #[test]
    fn a_gradient_is_added_to_what_is_there() {
        let lengths = &[77, 1, 9];
        for pooling in [Pooling::Cls, Pooling::Mean] {
            case(lengths, 64).compare_devices(|tape: &mut Tape<'_>, inputs: &[Var], _: &[ParameterId]| {
                let batch = batch(tape.parameters().device(), lengths)?;
                let mean = pool(tape, &inputs[0], &batch, Pooling::Mean)?;
                let other = pool(tape, &inputs[0], &batch, pooling)?;
                sum(tape, &mean, &other)
            });
        }
    }
}
