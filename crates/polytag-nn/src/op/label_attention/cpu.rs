//! Label attention on the CPU.
//!
//! The tokens of a sequence are laid out once, as keys and as values; then threads take blocks of labels. A
//! block's weights stay in a core's cache between the two products, and no product is shared out further.

use std::ops::Range;

use rayon::prelude::*;

use super::memory::chunk_length;
use super::{Comparison, Gradients, Problem, TINY, scale};
use crate::cpu::{self, Packed, Scratch, Then, View, axpy, dot};
use crate::element::Element;
use crate::error::Error;
use crate::tensor::Tensor;

/// How many labels a thread takes at a time.
const BLOCK: usize = 128;

/// The cosines of all sequences and labels.
pub(super) fn forward(problem: &Problem, out: &mut [f32]) {
    let sequences = problem.sequences.clone().into_par_iter();
    out.par_chunks_mut(problem.labels()).zip(sequences).for_each(|(out, sequence)| {
        let sequence = Sequence::new(problem, sequence);
        let columns = problem.columns();
        let block = (problem.memory.bytes() / (4 * (sequence.len + columns))).clamp(1, BLOCK);
        out.par_chunks_mut(block).enumerate().for_each(|(index, out)| {
            let first = index * block;
            let labels = first * columns..(first + out.len()) * columns;
            let mut scratch = Scratch::new(out.len() * (sequence.len + columns));
            let (weights, found) = scratch.split_at_mut(out.len() * sequence.len);
            sequence.attend(&problem.queries.values()[labels.clone()], weights, found);
            let outputs = problem.outputs.values()[labels].chunks_exact(columns);
            for ((out, found), output) in out.iter_mut().zip(found.chunks_exact(columns)).zip(outputs) {
                *out = dot(found, output);
                if problem.comparison == Comparison::Cosine {
                    *out /= length(found);
                }
            }
        });
    });
}

/// The gradients of tokens, queries and outputs. Sequences come one after the other and chunks of labels
/// within them; in a chunk, threads take blocks of labels, each of which has gradients of its own.
pub(super) fn backward(problem: &Problem, gradient: &[f32], gradients: &mut Gradients) -> Result<(), Error> {
    let (labels, columns) = (problem.labels(), problem.columns());
    gradients.queries.values_mut().fill(0.0);
    gradients.outputs.values_mut().fill(0.0);
    if let Some((place, accumulate @ false)) = &mut gradients.tokens {
        place.values_mut().fill(0.0);
        *accumulate = true;
    }
    let bytes_a_label = |length: usize| 4 * (2 * length + columns);
    let longest = problem.lengths().into_iter().max().unwrap_or_default();
    let device = problem.tokens.device();
    let take = |bytes: usize| Tensor::scratch(&device, 1, bytes / 4, Element::F32);
    let (mut room, bytes) = problem.memory.take(labels, bytes_a_label(longest), take)?;
    for (sequence, gradient) in problem.sequences.clone().zip(gradient.chunks_exact(labels)) {
        let tokens = problem.tokens_of(sequence);
        let sequence = Sequence::new(problem, sequence);
        let length = chunk_length(bytes, bytes_a_label(sequence.len), labels);
        for first in (0..labels).step_by(length) {
            let labels = first..labels.min(first + length);
            let mut chunk = Chunk::new(room.values_mut(), &sequence, labels);
            chunk.differentiate(problem, &sequence, gradient, gradients);
            if let Some((place, _)) = &mut gradients.tokens {
                let range = tokens.start * columns..tokens.end * columns;
                chunk.add_to_tokens(problem, &sequence, &mut place.values_mut()[range]);
            }
        }
    }
    Ok(())
}

/// How long a vector is, but not less than tiny.
fn length(vector: &[f32]) -> f32 {
    dot(vector, vector).sqrt().max(TINY)
}

/// A sequence's tokens as both sides of attention.
struct Sequence {
    len: usize,
    columns: usize,
    keys: Packed,
    values: Packed,
}

impl Sequence {
    fn new(problem: &Problem, sequence: usize) -> Sequence {
        let (tokens, columns) = (problem.tokens_of(sequence), problem.columns());
        let rows = &problem.tokens.values()[tokens.start * columns..tokens.end * columns];
        let view = View::new(rows, tokens.len(), columns);
        Sequence {
            len: tokens.len(),
            columns,
            keys: Packed::new(view.transposed()),
            values: Packed::new(view),
        }
    }

    /// The weights of the tokens for some labels, and what the labels find; by the calling thread.
    fn attend(&self, queries: &[f32], weights: &mut [f32], found: &mut [f32]) {
        let labels = queries.len() / self.columns;
        let queries = View::new(queries, labels, self.columns);
        cpu::multiply_alone(queries, &self.keys, weights, Then::Store);
        for row in weights.chunks_exact_mut(self.len) {
            cpu::scaled_softmax(row, scale(self.columns));
        }
        cpu::multiply_alone(View::new(weights, labels, self.len), &self.values, found, Then::Store);
    }
}

