//! Products in 8-bit integers: rows of `f32` and a weight in 8 bits enter, rows of `f32` leave.
//!
//! For what is encoded and not learned from, where three times the speed is worth a relative error of up to a hundredth in each product.
//! Weights are rounded once, a scale a column of the product; rows when they come, a scale and a zero each. Products
//! are summed in 32-bit integers, which nothing rounds: instruction sets, threads and other rows change no bit of
//! what leaves, but for GELU, which is rounded as each set does.
#![allow(unsafe_code)]

mod rows; // activations in 8 bits
mod set; // instruction sets, seen as sums of products of bytes
mod tile; // a few rows, two vectors wide
mod weights; // weights in 8 bits, in panels

pub use weights::EightBitWeights;

use std::ops::Range;

use rayon::prelude::*;

use rows::{RoundRows, Step, stride};
use set::{IntegerSet, Integers, Kernel};
use tile::{GROUPS, LINE, Tile};

use super::memory::{Scratch, Shared};
use super::product::shares;
use super::view::View;

/// The most products that are sure to be summed up in 32 bits: 255 · 128 · 65,536 < 2³¹.
pub const MAX_DEPTH: usize = 1 << 16;

/// How many rows a thread takes at a time: eight tiles of AVX-512. What a feed-forward part makes of them stays in
/// the second cache.
const BLOCK_ROWS: usize = 112;

/// What becomes of a product's sums.
#[derive(Clone, Copy, Debug)]
pub enum EightBitThen<'a> {
    /// They are the output.
    Store,
    /// A bias is added to each row of them.
    Bias(&'a [f32]),
    /// A bias is added to each row of them, then GELU is taken.
    BiasGelu(&'a [f32]),
}

/// The widest instructions for bytes that this machine has, by name.
pub(crate) fn instructions() -> &'static str {
    IntegerSet::best().name()
}

/// `out[rows, n] = left[rows, k] · weightᵀ`, and what comes then.
///
/// # Panics
/// If the shapes do not fit together, or rows of `left` do not lie end to end.
pub fn multiply_eight_bit(
    left: View<'_>,
    weights: &EightBitWeights,
    out: &mut [f32],
    then: EightBitThen<'_>,
) {
    let product = Product::new(weights, then);
    by_blocks(left, (weights, weights.columns), out, |rows, left, out| product.run(rows, left, out));
}

/// `out = GELU(left · upᵀ + bias) · downᵀ`; what is between the two never leaves the thread that made it.
///
/// # Panics
/// If the shapes do not fit together, or rows of `left` do not lie end to end.
pub fn feed_forward_eight_bit(
    left: View<'_>,
    (up, bias): (&EightBitWeights, &[f32]),
    down: &EightBitWeights,
    out: &mut [f32],
) {
    assert_eq!(up.columns, down.depth, "what goes up comes down");
    let first = Product::new(up, EightBitThen::BiasGelu(bias));
    let second = Product::new(down, EightBitThen::Store);
    by_blocks(left, (up, down.columns), out, |rows, left, out| {
        let mut wide = Scratch::new(rows * up.columns);
        first.run(rows, left, &mut wide);
        second.run(rows, &wide, out);
    });
}

/// Has `work` done on blocks of rows, by any thread: how many rows, the rows, and their place in the output.
fn by_blocks(
    left: View<'_>,
    (weights, columns): (&EightBitWeights, usize),
    out: &mut [f32],
    work: impl Fn(usize, &[f32], &mut [f32]) + Sync,
) {
    let (rows, depth) = (left.rows(), left.columns());
    assert_eq!(depth, weights.depth, "the left side is as wide as the weight");
    assert!(left.column_stride() == 1 && left.row_stride() == depth, "rows lie end to end");
    assert_eq!(out.len(), rows * columns, "the output has the product's shape");
    // Whole tiles, but for the last: those with fewer rows take as long. Few rows: every thread has a tile, if there
    // are so many. How rows are cut changes no number.
    let tile = weights.set.tile_rows();
    let tiles = rows.div_ceil(tile);
    let count = rows.div_ceil(BLOCK_ROWS).max(rayon::current_num_threads().min(tiles));
    let blocks: Vec<Range<usize>> =
        shares(tiles, count).map(|tiles| tiles.start * tile..(tiles.end * tile).min(rows)).collect();
    let out = Shared::new(out);
    blocks.into_par_iter().for_each(|block| {
        // SAFETY: blocks do not overlap.
        let out = unsafe { out.slice(block.start * columns, block.len() * columns) };
        work(block.len(), &left.from(block.start, 0)[..block.len() * depth], out);
    });
}

