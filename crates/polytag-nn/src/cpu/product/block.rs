//! What one thread computes of a product: some rows, some panels, all of the depth.
#![allow(unsafe_code)]

use std::ops::Range;

use super::tile::{Finish, LINE, Left, STEPS, Tile};
use super::{Product, Sums, shares};
use crate::cpu::memory::Scratch;
use crate::cpu::simd::{Kernel, MAX_TILE_ROWS, Simd};

/// The greatest depth that is summed up in registers before it goes to memory.
const DEPTH: usize = 768;

/// A part of a product that one thread computes.
pub(super) struct Block<'a> {
    pub(super) product: &'a Product<'a>,
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
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
                self.pack_left(simd, &depths, packed);
            }
            for panel in self.panels.clone() {
                self.panel(simd, panel, &depths, packed.as_deref());
            }
        }
    }
}

impl Block<'_> {
    #[inline(always)]
    fn tiles<S: Simd>(&self) -> impl Iterator<Item = Range<usize>> {
        debug_assert!(S::TILE_ROWS <= MAX_TILE_ROWS);
        shares(self.rows.len(), self.rows.len().div_ceil(S::TILE_ROWS))
    }

    /// Lays the block's part of the left side out tile by tile, each column by column.
    #[inline(always)]
    fn pack_left<S: Simd>(&self, simd: S, depths: &Range<usize>, packed: &mut [f32]) {
        debug_assert!(S::TILE_ROWS <= S::LANES);
        let left = self.product.left.transposed();
        for tile in self.tiles::<S>() {
            let out = &mut packed[tile.start * depths.len()..tile.end * depths.len()];
            for (step, out) in out.chunks_exact_mut(tile.len()).enumerate() {
                let from = left.from(depths.start + step, self.rows.start + tile.start);
                if left.column_stride() == 1 {
                    simd.store(simd.load(&from[..tile.len()]), out);
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
        // While this panel is used, the tiles bring in the next one, a share each.
        let mut ahead = right.from(panel, depths.start, width).as_ptr().wrapping_add(right.rows * width);
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
            unsafe {
                Tile { left, right, ahead, depth, out, out_stride, columns, finish }.run(simd, tile.len())
            };
            ahead = ahead.wrapping_add(depth / STEPS * LINE);
        }
    }
}