/// Labels that are worked on at once on the way back, a row each.
struct Chunk<'a> {
    labels: Range<usize>,
    /// The weights of the tokens.
    weights: &'a mut [f32],
    /// The gradients of the products of queries and tokens.
    slopes: &'a mut [f32],
    /// What the labels find, then the gradient of that.
    found: &'a mut [f32],
}

impl<'a> Chunk<'a> {
    fn new(room: &'a mut [f32], sequence: &Sequence, labels: Range<usize>) -> Chunk<'a> {
        let (weights, rest) = room.split_at_mut(labels.len() * sequence.len);
        let (slopes, rest) = rest.split_at_mut(labels.len() * sequence.len);
        let found = &mut rest[..labels.len() * sequence.columns];
        Chunk { labels, weights, slopes, found }
    }

    /// Makes everything in the chunk, and adds to the gradients of its queries and outputs.
    fn differentiate(
        &mut self,
        problem: &Problem,
        sequence: &Sequence,
        gradient: &[f32],
        gradients: &mut Gradients,
    ) {
        let (tokens, columns) = (sequence.len, sequence.columns);
        let range = self.labels.start * columns..self.labels.end * columns;
        let (queries, outputs) =
            (&problem.queries.values()[range.clone()], &problem.outputs.values()[range.clone()]);
        let towards_queries = gradients.queries.values_mut()[range.clone()].par_chunks_mut(BLOCK * columns);
        let towards_outputs = gradients.outputs.values_mut()[range].par_chunks_mut(BLOCK * columns);
        let weights = self.weights.par_chunks_mut(BLOCK * tokens);
        let slopes = self.slopes.par_chunks_mut(BLOCK * tokens);
        let found = self.found.par_chunks_mut(BLOCK * columns);
        let given = queries.par_chunks(BLOCK * columns).zip(outputs.par_chunks(BLOCK * columns));
        let given = given.zip(gradient[self.labels.clone()].par_chunks(BLOCK));
        let made = weights.zip(slopes).zip(found);
        given.zip(made).zip(towards_queries.zip(towards_outputs)).for_each(|((given, made), towards)| {
            let (((queries, outputs), gradient), ((weights, slopes), found)) = (given, made);
            let (towards_queries, towards_outputs) = towards;
            sequence.attend(queries, weights, found);
            let rows = found.chunks_exact_mut(columns).zip(outputs.chunks_exact(columns)).zip(gradient);
            let differentiate = match problem.comparison {
                Comparison::Cosine => differentiate_cosine,
                Comparison::Product => differentiate_product,
            };
            let rows = rows.zip(towards_outputs.chunks_exact_mut(columns));
            let sums: Vec<f32> = rows
                .map(|(((found, output), &gradient), towards)| {
                    differentiate(found, output, gradient, towards)
                })
                .collect();
            let labels = gradient.len();
            let keys = &sequence.keys;
            cpu::multiply_alone(View::new(found, labels, columns), keys, slopes, Then::Store);
            let rows = slopes.chunks_exact_mut(tokens).zip(weights.chunks_exact(tokens));
            for ((slopes, weights), sum) in rows.zip(sums) {
                for (slope, weight) in slopes.iter_mut().zip(weights) {
                    *slope = (*slope - sum) * weight * scale(columns);
                }
            }
            let slopes = View::new(slopes, labels, tokens);
            cpu::multiply_alone(slopes, &sequence.values, towards_queries, Then::Add);
        });
    }

    /// Adds the chunk's part to the gradient of the sequence's tokens.
    fn add_to_tokens(&self, problem: &Problem, sequence: &Sequence, place: &mut [f32]) {
        let (labels, columns) = (self.labels.len(), sequence.columns);
        let queries = &problem.queries.values()[self.labels.start * columns..self.labels.end * columns];
        let by_token = |values| View::new(values, labels, sequence.len).transposed();
        cpu::multiply_once(by_token(self.weights), View::new(self.found, labels, columns), place, true);
        cpu::multiply_once(by_token(self.slopes), View::new(queries, labels, columns), place, true);
    }
}

/// Replaces what a label finds by the gradient of that, and adds to the gradient of its output. Gives the sum
/// over the tokens of weights times their gradients.
fn differentiate_cosine(found: &mut [f32], output: &[f32], gradient: f32, towards_output: &mut [f32]) -> f32 {
    let length = length(found);
    let inverse = if length > TINY { 1.0 / length } else { 0.0 };
    let cosine = dot(found, output) * inverse;
    axpy(gradient * inverse, found, towards_output);
    for (found, output) in found.iter_mut().zip(output) {
        *found = gradient * inverse * (output - cosine * *found * inverse);
    }
    0.0
}

/// The same for a product.
fn differentiate_product(
    found: &mut [f32],
    output: &[f32],
    gradient: f32,
    towards_output: &mut [f32],
) -> f32 {
    let sum = gradient * dot(found, output);
    axpy(gradient, found, towards_output);
    for (found, output) in found.iter_mut().zip(output) {
        *found = gradient * output;
    }
    sum
}
