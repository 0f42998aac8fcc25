//! Attention over packed sequences, fused: no matrix of tokens by tokens is ever in memory.
//!
//! On the way back the probabilities are computed again from the logarithms of their sums. On the GPU
//! sequences of up to 128 tokens go through one block each, longer ones through two passes, or on Hopper
//! through one; the headers of `tiles.cu` and `hopper.cu` say how.

mod cuda;
mod hopper; // long sequences on GPUs of compute capability 9.0

use crate::batch::Batch;
use crate::cpu;
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::op::relative_bias::DISTANCES;
use crate::random::PairedDropout;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

/// How attention is paid.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// How many heads.
    pub heads: usize,
    /// How often a probability is dropped while training; [`PairedDropout`] rounds it.
    pub dropout: f32,
    /// What is added to scores by distance, as [`relative_bias`](super::relative_bias) makes it.
    pub bias: Option<&'a Var>,
}

/// From queries, keys and values side by side, `[tokens, 3 · hidden]`, to `[tokens, hidden]`.
///
/// # Panics
/// If a head has neither 32 nor 64 columns on the GPU; configurations are checked before.
pub fn attention(
    tape: &mut Tape<'_>,
    input: &Var,
    batch: &Batch,
    attention: Attention<'_>,
) -> Result<Var, Error> {
    let qkv = input.tensor();
    let hidden = qkv.columns() / 3;
    let shape = Shape {
        heads: attention.heads,
        head_dim: hidden / attention.heads,
        dropout: tape.next_dropout(attention.dropout).and_then(PairedDropout::new),
        batch: batch.clone(),
    };
    let bias = attention.bias.map(Var::tensor);
    let inputs: Vec<&Var> = [Some(input), attention.bias].into_iter().flatten().collect();
    let keep = tape.wants(&inputs, &[]);
    let (out, log_sums) = shape.forward(qkv, bias, keep)?;
    let op = log_sums.map(|log_sums| -> Box<dyn Backward> {
        Box::new(Paid {
            link: input.link(),
            bias: attention.bias.map(|bias| (bias.tensor().clone(), bias.link())),
            saved: Saved { qkv: qkv.clone(), out: out.clone(), log_sums },
            shape,
        })
    });
    Ok(tape.push(out, op))
}

/// What attention is a function of, besides its inputs.
struct Shape {
    heads: usize,
    head_dim: usize,
    dropout: Option<PairedDropout>,
    batch: Batch,
}

/// What the way back needs again.
struct Saved {
    qkv: Tensor,
    out: Tensor,
    log_sums: Tensor,
}

impl Shape {
    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn on_cpu<'a>(&'a self, bias: Option<&'a Tensor>) -> cpu::Attention<'a> {
        cpu::Attention {
            offsets: self.batch.offsets(),
            heads: self.heads,
            head_dim: self.head_dim,
            scale: self.scale(),
            bias: bias.map(Tensor::values),
            dropout: self.dropout,
        }
    }

    /// The output and, if it is kept for the way back, the logarithms of the sums, `[heads, tokens]`.
    fn forward(
        &self,
        qkv: &Tensor,
        bias: Option<&Tensor>,
        keep: bool,
    ) -> Result<(Tensor, Option<Tensor>), Error> {
        let (tokens, hidden) = (qkv.rows(), qkv.columns() / 3);
        let device = qkv.device();
        let mut out = Tensor::scratch(&device, tokens, hidden, qkv.element())?;
        // The GPU's kernels always write them.
        let wanted = keep || matches!(device, Device::Cuda(_));
        let mut log_sums = match wanted {
            true => Some(Tensor::scratch(&device, self.heads, tokens, Element::F32)?),
            false => None,
        };
        match &device {
            Device::Cpu(_) => {
                let log_sums = log_sums.as_mut().map(Tensor::values_mut);
                cpu::attention(&self.on_cpu(bias), qkv.values(), out.values_mut(), log_sums);
            }
            Device::Cuda(cuda) => {
                let log_sums = log_sums.as_ref().expect("they are made on a GPU");
                cuda::forward(cuda, self, (qkv, bias), (&out, log_sums))?;
            }
        }
        Ok((out, log_sums.filter(|_| keep)))
    }
}

