//! AVX2: eight sums a vector. With AVX-VNNI, four products a lane are one instruction; without it, bytes are
//! widened to 16 bits first, as the instruction that multiplies bytes by themselves saturates.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Integers, Kernel};
use crate::cpu::simd::Avx2;

/// The proof that the machine has AVX2 and AVX-VNNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu::eight_bit) struct AvxVnni(Avx2);

impl AvxVnni {
    /// The proof, if the machine has it.
    pub(super) fn detect() -> Option<AvxVnni> {
        let floats = Avx2::detect()?;
        is_x86_feature_detected!("avxvnni").then_some(AvxVnni(floats))
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,avxvnni")]
fn compiled_vnni<K: Kernel>(set: AvxVnni, kernel: K) -> K::Output {
    kernel.run(set)
}

// SAFETY of every block below: the value `self` is the proof that the machine has the instructions; where
// memory is touched, the trait's contract keeps within it.
impl Integers for AvxVnni {
    type Floats = Avx2;
    type Sums = __m256i;
    type Left = __m256i;
    type Right = __m256i;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn floats(self) -> Avx2 {
        self.0
    }
    #[inline(always)]
    fn zeros(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn sums_at(self, from: *const i32) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    fn splat(self, bytes: [u8; 4]) -> __m256i {
        unsafe { _mm256_set1_epi32(i32::from_ne_bytes(bytes)) }
    }
    #[inline(always)]
    unsafe fn right_at(self, from: *const i8) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    fn add_products(self, sums: __m256i, left: __m256i, right: __m256i) -> __m256i {
        unsafe { _mm256_dpbusd_avx_epi32(sums, left, right) }
    }
    #[inline(always)]
    fn less(self, sums: __m256i, factor: i32, others: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi32(sums, _mm256_mullo_epi32(_mm256_set1_epi32(factor), others)) }
    }
    #[inline(always)]
    fn to_floats(self, sums: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(sums) }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { compiled_vnni(self, kernel) }
    }
}

/// The proof that the machine has AVX2 and FMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu::eight_bit) struct Avx2Wide(Avx2);

impl Avx2Wide {
    /// The proof, if the machine has it.
    pub(super) fn detect() -> Option<Avx2Wide> {
        Avx2::detect().map(Avx2Wide)
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma")]
fn compiled_wide<K: Kernel>(set: Avx2Wide, kernel: K) -> K::Output {
    kernel.run(set)
}

// SAFETY of every block below: as above.
impl Integers for Avx2Wide {
    type Floats = Avx2;
    type Sums = __m256i;
    /// The first and third, and the second and fourth bytes, in 16 bits each.
    type Left = [__m256i; 2];
    /// The same.
    type Right = [__m256i; 2];
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn floats(self) -> Avx2 {
        self.0
    }
    #[inline(always)]
    fn zeros(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn sums_at(self, from: *const i32) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    fn splat(self, bytes: [u8; 4]) -> [__m256i; 2] {
        unsafe {
            let bytes = _mm256_set1_epi32(i32::from_ne_bytes(bytes));
            [_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    unsafe fn right_at(self, from: *const i8) -> [__m256i; 2] {
        unsafe {
            let bytes = _mm256_loadu_si256(from.cast());
            // Shifts of signed numbers keep the sign.
            [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)), _mm256_srai_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    fn add_products(self, sums: __m256i, left: [__m256i; 2], right: [__m256i; 2]) -> __m256i {
        unsafe {
            let sums = _mm256_add_epi32(sums, _mm256_madd_epi16(left[0], right[0]));
            _mm256_add_epi32(sums, _mm256_madd_epi16(left[1], right[1]))
        }
    }
    #[inline(always)]
    fn less(self, sums: __m256i, factor: i32, others: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi32(sums, _mm256_mullo_epi32(_mm256_set1_epi32(factor), others)) }
    }
    #[inline(always)]
    fn to_floats(self, sums: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(sums) }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { compiled_wide(self, kernel) }
    }
}
