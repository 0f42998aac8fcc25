//! The backward pass of attention.
//!
//! With the probabilities `P`, the mask `M` of dropout, `dP = dO · Vᵀ` and `D = Σ dO · O` of a query:
//! `dS = P · (M · dP - D)`, `dQ = scale · dS · K`, `dK = scale · dSᵀ · Q`, `dV = (M · P)ᵀ · dO`.
#![allow(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use super::sequence::{Part, Scores, Sequence, Small, pack, padded};
use super::{Attention, SPAN};
use crate::cpu::functions::exp;
use crate::cpu::memory::{Scratch, Shared};
use crate::cpu::product::{Finish, Left};
use crate::cpu::rows::AddTo;
use crate::cpu::simd::{Kernel, Set, Simd};

/// How many tokens of whole sequences a task takes at least: a constant, so that threads change no byte.
const TASK_TOKENS: usize = 512;

/// How many tiles of queries are computed together: the more, the deeper the products of keys and values.
const QUERY_TILES: usize = 4;

/// What the backward pass needs of the forward pass.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSaved<'a> {
    /// Its input.
    pub qkv: &'a [f32],
    /// Its output.
    pub out: &'a [f32],
    /// Its sums.
    pub log_sums: &'a [f32],
}

/// Where the gradients go.
#[derive(Debug)]
pub struct AttentionGradients<'a> {
    /// Of queries, keys and values; written.
    pub qkv: &'a mut [f32],
    /// Of the bias; added to.
    pub bias: Option<&'a mut [f32]>,
}

/// The gradients of [`attention`](super::attention), given that of its output.
///
/// # Panics
/// If the shapes do not fit together.
pub fn attention_backward(
    attention: &Attention<'_>,
    saved: AttentionSaved<'_>,
    d_out: &[f32],
    gradients: AttentionGradients<'_>,
) {
    attention_backward_in(Set::best(), attention, (saved, d_out), gradients);
}

pub(super) fn attention_backward_in(
    set: Set,
    attention: &Attention<'_>,
    (saved, d_out): (AttentionSaved<'_>, &[f32]),
    gradients: AttentionGradients<'_>,
) {
    let tokens = attention.check(saved.qkv);
    assert!(
        saved.out.len() == tokens * attention.hidden() && d_out.len() == saved.out.len(),
        "an output a token"
    );
    assert_eq!(saved.log_sums.len(), attention.heads * tokens, "a sum a head and token");
    assert_eq!(gradients.qkv.len(), saved.qkv.len(), "gradients have the input's shape");
    let d_qkv = Shared::new(gradients.qkv);
    let groups = groups(attention.offsets);
    let d_bias: Vec<Vec<f32>> = (0..groups.len() * attention.heads)
        .into_par_iter()
        .map(|task| {
            let head = task % attention.heads;
            let mut d_bias = vec![0.0; if gradients.bias.is_some() { 2 * SPAN + 1 } else { 0 }];
            for index in groups[task / attention.heads].clone() {
                let sequence = Sequence::new(attention, index, head);
                if sequence.len > 0 {
                    set.run(Backward { sequence, saved: &saved, d_out, d_qkv, d_bias: &mut d_bias });
                }
            }
            d_bias
        })
        .collect();
    if let Some(bias) = gradients.bias {
        assert_eq!(bias.len(), attention.heads * (2 * SPAN + 1), "a bias a distance");
        for (task, d_bias) in d_bias.iter().enumerate() {
            let first = task % attention.heads * (2 * SPAN + 1);
            set.run(AddTo { x: d_bias, sums: &mut bias[first..first + 2 * SPAN + 1] });
        }
    }
}

/// Neighbouring sequences, of at least [`TASK_TOKENS`] together.
fn groups(offsets: &[u32]) -> Vec<Range<usize>> {
    let (mut groups, mut first) = (Vec::new(), 0);
    for last in 1..offsets.len() {
        if last + 1 == offsets.len() || (offsets[last] - offsets[first]) as usize >= TASK_TOKENS {
            groups.push(first..last);
            first = last;
        }
    }
    groups
}

/// One head of one sequence.
struct Backward<'a> {
    sequence: Sequence<'a>,
    saved: &'a AttentionSaved<'a>,
    d_out: &'a [f32],
    d_qkv: Shared<'a>,
    d_bias: &'a mut [f32],
}

