//! All combinations of few labels, one after the other, for thirty-two unseen labels side by side.
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
use super::gram::{Gram, NOTHING, each};
use super::kernel::{LANES, highest};

/// Labels whose combinations are walked through.
const WALKED: usize = 15;

/// Labels of the first half.
const LOW: usize = 8;

/// Combinations that are shorter than this part of all labels' lengths together, and yet have a length, are left to the
/// exact search.
const SHORT: f64 = 1e-3;

/// How much better a combination must be to be told from the best.
const NEAR: f64 = 5e-6;

/// One by the lengths of all combinations, by their members.
pub(super) struct Lengths {
    labels: usize,
    inverse: Vec<f64>,
    narrow: Vec<f32>,
    /// The highest of them.
    most: f64,
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
        let most = inverse.iter().copied().fold(0.0, f64::max);
        if most * longest > 1.0 / SHORT {
            return None;
        }
        let narrow = inverse.iter().map(|length| *length as f32).collect();
        Some(Lengths { labels, inverse, narrow, most })
    }

    /// The best combinations for unseen labels whose products with the labels are `dots`, up to [`LANES`] of them.
    pub(super) fn best<const N: usize>(&self, gram: &Gram<N>, dots: &[[f64; N]]) -> Vec<(f64, u64)> {
        let mut rows = vec![[0.0; LANES]; self.labels];
        for (lane, dots) in dots.iter().enumerate() {
            rows.iter_mut().zip(dots).for_each(|(row, dot)| row[lane] = *dot);
        }
        let (low, high) = rows.split_at(self.labels.min(LOW));
        let (low, high) = (sums(low), sums(high));
        let blocks = self.narrow.chunks_exact(low.len()).zip(&high);
        let blocks: Vec<[f32; LANES]> = blocks.map(|(lengths, half)| highest(half, &low, lengths)).collect();
        let lanes = dots.iter().enumerate();
        lanes
            .map(|(lane, dots)| match Search::start(gram, dots) {
                // One label is best of all where all are off: see the exact search.
                single if single.cosine <= 0.0 => (single.cosine, single.members),
                _ => self.best_of(&dots[..self.labels], blocks.iter().map(|block| block[lane])),
            })
            .collect()
    }

    /// How far below the best a block may seem, and yet have a combination that is better by more than [`NEAR`]. Two halves
    /// and their sum are rounded, none of them beyond all products together, and a length and what is made of it.
    fn doubt(&self, dots: &[f64]) -> f32 {
        let products: f64 = dots.iter().map(|dot| dot.abs()).sum();
        let rounding = f64::from(f32::EPSILON) * (products * self.most + 1.0);
        (2.0 * rounding - NEAR).max(0.0) as f32
    }

    /// The best combination for one unseen label, out of the blocks that may have it.
    fn best_of(&self, dots: &[f64], blocks: impl Iterator<Item = f32> + Clone) -> (f64, u64) {
        let bar = blocks.clone().fold(f32::NEG_INFINITY, f32::max) - self.doubt(dots);
        let (low, high) = dots.split_at(self.labels.min(LOW));
        let low = sums_of(low);
        let mut best = (f64::NEG_INFINITY, 0);
        for (block, _) in blocks.enumerate().filter(|(_, highest)| *highest >= bar) {
            let start = block * low.len();
            let half: f64 = each(block as u64).map(|(place, _)| high[place]).sum();
            for (place, (other, inverse)) in low.iter().zip(&self.inverse[start..]).enumerate() {
                let cosine = (half + other) * inverse;
                if cosine > best.0 {
                    best = (cosine, (start + place) as u64);
                }
            }
        }
        best
    }
}

/// The sums of rows, by the members of each combination of them, rounded once.
fn sums(rows: &[[f64; LANES]]) -> Vec<[f32; LANES]> {
    let mut sums = vec![[0.0; LANES]];
    for row in rows {
        sums.extend_from_within(..);
        let half = sums.len() / 2;
        sums[half..].iter_mut().for_each(|sum| sum.iter_mut().zip(row).for_each(|(to, value)| *to += value));
    }
    sums.iter().map(|sum| sum.map(|value: f64| value as f32)).collect()
}

/// One by the length of each combination, by its members; 0 for those without length.
fn inverse_lengths<const N: usize>(gram: &Gram<N>) -> Vec<f64> {
    let mut squares = vec![0.0; 1 << gram.labels()];
    for label in 0..gram.labels() {
        let own = gram.diagonal()[label];
        // The products of this label with combinations of those before it are sums of two halves, too.
        let (low, high) = gram.row(label)[..label].split_at(label.min(LOW));
        let (low, high) = (sums_of(low), sums_of(high));
        let (before, with) = squares.split_at_mut(1 << label);
        let blocks = with.chunks_mut(low.len()).zip(before.chunks(low.len())).zip(&high);
        for ((with, before), high) in blocks {
            for ((with, before), low) in with.iter_mut().zip(before).zip(&low) {
                *with = before + own + 2.0 * (low + high);
            }
        }
    }
    let (low, high) = gram.diagonal()[..gram.labels()].split_at(gram.labels().min(LOW));
    let (low, high) = (sums_of(low), sums_of(high));
    for (squares, high) in squares.chunks_mut(low.len()).zip(&high) {
        for (square, low) in squares.iter_mut().zip(&low) {
            let has_length = *square > NOTHING * (low + high);
            *square = if has_length { 1.0 / square.sqrt() } else { 0.0 };
        }
    }
    squares
}

/// The sums of numbers, by the members of each combination of them.
fn sums_of(numbers: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for number in numbers {
        sums.extend_from_within(..);
        let half = sums.len() / 2;
        sums[half..].iter_mut().for_each(|sum| *sum += number);
    }
    sums
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
