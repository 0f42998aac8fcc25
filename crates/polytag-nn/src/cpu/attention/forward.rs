//! The forward pass of attention.
#![allow(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use super::Attention;
use super::sequence::{Part, Scores, Sequence, Small, pack, padded};
use crate::cpu::memory::{Scratch, Shared};
use crate::cpu::product::{Finish, Left};
use crate::cpu::simd::{Kernel, Set, Simd};

/// `out[query] = Σ softmax(scale · query · key + bias) · value`, head by head and sequence by sequence.
///
/// `out` is `[tokens, heads * head_dim]`. `log_sums` is `[heads, tokens]`: the logarithms of the sums of
/// exponentials of scores, which the backward pass needs.
///
/// # Panics
/// If the shapes do not fit together.
pub fn attention(attention: &Attention<'_>, qkv: &[f32], out: &mut [f32], log_sums: Option<&mut [f32]>) {
    attention_in(Set::best(), attention, qkv, (out, log_sums));
}

pub(super) fn attention_in(
    set: Set,
    attention: &Attention<'_>,
    qkv: &[f32],
    (out, log_sums): (&mut [f32], Option<&mut [f32]>),
) {
    let tokens = attention.check(qkv);
    assert_eq!(out.len(), tokens * attention.hidden(), "an output a token");
    let log_sums = log_sums.map(|log_sums| {
        assert_eq!(log_sums.len(), attention.heads * tokens, "a sum a head and token");
        Shared::new(log_sums)
    });
    let out = Shared::new(out);
    (0..attention.sequences() * attention.heads).into_par_iter().for_each(|task| {
        let sequence = Sequence::new(attention, task / attention.heads, task % attention.heads);
        if sequence.len > 0 {
            set.run(Forward { sequence, qkv, out, log_sums, tokens });
        }
    });
}

/// One head of one sequence.
struct Forward<'a> {
    sequence: Sequence<'a>,
    qkv: &'a [f32],
    out: Shared<'a>,
    log_sums: Option<Shared<'a>>,
    tokens: usize,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (len, dim) = (self.sequence.len, self.sequence.attention.head_dim);
        let (wide, wide_dim) = (padded::<S>(len), padded::<S>(dim));
        let mut scratch = Scratch::new(wide * dim + len * wide_dim + S::TILE_ROWS * wide);
        let (keys, rest) = scratch.split_at_mut(wide * dim);
        let (values, products) = rest.split_at_mut(len * wide_dim);
        pack(simd, self.sequence.part(self.qkv, Part::Key).transposed(), keys);
        pack(simd, self.sequence.part(self.qkv, Part::Value), values);
        for queries in Sequence::tiles::<S>(0..len) {
            self.queries(simd, queries, (keys, values), products);
        }
    }
}

impl Forward<'_> {
    /// Computes the outputs of a tile of queries.
    #[inline(always)]
    fn queries<S: Simd>(
        &self,
        simd: S,
        queries: Range<usize>,
        (keys, values): (&[f32], &[f32]),
        products: &mut [f32],
    ) {
        let sequence = &self.sequence;
        let (len, dim) = (sequence.len, sequence.attention.head_dim);
        let wide = padded::<S>(len);
        let rows = queries.len();
        let left =
            Left::Rows(self.qkv[sequence.place(Part::Query, queries.start)..].as_ptr(), sequence.stride());
        let out = (products.as_mut_ptr(), wide);
        let scores = Small { right: keys, depth: dim, columns: wide, out, finish: Finish::Store };
        // SAFETY: these queries are of the sequence; `products` has a padded row for each.
        unsafe { scores.run(simd, left, rows) };
        let mut sums = [0.0; crate::cpu::simd::MAX_TILE_ROWS];
        for (query, row) in queries.clone().zip(products.chunks_exact_mut(wide)) {
            sums[query - queries.start] = self.probabilities(simd, query, &mut row[..len]);
        }
        let left = Left::Rows(products.as_ptr(), wide);
        let out = (self.out.pointer(sequence.out_place(queries.start)), sequence.attention.hidden());
        let weighted = Small { right: values, depth: len, columns: dim, out, finish: Finish::Store };
        // SAFETY: this head's numbers of these tokens are written by this task alone.
        unsafe { weighted.run(simd, left, rows) };
        for (query, sum) in queries.zip(sums) {
            // SAFETY: as above.
            let out = unsafe { self.out.slice(sequence.out_place(query), dim) };
            for out in out.chunks_mut(S::LANES) {
                simd.store(simd.mul(simd.load(out), simd.splat(1.0 / sum)), out);
            }
        }
    }

    /// Replaces a query's products by probabilities that are still to be divided by their sum, which it gives.
    #[inline(always)]
    fn probabilities<S: Simd>(&self, simd: S, query: usize, row: &mut [f32]) -> f32 {
        let sequence = &self.sequence;
        let scores = Scores { scale: sequence.attention.scale, bias: sequence.bias(query) };
        let (greatest, sum) = scores.exponentials(simd, row);
        if let Some(log_sums) = &self.log_sums {
            let place = sequence.head * self.tokens + sequence.first + query;
            // SAFETY: this head's number of this token is written by this task alone.
            let log_sum = unsafe { log_sums.slice(place, 1) };
            log_sum[0] = greatest + sum.ln();
        }
        if let Some(dropout) = &sequence.attention.dropout {
            for (index, row) in row.chunks_mut(S::LANES).enumerate() {
                let mask = simd.paired_dropout(dropout, sequence.mask_row(query), (index * S::LANES) as u32);
                simd.store(simd.mul(simd.load(row), mask), row);
            }
        }
        sum
    }
}
