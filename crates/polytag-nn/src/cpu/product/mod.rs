//! Matrix products: two matrices enter, their product leaves, and on the way out a bias, GELU or what was
//! there before is added.
//!
//! The rows are cut into blocks that threads take; in a block, the depth is cut so that the block's part of
//! the left side stays in the second cache. Then panel by panel of the right side, tile by tile of the
//! block. How a sum is rounded depends on the cuts of the depth only, which depend on the depth only: so
//! neither threads nor the other rows change a byte.

mod block;
mod packed;
mod tile;

use std::ops::Range;

use rayon::prelude::*;

pub use packed::Packed;
pub(crate) use packed::pack_panel;
pub(crate) use tile::{Finish, Left, Tile};

use block::Block;
use packed::{Panels, packed_len};

use super::memory::{Scratch, Shared};
use super::simd::Set;
use super::view::View;

/// About how many rows a thread takes at a time.
const BLOCK_ROWS: usize = 128;

/// What becomes of a product's sums.
#[derive(Debug)]
pub enum Then<'a> {
    /// They are the output.
    Store,
    /// They are added to the output.
    Add,
    /// A bias is added to each row of them.
    Bias(&'a [f32]),
    /// A bias is added to each row of them, then GELU is taken.
    BiasGelu {
        /// One number a column.
        bias: &'a [f32],
        /// Where what GELU is taken of is kept for the backward pass.
        before: Option<&'a mut [f32]>,
    },
}

/// `out[rows, n] = left[rows, k] · right[k, n]`, and what comes [`Then`].
///
/// # Panics
/// If the shapes do not fit together.
pub fn multiply(left: View<'_>, right: &Packed, out: &mut [f32], then: Then<'_>) {
    multiply_panels(left, right.panels(), out, then);
}

/// The same by the calling thread alone, for callers that share out the work themselves.
///
/// # Panics
/// If the shapes do not fit together.
pub fn multiply_alone(left: View<'_>, right: &Packed, out: &mut [f32], then: Then<'_>) {
    let product = Product::new(left, right.panels(), out, then);
    for (rows, panels) in product.blocks(1) {
        product.run(rows, panels);
    }
}

/// The same with a right-hand side that is used once; adds to `out` if told to `accumulate`.
///
/// # Panics
/// If the shapes do not fit together.
pub fn multiply_once(left: View<'_>, right: View<'_>, out: &mut [f32], accumulate: bool) {
    multiply_once_in(Set::best(), left, right, (out, accumulate));
}

fn multiply_once_in(set: Set, left: View<'_>, right: View<'_>, (out, accumulate): (&mut [f32], bool)) {
    let mut scratch = Scratch::new(packed_len(set, right.rows(), right.columns()));
    let panels = Panels::in_scratch(set, right, &mut scratch);
    multiply_panels(left, panels, out, if accumulate { Then::Add } else { Then::Store });
}

fn multiply_panels(left: View<'_>, right: Panels<'_>, out: &mut [f32], then: Then<'_>) {
    let product = Product::new(left, right, out, then);
    let blocks = product.blocks(4 * rayon::current_num_threads());
    blocks.into_par_iter().for_each(|(rows, panels)| product.run(rows, panels));
}

/// [`Then`], as several threads see it.
#[derive(Clone, Copy)]
enum Sums<'a> {
    Store,
    Add,
    Bias(&'a [f32]),
    Gelu(&'a [f32], Option<Shared<'a>>),
}

/// A product whose shapes are checked.
struct Product<'a> {
    left: View<'a>,
    right: Panels<'a>,
    out: Shared<'a>,
    then: Sums<'a>,
}

impl<'a> Product<'a> {
    fn new(left: View<'a>, right: Panels<'a>, out: &'a mut [f32], then: Then<'a>) -> Product<'a> {
        assert_eq!(left.columns(), right.rows, "the left side is as wide as the right side is high");
        assert_eq!(out.len(), left.rows() * right.columns, "the output has the product's shape");
        let out = Shared::new(out);
        let then = match then {
            Then::Store => Sums::Store,
            Then::Add => Sums::Add,
            Then::Bias(bias) => Sums::Bias(bias),
            Then::BiasGelu { bias, before } => Sums::Gelu(bias, before.map(Shared::new)),
        };
        if let Sums::Bias(bias) | Sums::Gelu(bias, _) = then {
            assert_eq!(bias.len(), right.columns, "a bias has a number a column");
        }
        if let Sums::Gelu(_, Some(before)) = then {
            assert_eq!(before.len(), out.len(), "what GELU is taken of has the product's shape");
        }
        Product { left, right, out, then }
    }

    /// Computes some rows of some panels.
    fn run(&self, rows: Range<usize>, panels: Range<usize>) {
        self.right.set.run(Block { product: self, rows, panels });
    }

    /// Which rows and panels are computed together, in about `wanted` blocks or more: it changes no sum.
    fn blocks(&self, wanted: usize) -> Vec<(Range<usize>, Range<usize>)> {
        let rows = self.left.rows();
        let panels = self.right.columns.div_ceil(2 * self.right.set.lanes());
        let row_blocks = rows.div_ceil(BLOCK_ROWS);
        // Few rows: the columns are shared out too.
        let column_blocks = wanted.div_ceil(row_blocks.max(1)).clamp(1, panels.max(1));
        let mut blocks = Vec::with_capacity(row_blocks * column_blocks);
        let tile = self.right.set.tile_rows();
        for tiles in shares(rows.div_ceil(tile), row_blocks) {
            // Whole tiles, but for the last block: those with fewer rows take as long.
            let rows = tiles.start * tile..(tiles.end * tile).min(rows);
            blocks.extend(shares(panels, column_blocks).map(|panels| (rows.clone(), panels)));
        }
        blocks
    }
}

/// `0..len` in `count` ranges whose lengths differ by at most one.
pub(crate) fn shares(len: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).map(move |i| len * i / count..len * (i + 1) / count)
}

#[cfg(test)]
mod tests;
