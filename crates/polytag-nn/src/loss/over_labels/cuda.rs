//! Losses over labels on a GPU.
//!
//! Scores lie document by document here. The host only asks for work and waits for none of it.

use super::{Kept, Kind, Learned, OverLabels, Pass, Target};
use crate::cuda::{Buffer, Cuda, KernelSource, Launch, Operand, Product};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::loss::scores::{Chunk, Labels, Number, chunk_length, rows_of};
use crate::loss::total::Total;
use crate::parameters::Parameters;
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "over_labels", text: include_str!("scores.cu"), define: "" };

/// How many labels of a document a block of threads takes. The kernels know it too.
const SEGMENT: usize = 4096;

/// What the scores of a chunk take unless told otherwise: little enough to stay in the second cache between
/// the product that makes them and the kernel that reads them.
const CHUNK_MEMORY: usize = 32 << 20;

/// Both passes on a GPU.
pub(super) struct CudaPass {
    cuda: Cuda,
    chunk_length: usize,
    segments: usize,
    segments_done: usize,
    last_chunk: usize,
    original: Tensor,
    /// The documents times the scale; nothing where scores are given.
    scaled: Tensor,
    scale: Value,
    bias: Value,
    /// A chunk of scores, or of their gradient: a row for each document.
    chunk: Tensor,
    /// What each segment has to say of each document: two numbers forward; on the way back first one each
    /// for the bias, then one each for the scale of scores that are given.
    partial: Buffer,
    entries: Tensor,
    rows: Tensor,
    upstream: Option<Tensor>,
    /// The gradient of the documents times the scale.
    towards_documents: Tensor,
    any_documents: bool,
}

/// A number as the kernels take it: where it lies, or zero and what it is.
#[derive(Clone, Copy)]
struct Value {
    address: u64,
    constant: f32,
    /// Zero where the same number serves every label.
    step: usize,
}

impl Value {
    fn new(number: Number, parameters: &Parameters) -> Value {
        match number {
            Number::Constant(constant) => Value { address: 0, constant, step: 0 },
            Number::Learned(id) => {
                let step = usize::from(parameters.info(id).len() > 1);
                Value { address: parameters.master_address(id), constant: 0.0, step }
            }
        }
    }
}

impl Pass for CudaPass {
    fn begin(problem: &OverLabels, parameters: &Parameters) -> Result<CudaPass, Error> {
        let scores = &problem.scores;
        let device = parameters.device();
        let Device::Cuda(cuda) = device else { unreachable!("the pass of a GPU runs on one") };
        let original = scores.documents.tensor().clone();
        let (documents, dimensions) = (original.rows(), original.columns());
        let memory = scores.chunk_memory.unwrap_or(CHUNK_MEMORY);
        let chunk_length = chunk_length(memory, documents, SEGMENT, scores.label_count(parameters));
        let parts = scores.parts(parameters, chunk_length);
        let segments: usize =
            parts.iter().flat_map(|(_, chunks)| chunks).map(|chunk| chunk.rows.len().div_ceil(SEGMENT)).sum();
        let scratch = |rows, columns| Tensor::scratch(device, rows, columns, Element::F32);
        let rows = if scores.are_given() { 0 } else { documents };
        let pass = CudaPass {
            cuda: cuda.clone(),
            chunk_length,
            segments,
            segments_done: 0,
            last_chunk: 0,
            scale: Value::new(scores.scale, parameters),
            bias: Value::new(scores.bias, parameters),
            scaled: scratch(rows, dimensions)?,
            chunk: scratch(documents, chunk_length)?,
            partial: Buffer::take(cuda, 8 * documents * segments.max(1))?,
            entries: scratch(1, problem.positives.len().max(1))?,
            rows: scratch(3, documents)?,
            upstream: None,
            towards_documents: scratch(rows, dimensions)?,
            any_documents: false,
            original,
        };
        let (from, to) = (pass.original.operand(), pass.scaled.operand());
        pass.scale_into(from, to, (rows, dimensions), false)?;
        Ok(pass)
    }

    fn chunk_length(&self) -> usize {
        self.chunk_length
    }

    fn multiply(&mut self, parameters: &Parameters, labels: &Labels, chunk: &Chunk) -> Result<(), Error> {
        self.segments_done += self.last_chunk;
        self.last_chunk = chunk.rows.len().div_ceil(SEGMENT);
        if let Labels::Given(values) = labels {
            let shape = (self.original.rows(), chunk.rows.len());
            let from = columns_of(values.tensor().operand(), chunk.rows.start);
            return self.scale_into(from, self.chunk.operand(), shape, false);
        }
        let right = Operand { transposed: true, ..labels.operand(parameters, chunk.rows.start) };
        self.cuda.product(&Product {
            rows: self.original.rows(),
            columns: chunk.rows.len(),
            depth: self.original.columns(),
            left: self.scaled.operand(),
            right,
            out: self.chunk.operand(),
            accumulate: false,
            bias: 0,
        })
    }

