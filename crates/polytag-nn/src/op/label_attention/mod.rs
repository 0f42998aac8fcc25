//! Every label reads a text for itself: tokens enter, a score for each sequence and label leaves.
//!
//! A label's query weighs the tokens of a sequence, `a = softmax(query · token / √D)`; the weighted mean of
//! the tokens is what the label found, `c = Σ a · token`; and the score is the cosine of that with what the
//! label expects to find (paper 003, section 4.3).
//!
//! The weights are a matrix of tokens by labels, and what was found is one of sequences by labels by `D`:
//! gigabytes. Neither is ever whole. Both passes make them a chunk of labels at a time, and the way back
//! makes each chunk again, so that memory grows with the chunk. How large that is changes no score on the
//! CPU; gradients of tokens are summed up chunk by chunk.
//!
//! The way back. With `r = |c|`, the score `y = c · o / r` and its gradient `g`:
//!
//! ```text
//! dc = g / r · (o − y · c / r)      do = g · c / r
//! da = dc · tokenᵀ                  dq = Σ ds · token / √D
//! ds = a · da                       dtoken = a · dc + ds · q / √D
//! ```
//!
//! A softmax's gradient is `a · (da − Σ a · da)`. The sum is `dc · c`, and as `dc` stands across `c` it is
//! zero: a cosine does not change when all weights grow alike. Where the score is the product `c · o` itself,
//! `dc = g · o`, `do = g · c`, and the sum is `g · y`.

mod memory; // how much labels may take that are worked on at once
mod cpu;
mod groups; // sequences of like length
mod cuda;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use memory::ChunkMemory;

use crate::batch::Batch;
use crate::cpu::{dot, scaled_softmax};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

/// What is shorter counts as this long, so that nothing is divided by zero. `label_attention.cu` has the same.
const TINY: f32 = 1e-12;

/// How what a label finds is compared with what it expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The cosine of their angle, as OF-LAN does.
    Cosine,
    /// Their inner product, as LAN does.
    Product,
}

/// Which labels read which sequences.
#[derive(Clone, Debug)]
pub struct LabelAttention<'a> {
    /// Which sequences of the batch are scored.
    pub sequences: Range<usize>,
    /// A row a label `[L, D]`, f32: what it looks for.
    pub queries: &'a Var,
    /// A row a label `[L, D]`, f32: what it expects to find; one long, where cosines are wanted.
    pub outputs: &'a Var,
    /// How the two are compared.
    pub comparison: Comparison,
    /// How many bytes may be taken for labels that are worked on at once.
    pub memory: &'a ChunkMemory,
}

/// Scores `[sequences, L]`, f32: what each label finds among the tokens `[tokens, D]` of each sequence,
/// compared with what it expects.
///
/// # Errors
/// If there is no sequence or no label, or not the memory to work on one label.
pub fn label_attention(
    tape: &mut Tape<'_>,
    tokens: &Var,
    batch: &Batch,
    labels: &LabelAttention<'_>,
) -> Result<Var, Error> {
    let problem = Problem::new(tokens, batch, labels)?;
    let device = problem.tokens.device();
    let mut out = Tensor::scratch(&device, problem.sequences.len(), problem.labels(), Element::F32)?;
    match &device {
        Device::Cpu(_) => cpu::forward(&problem, out.values_mut()),
        Device::Cuda(cuda) => cuda::forward(cuda, &problem, &out)?,
    }
    let op = tape.wants(&[tokens, labels.queries, labels.outputs], &[]).then(|| -> Box<dyn Backward> {
        let [tokens, queries, outputs] = [tokens, labels.queries, labels.outputs].map(Var::link);
        Box::new(WayBack { problem, tokens, queries, outputs })
    });
    Ok(tape.push(out, op))
}

/// How much a label looks at each token of a sequence: the tokens `[tokens, D]` and the label's query.
///
/// # Panics
/// If the tokens are not whole rows of the query's length.
pub fn label_attention_weights(tokens: &[f32], query: &[f32]) -> Vec<f32> {
    assert!(!query.is_empty() && tokens.len().is_multiple_of(query.len()), "tokens are as long as the query");
    let mut weights: Vec<f32> = tokens.chunks_exact(query.len()).map(|token| dot(query, token)).collect();
    scaled_softmax(&mut weights, scale(query.len()));
    weights
}

