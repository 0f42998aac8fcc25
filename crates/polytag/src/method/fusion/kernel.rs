//! The innermost loop of the walk, for the instructions at hand: sums of sixteen unseen labels, changed by a row at each step,
//! by the length of the combination. Products and sums are rounded one by one, never fused, so that every instruction set
//! gives the same bits.

#![allow(unsafe_code)]

/// Unseen labels side by side.
pub(super) const LANES: usize = 16;

/// A block of combinations.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    /// The products of the first combination.
    pub(super) sums: [f32; LANES],
    /// The rows that are added.
    pub(super) changes: &'a [[f32; LANES]],
    /// Which of them, at each step.
    pub(super) flips: &'a [usize],
    /// One by the lengths of the combinations: of the first, then one a step.
    pub(super) lengths: &'a [f32],
}

impl Block<'_> {
    /// The highest cosine of the combinations, for each unseen label.
    pub(super) fn walk(&self) -> [f32; LANES] {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was detected; nothing else is asked of the caller.
            return unsafe { self.walk_avx2() };
        }
        self.walk_here()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn walk_avx2(&self) -> [f32; LANES] {
        self.walk_here()
    }

    #[inline(always)]
    fn walk_here(&self) -> [f32; LANES] {
        let mut sums = self.sums;
        let mut best = sums.map(|sum| sum * self.lengths[0]);
        for (&flip, &length) in self.flips.iter().zip(&self.lengths[1..]) {
            let change = &self.changes[flip];
            for lane in 0..LANES {
                sums[lane] += change[lane];
                let cosine = sums[lane] * length;
                best[lane] = if cosine > best[lane] { cosine } else { best[lane] };
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let key = polytag_nn::random::Key::new(5);
        let number = |row: u32, lane: usize| key.uniform(row, lane as u32) - 0.4;
        let changes: Vec<[f32; LANES]> =
            (0..6).map(|row| std::array::from_fn(|lane| number(row, lane))).collect();
        let flips: Vec<usize> = (0..63).map(|step| step * 7 % 6).collect();
        let lengths: Vec<f32> = (0..64).map(|step| 0.5 + key.uniform(step, 99)).collect();
        let sums = std::array::from_fn(|lane| number(9, lane));
        let block = Block { sums, changes: &changes, flips: &flips, lengths: &lengths };
        assert_eq!(block.walk().map(f32::to_bits), block.walk_here().map(f32::to_bits));
        assert!(block.walk().iter().all(|cosine| cosine.is_finite()));
    }
}
