//! What the tests of kernels share.

use crate::random::Key;

/// `len` numbers from `[-1, 1)`.
pub(crate) fn random(len: usize, seed: u64) -> Vec<f32> {
    let key = Key::new(seed);
    (0..len).map(|i| 2.0 * key.uniform((i >> 16) as u32, (i & 0xffff) as u32) - 1.0).collect()
}

/// The bits of numbers, which compare as bytes do.
pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Computes with one and with three threads and compares.
pub(crate) fn same_with_any_threads<T: PartialEq + std::fmt::Debug + Send>(compute: impl Fn() -> T + Sync) {
    let with = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(&compute)
    };
    assert!(with(1) == with(3), "threads changed the result");
}
