//! The tile: a few rows of a product of bytes, two vectors wide, whose sums stay in registers.
//!
//! The shape is that of the tile of `f32`: per group of four along the depth it loads two vectors of weights, and
//! of each of its rows four bytes. On the way out sums become numbers again, and get their bias.
#![allow(unsafe_code)]

use super::rows::Step;
use super::set::{Integers, Kernel, MAX_TILE_ROWS};
use crate::cpu::functions::rough_gelu;
use crate::cpu::simd::Simd;

/// How many bytes a cache line holds.
pub(super) const LINE: usize = 64;

/// How many groups are taken at a time.
pub(super) const GROUPS: usize = 4;

/// A tile of a product.
///
/// Whoever makes one promises that its pointers are good for `rows` rows, `groups` groups of four bytes and `columns`
/// columns (for `right`, `scales` and `totals`, always the two whole vectors of the panel), and that nobody else uses
/// the output.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// The bytes of the rows.
    pub(super) left: *const u8,
    /// From one row to the next, in bytes.
    pub(super) stride: usize,
    /// What brings rows back.
    pub(super) steps: *const Step,
    /// The panel: two vectors of bytes a group.
    pub(super) right: *const i8,
    /// What brings columns back.
    pub(super) scales: *const f32,
    /// The sums of the columns' integers.
    pub(super) totals: *const i32,
    /// What is to be brought near meanwhile: a cache line for every four groups.
    pub(super) ahead: *const i8,
    /// How many groups of four the depth has.
    pub(super) groups: usize,
    /// The first number of the output.
    pub(super) out: *mut f32,
    /// From one row of the output to the next.
    pub(super) out_stride: usize,
    /// How many columns of the panel there are in the output.
    pub(super) columns: usize,
    /// What is added to the columns, or null.
    pub(super) bias: *const f32,
    /// Whether GELU is taken then.
    pub(super) gelu: bool,
}

impl Tile {
    /// Computes the tile of `rows` rows, at most [`Integers::TILE_ROWS`].
    ///
    /// # Safety
    /// The promise of [`Tile`].
    #[inline(always)]
    pub(super) unsafe fn run<I: Integers>(self, integers: I, rows: usize) {
        match rows {
            1 => integers.call(Rows::<1>(self)),
            2 => integers.call(Rows::<2>(self)),
            3 => integers.call(Rows::<3>(self)),
            4 => integers.call(Rows::<4>(self)),
            _ if I::TILE_ROWS <= 4 => unreachable!("a tile has at most four rows"),
            5 => integers.call(Rows::<5>(self)),
            6 => integers.call(Rows::<6>(self)),
            _ if I::TILE_ROWS <= 6 => unreachable!("a tile has at most six rows"),
            7 => integers.call(Rows::<7>(self)),
            8 => integers.call(Rows::<8>(self)),
            9 => integers.call(Rows::<9>(self)),
            10 => integers.call(Rows::<10>(self)),
            11 => integers.call(Rows::<11>(self)),
            12 => integers.call(Rows::<12>(self)),
            _ if I::TILE_ROWS <= 12 => unreachable!("a tile has at most twelve rows"),
            13 => integers.call(Rows::<13>(self)),
            14 => integers.call(Rows::<14>(self)),
            _ => unreachable!("a tile has at most fourteen rows"),
        }
    }
}

/// A tile whose number of rows the compiler knows.
struct Rows<const ROWS: usize>(Tile);

impl<const ROWS: usize> Kernel for Rows<ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<I: Integers>(self, integers: I) {
        // SAFETY: the promise of `Tile`, which `Tile::run` asks for.
        unsafe {
            for row in 0..ROWS {
                let out = self.0.out.wrapping_add(row * self.0.out_stride);
                integers.floats().prefetch_to_write(out);
                integers.floats().prefetch_to_write(out.wrapping_add(I::Floats::LANES));
            }
            let sums = self.sums(integers);
            self.store(integers, sums);
            if self.0.gelu {
                self.gelu(integers.floats());
            }
        }
    }
}

