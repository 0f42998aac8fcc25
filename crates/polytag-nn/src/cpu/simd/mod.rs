//! Vectors of `f32` in the widest instructions that the machine has.
//!
//! Kernels are written once, over [`Simd`], and compiled three times. A value of an instruction set's
//! type is the proof that the machine has it: only [`Set::run`] makes one, after having looked. Whatever
//! takes part in a kernel is `#[inline(always)]`, since only then is it compiled with the instructions of
//! the function that it ends up in.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use portable::Portable;

use crate::random::{Dropout, PairedDropout};

/// The most rows of any set's [`Simd::TILE_ROWS`].
pub(crate) const MAX_TILE_ROWS: usize = 14;

/// The most lanes of any set.
pub(crate) const MAX_LANES: usize = 16;

/// An instruction set, seen as operations on vectors of [`Simd::LANES`] numbers.
pub(crate) trait Simd: Copy + Send + Sync {
    /// A vector.
    type V: Copy;
    /// How many numbers a vector holds.
    const LANES: usize;
    /// How many rows of two vectors a tile of a matrix product has, so that it fills the registers.
    const TILE_ROWS: usize;

    /// A vector of the same number in all lanes.
    fn splat(self, x: f32) -> Self::V;
    /// The vector at `from`.
    ///
    /// # Safety
    /// `LANES` numbers can be read at `from`.
    unsafe fn load_at(self, from: *const f32) -> Self::V;
    /// The first numbers of a slice, `fill` in the lanes past its end.
    fn load_or(self, from: &[f32], fill: f32) -> Self::V;
    /// Writes as many lanes as the slice has room for.
    fn store(self, v: Self::V, to: &mut [f32]);
    /// Writes the nearest whole numbers, those below 0 as 0 and those above 255 as 255, as many as the slice has
    /// room for. Numbers of 2³¹ and beyond, and what is not a number, become any byte.
    fn store_bytes(self, v: Self::V, to: &mut [u8]);
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once where the machine can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The greater of two, lane by lane.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of two, lane by lane.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest whole numbers.
    fn round(self, a: Self::V) -> Self::V;
    /// `2^n` for whole `n` from -127 (which gives zero) to 127.
    fn power_of_two(self, n: Self::V) -> Self::V;
    /// The sum of the lanes, in an order that depends only on the set.
    fn sum(self, a: Self::V) -> f32;
    /// The greatest lane.
    fn greatest(self, a: Self::V) -> f32;

    /// Asks for the cache line at an address, which need not be a good one, to be brought near.
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}
    /// The same for a line that is about to be written.
    #[inline(always)]
    fn prefetch_to_write(self, _: *const f32) {}

    /// Transposes a block: `to[i, j] = from[j, i]` for `i` and `j` below [`Simd::LANES`], where rows of
    /// `from` past the first `rows` count as zeros.
    ///
    /// # Safety
    /// `LANES` numbers can be read at each of the `rows` rows of `from`, and written at each of `LANES` rows
    /// of `to`; rows lie their stride apart.
    #[inline(always)]
    unsafe fn transpose(
        self,
        (from, from_stride): (*const f32, usize),
        rows: usize,
        (to, to_stride): (*mut f32, usize),
    ) {
        for i in 0..Self::LANES {
            for j in 0..Self::LANES {
                // SAFETY: the contract.
                unsafe {
                    *to.add(i * to_stride + j) = if j < rows { *from.add(j * from_stride + i) } else { 0.0 }
                };
            }
        }
    }

    /// Runs a kernel of this set as a function of its own, so that its registers are its own too.
    fn call<K: Kernel>(self, kernel: K) -> K::Output;

    /// The first numbers of a slice, zero in the lanes past its end.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::V {
        self.load_or(from, 0.0)
    }

    /// What dropout multiplies the values at `column`, `column + 1`, … of a row by.
    #[inline(always)]
    fn dropout(self, dropout: &Dropout, row: u32, column: u32) -> Self::V {
        let mut factors = [0.0; MAX_LANES];
        for (lane, factor) in factors[..Self::LANES].iter_mut().enumerate() {
            *factor = dropout.factor(row, column.wrapping_add(lane as u32));
        }
        self.load(&factors[..Self::LANES])
    }

    /// The same where columns share their numbers in pairs; `column` is a multiple of [`Simd::LANES`], 8 or 16.
    #[inline(always)]
    fn paired_dropout(self, dropout: &PairedDropout, row: u32, column: u32) -> Self::V {
        let mut bits = [0; 8];
        for (lane, bits) in bits.iter_mut().enumerate() {
            *bits = dropout.key.bits(row, (column & !8).wrapping_add(lane as u32));
        }
        let mut factors = [0.0; MAX_LANES];
        for (half, factors) in (column >> 3 & 1..).zip(factors[..Self::LANES].chunks_exact_mut(8)) {
            for (factor, &bits) in factors.iter_mut().zip(&bits) {
                *factor = dropout.half_factor(bits, half);
            }
        }
        self.load(&factors[..Self::LANES])
    }
}

/// Work that is compiled for every instruction set.
pub(crate) trait Kernel {
    /// What it gives.
    type Output;
    /// Does the work; `#[inline(always)]` in every implementation.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Which instruction set kernels run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    Portable(portable::Portable),
}

impl Set {
    /// The best set of this machine.
    #[inline]
    pub(crate) fn best() -> Set {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(avx512) = avx512::Avx512::detect() {
                return Set::Avx512(avx512);
            }
            if let Some(avx2) = avx2::Avx2::detect() {
                return Set::Avx2(avx2);
            }
        }
        Set::Portable(portable::Portable)
    }

    /// What the set is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "AVX2",
            Set::Portable(_) => "portable",
        }
    }

    /// All sets of this machine.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Set> {
        let mut sets = vec![Set::Portable(portable::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            sets.extend(avx2::Avx2::detect().map(Set::Avx2));
            sets.extend(avx512::Avx512::detect().map(Set::Avx512));
        }
        sets
    }

    /// Runs a kernel.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(set) => set.call(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(set) => set.call(kernel),
            Set::Portable(set) => set.call(kernel),
        }
    }

    /// How many numbers a vector holds.
    pub(crate) fn lanes(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => avx512::Avx512::LANES,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => avx2::Avx2::LANES,
            Set::Portable(_) => portable::Portable::LANES,
        }
    }

    /// How many rows a tile of a matrix product has at most.
    pub(crate) fn tile_rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => avx512::Avx512::TILE_ROWS,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => avx2::Avx2::TILE_ROWS,
            Set::Portable(_) => portable::Portable::TILE_ROWS,
        }
    }
}
