//! Plain integers, for the compiler to make the best of: what all other sets must agree with.
#![allow(unsafe_code)]

use super::{Integers, Kernel};
use crate::cpu::simd::Portable;

/// What every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu::eight_bit) struct PortableIntegers;

type Sums = [i32; 8];

impl Integers for PortableIntegers {
    type Floats = Portable;
    type Sums = Sums;
    type Left = [u8; 4];
    type Right = [[i8; 4]; 8];
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn floats(self) -> Portable {
        Portable
    }
    #[inline(always)]
    fn zeros(self) -> Sums {
        [0; 8]
    }
    #[inline(always)]
    unsafe fn sums_at(self, from: *const i32) -> Sums {
        // SAFETY: the trait's contract; an array of integers is aligned as an integer is.
        unsafe { from.cast::<Sums>().read() }
    }
    #[inline(always)]
    fn splat(self, bytes: [u8; 4]) -> [u8; 4] {
        bytes
    }
    #[inline(always)]
    unsafe fn right_at(self, from: *const i8) -> [[i8; 4]; 8] {
        // SAFETY: the trait's contract; bytes need no alignment.
        unsafe { from.cast::<[[i8; 4]; 8]>().read() }
    }
    #[inline(always)]
    fn add_products(self, sums: Sums, left: [u8; 4], right: [[i8; 4]; 8]) -> Sums {
        let product = |a: u8, b: i8| i32::from(a) * i32::from(b);
        std::array::from_fn(|lane| {
            let [a, b, c, d] = right[lane];
            let first = product(left[0], a) + product(left[1], b);
            sums[lane] + first + product(left[2], c) + product(left[3], d)
        })
    }
    #[inline(always)]
    fn less(self, sums: Sums, factor: i32, others: Sums) -> Sums {
        std::array::from_fn(|lane| sums[lane].wrapping_sub(factor.wrapping_mul(others[lane])))
    }
    #[inline(always)]
    fn to_floats(self, sums: Sums) -> [f32; 8] {
        std::array::from_fn(|lane| sums[lane] as f32)
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}