// SAFETY of all of these: the promise of `Tile`.
impl<const ROWS: usize> Rows<ROWS> {
    #[inline(always)]
    unsafe fn sums<I: Integers>(&self, integers: I) -> [[I::Sums; 2]; ROWS] {
        let mut sums = [[integers.zeros(); 2]; ROWS];
        let Tile { left, stride, mut right, mut ahead, groups, .. } = self.0;
        // Every third row has a pointer, and four groups are taken at a time, as in the tile of `f32`.
        let mut thirds = [left; MAX_TILE_ROWS.div_ceil(3)];
        for (third, pointer) in thirds.iter_mut().enumerate() {
            *pointer = left.wrapping_add(3 * third * stride);
        }
        let group = 8 * I::Floats::LANES;
        let long_steps = if ROWS == I::TILE_ROWS { groups / GROUPS } else { 0 };
        unsafe {
            for _ in 0..long_steps {
                integers.floats().prefetch(ahead.cast());
                ahead = ahead.wrapping_add(LINE);
                // Spelled out: as a loop it would be too long for the compiler to unroll.
                add_group(integers, (thirds, stride), right, &mut sums);
                add_group(integers, (along(thirds, 1), stride), right.add(group), &mut sums);
                add_group(integers, (along(thirds, 2), stride), right.add(2 * group), &mut sums);
                add_group(integers, (along(thirds, 3), stride), right.add(3 * group), &mut sums);
                right = right.add(GROUPS * group);
                thirds = along(thirds, GROUPS);
            }
            for _ in long_steps * GROUPS..groups {
                add_group(integers, (thirds, stride), right, &mut sums);
                right = right.add(group);
                thirds = along(thirds, 1);
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn row<'a>(&self, row: usize) -> &'a mut [f32] {
        let Tile { out, out_stride, columns, .. } = self.0;
        unsafe { std::slice::from_raw_parts_mut(out.add(row * out_stride), columns) }
    }

    /// Numbers out of sums: what zeros brought in is taken out again, in integers, then come scales and bias.
    #[inline(always)]
    unsafe fn store<I: Integers>(&self, integers: I, sums: [[I::Sums; 2]; ROWS]) {
        let simd = integers.floats();
        let lanes = I::Floats::LANES;
        unsafe {
            let totals = [integers.sums_at(self.0.totals), integers.sums_at(self.0.totals.add(lanes))];
            let scales = [simd.load_at(self.0.scales), simd.load_at(self.0.scales.add(lanes))];
            let mut bias = [simd.splat(0.0); 2];
            if !self.0.bias.is_null() {
                let given = std::slice::from_raw_parts(self.0.bias, self.0.columns);
                let (low, high) = given.split_at(lanes.min(given.len()));
                bias = [simd.load(low), simd.load(high)];
            }
            for (row, sums) in sums.into_iter().enumerate() {
                let Step { scale, zero } = *self.0.steps.add(row);
                let scale = simd.splat(scale);
                let out = self.row(row);
                let (low, high) = out.split_at_mut(lanes.min(out.len()));
                // No fused multiplication, so that all sets round alike.
                let first = integers.to_floats(integers.less(sums[0], zero, totals[0]));
                simd.store(simd.add(simd.mul(first, simd.mul(scale, scales[0])), bias[0]), low);
                let second = integers.to_floats(integers.less(sums[1], zero, totals[1]));
                simd.store(simd.add(simd.mul(second, simd.mul(scale, scales[1])), bias[1]), high);
            }
        }
    }

    /// Goes over the tile once more, now that it lies in the nearest cache and the registers are free.
    #[inline(always)]
    unsafe fn gelu<S: Simd>(&self, simd: S) {
        for row in 0..ROWS {
            let out = unsafe { self.row(row) };
            let (low, high) = out.split_at_mut(S::LANES.min(out.len()));
            simd.store(rough_gelu(simd, simd.load(low)), low);
            simd.store(rough_gelu(simd, simd.load(high)), high);
        }
    }
}

/// Pointers to the first, the fourth, the seventh … row of a tile.
type Thirds = [*const u8; MAX_TILE_ROWS.div_ceil(3)];

#[inline(always)]
fn along(mut thirds: Thirds, groups: usize) -> Thirds {
    for pointer in &mut thirds {
        *pointer = pointer.wrapping_add(4 * groups);
    }
    thirds
}

/// Adds the products of one group of four.
///
/// # Safety
/// The promise of [`Tile`].
#[inline(always)]
unsafe fn add_group<I: Integers, const ROWS: usize>(
    integers: I,
    (thirds, stride): (Thirds, usize),
    right: *const i8,
    sums: &mut [[I::Sums; 2]; ROWS],
) {
    unsafe {
        let first = integers.right_at(right);
        let second = integers.right_at(right.add(4 * I::Floats::LANES));
        // Spelled out: as one loop it would be too long for the compiler to unroll.
        rows_of_third(integers, (0, thirds[0], stride), (first, second), sums);
        rows_of_third(integers, (1, thirds[1], stride), (first, second), sums);
        rows_of_third(integers, (2, thirds[2], stride), (first, second), sums);
        rows_of_third(integers, (3, thirds[3], stride), (first, second), sums);
        rows_of_third(integers, (4, thirds[4], stride), (first, second), sums);
    }
}

/// Adds the products of one group of up to three neighbouring rows.
///
/// # Safety
/// The promise of [`Tile`].
#[inline(always)]
unsafe fn rows_of_third<I: Integers, const ROWS: usize>(
    integers: I,
    (third, pointer, stride): (usize, *const u8, usize),
    (first, second): (I::Right, I::Right),
    sums: &mut [[I::Sums; 2]; ROWS],
) {
    for (row, sum) in sums[ROWS.min(3 * third)..ROWS.min(3 * third + 3)].iter_mut().enumerate() {
        let left = integers.splat(unsafe { pointer.add(row * stride).cast::<[u8; 4]>().read() });
        *sum = [integers.add_products(sum[0], left, first), integers.add_products(sum[1], left, second)];
    }
}
