//! The innermost loop over all combinations, for the instructions at hand: two halves of a sum, of sixteen unseen labels, by the
//! length of the combination. Products and sums are rounded one by one, never fused, so that every instruction set
//! gives the same bits.

#![allow(unsafe_code)]

/// Unseen labels side by side.
pub(super) const LANES: usize = 16;

/// The highest of `(half + other) · length` over other halves and their lengths, for each unseen label.
pub(super) fn highest(half: &[f32; LANES], others: &[[f32; LANES]], lengths: &[f32]) -> [f32; LANES] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was detected; nothing else is asked of the caller.
        return unsafe { highest_avx2(half, others, lengths) };
    }
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
            let cosine = (half[lane] + other[lane]) * length;
            best[lane] = if cosine > best[lane] { cosine } else { best[lane] };
        }
    }
    best
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
        let by_hand = others.iter().zip(&lengths).map(|(other, length)| (row(70)[3] + other[3]) * length);
        assert_eq!(found[3], by_hand.fold(f32::NEG_INFINITY, f32::max));
    }
}
