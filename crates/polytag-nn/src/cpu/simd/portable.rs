//! Arrays of eight numbers, for the compiler to make the best of.
#![allow(unsafe_code)]

use super::{Kernel, Simd};

/// What every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portable;

type V = [f32; 8];

impl Portable {
    #[inline(always)]
    fn map(a: V, f: impl Fn(f32) -> f32) -> V {
        std::array::from_fn(|lane| f(a[lane]))
    }

    #[inline(always)]
    fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
        std::array::from_fn(|lane| f(a[lane], b[lane]))
    }

    #[inline(always)]
    fn fold(a: V, f: impl Fn(f32, f32) -> f32) -> f32 {
        f(f(f(a[0], a[4]), f(a[2], a[6])), f(f(a[1], a[5]), f(a[3], a[7])))
    }
}

impl Simd for Portable {
    type V = V;
    const LANES: usize = 8;
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> V {
        // SAFETY: the trait's contract; an array of numbers is aligned as a number is.
        unsafe { from.cast::<V>().read() }
    }
    #[inline(always)]
    fn load_or(self, from: &[f32], fill: f32) -> V {
        let mut v = [fill; 8];
        let count = from.len().min(8);
        v[..count].copy_from_slice(&from[..count]);
        v
    }
    #[inline(always)]
    fn store(self, v: V, to: &mut [f32]) {
        let count = to.len().min(8);
        to[..count].copy_from_slice(&v[..count]);
    }
    #[inline(always)]
    fn store_bytes(self, v: V, to: &mut [u8]) {
        for (to, v) in to.iter_mut().zip(self.round(v)) {
            *to = v as u8;
        }
    }
    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        Portable::zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        Portable::zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        Portable::zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        Portable::zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        // Not `mul_add`: without the instruction that would be a call.
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        Portable::zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        Portable::zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn round(self, a: V) -> V {
        // Adding 1.5 · 2²³ leaves no bits for a fraction.
        const SHIFT: f32 = 12_582_912.0;
        Portable::map(a, |a| (a + SHIFT) - SHIFT)
    }
    #[inline(always)]
    fn power_of_two(self, n: V) -> V {
        Portable::map(n, |n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    fn sum(self, a: V) -> f32 {
        Portable::fold(a, |a, b| a + b)
    }
    #[inline(always)]
    fn greatest(self, a: V) -> f32 {
        Portable::fold(a, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}
