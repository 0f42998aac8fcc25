//! AVX-512: sixteen sums a vector. With VNNI, four products a lane are one instruction; without it, bytes are
//! widened to 16 bits first, as the instruction that multiplies bytes by themselves saturates.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Integers, Kernel};
use crate::cpu::simd::Avx512;

/// The proof that the machine has AVX-512 with VNNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu::eight_bit) struct Avx512Vnni(Avx512);

impl Avx512Vnni {
    /// The proof, if the machine has it.
    pub(super) fn detect() -> Option<Avx512Vnni> {
        let floats = Avx512::detect()?;
        is_x86_feature_detected!("avx512vnni").then_some(Avx512Vnni(floats))
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
fn compiled_vnni<K: Kernel>(set: Avx512Vnni, kernel: K) -> K::Output {
    kernel.run(set)
}

// SAFETY of every block below: the value `self` is the proof that the machine has the instructions; where
// memory is touched, the trait's contract keeps within it.
impl Integers for Avx512Vnni {
    type Floats = Avx512;
    type Sums = __m512i;
    type Left = __m512i;
    type Right = __m512i;
    const TILE_ROWS: usize = 14;

    #[inline(always)]
    fn floats(self) -> Avx512 {
        self.0
    }
    #[inline(always)]
    fn zeros(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn sums_at(self, from: *const i32) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    fn splat(self, bytes: [u8; 4]) -> __m512i {
        unsafe { _mm512_set1_epi32(i32::from_ne_bytes(bytes)) }
    }
    #[inline(always)]
    unsafe fn right_at(self, from: *const i8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    fn add_products(self, sums: __m512i, left: __m512i, right: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(sums, left, right) }
    }
    #[inline(always)]
    fn less(self, sums: __m512i, factor: i32, others: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi32(sums, _mm512_mullo_epi32(_mm512_set1_epi32(factor), others)) }
    }
    #[inline(always)]
    fn to_floats(self, sums: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(sums) }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { compiled_vnni(self, kernel) }
    }
}

/// The proof that the machine has AVX-512.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu::eight_bit) struct Avx512Wide(Avx512);

impl Avx512Wide {
    /// The proof, if the machine has it.
    pub(super) fn detect() -> Option<Avx512Wide> {
        Avx512::detect().map(Avx512Wide)
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn compiled_wide<K: Kernel>(set: Avx512Wide, kernel: K) -> K::Output {
    kernel.run(set)
}

// SAFETY of every block below: as above.
impl Integers for Avx512Wide {
    type Floats = Avx512;
    type Sums = __m512i;
    /// The first and third, and the second and fourth bytes, in 16 bits each.
    type Left = [__m512i; 2];
    /// The same.
    type Right = [__m512i; 2];
    const TILE_ROWS: usize = 12;

    #[inline(always)]
    fn floats(self) -> Avx512 {
        self.0
    }
    #[inline(always)]
    fn zeros(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn sums_at(self, from: *const i32) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    fn splat(self, bytes: [u8; 4]) -> [__m512i; 2] {
        unsafe {
            let bytes = _mm512_set1_epi32(i32::from_ne_bytes(bytes));
            [_mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), _mm512_srli_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    unsafe fn right_at(self, from: *const i8) -> [__m512i; 2] {
        unsafe {
            let bytes = _mm512_loadu_si512(from.cast());
            // Shifts of signed numbers keep the sign.
            [_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(bytes)), _mm512_srai_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    fn add_products(self, sums: __m512i, left: [__m512i; 2], right: [__m512i; 2]) -> __m512i {
        unsafe {
            let sums = _mm512_add_epi32(sums, _mm512_madd_epi16(left[0], right[0]));
            _mm512_add_epi32(sums, _mm512_madd_epi16(left[1], right[1]))
        }
    }
    #[inline(always)]
    fn less(self, sums: __m512i, factor: i32, others: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi32(sums, _mm512_mullo_epi32(_mm512_set1_epi32(factor), others)) }
    }
    #[inline(always)]
    fn to_floats(self, sums: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(sums) }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { compiled_wide(self, kernel) }
    }
}
