//! AVX2 with FMA: eight numbers a vector, sixteen registers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// The proof that the machine has AVX2 and FMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof, if the machine has it.
    #[inline]
    pub(crate) fn detect() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Avx2(()))
    }

    #[inline(always)]
    fn first(count: usize) -> __m256i {
        // SAFETY: `self` exists only where AVX2 does.
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(8) as i32), lanes)
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma")]
fn compiled<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
    kernel.run(simd)
}

// SAFETY of every block below: the value `self` is the proof that the machine has the instructions; where
// memory is touched, the trait's contract or the mask keeps within it.
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    fn load_or(self, from: &[f32], fill: f32) -> __m256 {
        if from.len() >= 8 {
            unsafe { _mm256_loadu_ps(from.as_ptr()) }
        } else {
            unsafe {
                let mask = Self::first(from.len());
                let loaded = _mm256_maskload_ps(from.as_ptr(), mask);
                _mm256_blendv_ps(_mm256_set1_ps(fill), loaded, _mm256_castsi256_ps(mask))
            }
        }
    }
    #[inline(always)]
    fn store(self, v: __m256, to: &mut [f32]) {
        if to.len() >= 8 {
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
        } else {
            unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), Self::first(to.len()), v) }
        }
    }
    #[inline(always)]
    fn store_bytes(self, v: __m256, to: &mut [u8]) {
        let bytes = unsafe {
            let whole = _mm256_cvtps_epi32(v);
            let (low, high) = (_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole));
            let words = _mm_packus_epi32(low, high);
            _mm_cvtsi128_si64(_mm_packus_epi16(words, words)).to_le_bytes()
        };
        match to.first_chunk_mut() {
            Some(to) => *to = bytes,
            None => to.copy_from_slice(&bytes[..to.len()]),
        }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn power_of_two(self, n: __m256) -> __m256 {
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn greatest(self, a: __m256) -> f32 {
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { compiled(self, kernel) }
    }
    #[inline(always)]
    fn prefetch(self, address: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
    #[inline(always)]
    fn prefetch_to_write(self, address: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.cast()) }
    }
}