struct Paid {
    link: Link,
    bias: Option<(Tensor, Link)>,
    saved: Saved,
    shape: Shape,
}

impl Backward for Paid {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let device = gradient.device();
        let bias = self.bias.as_ref().map(|(bias, _)| bias);
        let bias_link = self.bias.as_ref().and_then(|&(_, link)| link);
        let mut d_bias = match bias_link {
            Some(_) => Some(Tensor::zeros(&device, self.shape.heads, DISTANCES, Element::F32)?),
            None => None,
        };
        let d_qkv = match &device {
            Device::Cpu(_) => {
                let Saved { qkv, out, log_sums } = &self.saved;
                let mut d_qkv = Tensor::scratch(&device, qkv.rows(), qkv.columns(), qkv.element())?;
                let (qkv, out, log_sums) = (qkv.values(), out.values(), log_sums.values());
                cpu::attention_backward(
                    &self.shape.on_cpu(bias),
                    cpu::AttentionSaved { qkv, out, log_sums },
                    gradient.values(),
                    cpu::AttentionGradients {
                        qkv: d_qkv.values_mut(),
                        bias: d_bias.as_mut().map(Tensor::values_mut),
                    },
                );
                d_qkv
            }
            Device::Cuda(cuda) => {
                cuda::backward(cuda, &self.shape, (&self.saved, &gradient), (bias, d_bias.as_ref()))?
            }
        };
        if let Some(d_bias) = d_bias {
            flow.give(bias_link, d_bias)?;
        }
        flow.give(self.link, d_qkv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::relative_bias::relative_bias;
    use crate::op::testing::{Case, Matrix};

    /// Sequences of these lengths, whatever their tokens.
    fn batch(tape: &Tape<'_>, lengths: &[usize]) -> Batch {
        let sequences: Vec<Vec<u32>> = lengths.iter().map(|&length| vec![1; length]).collect();
        Batch::new(tape.parameters().device(), sequences.iter().map(Vec::as_slice), 0).unwrap()
    }

    fn case(lengths: &[usize], hidden: usize) -> Case {
        Case::new("attention").input(Matrix::random(lengths.iter().sum(), 3 * hidden, 1))
    }

    #[test]
    fn gradients_match_finite_differences() {
        let lengths = [3, 1, 4];
        for dropout in [0.0, 0.3] {
            case(&lengths, 8).check_gradients(|tape, inputs, _| {
                let batch = batch(tape, &lengths);
                attention(tape, &inputs[0], &batch, Attention { heads: 2, dropout, bias: None })
            });
        }
    }

    #[test]
    fn gradients_of_a_relative_bias_match_finite_differences() {
        let lengths = [3, 9];
        case(&lengths, 8).weight(Matrix::random(8, 2, 2)).check_gradients(|tape, inputs, weights| {
            let batch = batch(tape, &lengths);
            let bias = relative_bias(tape, weights[0])?;
            attention(tape, &inputs[0], &batch, Attention { heads: 2, dropout: 0.0, bias: Some(&bias) })
        });
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        for (lengths, heads, head_dim) in [
            (vec![1, 2, 63, 64, 65, 127, 128], 2, 32),
            (vec![129, 5, 512, 300], 3, 64),
            // More parts than any GPU has multiprocessors: a block takes several, and its stages begin anew.
            (vec![512, 130, 300, 450, 200, 512, 257, 180], 12, 64),
            (vec![128; 4], 12, 64),
        ] {
            for dropout in [0.0, 0.1] {
                case(&lengths, heads * head_dim).compare_devices(|tape, inputs, _| {
                    let batch = batch(tape, &lengths);
                    attention(tape, &inputs[0], &batch, Attention { heads, dropout, bias: None })
                });
                case(&lengths, heads * head_dim).weight(Matrix::random(32, heads, 2)).compare_devices(
                    |tape, inputs, weights| {
                        let batch = batch(tape, &lengths);
                        let bias = relative_bias(tape, weights[0])?;
                        attention(tape, &inputs[0], &batch, Attention { heads, dropout, bias: Some(&bias) })
                    },
                );
            }
        }
    }
}
