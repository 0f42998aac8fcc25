//! The right-hand side of a product, laid out once as tiles read it.
#![allow(unsafe_code)]

use rayon::prelude::*;

use crate::cpu::memory::{Aligned, Scratch};
use crate::cpu::simd::{Kernel, Set, Simd};
use crate::cpu::view::View;

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

/// Lays out `columns` columns from `first` on as a panel, in which the others are zeros.
#[inline(always)]
pub(crate) fn pack_panel<S: Simd>(simd: S, right: View<'_>, first: usize, columns: usize, out: &mut [f32]) {
    let width = 2 * S::LANES;
    if right.column_stride() == 1 {
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let from = &right.from(row, first)[..columns];
            let (low, high) = from.split_at(columns.min(S::LANES));
            simd.store(simd.load(low), &mut out[..S::LANES]);
            simd.store(simd.load(high), &mut out[S::LANES..]);
        }
        return;
    }
    let blocks = if right.row_stride() == 1 { right.rows() / S::LANES } else { 0 };
    for (row, half) in (0..blocks).flat_map(|block| [(block * S::LANES, 0), (block * S::LANES, S::LANES)]) {
        let columns = columns.saturating_sub(half).min(S::LANES);
        let from = if columns > 0 { right.from(row, first + half) } else { &[] };
        let to = &mut out[row * width + half..(row + S::LANES) * width];
        assert!(columns == 0 || from.len() >= (columns - 1) * right.column_stride() + S::LANES);
        // SAFETY: the assertion for what is read; `to` holds whole rows but for the first half of the first.
        unsafe { simd.transpose((from.as_ptr(), right.column_stride()), columns, (to.as_mut_ptr(), width)) };
    }
    for row in blocks * S::LANES..right.rows() {
        for (column, out) in out[row * width..(row + 1) * width].iter_mut().enumerate() {
            *out = if column < columns { right.at(row, first + column) } else { 0.0 };
        }
    }
}
