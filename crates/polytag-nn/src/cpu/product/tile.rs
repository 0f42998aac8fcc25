//! The tile: a few rows of a product, two vectors wide, whose sums stay in registers.
//!
//! All the time of a product is spent here. Per step along the depth a tile loads two vectors of the right
//! side and multiplies them with one number of each of its rows; with fourteen rows of AVX-512 that is 28
//! multiplications for 16 loads, and nothing but those.
#![allow(unsafe_code)]

use crate::cpu::functions::gelu;
use crate::cpu::simd::{Kernel, MAX_TILE_ROWS, Simd};

/// How many numbers a cache line holds.
pub(crate) const LINE: usize = 16;

/// A depth from which on the output is brought near first: sums of long products are stored into memory that
/// nobody has touched for a while, and would otherwise wait for it.
const LONG: usize = 128;

/// How many steps along the depth are taken at a time.
pub(crate) const STEPS: usize = 4;

/// Where a tile's rows of the left side lie. One of the strides is one.
#[derive(Clone, Copy)]
pub(crate) enum Left {
    /// Along a row, number by number; rows lie this far apart.
    Rows(*const f32, usize),
    /// Along a column, number by number; columns lie this far apart.
    Columns(*const f32, usize),
}

/// What becomes of a tile's sums.
#[derive(Clone, Copy)]
pub(crate) enum Finish {
    /// They are stored.
    Store,
    /// They are added to what is there.
    Add,
    /// They and what is there are added to a bias.
    Bias { bias: *const f32, add: bool },
    /// The same, and then GELU; where `before` is not null, the sums go there.
    Gelu { bias: *const f32, add: bool, before: *mut f32 },
}

/// A tile of a product.
///
/// Whoever makes one promises that its pointers are good for `rows` rows, `depth` steps and `columns`
/// columns (for `right`, always the two whole vectors of its panel), and that nobody else uses the outputs.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The left side.
    pub(crate) left: Left,
    /// The panel of the right side: two vectors a step.
    pub(crate) right: *const f32,
    /// What is to be brought near meanwhile: a cache line for every four steps.
    pub(crate) ahead: *const f32,
    /// How many products are summed up.
    pub(crate) depth: usize,
    /// The first number of the output; `before` in [`Finish`] has the same layout.
    pub(crate) out: *mut f32,
    /// From one row of the output to the next.
    pub(crate) out_stride: usize,
    /// How many columns of the panel there are in the output.
    pub(crate) columns: usize,
    /// What becomes of the sums.
    pub(crate) finish: Finish,
}

impl Tile {
    /// Computes the tile of `rows` rows, at most [`Simd::TILE_ROWS`].
    ///
    /// # Safety
    /// The promise of [`Tile`].
    #[inline(always)]
    pub(crate) unsafe fn run<S: Simd>(self, simd: S, rows: usize) {
        match rows {
            1 => simd.call(Rows::<1>(self)),
            2 => simd.call(Rows::<2>(self)),
            3 => simd.call(Rows::<3>(self)),
            4 => simd.call(Rows::<4>(self)),
            _ if S::TILE_ROWS <= 4 => unreachable!("a tile has at most four rows"),
            5 => simd.call(Rows::<5>(self)),
            6 => simd.call(Rows::<6>(self)),
            _ if S::TILE_ROWS <= 6 => unreachable!("a tile has at most six rows"),
            7 => simd.call(Rows::<7>(self)),
            8 => simd.call(Rows::<8>(self)),
            9 => simd.call(Rows::<9>(self)),
            10 => simd.call(Rows::<10>(self)),
            11 => simd.call(Rows::<11>(self)),
            12 => simd.call(Rows::<12>(self)),
            13 => simd.call(Rows::<13>(self)),
            14 => simd.call(Rows::<14>(self)),
            _ => unreachable!("a tile has at most fourteen rows"),
        }
    }
}

/// A tile whose number of rows the compiler knows.
struct Rows<const ROWS: usize>(Tile);

