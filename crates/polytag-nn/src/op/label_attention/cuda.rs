//! Label attention on a GPU: a few large products for many sequences at once.
//!
//! Sequences of like length make a group and are padded to its longest. For a group and a chunk of labels the
//! products of queries and tokens are one plain product; weights by tokens are a product a sequence, all
//! asked for at once. Products are in bf16, what is summed up between chunks and groups is in f32.

use super::groups::{Group, grouped};
use super::memory::chunk_length;
use super::{Comparison, Gradients, Problem, scale};
use crate::cuda::{Buffer, Cuda, KernelSource, Launch, Operand, Product, Repeat};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::op::check_width;
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "label_attention", text: include_str!("label_attention.cu"), define: "" };

/// Threads of a block, and warps of it. The kernels know them too.
const THREADS: usize = 256;
const WARPS: usize = 8;

/// What is at the beginning of a chunk's matrices is a multiple of this.
const ALIGNMENT: usize = 256;

/// The cosines of all sequences and labels.
pub(super) fn forward(cuda: &Cuda, problem: &Problem, out: &Tensor) -> Result<(), Error> {
    let pass = Pass::begin(cuda, problem, false)?;
    for group in &pass.groups {
        pass.pad(group)?;
        for chunk in pass.chunks(group) {
            pass.attend(group, &chunk)?;
            pass.over_found("compare_found", group, &chunk)
                .address(out.address() + 4 * chunk.first as u64)
                .int(problem.labels())
                .int(usize::from(problem.comparison == Comparison::Cosine))
                .run()?;
        }
    }
    Ok(())
}

/// The gradients of tokens, queries and outputs.
pub(super) fn backward(
    cuda: &Cuda,
    problem: &Problem,
    gradient: &Tensor,
    gradients: &mut Gradients,
) -> Result<(), Error> {
    let pass = Pass::begin(cuda, problem, gradients.tokens.is_some())?;
    if let Some((place, false)) = &mut gradients.tokens
        && problem.leaves_tokens_out()
    {
        let bytes = place.rows() * place.columns() * place.element().bytes();
        place.buffer_mut().clear(0, bytes)?;
    }
    for (index, group) in pass.groups.iter().enumerate() {
        pass.pad(group)?;
        for chunk in pass.chunks(group) {
            pass.attend(group, &chunk)?;
            pass.over_found("differentiate_found", group, &chunk)
                .shared(4 * WARPS * problem.columns())
                .address(gradient.address() + 4 * chunk.first as u64)
                .int(problem.labels())
                .address(gradients.outputs.address() + 4 * (chunk.first * problem.columns()) as u64)
                .int(usize::from(index > 0))
                .address(pass.sums_address())
                .run()?;
            pass.differentiate_weights(group, &chunk)?;
            pass.add_to_queries(group, &chunk, (&gradients.queries, index > 0))?;
            pass.add_to_tokens(group, &chunk)?;
        }
        if let Some((place, accumulate)) = &gradients.tokens {
            pass.unpad(group, place, *accumulate)?;
        }
    }
    Ok(())
}

/// Labels that are worked on at once, and where their matrices lie.
struct Chunk {
    first: usize,
    labels: usize,
    /// `[labels, rows of the group]`: products of queries and tokens, then weights.
    weights: Operand,
    /// The same for their gradients.
    slopes: Operand,
    /// `[labels, sequences, columns]`: what the labels found, then the gradient of that.
    found: Operand,
}

/// Either pass, with its memory.
struct Pass<'a> {
    cuda: &'a Cuda,
    problem: &'a Problem,
    /// In bf16.
    queries: Tensor,
    groups: Vec<Group>,
    /// A `Place` for each sequence, in the order of the groups.
    places: Buffer,
    /// The tokens of a group, padded; large enough for each.
    tokens: Tensor,
    /// The gradient of that in f32, where it is wanted.
    towards_tokens: Option<Tensor>,
    /// Where the score is a product: sums over tokens of weights times their gradients, a label and a sequence
    /// of a chunk each.
    sums: Option<Tensor>,
    room: Buffer,
    room_bytes: usize,
}

