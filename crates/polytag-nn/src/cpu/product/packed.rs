//! The right-hand side of a product, laid out once as tiles read it.

use rayon::prelude::*;

use crate::cpu::memory::{Aligned, Scratch};
use crate::cpu::simd::{Kernel, Set, Simd};
use crate::cpu::view::View;

/// How many rows are moved at a time, so that both sides of a transposition stay in the nearest cache.
const STRIP: usize = 16;

/// The right-hand side of a product, laid out once in panels as the kernel reads it.
///
/// A panel is as many columns as a tile is wide, row after row; the last one is filled up with zeros.
#[derive(Clone, Debug)]
pub struct Packed {
    set: Set,
    rows: usize,
    columns: usize,
    data: Aligned,
}

impl Packed {
    /// Lays out a matrix of any strides.
    pub fn new(right: View<'_>) -> Packed {
        Packed::for_set(Set::best(), right)
    }

    pub(crate) fn for_set(set: Set, right: View<'_>) -> Packed {
        let (rows, columns) = (right.rows(), right.columns());
        let mut data = Aligned::zeros(packed_len(set, rows, columns));
        pack(set, right, &mut data);
        Packed { set, rows, columns, data }
    }

    /// Lays out another matrix of the same shape in the same memory.
    ///
    /// # Panics
    /// If the shape is another one.
    pub fn repack(&mut self, right: View<'_>) {
        assert_eq!((right.rows(), right.columns()), (self.rows, self.columns), "the same shape");
        pack(self.set, right, &mut self.data);
    }

    /// How many rows the matrix has: the depth of the product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns the matrix has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The panels, for the set that they are laid out for.
    pub(super) fn panels(&self) -> Panels<'_> {
        Panels { set: self.set, rows: self.rows, columns: self.columns, data: &self.data }
    }
}

/// A right-hand side in panels, wherever they lie.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    pub(super) set: Set,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) data: &'a [f32],
}

impl<'a> Panels<'a> {
    /// Lays a matrix out in a thread's own memory.
    pub(super) fn in_scratch(set: Set, right: View<'_>, scratch: &'a mut Scratch) -> Panels<'a> {
        pack(set, right, scratch);
        Panels { set, rows: right.rows(), columns: right.columns(), data: scratch }
    }

    /// The panel that begins at column `panel * width`, from a row on.
    #[inline(always)]
    pub(super) fn from(&self, panel: usize, row: usize, width: usize) -> &'a [f32] {
        &self.data[(panel * self.rows + row) * width..(panel + 1) * self.rows * width]
    }
}

/// How many numbers a packed matrix takes.
pub(super) fn packed_len(set: Set, rows: usize, columns: usize) -> usize {
    let width = 2 * set.lanes();
    columns.div_ceil(width) * width * rows
}

fn pack(set: Set, right: View<'_>, data: &mut [f32]) {
    let width = 2 * set.lanes();
    if right.rows() == 0 {
        return;
    }
    data.par_chunks_mut(right.rows() * width).enumerate().for_each(|(panel, out)| {
        let columns = width.min(right.columns() - panel * width);
        set.run(PackPanel { right, first: panel * width, columns, out });
    });
}

struct PackPanel<'a> {
    right: View<'a>,
    first: usize,
    columns: usize,
    out: &'a mut [f32],
}

impl Kernel for PackPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        pack_panel(simd, self.right, self.first, self.columns, self.out);
    }
}

/// Lays out `columns` columns from `first` on as a panel.
#[inline(always)]
pub(crate) fn pack_panel<S: Simd>(simd: S, right: View<'_>, first: usize, columns: usize, out: &mut [f32]) {
    let _ = simd;
    let width = 2 * S::LANES;
    if right.column_stride() == 1 {
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            out[..columns].copy_from_slice(&right.from(row, first)[..columns]);
            out[columns..].fill(0.0);
        }
        return;
    }
    for (strip, out) in out.chunks_mut(STRIP * width).enumerate() {
        let rows = out.len() / width;
        for column in 0..columns {
            let from = right.from(strip * STRIP, first + column);
            for row in 0..rows {
                out[row * width + column] = from[row * right.row_stride()];
            }
        }
        for column in columns..width {
            for row in 0..rows {
                out[row * width + column] = 0.0;
            }
        }
    }
}
