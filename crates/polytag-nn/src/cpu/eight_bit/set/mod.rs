//! Instruction sets, seen as sums of products of bytes.
//!
//! Unsigned bytes of a row meet signed bytes of columns, four at a time, and are summed in 32 bits. Nothing here
//! rounds or saturates, so every set gives the same integers. As in [`simd`](crate::cpu::simd), the value of a set's
//! type is the proof that the machine has it, and whatever takes part in a kernel is `#[inline(always)]`.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::cpu::simd::{Set, Simd};

/// The most rows of any set's [`Integers::TILE_ROWS`].
pub(super) const MAX_TILE_ROWS: usize = 14;

/// An instruction set, seen as sums of products of bytes, as many sums as its floats have lanes.
pub(super) trait Integers: Copy + Send + Sync {
    /// The same machine's vectors of `f32`.
    type Floats: Simd;
    /// A sum of 32 bits in every lane.
    type Sums: Copy;
    /// Four unsigned bytes of a row, the same in every lane.
    type Left: Copy;
    /// Four signed bytes of a column in every lane.
    type Right: Copy;
    /// How many rows of two vectors of sums a tile has, so that it fills the registers.
    const TILE_ROWS: usize;

    /// The same machine's vectors of `f32`.
    fn floats(self) -> Self::Floats;
    /// Sums of nothing.
    fn zeros(self) -> Self::Sums;
    /// Integers that lie end to end.
    ///
    /// # Safety
    /// As many integers as there are lanes can be read at `from`.
    unsafe fn sums_at(self, from: *const i32) -> Self::Sums;
    /// Four bytes in every lane, as they lie in memory.
    fn splat(self, bytes: [u8; 4]) -> Self::Left;
    /// Four bytes of each column, column after column.
    ///
    /// # Safety
    /// Four times as many bytes as there are lanes can be read at `from`.
    unsafe fn right_at(self, from: *const i8) -> Self::Right;
    /// Adds the four products of each lane to its sum.
    fn add_products(self, sums: Self::Sums, left: Self::Left, right: Self::Right) -> Self::Sums;
    /// `sums - factor · others`, in 32 bits.
    fn less(self, sums: Self::Sums, factor: i32, others: Self::Sums) -> Self::Sums;
    /// The sums, each the nearest `f32`.
    fn to_floats(self, sums: Self::Sums) -> <Self::Floats as Simd>::V;
    /// Runs a kernel of this set as a function of its own.
    fn call<K: Kernel>(self, kernel: K) -> K::Output;
}

/// Work that is compiled for every set.
pub(super) trait Kernel {
    /// What it gives.
    type Output;
    /// Does the work; `#[inline(always)]` in every implementation.
    fn run<I: Integers>(self, integers: I) -> Self::Output;
}

/// Which set products of bytes run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntegerSet {
    /// AVX-512 with instructions for this.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(avx512::Avx512Vnni),
    /// AVX-512 before it had them.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512Wide),
    /// AVX2 with instructions for this.
    #[cfg(target_arch = "x86_64")]
    AvxVnni(avx2::AvxVnni),
    /// AVX2 without them.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2Wide),
    /// Every machine.
    Portable(portable::PortableIntegers),
}

impl IntegerSet {
    /// All sets of this machine, the best first.
    pub(super) fn all() -> Vec<IntegerSet> {
        let mut sets = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            sets.extend(avx512::Avx512Vnni::detect().map(IntegerSet::Avx512Vnni));
            sets.extend(avx512::Avx512Wide::detect().map(IntegerSet::Avx512));
            sets.extend(avx2::AvxVnni::detect().map(IntegerSet::AvxVnni));
            sets.extend(avx2::Avx2Wide::detect().map(IntegerSet::Avx2));
        }
        sets.push(IntegerSet::Portable(portable::PortableIntegers));
        sets
    }

    /// The best set of this machine.
    pub(super) fn best() -> IntegerSet {
        IntegerSet::all()[0]
    }

    /// What the set is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512Vnni(_) => "AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            IntegerSet::AvxVnni(_) => "AVX-VNNI",
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx2(_) => "AVX2",
            IntegerSet::Portable(_) => "portable",
        }
    }

    /// The same machine's vectors of `f32`.
    pub(super) fn floats(self) -> Set {
        match self {
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512Vnni(set) => Set::Avx512(set.floats()),
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512(set) => Set::Avx512(set.floats()),
            #[cfg(target_arch = "x86_64")]
            IntegerSet::AvxVnni(set) => Set::Avx2(set.floats()),
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx2(set) => Set::Avx2(set.floats()),
            IntegerSet::Portable(set) => Set::Portable(set.floats()),
        }
    }

    /// How many rows a tile has at most.
    pub(super) fn tile_rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512Vnni(_) => avx512::Avx512Vnni::TILE_ROWS,
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512(_) => avx512::Avx512Wide::TILE_ROWS,
            #[cfg(target_arch = "x86_64")]
            IntegerSet::AvxVnni(_) => avx2::AvxVnni::TILE_ROWS,
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx2(_) => avx2::Avx2Wide::TILE_ROWS,
            IntegerSet::Portable(_) => portable::PortableIntegers::TILE_ROWS,
        }
    }

    /// How many columns a panel of weights has.
    pub(super) fn width(self) -> usize {
        2 * self.floats().lanes()
    }

    /// Runs a kernel.
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512Vnni(set) => set.call(kernel),
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx512(set) => set.call(kernel),
            #[cfg(target_arch = "x86_64")]
            IntegerSet::AvxVnni(set) => set.call(kernel),
            #[cfg(target_arch = "x86_64")]
            IntegerSet::Avx2(set) => set.call(kernel),
            IntegerSet::Portable(set) => set.call(kernel),
        }
    }
}
