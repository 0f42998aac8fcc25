//! All combinations of few labels, one after the other, for sixteen unseen labels side by side.
//!
//! How long a combination is does not depend on the unseen label, so the lengths of all are made once for a document. The
//! products of a combination with an unseen label are the sum of two halves: of the first eight labels, whose 256 sums stay
//! in the nearest cache, and of the others, of which each combination makes a block. So each cosine is one sum and one
//! product in 32 bits, and rounding never adds up. Every block whose best comes as near to the best of all as rounding can tell
//! is looked through once more in 64 bits, which gives the combination.
//!
//! Up to fifteen labels this is faster than to bound and branch, which takes more labels. It is left to that, too, where
//! combinations are so short beside others that 32 bits say little of them. Memory: 12 bytes a combination.

use super::exact::Search;
use super::gram::{Gram, NOTHING};
use super::kernel::{LANES, highest};

/// Labels whose combinations are walked through.
const WALKED: usize = 15;

/// Labels of the first half.
const LOW: usize = 8;

/// Combinations that are shorter than this part of all labels' lengths together, and yet have a length, are left to the
/// exact search.
const SHORT: f64 = 1e-3;

/// One by the lengths of all combinations, by their members.
pub(super) struct Lengths {
    labels: usize,
    inverse: Vec<f64>,
    narrow: Vec<f32>,
    /// How far rounding can take a cosine.
    rounding: f32,
}

impl Lengths {
    /// The lengths of all combinations; none where they are too many, or some too short.
    pub(super) fn new<const N: usize>(gram: &Gram<N>) -> Option<Lengths> {
        let labels = gram.labels();
        if labels == 0 || labels > WALKED {
            return None;
        }
        let inverse = inverse_lengths(gram);
        let longest: f64 = gram.diagonal().iter().map(|own| own.sqrt()).sum();
        let most = inverse.iter().copied().fold(0.0, f64::max) * longest;
        if most > 1.0 / SHORT {
            return None;
        }
        let narrow = inverse.iter().map(|length| *length as f32).collect();
        // Two halves, their sum, the length and the product are rounded, none beyond the sum of all lengths.
        let rounding = 4.0 * f32::EPSILON * most as f32;
        Some(Lengths { labels, inverse, narrow, rounding })
    }

    /// The best combinations for unseen labels whose products with the labels are `dots`, up to [`LANES`] of them.
    pub(super) fn best<const N: usize>(&self, gram: &Gram<N>, dots: &[[f64; N]]) -> Vec<(f64, u64)> {
        let mut rows = vec![[0.0; LANES]; self.labels];
        for (lane, dots) in dots.iter().enumerate() {
            rows.iter_mut().zip(dots).for_each(|(row, dot)| row[lane] = *dot);
        }
        let (low, high) = rows.split_at(self.labels.min(LOW));
        let (low, high) = (sums(low), sums(high));
        let near: Vec<[f32; LANES]> = low.iter().map(|row| row.map(|sum| sum as f32)).collect();
        let blocks = self.narrow.chunks_exact(low.len()).zip(&high);
        let blocks: Vec<[f32; LANES]> =
            blocks.map(|(lengths, half)| highest(&half.map(|sum| sum as f32), &near, lengths)).collect();
        let each = dots.iter().enumerate();
        each.map(|(lane, dots)| match Search::start(gram, dots) {
            // One label is best of all where all are off: see the exact search.
            single if single.cosine <= 0.0 => (single.cosine, single.members),
            _ => self.best_of(lane, &blocks, (&low, &high)),
        })
        .collect()
    }

    /// The best combination for one unseen label, out of the blocks that may have it.
    fn best_of(
        &self,
        lane: usize,
        blocks: &[[f32; LANES]],
        (low, high): (&[[f64; LANES]], &[[f64; LANES]]),
    ) -> (f64, u64) {
        let bar = blocks.iter().map(|block| block[lane]).fold(f32::NEG_INFINITY, f32::max);
        let bar = bar - 2.0 * self.rounding;
        let mut best = (f64::NEG_INFINITY, 0);
        for (block, half) in high.iter().enumerate().filter(|(block, _)| blocks[*block][lane] >= bar) {
            let start = block * low.len();
            for (place, other) in low.iter().enumerate() {
                let cosine = (half[lane] + other[lane]) * self.inverse[start + place];
                if cosine > best.0 {
                    best = (cosine, (start + place) as u64);
                }
            }
        }
        best
    }
}

/// The sums of rows, by the members of each combination of them.
fn sums(rows: &[[f64; LANES]]) -> Vec<[f64; LANES]> {
    let mut sums = vec![[0.0; LANES]];
    for row in rows {
        let with = |sum: &[f64; LANES]| std::array::from_fn(|lane| sum[lane] + row[lane]);
        let more: Vec<[f64; LANES]> = sums.iter().map(with).collect();
        sums.extend(more);
    }
    sums
}

/// One by the length of each combination, by its members; 0 for those without length.
fn inverse_lengths<const N: usize>(gram: &Gram<N>) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0)];
    for label in 0..gram.labels() {
        let (row, own) = (gram.row(label), gram.diagonal()[label]);
        // The products of this label with each combination of those before it.
        let mut shared = vec![0.0; 1 << label];
        for set in 1..1usize << label {
            shared[set] = shared[set & (set - 1)] + row[set.trailing_zeros() as usize];
        }
        sums.extend_from_within(..);
        for ((square, parts), shared) in sums[1 << label..].iter_mut().zip(shared) {
            *square += own + 2.0 * shared;
            *parts += own;
        }
    }
    let inverse =
        |(square, parts): (f64, f64)| if square > NOTHING * parts { 1.0 / square.sqrt() } else { 0.0 };
    sums.into_iter().map(inverse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_sums() {
        let gram = Gram::<16>::new(&[3.0, 0.0, 0.0, 4.0, -3.0, 0.0], 2);
        let lengths = Lengths::new(&gram).unwrap();
        let third = 1.0 / 3.0;
        assert_eq!(lengths.inverse, [0.0, third, 0.25, 0.2, third, 0.0, 0.2, 0.25]);
    }

    #[test]
    fn what_is_short_beside_others_and_what_are_many_is_left_to_others() {
        assert!(Lengths::new(&Gram::<16>::new(&[1.0, 0.0, -1.0, 1e-3], 2)).is_none());
        assert!(Lengths::new(&Gram::<16>::new(&[1.0, 0.0, 0.0, 1e-4], 2)).is_none());
        assert!(Lengths::new(&Gram::<16>::new(&[1.0; 16], 1)).is_none());
        assert!(Lengths::new(&Gram::<16>::new(&[1.0; 15], 1)).is_some());
    }
}
