//! The innermost loops, for the instructions at hand: two halves of a sum, of thirty-two unseen labels, by the length of the
//! combination; and the product of two vectors. Products and sums are rounded one by one, never fused, so that every instruction set
//! gives the same bits.

#![allow(unsafe_code)]

/// Unseen labels side by side.
pub(super) const LANES: usize = 32;

/// The highest of `(half + other) · length` over other halves and their lengths, for each unseen label.
pub(super) fn highest(half: &[f32; LANES], others: &[[f32; LANES]], lengths: &[f32]) -> [f32; LANES] {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: AVX-512 was detected; nothing else is asked of the caller.
            return unsafe { highest_avx512(half, others, lengths) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was detected; nothing else is asked of the caller.
            return unsafe { highest_avx2(half, others, lengths) };
        }
    }
    highest_here(half, others, lengths)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn highest_avx512(half: &[f32; LANES], others: &[[f32; LANES]], lengths: &[f32]) -> [f32; LANES] {
    highest_here(half, others, lengths)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn highest_avx2(half: &[f32; LANES], others: &[[f32; LANES]], lengths: &[f32]) -> [f32; LANES] {
    highest_here(half, others, lengths)
}

#[inline(always)]
fn highest_here(half: &[f32; LANES], others: &[[f32; LANES]], lengths: &[f32]) -> [f32; LANES] {
    let (half, mut best) = (*half, [f32::NEG_INFINITY; LANES]);
    for (other, &length) in others.iter().zip(lengths) {
        for lane in 0..LANES {
            best[lane] = higher((half[lane] + other[lane]) * length, best[lane]);
        }
    }
    best
}

/// What processors do in one instruction, unlike [`f32::max`], which looks for what is no number.
#[inline(always)]
fn higher(value: f32, best: f32) -> f32 {
    if value > best { value } else { best }
}

/// The inner product, in eight sums side by side.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was detected; nothing else is asked of the caller.
        return unsafe { dot_avx2(a, b) };
    }
    dot_here(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(a: &[f64], b: &[f64]) -> f64 {
    dot_here(a, b)
}

#[inline(always)]
fn dot_here(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let key = polytag_nn::random::Key::new(5);
        let row = |row: u32| std::array::from_fn(|lane| key.uniform(row, lane as u32) - 0.4);
        let others: Vec<[f32; LANES]> = (0..64).map(row).collect();
        let lengths: Vec<f32> = (0..64).map(|place| 0.5 + key.uniform(place, 99)).collect();
        let found = highest(&row(70), &others, &lengths);
        assert_eq!(found.map(f32::to_bits), highest_here(&row(70), &others, &lengths).map(f32::to_bits));
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was detected; nothing else is asked of the caller.
            let avx2 = unsafe { highest_avx2(&row(70), &others, &lengths) };
            assert_eq!(avx2.map(f32::to_bits), found.map(f32::to_bits));
        }
        let by_hand = others.iter().zip(&lengths).map(|(other, length)| (row(70)[3] + other[3]) * length);
        assert_eq!(found[3], by_hand.fold(f32::NEG_INFINITY, f32::max));
    }

    #[test]
    fn products_are_whole_and_the_same_everywhere() {
        let numbers: Vec<f64> = (0..19).map(f64::from).collect();
        assert_eq!(dot(&numbers, &numbers), 2109.0);
        let thirds: Vec<f64> = (0..100).map(|place| 1.0 / f64::from(place + 3)).collect();
        assert_eq!(dot(&thirds, &thirds).to_bits(), dot_here(&thirds, &thirds).to_bits());
    }
}
