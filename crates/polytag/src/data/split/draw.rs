//! Random choices that depend on the seed alone.
//!
//! ChaCha gives the same numbers on every machine, and candidates come sorted, so that the same seed
//! chooses the same labels and pairs everywhere.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::ids::LabelId;

/// Draws `count` of `candidates`, each set of that size being as likely as another; in ascending order.
///
/// # Panics
/// When there are fewer candidates than that.
pub(super) fn draw_labels(mut candidates: Vec<LabelId>, count: usize, seed: u64) -> Vec<LabelId> {
    assert!(count <= candidates.len(), "no more are drawn than there are");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for place in 0..count {
        let other = rng.random_range(place..candidates.len());
        candidates.swap(place, other);
    }
    candidates.truncate(count);
    candidates.sort_unstable();
    candidates
}

/// Chooses exactly `wanted` of `left` items that go by one after the other, holding none of them.
///
/// An item is taken with the probability that makes up the number with those still to come (Knuth,
/// The Art of Computer Programming, volume 2, section 3.4.2, algorithm S).
pub(super) struct PassingDraw {
    rng: ChaCha8Rng,
    wanted: u64,
    left: u64,
}

impl PassingDraw {
    pub(super) fn new(wanted: u64, left: u64, seed: u64) -> PassingDraw {
        PassingDraw { rng: ChaCha8Rng::seed_from_u64(seed), wanted: wanted.min(left), left }
    }

    /// Whether the next item is chosen; never, once all `left` have gone by.
    pub(super) fn take(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        let taken = self.rng.random_range(0..self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= u64::from(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_label_is_drawn_about_as_often() {
        let candidates: Vec<LabelId> = (0..10).map(LabelId).collect();
        let mut drawn = [0u32; 10];
        for seed in 0..2000 {
            for label in draw_labels(candidates.clone(), 3, seed) {
                drawn[label.index()] += 1;
            }
        }
        // 600 are expected of each, with a standard deviation of 20.
        assert!(drawn.iter().all(|&count| (500..=700).contains(&count)), "{drawn:?}");
    }

    #[test]
    fn every_passing_item_is_taken_about_as_often() {
        let mut taken = [0u32; 10];
        for seed in 0..2000 {
            let mut draw = PassingDraw::new(3, 10, seed);
            taken.iter_mut().for_each(|count| *count += u32::from(draw.take()));
        }
        assert!(taken.iter().all(|&count| (500..=700).contains(&count)), "{taken:?}");
    }

    proptest! {
        #[test]
        fn draws_hold_as_many_as_asked_and_repeat(count in 0usize..20, more in 0usize..20, seed in any::<u64>()) {
            let candidates: Vec<LabelId> = (0..count + more).map(LabelId::from_index).collect();
            let drawn = draw_labels(candidates.clone(), count, seed);
            prop_assert_eq!(drawn.len(), count);
            prop_assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(drawn, draw_labels(candidates, count, seed));

            let (wanted, left) = (count as u64, (count + more) as u64);
            let mut draw = PassingDraw::new(wanted, left, seed);
            let taken = (0..left + 5).filter(|_| draw.take()).count();
            prop_assert_eq!(taken, count);
        }
    }
}
