//! What the losses over all labels have in common.
//!
//! A batch of 64 documents has 64 million scores with a million labels. They are never there at once: the
//! forward pass makes them a chunk of labels at a time and keeps two numbers a document and one a positive;
//! the backward pass makes each chunk again, turns it into its gradient where it stands, and multiplies
//! that into the gradients of documents and labels. So memory grows with labels and with documents, and not
//! with their product.
//!
//! The losses differ in two places only. In the gradient of a score that is no positive:
//! `factor · σ(score)` or `factor · exp(score − shift)`, with a factor and a shift for each document. And in
//! what a document's loss and its positives' gradients are, once the sums over its scores are known.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::error::Error;
use crate::parameters::{ParameterId, Parameters};
use crate::tape::{Backward, Flow, Tape, Var};
use crate::tensor::Tensor;

use super::positives::Positives;
use super::scores::{Chunk, Labels, Scores};

/// Which loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Every label is a question of its own.
    Sigmoid,
    /// The positives share the mass of all labels.
    Softmax,
    /// Each positive stands against the negatives, and not against other positives.
    Decoupled,
}

/// How the documents' losses become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    /// Their mean, over the documents that have one.
    Mean,
    /// Their sum.
    Sum,
}

/// A loss over labels, not yet computed.
#[derive(Clone)]
pub(super) struct OverLabels {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) reduction: Reduction,
    pub(super) scores: Scores,
    pub(super) positives: Positives,
}

/// What the forward pass keeps for the way back.
pub(in crate::loss) struct Kept {
    /// Two rows: each document's shift, and each document's factor.
    documents: Tensor,
    /// The gradient of the score of each label among the positives.
    entries: Tensor,
}

/// The steps of both passes, on one device.
trait Pass: Sized {
    /// Makes room for a chunk.
    fn begin(problem: &OverLabels, parameters: &Parameters) -> Result<Self, Error>;

    /// How many labels a chunk has at most.
    fn chunk_length(&self) -> usize;

    /// Makes the products of all documents with the labels of a chunk, or brings in those that are given.
    fn multiply(&mut self, parameters: &Parameters, labels: &Labels, chunk: &Chunk) -> Result<(), Error>;

    /// Adds a chunk to the sums over each document's scores.
    fn reduce(&mut self, problem: &OverLabels, chunk: &Chunk) -> Result<(), Error>;

    /// The loss, and what is kept, when all chunks were reduced.
    fn finish(self, problem: &OverLabels) -> Result<(Tensor, Kept), Error>;

    /// Begins the way back: what was kept, and the gradient of the loss.
    fn turn(&mut self, kept: &Kept, gradient: Tensor) -> Result<(), Error>;

    /// Turns a chunk into the gradient of its scores.
    fn differentiate(&mut self, problem: &OverLabels, chunk: &Chunk) -> Result<(), Error>;

    /// Adds a chunk to the gradient of the documents; to that of the scale, where scores are given.
    fn add_documents(&mut self, parameters: &Parameters, labels: &Labels, chunk: &Chunk)
    -> Result<(), Error>;

    /// Writes a chunk's part of the gradient of the labels, or of the scores that are given.
    fn write_labels(
        &mut self,
        parameters: &mut Parameters,
        target: &mut Target,
        chunk: &Chunk,
    ) -> Result<(), Error>;

    /// Writes or notes a chunk's part of the gradient of the bias.
    fn add_bias(&mut self, parameters: &mut Parameters, bias: Learned, chunk: &Chunk) -> Result<(), Error>;

    /// Writes what is only known at the end: the gradients of scale and of a bias of one number.
    fn write_numbers(
        &mut self,
        parameters: &mut Parameters,
        learned: [Option<Learned>; 2],
    ) -> Result<(), Error>;

    /// Writes the gradient of the documents.
    fn write_documents(&mut self, place: &mut Tensor, accumulate: bool) -> Result<(), Error>;
}

/// A learned number or bias that takes a gradient.
#[derive(Clone, Copy)]
struct Learned {
    id: ParameterId,
    accumulate: bool,
}

/// Where the gradient of a matrix of labels goes.
enum Target {
    Nowhere,
    Weight(ParameterId, bool),
    Value(usize, Tensor, bool),
    Given(usize, Tensor, bool),
}

impl OverLabels {
    /// Computes the loss: a single number.
    pub(super) fn record(self, tape: &mut Tape<'_>) -> Result<Var, Error> {
        let parameters = tape.parameters();
        self.scores.check(parameters, self.positives.documents(), self.positives.labels())?;
        let (loss, kept) = match parameters.device() {
            Device::Cpu(_) => self.forward::<cpu::CpuPass>(parameters)?,
            Device::Cuda(_) => self.forward::<cuda::CudaPass>(parameters)?,
        };
        let wanted = self.scores.wanted(tape);
        let back = wanted.then(|| -> Box<dyn Backward> { Box::new(WayBack { problem: self, kept }) });
        Ok(tape.push(loss, back))
    }

