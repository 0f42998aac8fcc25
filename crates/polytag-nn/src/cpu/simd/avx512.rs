//! AVX-512: sixteen numbers a vector, thirty-two registers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// The proof that the machine has AVX-512.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof, if the machine has it.
    #[inline]
    pub(crate) fn detect() -> Option<Avx512> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma"))
        .then_some(Avx512(()))
    }

    #[inline(always)]
    fn first(count: usize) -> __mmask16 {
        if count >= 16 { 0xffff } else { (1 << count) - 1 }
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn compiled<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
    kernel.run(simd)
}

// SAFETY of every block below: the value `self` is the proof that the machine has the instructions; where
// memory is touched, the trait's contract or the mask keeps within it.
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const TILE_ROWS: usize = 14;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    fn load_or(self, from: &[f32], fill: f32) -> __m512 {
        if from.len() >= 16 {
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        } else {
            unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(fill), Self::first(from.len()), from.as_ptr()) }
        }
    }
    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32]) {
        if to.len() >= 16 {
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
        } else {
            unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), Self::first(to.len()), v) }
        }
    }
    #[inline(always)]
    fn store_bytes(self, v: __m512, to: &mut [u8]) {
        unsafe {
            let whole = _mm512_max_epi32(_mm512_cvtps_epi32(v), _mm512_setzero_si512());
            let bytes = _mm512_cvtusepi32_epi8(whole);
            if to.len() >= 16 {
                _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
            } else {
                _mm_mask_storeu_epi8(to.as_mut_ptr().cast(), Self::first(to.len()), bytes);
            }
        }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn power_of_two(self, n: __m512) -> __m512 {
        unsafe {
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    fn greatest(self, a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { compiled(self, kernel) }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        (from, from_stride): (*const f32, usize),
        rows: usize,
        (to, to_stride): (*mut f32, usize),
    ) {
        unsafe {
            // In quarters of four columns: `quads[4 g + c]` holds column `4 l + c` of rows `4 g..4 g + 4` in
            // its quarter `l`.
            let mut quads = [_mm512_setzero_ps(); 16];
            for group in 0..4 {
                let mut four = [_mm512_setzero_ps(); 4];
                for (row, vector) in four.iter_mut().enumerate() {
                    if 4 * group + row < rows {
                        *vector = _mm512_loadu_ps(from.add((4 * group + row) * from_stride));
                    }
                }
                let low = _mm512_castps_pd(_mm512_unpacklo_ps(four[0], four[1]));
                let high = _mm512_castps_pd(_mm512_unpackhi_ps(four[0], four[1]));
                let next_low = _mm512_castps_pd(_mm512_unpacklo_ps(four[2], four[3]));
                let next_high = _mm512_castps_pd(_mm512_unpackhi_ps(four[2], four[3]));
                quads[4 * group] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, next_low));
                quads[4 * group + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, next_low));
                quads[4 * group + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high, next_high));
                quads[4 * group + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high, next_high));
            }
            for column in 0..4 {
                let even = _mm512_shuffle_f32x4::<0x88>(quads[column], quads[4 + column]);
                let odd = _mm512_shuffle_f32x4::<0xdd>(quads[column], quads[4 + column]);
                let next_even = _mm512_shuffle_f32x4::<0x88>(quads[8 + column], quads[12 + column]);
                let next_odd = _mm512_shuffle_f32x4::<0xdd>(quads[8 + column], quads[12 + column]);
                let to = to.add(column * to_stride);
                _mm512_storeu_ps(to, _mm512_shuffle_f32x4::<0x88>(even, next_even));
                _mm512_storeu_ps(to.add(4 * to_stride), _mm512_shuffle_f32x4::<0x88>(odd, next_odd));
                _mm512_storeu_ps(to.add(8 * to_stride), _mm512_shuffle_f32x4::<0xdd>(even, next_even));
                _mm512_storeu_ps(to.add(12 * to_stride), _mm512_shuffle_f32x4::<0xdd>(odd, next_odd));
            }
        }
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
