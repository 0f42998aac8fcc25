//! Matrix products: two matrices enter, their product leaves, and on the way out a bias, GELU or what was
//! there before is added.
//!
//! The rows are cut into blocks that threads take; in a block, the depth is cut so that the block's part of
//! the left side stays in the second cache. Then panel by panel of the right side, tile by tile of the
//! block. How a sum is rounded depends on the cuts of the depth only, which depend on the depth only: so
//! neither threads nor the other rows change a byte.

mod packed;
mod tile;

use std::ops::Range;

use rayon::prelude::*;

pub use packed::Packed;
pub(crate) use packed::pack_panel;
pub(crate) use tile::{Finish, Left, Tile};

use packed::{Panels, packed_len};

use super::memory::{Scratch, Shared};
use super::simd::{Kernel, MAX_TILE_ROWS, Set, Simd};
use super::view::View;

/// The greatest depth that is summed up in registers before it goes to memory.
const DEPTH: usize = 768;

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
    let product = Product { left, right, out, then };
    let blocks = product.blocks();
    blocks.par_iter().for_each(|(rows, panels)| {
        let block = Block { product: &product, rows: rows.clone(), panels: panels.clone() };
        right.set.run(block);
    });
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

impl Product<'_> {
    /// Which rows and panels are computed together. Depends on the number of threads: it changes no sum.
    fn blocks(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let rows = self.left.rows();
        let panels = self.right.columns.div_ceil(2 * self.right.set.lanes());
        let row_blocks = rows.div_ceil(BLOCK_ROWS);
        // Few rows: the columns are shared out too.
        let column_blocks =
            (4 * rayon::current_num_threads()).div_ceil(row_blocks.max(1)).clamp(1, panels.max(1));
        let mut blocks = Vec::with_capacity(row_blocks * column_blocks);
        for rows in shares(rows, row_blocks) {
            blocks.extend(shares(panels, column_blocks).map(|panels| (rows.clone(), panels)));
        }
        blocks
    }
}

/// `0..len` in `count` ranges whose lengths differ by at most one.
pub(crate) fn shares(len: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).map(move |i| len * i / count..len * (i + 1) / count)
}

/// A part of a product that one thread computes.
struct Block<'a> {
    product: &'a Product<'a>,
    rows: Range<usize>,
    panels: Range<usize>,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let depth = self.product.left.columns();
        let cuts = depth.div_ceil(DEPTH).max(1);
        let mut packed = (self.product.left.column_stride() != 1 && depth > 0)
            .then(|| Scratch::new(self.rows.len() * depth.div_ceil(cuts)));
        for depths in shares(depth, cuts) {
            if let Some(packed) = &mut packed {
                self.pack_left::<S>(&depths, packed);
            }
            for panel in self.panels.clone() {
                self.panel(simd, panel, &depths, packed.as_deref());
            }
        }
    }
}

#[allow(unsafe_code)]
impl Block<'_> {
    #[inline(always)]
    fn tiles<S: Simd>(&self) -> impl Iterator<Item = Range<usize>> {
        debug_assert!(S::TILE_ROWS <= MAX_TILE_ROWS);
        shares(self.rows.len(), self.rows.len().div_ceil(S::TILE_ROWS))
    }

    /// Lays the block's part of the left side out tile by tile, each column by column.
    #[inline(always)]
    fn pack_left<S: Simd>(&self, depths: &Range<usize>, packed: &mut [f32]) {
        for tile in self.tiles::<S>() {
            let out = &mut packed[tile.start * depths.len()..tile.end * depths.len()];
            let left = self.product.left.transposed();
            for (step, out) in out.chunks_exact_mut(tile.len()).enumerate() {
                let from = left.from(depths.start + step, self.rows.start + tile.start);
                if left.column_stride() == 1 {
                    out.copy_from_slice(&from[..tile.len()]);
                } else {
                    for (row, out) in out.iter_mut().enumerate() {
                        *out = from[row * left.column_stride()];
                    }
                }
            }
        }
    }

    /// Computes a part of the depth of the block's part of a panel.
    #[inline(always)]
    fn panel<S: Simd>(&self, simd: S, panel: usize, depths: &Range<usize>, packed: Option<&[f32]>) {
        let Product { left, right, out, then } = self.product;
        let width = 2 * S::LANES;
        let column = panel * width;
        let columns = width.min(right.columns - column);
        let panel = right.from(panel, depths.start, width);
        debug_assert!(panel.len() >= depths.len() * width);
        let (first, last) = (depths.start == 0, depths.end == left.columns());
        for tile in self.tiles::<S>() {
            let row = self.rows.start + tile.start;
            let at = row * right.columns + column;
            let left = match packed {
                _ if depths.is_empty() => Left::Columns(std::ptr::null(), 0),
                Some(packed) => Left::Columns(packed[tile.start * depths.len()..].as_ptr(), tile.len()),
                None => Left::Rows(left.from(row, depths.start).as_ptr(), left.row_stride()),
            };
            let finish = match *then {
                Sums::Add => Finish::Add,
                Sums::Bias(bias) if last => Finish::Bias { bias: bias[column..].as_ptr(), add: !first },
                Sums::Gelu(bias, before) if last => {
                    let before = before.map_or(std::ptr::null_mut(), |before| before.pointer(at));
                    Finish::Gelu { bias: bias[column..].as_ptr(), add: !first, before }
                }
                _ if first => Finish::Store,
                _ => Finish::Add,
            };
            let out_stride = right.columns;
            let (right, out, depth) = (panel.as_ptr(), out.pointer(at), depths.len());
            // SAFETY: the shapes were checked; blocks do not overlap, and this tile is within the block.
            unsafe { Tile { left, right, depth, out, out_stride, columns, finish }.run(simd, tile.len()) };
        }
    }
}

#[cfg(test)]
mod tests;