    fn reduce(&mut self, problem: &OverLabels, chunk: &Chunk) -> Result<(), Error> {
        let positives = problem.positives.addresses();
        self.over_chunk("reduce_scores", chunk)
            .address(positives.offsets)
            .address(positives.entries)
            .address(positives.weights)
            .address(self.bias.address)
            .int(self.bias.step)
            .float(self.bias.constant)
            .address(self.entries.address())
            .buffer(&self.partial)
            .int(self.segments)
            .int(self.segments_done)
            .int(number_of(problem.kind))
            .run()
    }

    fn finish(self, problem: &OverLabels) -> Result<(Tensor, Kept), Error> {
        let (documents, positives) = (self.original.rows(), problem.positives.addresses());
        Launch::new(&self.cuda, &KERNELS, "finish_documents")
            .shape(documents, 1, 256)
            .buffer(&self.partial)
            .int(self.segments)
            .address(positives.offsets)
            .address(positives.weights)
            .address(self.entries.address())
            .address(self.rows.address())
            .int(documents)
            .float(problem.share())
            .int(number_of(problem.kind))
            .run()?;
        let loss = Tensor::scratch(&self.original.device(), 1, 1, Element::F32)?;
        let values = self.rows.address() + 8 * documents as u64;
        let total = Total { values, count: documents, factor: 1.0, to: loss.address(), accumulate: false };
        total.run(&self.cuda)?;
        Ok((loss, Kept { documents: self.rows, entries: self.entries }))
    }

    fn turn(&mut self, kept: &Kept, gradient: Tensor) -> Result<(), Error> {
        self.rows = kept.documents.clone();
        self.entries = kept.entries.clone();
        self.upstream = Some(gradient);
        Ok(())
    }

    fn differentiate(&mut self, problem: &OverLabels, chunk: &Chunk) -> Result<(), Error> {
        let positives = problem.positives.addresses();
        let upstream = self.upstream.as_ref().expect("the way back was begun");
        self.over_chunk("differentiate_scores", chunk)
            .address(positives.offsets)
            .address(positives.entries)
            .address(self.bias.address)
            .int(self.bias.step)
            .float(self.bias.constant)
            .address(self.entries.address())
            .address(self.rows.address())
            .address(upstream.address())
            .buffer(&self.partial)
            .int(self.segments)
            .int(self.segments_done)
            .int(number_of(problem.kind))
            .run()
    }

    fn add_documents(
        &mut self,
        parameters: &Parameters,
        labels: &Labels,
        chunk: &Chunk,
    ) -> Result<(), Error> {
        if let Labels::Given(values) = labels {
            return Launch::new(&self.cuda, &KERNELS, "sum_products")
                .shape(chunk.rows.len().div_ceil(SEGMENT), self.original.rows(), 256)
                .address(self.chunk.address())
                .int(self.chunk_length)
                .int(chunk.rows.len())
                .address(columns_of(values.tensor().operand(), chunk.rows.start).address)
                .int(values.tensor().columns())
                .address(self.scale_partial())
                .int(self.segments)
                .int(self.segments_done)
                .run();
        }
        let accumulate = std::mem::replace(&mut self.any_documents, true);
        self.cuda.product(&Product {
            rows: self.original.rows(),
            columns: self.original.columns(),
            depth: chunk.rows.len(),
            left: self.chunk.operand(),
            right: labels.operand(parameters, chunk.rows.start),
            out: self.towards_documents.operand(),
            accumulate,
            bias: 0,
        })
    }

    fn write_labels(
        &mut self,
        parameters: &mut Parameters,
        target: &mut Target,
        chunk: &Chunk,
    ) -> Result<(), Error> {
        let (whole, accumulate) = match target {
            Target::Nowhere => return Ok(()),
            Target::Weight(id, accumulate) => (parameters.gradient_operand(*id).0, *accumulate),
            Target::Value(_, place, accumulate) => (place.operand(), *accumulate),
            Target::Given(_, place, accumulate) => {
                let to = columns_of(place.operand(), chunk.rows.start);
                let shape = (self.original.rows(), chunk.rows.len());
                return self.scale_into(self.chunk.operand(), to, shape, *accumulate);
            }
        };
        self.cuda.product(&Product {
            rows: chunk.rows.len(),
            columns: self.original.columns(),
            depth: self.original.rows(),
            left: Operand { transposed: true, ..self.chunk.operand() },
            right: self.scaled.operand(),
            out: rows_of(whole, chunk.rows.start),
            accumulate,
            bias: 0,
        })
    }