/// What products of queries and tokens are multiplied by.
fn scale(columns: usize) -> f32 {
    1.0 / (columns as f32).sqrt()
}

/// What enters, checked.
struct Problem {
    tokens: Tensor,
    batch: Batch,
    sequences: Range<usize>,
    queries: Tensor,
    outputs: Tensor,
    comparison: Comparison,
    memory: ChunkMemory,
}

impl Problem {
    fn new(tokens: &Var, batch: &Batch, labels: &LabelAttention<'_>) -> Result<Problem, Error> {
        let sequences = labels.sequences.clone();
        let (tokens, queries, outputs) = (tokens.tensor(), labels.queries.tensor(), labels.outputs.tensor());
        assert_eq!(tokens.rows(), batch.tokens(), "there is a row for each token of the batch");
        assert!(sequences.end <= batch.len(), "the sequences are of the batch");
        assert_eq!(tokens.element(), tokens.device().activations(), "tokens are activations");
        assert!(queries.element() == Element::F32 && outputs.element() == Element::F32, "labels are f32");
        let shape = |tensor: &Tensor| (tensor.rows(), tensor.columns());
        assert_eq!(shape(queries), shape(outputs), "a query and an output a label");
        assert_eq!(queries.columns(), tokens.columns(), "labels are as wide as tokens");
        if sequences.is_empty() || queries.rows() == 0 || queries.columns() == 0 {
            return Err(Error::Unfit(
                "label attention was asked for of no sequences or no labels".to_owned(),
            ));
        }
        Ok(Problem {
            tokens: tokens.clone(),
            batch: batch.clone(),
            sequences,
            queries: queries.clone(),
            outputs: outputs.clone(),
            comparison: labels.comparison,
            memory: labels.memory.clone(),
        })
    }

    fn labels(&self) -> usize {
        self.queries.rows()
    }

    fn columns(&self) -> usize {
        self.queries.columns()
    }

    /// The tokens of a sequence of the batch.
    fn tokens_of(&self, sequence: usize) -> Range<usize> {
        let offsets = self.batch.offsets();
        offsets[sequence] as usize..offsets[sequence + 1] as usize
    }

    /// How many tokens each sequence has that is scored.
    fn lengths(&self) -> Vec<usize> {
        self.sequences.clone().map(|sequence| self.tokens_of(sequence).len()).collect()
    }

    /// Whether a token of the batch is of no sequence that is scored.
    fn leaves_tokens_out(&self) -> bool {
        self.sequences != (0..self.batch.len())
    }
}

/// Where gradients are written.
struct Gradients {
    /// Where one is wanted, and whether to add to what is there.
    tokens: Option<(Tensor, bool)>,
    queries: Tensor,
    outputs: Tensor,
}

struct WayBack {
    problem: Problem,
    tokens: Link,
    queries: Link,
    outputs: Link,
}

impl Backward for WayBack {
    fn name(&self) -> &'static str {
        "label attention"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let problem = &self.problem;
        let device = gradient.device();
        let labels = || Tensor::scratch(&device, problem.labels(), problem.columns(), Element::F32);
        let (queries, outputs) = (labels()?, labels()?);
        let tokens = self.tokens.map(|to| flow.slot(to, &problem.tokens)).transpose()?;
        let mut gradients = Gradients { tokens, queries, outputs };
        match &device {
            Device::Cpu(_) => cpu::backward(problem, gradient.values(), &mut gradients)?,
            Device::Cuda(cuda) => cuda::backward(cuda, problem, &gradient, &mut gradients)?,
        }
        // Any of the three may be one and the same value: what has a slot goes back before the next is given.
        if let (Some(to), Some((place, _))) = (self.tokens, gradients.tokens) {
            flow.put(to, place)?;
        }
        flow.give(self.queries, gradients.queries)?;
        flow.give(self.outputs, gradients.outputs)
    }
}