impl<'a> Pass<'a> {
    /// Takes the memory: what must be first, so that a chunk gets what is left.
    fn begin(cuda: &'a Cuda, problem: &'a Problem, towards_tokens: bool) -> Result<Pass<'a>, Error> {
        let (labels, columns) = (problem.labels(), problem.columns());
        check_width(columns)?;
        let device = Device::Cuda(cuda.clone());
        let (groups, order) = grouped(&problem.lengths());
        let places: Vec<[u32; 4]> = order
            .iter()
            .map(|&row| {
                let tokens = problem.tokens_of(problem.sequences.start + row);
                [tokens.start as u32, tokens.len() as u32, row as u32, 0]
            })
            .collect();
        let rows = groups.iter().map(Group::rows).max().unwrap_or_default();
        let bytes_a_label = groups.iter().map(|group| group.bytes_a_label(columns)).max().unwrap_or_default();
        let places = Buffer::upload(cuda, &places)?;
        let queries = Tensor::scratch(&device, labels, columns, Element::Bf16)?;
        let tokens = Tensor::scratch(&device, rows, columns, Element::Bf16)?;
        let towards_tokens =
            towards_tokens.then(|| Tensor::scratch(&device, rows, columns, Element::F32)).transpose()?;
        let most = groups.iter().map(|group| group.sequences).max().unwrap_or_default();
        let sums = (problem.comparison == Comparison::Product)
            .then(|| Tensor::scratch(&device, labels, most, Element::F32))
            .transpose()?;
        let take = |bytes: usize| Buffer::take(cuda, bytes + 2 * ALIGNMENT);
        let (room, room_bytes) = problem.memory.take(labels, bytes_a_label, take)?;
        Launch::new(cuda, &KERNELS, "round_queries")
            .shape((labels * columns / 8).div_ceil(THREADS), 1, THREADS)
            .address(problem.queries.address())
            .address(queries.address())
            .long(labels * columns / 8)
            .run()?;
        Ok(Pass { cuda, problem, queries, groups, places, tokens, towards_tokens, sums, room, room_bytes })
    }

    /// Where the sums lie; zero where there are none, as of cosines.
    fn sums_address(&self) -> u64 {
        self.sums.as_ref().map_or(0, Tensor::address)
    }

    /// The labels in chunks, as many at once as there is room for.
    fn chunks(&self, group: &Group) -> impl Iterator<Item = Chunk> {
        let (all, columns, rows) = (self.problem.labels(), self.problem.columns(), group.rows());
        let (start, found_stride) = (self.room.pointer(), group.sequences * columns);
        let length = chunk_length(self.room_bytes, group.bytes_a_label(columns), all);
        (0..all).step_by(length).map(move |first| {
            let labels = length.min(all - first);
            let matrix =
                |address, stride| Operand { address, element: Element::Bf16, stride, transposed: false };
            let weights_bytes = (2 * labels * rows).next_multiple_of(ALIGNMENT) as u64;
            let weights = matrix(start, rows);
            let slopes = matrix(start + weights_bytes, rows);
            let found = matrix(start + 2 * weights_bytes, found_stride);
            Chunk { first, labels, weights, slopes, found }
        })
    }

    /// Where the places of a group's sequences lie.
    fn places_of(&self, group: &Group) -> u64 {
        self.places.pointer() + 16 * group.first as u64
    }

    /// Gathers the tokens of a group.
    fn pad(&self, group: &Group) -> Result<(), Error> {
        Launch::new(self.cuda, &KERNELS, "pad_tokens")
            .shape(group.rows().div_ceil(WARPS), 1, THREADS)
            .address(self.problem.tokens.address())
            .address(self.tokens.address())
            .address(self.places_of(group))
            .int(group.rows())
            .int(group.padded)
            .int(self.problem.columns())
            .run()
    }

    /// Brings the gradients of a group's tokens to their places.
    fn unpad(&self, group: &Group, place: &Tensor, accumulate: bool) -> Result<(), Error> {
        let from = self.towards_tokens.as_ref().expect("room is made where the gradient is wanted");
        Launch::new(self.cuda, &KERNELS, "unpad_gradients")
            .shape(group.rows().div_ceil(WARPS), 1, THREADS)
            .address(from.address())
            .address(place.address())
            .address(self.places_of(group))
            .int(group.rows())
            .int(group.padded)
            .int(self.problem.columns())
            .int(usize::from(accumulate))
            .run()
    }

    /// Makes the weights of a chunk, and what its labels find.
    fn attend(&self, group: &Group, chunk: &Chunk) -> Result<(), Error> {
        let columns = self.problem.columns();
        self.cuda.product(&Product {
            rows: chunk.labels,
            columns: group.rows(),
            depth: columns,
            left: self.queries_of(chunk),
            right: transposed(self.tokens.operand()),
            out: chunk.weights,
            accumulate: false,
            bias: 0,
        })?;
        let width = (group.padded / 8).next_power_of_two().min(32);
        let pairs = chunk.labels * group.sequences;
        Launch::new(self.cuda, &KERNELS, "soften")
            .shape(pairs.div_ceil(THREADS / width), 1, THREADS)
            .address(chunk.weights.address)
            .address(self.places_of(group))
            .int(pairs)
            .int(group.sequences)
            .int(group.padded)
            .int(width)
            .float(scale(columns))
            .run()?;
        let product = Product {
            rows: chunk.labels,
            columns,
            depth: group.padded,
            left: chunk.weights,
            right: self.tokens.operand(),
            out: chunk.found,
            accumulate: false,
            bias: 0,
        };
        let (left, right, out) = (group.padded, group.padded * columns, columns);
        self.cuda.products(&product, Repeat { count: group.sequences, left, right, out })
    }

    /// A kernel over what a chunk's labels found; its first arguments are that.
    fn over_found(&self, name: &'static str, group: &Group, chunk: &Chunk) -> Launch<'_> {
        let columns = self.problem.columns();
        Launch::new(self.cuda, &KERNELS, name)
            .shape(chunk.labels, 1, THREADS)
            .address(chunk.found.address)
            .address(self.problem.outputs.address() + 4 * (chunk.first * columns) as u64)
            .address(self.places_of(group))
            .int(group.sequences)
            .int(columns)
    }

    /// From the gradient of what was found to that of the products of queries and tokens.
    fn differentiate_weights(&self, group: &Group, chunk: &Chunk) -> Result<(), Error> {
        let columns = self.problem.columns();
        let product = Product {
            rows: chunk.labels,
            columns: group.padded,
            depth: columns,
            left: chunk.found,
            right: transposed(self.tokens.operand()),
            out: chunk.slopes,
            accumulate: false,
            bias: 0,
        };
        let (left, right, out) = (columns, group.padded * columns, group.padded);
        self.cuda.products(&product, Repeat { count: group.sequences, left, right, out })?;
        let eights = chunk.labels * group.rows() / 8;
        Launch::new(self.cuda, &KERNELS, "differentiate_weights")
            .shape(eights.div_ceil(THREADS), 1, THREADS)
            .address(chunk.weights.address)
            .address(chunk.slopes.address)
            .float(scale(columns))
            .long(eights)
            .address(self.sums_address())
            .int(group.padded)
            .run()
    }

    fn add_to_queries(
        &self,
        group: &Group,
        chunk: &Chunk,
        (place, accumulate): (&Tensor, bool),
    ) -> Result<(), Error> {
        let columns = self.problem.columns();
        self.cuda.product(&Product {
            rows: chunk.labels,
            columns,
            depth: group.rows(),
            left: chunk.slopes,
            right: self.tokens.operand(),
            out: rows_from(place.operand(), chunk.first),
            accumulate,
            bias: 0,
        })
    }

    /// Adds a chunk's part to the gradient of the padded tokens, if that is wanted.
    fn add_to_tokens(&self, group: &Group, chunk: &Chunk) -> Result<(), Error> {
        let Some(place) = &self.towards_tokens else { return Ok(()) };
        let columns = self.problem.columns();
        let by_weights = Product {
            rows: group.padded,
            columns,
            depth: chunk.labels,
            left: transposed(chunk.weights),
            right: chunk.found,
            out: place.operand(),
            accumulate: chunk.first > 0,
            bias: 0,
        };
        let (left, right, out) = (group.padded, columns, group.padded * columns);
        self.cuda.products(&by_weights, Repeat { count: group.sequences, left, right, out })?;
        self.cuda.product(&Product {
            rows: group.rows(),
            columns,
            depth: chunk.labels,
            left: transposed(chunk.slopes),
            right: self.queries_of(chunk),
            out: place.operand(),
            accumulate: true,
            bias: 0,
        })
    }

    fn queries_of(&self, chunk: &Chunk) -> Operand {
        rows_from(self.queries.operand(), chunk.first)
    }
}

fn transposed(operand: Operand) -> Operand {
    Operand { transposed: true, ..operand }
}

/// The rows from `first` on of a matrix.
fn rows_from(whole: Operand, first: usize) -> Operand {
    let bytes = first * whole.stride * whole.element.bytes();
    Operand { address: whole.address + bytes as u64, ..whole }
}