/// A product whose shapes are checked but for the rows.
struct Product<'a> {
    weights: &'a EightBitWeights,
    bias: Option<&'a [f32]>,
    gelu: bool,
}

impl<'a> Product<'a> {
    fn new(weights: &'a EightBitWeights, then: EightBitThen<'a>) -> Product<'a> {
        let (bias, gelu) = match then {
            EightBitThen::Store => (None, false),
            EightBitThen::Bias(bias) => (Some(bias), false),
            EightBitThen::BiasGelu(bias) => (Some(bias), true),
        };
        assert!(bias.is_none_or(|bias| bias.len() == weights.columns), "a bias has a number a column");
        Product { weights, bias, gelu }
    }

    /// Rounds a block of rows and computes their product, by the calling thread alone.
    fn run(&self, rows: usize, left: &[f32], out: &mut [f32]) {
        let depth = self.weights.depth;
        let mut scratch = Scratch::new(rows * stride(depth) / 4);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut scratch);
        let mut steps = vec![Step::default(); rows];
        self.weights.set.floats().run(RoundRows { depth, rows: left, bytes, steps: &mut steps });
        self.multiply(bytes, &steps, out);
    }

    /// The product of rows that are bytes already.
    fn multiply(&self, bytes: &[u8], steps: &[Step], out: &mut [f32]) {
        assert_eq!(bytes.len(), steps.len() * stride(self.weights.depth), "bytes for every row");
        assert_eq!(out.len(), steps.len() * self.weights.columns, "the output has the product's shape");
        self.weights.set.run(Block { product: self, bytes, steps, out });
    }
}

/// What one thread computes of a product: some rows of it, panel by panel, tile by tile.
struct Block<'a> {
    product: &'a Product<'a>,
    bytes: &'a [u8],
    steps: &'a [Step],
    out: &'a mut [f32],
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Integers>(self, integers: I) {
        let Product { weights, bias, gelu } = *self.product;
        let (width, stride, rows) = (weights.set.width(), stride(weights.depth), self.steps.len());
        for panel in 0..weights.panels() {
            let column = panel * width;
            let (right, scales, totals) = weights.panel(panel);
            // While this panel is used, the tiles bring in the next one, a share each.
            let mut ahead = right.as_ptr().wrapping_add(right.len());
            for row in (0..rows).step_by(I::TILE_ROWS) {
                let tile = Tile {
                    left: self.bytes[row * stride..].as_ptr(),
                    stride,
                    steps: self.steps[row..].as_ptr(),
                    right: right.as_ptr(),
                    scales: scales.as_ptr(),
                    totals: totals.as_ptr(),
                    ahead,
                    groups: weights.groups(),
                    out: self.out[row * weights.columns + column..].as_mut_ptr(),
                    out_stride: weights.columns,
                    columns: width.min(weights.columns - column),
                    bias: bias.map_or(std::ptr::null(), |bias| bias[column..].as_ptr()),
                    gelu,
                };
                // SAFETY: the shapes were checked; rows of the block are whole, and a panel has whole vectors.
                unsafe { tile.run(integers, I::TILE_ROWS.min(rows - row)) };
                ahead = ahead.wrapping_add(weights.groups() / GROUPS * LINE);
            }
        }
    }
}

#[cfg(test)]
mod tests;