impl<const ROWS: usize> Kernel for Rows<ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // SAFETY: the promise of `Tile`, which `Tile::run` asks for.
        unsafe {
            if self.0.depth >= LONG {
                for row in 0..ROWS {
                    let out = self.0.out.wrapping_add(row * self.0.out_stride);
                    simd.prefetch_to_write(out);
                    simd.prefetch_to_write(out.wrapping_add(S::LANES));
                }
            }
            let sums = match self.0.left {
                Left::Rows(left, stride) => self.sums_of_rows(simd, left, stride),
                Left::Columns(left, stride) => self.sums_of_columns(simd, left, stride),
            };
            match self.0.finish {
                Finish::Store => self.store(simd, sums),
                Finish::Add => self.add(simd, sums),
                Finish::Bias { bias, add } => self.bias(simd, sums, bias, add),
                Finish::Gelu { bias, add, before } => {
                    self.bias(simd, sums, bias, add);
                    self.gelu(simd, before);
                }
            }
        }
    }
}

// SAFETY of all of these: the promise of `Tile`.
impl<const ROWS: usize> Rows<ROWS> {
    #[inline(always)]
    unsafe fn sums_of_rows<S: Simd>(&self, simd: S, left: *const f32, stride: usize) -> [[S::V; 2]; ROWS] {
        unsafe {
            let mut sums = [[simd.splat(0.0); 2]; ROWS];
            let mut right = self.0.right;
            // An address can be a pointer, plus one or two strides, plus a constant: so every third row has
            // a pointer, and four steps are taken at a time. Fourteen pointers would not fit the registers.
            let mut thirds = [left; MAX_TILE_ROWS.div_ceil(3)];
            for (third, pointer) in thirds.iter_mut().enumerate() {
                *pointer = left.wrapping_add(3 * third * stride);
            }
            let mut ahead_of_tile = self.0.ahead;
            // Only whole tiles take four steps at a time: in smaller ones registers are free, which the
            // compiler fills with loads of later steps until it runs out of them.
            let long_steps = if ROWS == S::TILE_ROWS { self.0.depth / STEPS } else { 0 };
            for _ in 0..long_steps {
                simd.prefetch(ahead_of_tile);
                ahead_of_tile = ahead_of_tile.wrapping_add(LINE);
                // Spelled out: as a loop it would be too long for the compiler to unroll.
                step_of_rows(simd, (thirds, stride), right, &mut sums);
                step_of_rows(simd, (ahead(thirds, 1), stride), right.add(2 * S::LANES), &mut sums);
                step_of_rows(simd, (ahead(thirds, 2), stride), right.add(4 * S::LANES), &mut sums);
                step_of_rows(simd, (ahead(thirds, 3), stride), right.add(6 * S::LANES), &mut sums);
                right = right.add(2 * STEPS * S::LANES);
                thirds = ahead(thirds, STEPS);
            }
            for _ in long_steps * STEPS..self.0.depth {
                step_of_rows(simd, (thirds, stride), right, &mut sums);
                right = right.add(2 * S::LANES);
                thirds = ahead(thirds, 1);
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn sums_of_columns<S: Simd>(&self, simd: S, left: *const f32, stride: usize) -> [[S::V; 2]; ROWS] {
        unsafe {
            let mut sums = [[simd.splat(0.0); 2]; ROWS];
            let (mut left, mut right) = (left, self.0.right);
            for _ in 0..self.0.depth {
                step_of_columns(simd, left, right, &mut sums);
                left = left.wrapping_add(stride);
                right = right.add(2 * S::LANES);
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn row<'a>(&self, of: *mut f32, row: usize) -> &'a mut [f32] {
        unsafe { std::slice::from_raw_parts_mut(of.add(row * self.0.out_stride), self.0.columns) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(&self, simd: S, sums: [[S::V; 2]; ROWS]) {
        for (row, [first, second]) in sums.into_iter().enumerate() {
            let (low, high) = halves::<S>(unsafe { self.row(self.0.out, row) });
            simd.store(first, low);
            simd.store(second, high);
        }
    }

    #[inline(always)]
    unsafe fn add<S: Simd>(&self, simd: S, sums: [[S::V; 2]; ROWS]) {
        for (row, [first, second]) in sums.into_iter().enumerate() {
            let (low, high) = halves::<S>(unsafe { self.row(self.0.out, row) });
            simd.store(simd.add(simd.load(low), first), low);
            simd.store(simd.add(simd.load(high), second), high);
        }
    }

    #[inline(always)]
    unsafe fn bias<S: Simd>(&self, simd: S, sums: [[S::V; 2]; ROWS], bias: *const f32, add: bool) {
        let bias = unsafe { std::slice::from_raw_parts(bias, self.0.columns) };
        let (low, high) = bias.split_at(S::LANES.min(bias.len()));
        let bias = [simd.load(low), simd.load(high)];
        // A loop and no `map`: the closure would be compiled without the set's instructions.
        let mut sums = sums;
        for sum in &mut sums {
            *sum = [simd.add(sum[0], bias[0]), simd.add(sum[1], bias[1])];
        }
        unsafe { if add { self.add(simd, sums) } else { self.store(simd, sums) } }
    }

    /// Goes over the tile once more, now that it lies in the nearest cache and the registers are free.
    #[inline(always)]
    unsafe fn gelu<S: Simd>(&self, simd: S, before: *mut f32) {
        for row in 0..ROWS {
            let out = unsafe { self.row(self.0.out, row) };
            if !before.is_null() {
                unsafe { self.row(before, row) }.copy_from_slice(out);
            }
            let (low, high) = halves::<S>(out);
            simd.store(gelu(simd, simd.load(low)), low);
            simd.store(gelu(simd, simd.load(high)), high);
        }
    }
}

/// Pointers to the first, the fourth, the seventh … row of a tile.
type Thirds = [*const f32; MAX_TILE_ROWS.div_ceil(3)];

#[inline(always)]
fn ahead(mut thirds: Thirds, steps: usize) -> Thirds {
    for pointer in &mut thirds {
        *pointer = pointer.wrapping_add(steps);
    }
    thirds
}

/// Adds one step of the products of a tile whose left side lies along rows.
///
/// # Safety
/// The promise of [`Tile`].
#[inline(always)]
unsafe fn step_of_rows<S: Simd, const ROWS: usize>(
    simd: S,
    (thirds, stride): (Thirds, usize),
    right: *const f32,
    sums: &mut [[S::V; 2]; ROWS],
) {
    unsafe {
        let first = simd.load_at(right);
        let second = simd.load_at(right.add(S::LANES));
        // Spelled out: as one loop it would be too long for the compiler to unroll.
        rows_of_third(simd, (0, thirds[0], stride), (first, second), sums);
        rows_of_third(simd, (1, thirds[1], stride), (first, second), sums);
        rows_of_third(simd, (2, thirds[2], stride), (first, second), sums);
        rows_of_third(simd, (3, thirds[3], stride), (first, second), sums);
        rows_of_third(simd, (4, thirds[4], stride), (first, second), sums);
    }
}

/// Adds one step of the products of up to three neighbouring rows.
///
/// # Safety
/// The promise of [`Tile`].
#[inline(always)]
unsafe fn rows_of_third<S: Simd, const ROWS: usize>(
    simd: S,
    (third, pointer, stride): (usize, *const f32, usize),
    (first, second): (S::V, S::V),
    sums: &mut [[S::V; 2]; ROWS],
) {
    for (row, sum) in sums[ROWS.min(3 * third)..ROWS.min(3 * third + 3)].iter_mut().enumerate() {
        let factor = simd.splat(unsafe { *pointer.add(row * stride) });
        *sum = [simd.fma(factor, first, sum[0]), simd.fma(factor, second, sum[1])];
    }
}

/// Adds one step of the products of a tile whose left side lies along columns.
///
/// # Safety
/// The promise of [`Tile`].
#[inline(always)]
unsafe fn step_of_columns<S: Simd, const ROWS: usize>(
    simd: S,
    left: *const f32,
    right: *const f32,
    sums: &mut [[S::V; 2]; ROWS],
) {
    unsafe {
        let first = simd.load_at(right);
        let second = simd.load_at(right.add(S::LANES));
        for (row, sum) in sums.iter_mut().enumerate() {
            let factor = simd.splat(*left.add(row));
            *sum = [simd.fma(factor, first, sum[0]), simd.fma(factor, second, sum[1])];
        }
    }
}

#[inline(always)]
fn halves<S: Simd>(row: &mut [f32]) -> (&mut [f32], &mut [f32]) {
    row.split_at_mut(S::LANES.min(row.len()))
}