    fn forward<P: Pass>(&self, parameters: &Parameters) -> Result<(Tensor, Kept), Error> {
        let mut pass = P::begin(self, parameters)?;
        for (labels, chunks) in self.scores.parts(parameters, pass.chunk_length()) {
            for chunk in &chunks {
                pass.multiply(parameters, labels, chunk)?;
                pass.reduce(self, chunk)?;
            }
        }
        pass.finish(self)
    }

    /// What each document's loss is multiplied by.
    fn share(&self) -> f32 {
        let documents = match self.kind {
            Kind::Sigmoid => self.positives.documents(),
            Kind::Softmax | Kind::Decoupled => self.positives.with_positives(),
        };
        match self.reduction {
            Reduction::Sum => 1.0,
            Reduction::Mean => 1.0 / documents.max(1) as f32,
        }
    }

    /// Whether a label that stands among the positives, with this weight, has no part in the sums.
    fn masks(&self, weight: f32) -> bool {
        weight == 0.0 || self.kind == Kind::Decoupled
    }
}

struct WayBack {
    problem: OverLabels,
    kept: Kept,
}

impl Backward for WayBack {
    fn name(&self) -> &'static str {
        self.problem.name
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        match gradient.device() {
            Device::Cpu(_) => self.go::<cpu::CpuPass>(gradient, flow),
            Device::Cuda(_) => self.go::<cuda::CudaPass>(gradient, flow),
        }
    }
}

impl WayBack {
    fn go<P: Pass>(&self, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let problem = &self.problem;
        let scores = &problem.scores;
        let mut pass = P::begin(problem, flow.parameters())?;
        pass.turn(&self.kept, gradient)?;
        let [scale, bias] = [scores.scale, scores.bias].map(|number| Learned::open(number.learned(), flow));
        let documents = scores.documents.link().filter(|_| !scores.are_given());
        let to_documents = documents.is_some() || scale.is_some();
        for (labels, chunks) in scores.parts(flow.parameters(), pass.chunk_length()) {
            let mut target = Target::open(labels, flow)?;
            for chunk in &chunks {
                let parameters = flow.parameters();
                pass.multiply(parameters, labels, chunk)?;
                pass.differentiate(problem, chunk)?;
                if to_documents {
                    pass.add_documents(parameters, labels, chunk)?;
                }
                pass.write_labels(parameters, &mut target, chunk)?;
                if let Some(bias) = bias {
                    pass.add_bias(parameters, bias, chunk)?;
                }
            }
            target.close(flow)?;
        }
        pass.write_numbers(flow.parameters(), [scale, bias])?;
        let Some(to) = documents else { return Ok(()) };
        let (mut place, accumulate) = flow.slot(to, scores.documents.tensor())?;
        pass.write_documents(&mut place, accumulate)?;
        flow.put(to, place)
    }
}

impl Learned {
    /// Begins the gradient of a weight, if there is one and it is trained.
    fn open(id: Option<ParameterId>, flow: &mut Flow<'_>) -> Option<Learned> {
        let id = id.filter(|&id| flow.trains(id))?;
        Some(Learned { id, accumulate: begin_gradient(flow.parameters(), id) })
    }
}

impl Target {
    fn open(labels: &Labels, flow: &mut Flow<'_>) -> Result<Target, Error> {
        match labels {
            Labels::Weight(id) if flow.trains(*id) => {
                Ok(Target::Weight(*id, begin_gradient(flow.parameters(), *id)))
            }
            Labels::Weight(_) => Ok(Target::Nowhere),
            Labels::Value(values) | Labels::Given(values) => {
                let Some(to) = values.link() else { return Ok(Target::Nowhere) };
                let (place, accumulate) = flow.slot(to, values.tensor())?;
                Ok(match labels {
                    Labels::Given(_) => Target::Given(to, place, accumulate),
                    _ => Target::Value(to, place, accumulate),
                })
            }
        }
    }

    fn close(self, flow: &mut Flow<'_>) -> Result<(), Error> {
        match self {
            Target::Value(to, place, _) | Target::Given(to, place, _) => flow.put(to, place),
            Target::Nowhere | Target::Weight(..) => Ok(()),
        }
    }
}

/// Whether to add to the gradient of a weight. Only the first to ask for a gradient is told that there is
/// none yet, and a gradient is asked for once a chunk.
fn begin_gradient(parameters: &mut Parameters, id: ParameterId) -> bool {
    match parameters.device() {
        Device::Cpu(_) => parameters.gradient(id).1,
        Device::Cuda(_) => parameters.gradient_operand(id).1,
    }
}
