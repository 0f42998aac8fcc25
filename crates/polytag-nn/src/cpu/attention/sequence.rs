//! One head of one sequence, as both passes see it.
#![allow(unsafe_code)]

use std::ops::Range;

use super::{Attention, SPAN};
use crate::cpu::functions::exp;
use crate::cpu::product::{Finish, Left, Tile, pack_panel, shares};
use crate::cpu::simd::Simd;
use crate::cpu::view::View;

/// Which third of a token's numbers.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Query,
    Key,
    Value,
}

/// One head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'a> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) head: usize,
    /// The first token, counted in the batch.
    pub(super) first: usize,
    /// How many tokens there are.
    pub(super) len: usize,
}

impl<'a> Sequence<'a> {
    pub(super) fn new(attention: &'a Attention<'a>, sequence: usize, head: usize) -> Sequence<'a> {
        let first = attention.offsets[sequence] as usize;
        let len = attention.offsets[sequence + 1] as usize - first;
        Sequence { attention, head, first, len }
    }

    /// From one token to the next in queries, keys and values.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        3 * self.attention.hidden()
    }

    /// Where the head's numbers of a token of the sequence begin in queries, keys and values.
    #[inline(always)]
    pub(super) fn place(&self, part: Part, token: usize) -> usize {
        (self.first + token) * self.stride()
            + part as usize * self.attention.hidden()
            + self.head * self.attention.head_dim
    }

    /// Where they begin in the output.
    #[inline(always)]
    pub(super) fn out_place(&self, token: usize) -> usize {
        (self.first + token) * self.attention.hidden() + self.head * self.attention.head_dim
    }

    /// The head's queries, keys or values: a token a row.
    #[inline(always)]
    pub(super) fn part<'b>(&self, qkv: &'b [f32], part: Part) -> View<'b> {
        let tokens = &qkv[self.first * self.stride()..(self.first + self.len) * self.stride()];
        let column = part as usize * self.attention.hidden() + self.head * self.attention.head_dim;
        View::of_columns(tokens, self.stride(), column, self.attention.head_dim)
    }

    /// The head's numbers of the output or its gradient.
    #[inline(always)]
    pub(super) fn out_part<'b>(&self, out: &'b [f32]) -> View<'b> {
        let hidden = self.attention.hidden();
        let tokens = &out[self.first * hidden..(self.first + self.len) * hidden];
        View::of_columns(tokens, hidden, self.head * self.attention.head_dim, self.attention.head_dim)
    }

    /// The queries, cut into tiles.
    #[inline(always)]
    pub(super) fn tiles<S: Simd>(queries: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let start = queries.start;
        shares(queries.len(), queries.len().div_ceil(S::TILE_ROWS))
            .map(move |tile| start + tile.start..start + tile.end)
    }

    /// What is added to the scores of a query.
    #[inline(always)]
    pub(super) fn bias(&self, query: usize) -> Option<&'a [f32]> {
        let first = self.head * (2 * SPAN + 1) + SPAN;
        self.attention.bias.map(|bias| &bias[first - query..first - query + self.len])
    }

    /// The row of a query in the dropout's mask.
    #[inline(always)]
    pub(super) fn mask_row(&self, query: usize) -> u32 {
        ((self.first + query) * self.attention.heads + self.head) as u32
    }
}

/// How many numbers a matrix of `columns` columns takes in panels, a row.
#[inline(always)]
pub(super) fn padded<S: Simd>(columns: usize) -> usize {
    columns.div_ceil(2 * S::LANES) * 2 * S::LANES
}

/// Lays a matrix out in panels.
#[inline(always)]
pub(super) fn pack<S: Simd>(simd: S, from: View<'_>, panels: &mut [f32]) {
    let width = 2 * S::LANES;
    if from.rows() == 0 {
        return;
    }
    for (panel, out) in panels.chunks_exact_mut(from.rows() * width).enumerate() {
        let columns = width.min(from.columns() - panel * width);
        pack_panel(simd, from, panel * width, columns, out);
    }
}

/// Scores of a query, scaled and with their bias.
#[derive(Clone, Copy)]
pub(super) struct Scores<'a> {
    pub(super) scale: f32,
    pub(super) bias: Option<&'a [f32]>,
}

impl Scores<'_> {
    /// The scores from `key` on, given the products of the query and the keys; minus infinity past the end.
    #[inline(always)]
    pub(super) fn at<S: Simd>(&self, simd: S, products: &[f32], key: usize) -> S::V {
        let products = simd.load_or(products, f32::NEG_INFINITY);
        match self.bias {
            Some(bias) => simd.fma(products, simd.splat(self.scale), simd.load(&bias[key..])),
            None => simd.mul(products, simd.splat(self.scale)),
        }
    }

    /// Replaces the products of a query and all keys by exponentials; gives the greatest score and the sum.
    #[inline(always)]
    pub(super) fn exponentials<S: Simd>(&self, simd: S, row: &mut [f32]) -> (f32, f32) {
        let mut greatest = simd.splat(f32::NEG_INFINITY);
        for (index, products) in row.chunks(S::LANES).enumerate() {
            greatest = simd.max(greatest, self.at(simd, products, index * S::LANES));
        }
        let greatest = simd.greatest(greatest);
        let mut sum = simd.splat(0.0);
        for (index, products) in row.chunks_mut(S::LANES).enumerate() {
            let score = self.at(simd, products, index * S::LANES);
            let value = exp(simd, simd.sub(score, simd.splat(greatest)));
            sum = simd.add(sum, value);
            simd.store(value, products);
        }
        (greatest, simd.sum(sum))
    }
}

/// A product within a thread's own memory, whose right side is in panels.
#[derive(Clone, Copy)]
pub(super) struct Small<'a> {
    /// The panels.
    pub(super) right: &'a [f32],
    /// How many products are summed up.
    pub(super) depth: usize,
    /// How many columns the output has; a multiple of the width of a panel where the output is padded.
    pub(super) columns: usize,
    /// The output's first number, and from one of its rows to the next.
    pub(super) out: (*mut f32, usize),
    /// Store or add.
    pub(super) finish: Finish,
}

impl Small<'_> {
    /// Computes `rows` rows, at most a tile's.
    ///
    /// # Safety
    /// `left` is good for `rows` rows and the depth, `out` for `rows` rows and the columns, and nobody else
    /// uses what `out` covers.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(&self, simd: S, left: Left, rows: usize) {
        let width = 2 * S::LANES;
        let Small { depth, finish, out: (out, out_stride), .. } = *self;
        for column in (0..self.columns).step_by(width) {
            let right = self.right[column * depth..(column + width) * depth].as_ptr();
            let columns = width.min(self.columns - column);
            let out = out.wrapping_add(column);
            // SAFETY: the contract; the panel is whole.
            unsafe {
                Tile { left, right, ahead: right, depth, out, out_stride, columns, finish }.run(simd, rows)
            };
        }
    }
}