/// The parts of a thread's own memory.
struct Parts<'a> {
    /// Keys and values, transposed, in panels: the right sides of products that give scores.
    keys_across: &'a mut [f32],
    values_across: &'a mut [f32],
    /// Keys in panels.
    keys: &'a mut [f32],
    /// A block's queries and gradients of outputs, in panels.
    queries: &'a mut [f32],
    d_out: &'a mut [f32],
    /// A row a query of a block: probabilities, and gradients of scores.
    probabilities: &'a mut [f32],
    d_scores: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (len, dim) = (self.sequence.len, self.sequence.attention.head_dim);
        let (wide, wide_dim) = (padded::<S>(len), padded::<S>(dim));
        let block = (QUERY_TILES * S::TILE_ROWS).min(len);
        let across = wide * dim;
        let total = 2 * across + len * wide_dim + 2 * block * wide_dim + 2 * block * wide;
        let mut scratch = Scratch::new(total);
        let (keys_across, rest) = scratch.split_at_mut(across);
        let (values_across, rest) = rest.split_at_mut(across);
        let (keys, rest) = rest.split_at_mut(len * wide_dim);
        let (queries, rest) = rest.split_at_mut(block * wide_dim);
        let (d_out, rest) = rest.split_at_mut(block * wide_dim);
        let (probabilities, d_scores) = rest.split_at_mut(block * wide);
        let mut parts = Parts { keys_across, values_across, keys, queries, d_out, probabilities, d_scores };
        let qkv = self.saved.qkv;
        pack(simd, self.sequence.part(qkv, Part::Key).transposed(), parts.keys_across);
        pack(simd, self.sequence.part(qkv, Part::Value).transposed(), parts.values_across);
        pack(simd, self.sequence.part(qkv, Part::Key), parts.keys);
        for first in (0..len).step_by(block) {
            let queries = first..(first + block).min(len);
            self.d_scores(simd, queries.clone(), &mut parts);
            self.d_queries(simd, queries.clone(), &parts);
            self.d_keys_and_values(simd, queries, &mut parts);
        }
    }
}

