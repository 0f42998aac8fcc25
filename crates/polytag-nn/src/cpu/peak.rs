//! The most that the machine can multiply and add, as a measure for kernels.

use std::hint::black_box;
use std::time::Instant;

use super::simd::{Kernel, Set, Simd};

/// Sums that do not wait for each other. Processors begin two of these a cycle and finish each four or
/// five cycles later, so that ten keep them busy; twelve and two constants still fit AVX2's sixteen
/// registers.
const CHAINS: usize = 12;

/// How often each sum is added to between two looks at the clock: some twenty milliseconds.
const ROUNDS: usize = 10_000_000;

/// How often it is measured; the best counts, since a thread may be disturbed.
const RUNS: usize = 8;

/// Multiplies and adds in registers; gives how many numbers were worked on.
struct Burn;

impl Kernel for Burn {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> usize {
        // Unknown to the compiler, and each chain another, lest it makes fewer of them.
        let (factor, addend) = (simd.splat(black_box(0.5)), simd.splat(black_box(1.0)));
        let mut sums = [simd.splat(0.0); CHAINS];
        for (chain, sum) in sums.iter_mut().enumerate() {
            *sum = simd.splat(black_box(chain as f32));
        }
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = simd.fma(*sum, factor, addend);
            }
        }
        let total = sums.into_iter().fold(simd.splat(0.0), |total, sum| simd.add(total, sum));
        black_box(simd.sum(total));
        CHAINS * S::LANES * ROUNDS
    }
}

/// How many operations (a multiplication and an addition are two) all threads of the current pool do in a
/// second, in the widest instructions.
pub(crate) fn peak() -> f64 {
    let run = || {
        let started = Instant::now();
        let numbers: usize = rayon::broadcast(|_| Set::best().run(Burn)).into_iter().sum();
        2.0 * numbers as f64 / started.elapsed().as_secs_f64()
    };
    (0..RUNS).map(|_| run()).fold(0.0, f64::max)
}
