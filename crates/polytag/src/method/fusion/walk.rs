//! All combinations of few labels, one after the other, for sixteen unseen labels side by side.
//!
//! How long a combination is does not depend on the unseen label, so the lengths of all are made once for a document. The
//! combinations then pass in the order of a Gray code, in which each differs from the one before in one label: one row of
//! products is added to the sums or taken from them, and the sums divided by the length. The last eight labels make a
//! block of 256 combinations; sums begin anew with each block, so that rounding does not add up. The best
//! block of an unseen label is walked once more in 64 bits, which gives its combination.
//!
//! Up to fifteen labels this is faster than to bound and branch, which takes more labels. It is left to that, too, where labels nearly
//! cancel each other, as 32 bits do not tell such lengths from nothing. Memory: 12 bytes a combination.

use super::exact::Search;
use super::gram::{Gram, NOTHING};
use super::kernel::{Block, LANES};

/// Labels whose combinations are walked through.
const WALKED: usize = 15;

/// Labels that make a block.
const LOW: usize = 8;

/// Sums that are shorter than this part of their summands, squared, and yet have a length are left to the exact search.
const THIN: f64 = 1e-4;

/// One by the lengths of all combinations, in the order in which they pass.
pub(super) struct Lengths {
    labels: usize,
    /// Labels that make a block here.
    low: usize,
    inverse: Vec<f64>,
    narrow: Vec<f32>,
    /// Which row changes the sums at each step of a block: the label's own, or `low` further its opposite.
    flips: Vec<usize>,
}

impl Lengths {
    /// The lengths of all combinations; none where they are too many, or too short to be told from nothing.
    pub(super) fn new<const N: usize>(gram: &Gram<N>) -> Option<Lengths> {
        let labels = gram.labels();
        if labels == 0 || labels > WALKED {
            return None;
        }
        let low = labels.min(LOW);
        let by_members = by_members(gram)?;
        let inverse: Vec<f64> = (0..1 << labels).map(|place| by_members[members(place, low)]).collect();
        let narrow = inverse.iter().map(|length| *length as f32).collect();
        let flip = |step: usize| {
            let label = step.trailing_zeros() as usize;
            if gray(step) >> label & 1 == 1 { label } else { low + label }
        };
        let flips = (1..1 << low).map(flip).collect();
        Some(Lengths { labels, low, inverse, narrow, flips })
    }

    /// The best combinations for unseen labels whose products with the labels are `dots`, up to [`LANES`] of them.
    pub(super) fn best<const N: usize>(&self, gram: &Gram<N>, dots: &[[f64; N]]) -> Vec<(f64, u64)> {
        let mut rows = vec![[0.0f32; LANES]; self.labels];
        for (lane, dots) in dots.iter().enumerate() {
            rows.iter_mut().zip(dots).for_each(|(row, dot)| row[lane] = *dot as f32);
        }
        let blocks = self.blocks(&rows);
        let each = dots.iter().zip(blocks);
        each.map(|(dots, block)| match Search::start(gram, dots) {
            // One label is best of all where all are off: see the exact search.
            single if single.cosine <= 0.0 => (single.cosine, single.members),
            _ => self.best_of(block, dots),
        })
        .collect()
    }

    /// The block with the best combination, for each unseen label.
    fn blocks(&self, rows: &[[f32; LANES]]) -> [usize; LANES] {
        let opposite = |row: &[f32; LANES]| row.map(|value| -value);
        let (low, high) = rows.split_at(self.low);
        let changes: Vec<[f32; LANES]> = low.iter().copied().chain(low.iter().map(opposite)).collect();
        let (mut best, mut found) = ([f32::NEG_INFINITY; LANES], [0; LANES]);
        for (block, lengths) in self.narrow.chunks_exact(1 << self.low).enumerate() {
            let mut sums = [0.0; LANES];
            for (_, row) in high.iter().enumerate().filter(|(place, _)| block >> place & 1 == 1) {
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            let of_block = Block { sums, changes: &changes, flips: &self.flips, lengths }.walk();
            for lane in 0..LANES {
                if of_block[lane] > best[lane] {
                    (best[lane], found[lane]) = (of_block[lane], block);
                }
            }
        }
        found
    }

    /// The best combination of a block, and its cosine.
    fn best_of<const N: usize>(&self, block: usize, dots: &[f64; N]) -> (f64, u64) {
        let high = (self.low..self.labels).filter(|label| block >> (label - self.low) & 1 == 1);
        let mut sum: f64 = high.map(|label| dots[label]).sum();
        let start = block << self.low;
        let mut best = (sum * self.inverse[start], start);
        for (step, &flip) in self.flips.iter().enumerate() {
            sum += if flip < self.low { dots[flip] } else { -dots[flip - self.low] };
            let place = start + step + 1;
            let cosine = sum * self.inverse[place];
            if cosine > best.0 {
                best = (cosine, place);
            }
        }
        (best.0, members(best.1, self.low) as u64)
    }
}

/// The Gray code of a number.
fn gray(step: usize) -> usize {
    step ^ step >> 1
}

/// The members of the combination that passes at a place.
fn members(place: usize, low: usize) -> usize {
    let step = place & ((1 << low) - 1);
    place - step + gray(step)
}

/// One by the length of each combination, by its members; 0 for those without length.
fn by_members<const N: usize>(gram: &Gram<N>) -> Option<Vec<f64>> {
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
    let inverse = |(square, parts): (f64, f64)| {
        let is_thin = square < THIN * parts && square > NOTHING * parts;
        let has_length = square > NOTHING * parts;
        (!is_thin).then(|| if has_length { 1.0 / square.sqrt() } else { 0.0 })
    };
    sums.into_iter().map(inverse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_passes_once() {
        for (labels, low) in [(3, 3), (10, 8)] {
            let mut all: Vec<usize> = (0..1 << labels).map(|place| members(place, low)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..1 << labels).collect::<Vec<_>>());
        }
    }

    #[test]
    fn lengths_are_those_of_the_sums_and_near_nothing_is_left_to_others() {
        let gram = Gram::<16>::new(&[3.0, 0.0, 0.0, 4.0, -3.0, 0.0], 2);
        let lengths = Lengths::new(&gram).unwrap();
        let found: Vec<f64> = (0..8).map(|place| lengths.inverse[place]).collect();
        let expected =
            [0b000, 0b001, 0b011, 0b010, 0b110, 0b111, 0b101, 0b100].map(|members| match members {
                0b000 | 0b101 => 0.0,
                0b001 | 0b100 => 1.0 / 3.0,
                0b010 | 0b111 => 0.25,
                _ => 0.2,
            });
        assert_eq!(found, expected);
        assert!(Lengths::new(&Gram::<16>::new(&[1.0, 0.0, -1.0, 1e-3], 2)).is_none());
        assert!(Lengths::new(&Gram::<16>::new(&[1.0; 16], 1)).is_none());
    }
}