impl Backward<'_> {
    /// Probabilities, and scaled gradients of scores, of a block of queries.
    #[inline(always)]
    fn d_scores<S: Simd>(&mut self, simd: S, block: Range<usize>, parts: &mut Parts<'_>) {
        let sequence = self.sequence;
        let (len, depth, hidden) = (sequence.len, sequence.attention.head_dim, sequence.attention.hidden());
        let wide = padded::<S>(len);
        for queries in Sequence::tiles::<S>(block.clone()) {
            let rows = (queries.start - block.start) * wide..(queries.end - block.start) * wide;
            let products = &mut parts.probabilities[rows.clone()];
            let left = self.saved.qkv[sequence.place(Part::Query, queries.start)..].as_ptr();
            let (finish, out) = (Finish::Store, (products.as_mut_ptr(), wide));
            let small = Small { right: parts.keys_across, depth, columns: wide, out, finish };
            // SAFETY: these queries are of the sequence; there is a padded row for each.
            unsafe { small.run(simd, Left::Rows(left, sequence.stride()), queries.len()) };
            let d_products = &mut parts.d_scores[rows];
            let left = self.d_out[sequence.out_place(queries.start)..].as_ptr();
            let out = (d_products.as_mut_ptr(), wide);
            let small = Small { right: parts.values_across, depth, columns: wide, out, finish };
            // SAFETY: as above.
            unsafe { small.run(simd, Left::Rows(left, hidden), queries.len()) };
            for (row, query) in queries.enumerate() {
                let here = row * wide..row * wide + len;
                self.row(simd, query, (&mut products[here.clone()], &mut d_products[here]));
            }
        }
    }

    /// Turns a query's products with the keys into probabilities as the values saw them, and those of the
    /// output's gradient with the values into gradients of the products.
    #[inline(always)]
    fn row<S: Simd>(&mut self, simd: S, query: usize, (products, d_products): (&mut [f32], &mut [f32])) {
        let sequence = self.sequence;
        let Attention { scale, dropout, heads, head_dim, .. } = *sequence.attention;
        let place = sequence.out_place(query);
        let (out, d_out) = (&self.saved.out[place..place + head_dim], &self.d_out[place..place + head_dim]);
        let mut whole = simd.splat(0.0);
        for (out, d_out) in out.chunks(S::LANES).zip(d_out.chunks(S::LANES)) {
            whole = simd.fma(simd.load(out), simd.load(d_out), whole);
        }
        let whole = simd.splat(simd.sum(whole));
        let tokens = self.saved.log_sums.len() / heads;
        let log_sum = simd.splat(self.saved.log_sums[sequence.head * tokens + sequence.first + query]);
        let scores = Scores { scale, bias: sequence.bias(query) };
        let vectors = products.chunks_mut(S::LANES).zip(d_products.chunks_mut(S::LANES));
        for (index, (product, d_product)) in vectors.enumerate() {
            let key = index * S::LANES;
            let probability = exp(simd, simd.sub(scores.at(simd, product, key), log_sum));
            let mut seen = probability;
            let mut d_probability = simd.load(d_product);
            if let Some(dropout) = &dropout {
                let mask = simd.paired_dropout(dropout, sequence.mask_row(query), key as u32);
                seen = simd.mul(seen, mask);
                d_probability = simd.mul(d_probability, mask);
            }
            let d_score = simd.mul(probability, simd.sub(d_probability, whole));
            simd.store(seen, product);
            simd.store(simd.mul(d_score, simd.splat(scale)), d_product);
            if !self.d_bias.is_empty() {
                let d_bias = &mut self.d_bias[SPAN + key - query..][..d_product.len()];
                simd.store(simd.add(simd.load(d_bias), d_score), d_bias);
            }
        }
    }

    #[inline(always)]
    fn d_queries<S: Simd>(&self, simd: S, block: Range<usize>, parts: &Parts<'_>) {
        let sequence = self.sequence;
        let (len, columns) = (sequence.len, sequence.attention.head_dim);
        let wide = padded::<S>(len);
        for queries in Sequence::tiles::<S>(block.clone()) {
            let left = parts.d_scores[(queries.start - block.start) * wide..].as_ptr();
            let out = (self.d_qkv.pointer(sequence.place(Part::Query, queries.start)), sequence.stride());
            let small = Small { right: parts.keys, depth: len, columns, out, finish: Finish::Store };
            // SAFETY: this head's numbers of these tokens are written by this task alone.
            unsafe { small.run(simd, Left::Rows(left, wide), queries.len()) };
        }
    }

    #[inline(always)]
    fn d_keys_and_values<S: Simd>(&self, simd: S, block: Range<usize>, parts: &mut Parts<'_>) {
        let sequence = self.sequence;
        let (len, columns, depth) = (sequence.len, sequence.attention.head_dim, block.len());
        let (wide, wide_dim) = (padded::<S>(len), padded::<S>(columns));
        let queries = sequence.part(self.saved.qkv, Part::Query).of_rows(block.clone());
        pack(simd, queries, &mut parts.queries[..depth * wide_dim]);
        let d_out = sequence.out_part(self.d_out).of_rows(block.clone());
        pack(simd, d_out, &mut parts.d_out[..depth * wide_dim]);
        let finish = if block.start == 0 { Finish::Store } else { Finish::Add };
        let sides = [
            (Part::Key, &*parts.d_scores, &parts.queries[..depth * wide_dim]),
            (Part::Value, &*parts.probabilities, &parts.d_out[..depth * wide_dim]),
        ];
        for (part, left, right) in sides {
            for keys in Sequence::tiles::<S>(0..len) {
                let out = (self.d_qkv.pointer(sequence.place(part, keys.start)), sequence.stride());
                let left = Left::Columns(left[keys.start..].as_ptr(), wide);
                // SAFETY: this head's numbers of these tokens are written by this task alone.
                unsafe { Small { right, depth, columns, out, finish }.run(simd, left, keys.len()) };
            }
        }
    }
}