    fn add_bias(&mut self, parameters: &mut Parameters, bias: Learned, chunk: &Chunk) -> Result<(), Error> {
        if self.bias.step == 0 {
            return Ok(());
        }
        let place = parameters.gradient_operand(bias.id).0.address + 4 * chunk.labels.start as u64;
        Launch::new(&self.cuda, &KERNELS, "sum_by_label")
            .shape(chunk.rows.len().div_ceil(256), 1, 256)
            .address(self.chunk.address())
            .int(self.chunk_length)
            .int(chunk.rows.len())
            .int(self.original.rows())
            .address(place)
            .int(usize::from(bias.accumulate))
            .run()
    }

    fn write_numbers(
        &mut self,
        parameters: &mut Parameters,
        learned: [Option<Learned>; 2],
    ) -> Result<(), Error> {
        let [scale, bias] = learned;
        let count = self.original.rows() * self.segments;
        if let Some(Learned { id, accumulate }) = scale {
            let to = parameters.gradient_operand(id).0.address;
            if self.scaled.rows() == 0 {
                let values = self.scale_partial();
                Total { values, count, factor: 1.0, to, accumulate }.run(&self.cuda)?;
            } else {
                self.clear_if_unwritten()?;
                Launch::new(&self.cuda, &KERNELS, "dot_product")
                    .shape(1, 1, 1024)
                    .address(self.towards_documents.address())
                    .address(self.original.address())
                    .long(self.original.rows() * self.original.columns())
                    .address(to)
                    .int(usize::from(accumulate))
                    .run()?;
            }
        }
        let Some(Learned { id, accumulate }) = bias.filter(|_| self.bias.step == 0) else { return Ok(()) };
        let to = parameters.gradient_operand(id).0.address;
        Total { values: self.partial.pointer(), count, factor: 1.0, to, accumulate }.run(&self.cuda)
    }

    fn write_documents(&mut self, place: &mut Tensor, accumulate: bool) -> Result<(), Error> {
        self.clear_if_unwritten()?;
        let shape = (place.rows(), place.columns());
        self.scale_into(self.towards_documents.operand(), place.operand(), shape, accumulate)
    }
}

impl CudaPass {
    /// A kernel over the segments of a chunk and the documents; its first arguments are the chunk.
    fn over_chunk(&self, name: &'static str, chunk: &Chunk) -> Launch<'_> {
        Launch::new(&self.cuda, &KERNELS, name)
            .shape(chunk.rows.len().div_ceil(SEGMENT), self.original.rows(), 256)
            .address(self.chunk.address())
            .int(self.chunk_length)
            .int(chunk.rows.len())
            .int(chunk.labels.start)
    }

    /// Where each segment notes what it has to say of each document about the scale.
    fn scale_partial(&self) -> u64 {
        self.partial.pointer() + 4 * (self.original.rows() * self.segments) as u64
    }

    /// `to (+)= scale · from`.
    fn scale_into(
        &self,
        from: Operand,
        to: Operand,
        (rows, columns): (usize, usize),
        accumulate: bool,
    ) -> Result<(), Error> {
        Launch::new(&self.cuda, &KERNELS, "scale_values")
            .shape(columns.div_ceil(256), rows, 256)
            .address(from.address)
            .int(from.stride)
            .address(to.address)
            .int(to.stride)
            .int(columns)
            .address(self.scale.address)
            .float(self.scale.constant)
            .int(usize::from(accumulate))
            .run()
    }

    /// Without a single label nothing was written: the gradient is zero.
    fn clear_if_unwritten(&mut self) -> Result<(), Error> {
        if !self.any_documents {
            let bytes = 4 * self.original.rows() * self.original.columns();
            self.towards_documents.buffer_mut().clear(0, bytes)?;
            self.any_documents = true;
        }
        Ok(())
    }
}

/// The columns from `first` on of a matrix in f32.
fn columns_of(whole: Operand, first: usize) -> Operand {
    Operand { address: whole.address + 4 * first as u64, ..whole }
}

/// What the kernels call it.
fn number_of(kind: Kind) -> usize {
    match kind {
        Kind::Sigmoid => 0,
        Kind::Softmax => 1,
        Kind::Decoupled => 2,
    }
}
