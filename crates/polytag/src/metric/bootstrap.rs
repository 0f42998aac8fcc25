//! How far a value may be off: the Poisson bootstrap and its percentile intervals.
//!
//! A replicate counts each document as often as a Poisson draw of mean one says, which is what
//! drawing documents with replacement comes to when there are many. Unlike drawing from a list, it
//! needs no list: a document's count is a hash of seed, document and replicate, so documents can be
//! added as they come, on any thread, and forgotten.

/// The share of replicates that an interval leaves out, half of it at either end.
const LEFT_OUT: f64 = 0.05;

/// The chance of a count this large or larger is below 2^-64: no draw reaches it.
const COUNTS: usize = 22;

/// Draws how often each document counts in each replicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    seed: u64,
    replicates: usize,
    /// By count, the share of draws at or below it, out of 2^64.
    thresholds: [u64; COUNTS],
}

impl Bootstrap {
    /// Draws from `seed`; no replicates, no intervals.
    pub fn new(seed: u64, replicates: usize) -> Bootstrap {
        let (mut chance, mut below) = (1.0 / std::f64::consts::E, 0.0);
        let thresholds = std::array::from_fn(|count| {
            below += chance;
            chance /= (count + 1) as f64;
            // The cast takes what rounds to 2^64 down to the greatest integer.
            (below * (u64::MAX as f64)) as u64
        });
        Bootstrap { seed, replicates, thresholds }
    }

    /// How many replicates there are.
    pub fn replicates(&self) -> usize {
        self.replicates
    }

    /// The seed it draws from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The same draws, with at most `replicates` replicates.
    #[must_use]
    pub fn at_most(&self, replicates: usize) -> Bootstrap {
        Bootstrap { replicates: self.replicates.min(replicates), ..self.clone() }
    }

    /// How often `document` counts in each replicate.
    pub fn counts(&self, document: u64) -> impl Iterator<Item = u32> + '_ {
        (0..self.replicates).map(move |replicate| self.count(document, replicate))
    }

    /// How often `document` counts in one replicate.
    pub fn count(&self, document: u64, replicate: usize) -> u32 {
        let stream = mix(mix(self.seed).wrapping_add(document));
        let draw = mix(stream.wrapping_add(replicate as u64));
        self.thresholds.iter().take_while(|&&threshold| draw >= threshold).count() as u32
    }
}

/// The finaliser of SplitMix64 after one step: neighbouring numbers leave as unrelated ones.
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where a value lies with 95 % confidence, over other documents of the same kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// The middle 95 % of `replicates`; `None` where there are none.
    pub fn of(mut replicates: Vec<f64>) -> Option<Interval> {
        replicates.sort_unstable_by(f64::total_cmp);
        Some(Interval {
            low: quantile(&replicates, LEFT_OUT / 2.0)?,
            high: quantile(&replicates, 1.0 - LEFT_OUT / 2.0)?,
        })
    }

    /// The middle 95 % of `replicates`, moved so that their mean lies on `value`, within 0 and 1.
    ///
    /// A replicate holds two thirds of the distinct documents, so values that count distinct things
    /// come out lower in replicates than in the whole: their spread is right, their place is not.
    pub fn around(value: f64, replicates: Vec<f64>) -> Option<Interval> {
        let mean = replicates.iter().sum::<f64>() / replicates.len() as f64;
        let Interval { low, high } = Interval::of(replicates)?;
        let place = |end: f64| (end - mean + value).clamp(0.0, 1.0);
        Some(Interval { low: place(low), high: place(high) })
    }

    /// Both ends multiplied.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Interval {
        Interval { low: self.low * factor, high: self.high * factor }
    }
}

/// The value below which a share `q` of `sorted` lies, between neighbours in proportion.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let place = q * sorted.len().checked_sub(1)? as f64;
    let below = place.floor() as usize;
    let above = sorted[(below + 1).min(sorted.len() - 1)];
    Some(sorted[below] + (above - sorted[below]) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_poisson_of_mean_one() {
        let bootstrap = Bootstrap::new(7, 1000);
        let mut seen = [0u32; COUNTS];
        for document in 0..200 {
            bootstrap.counts(document).for_each(|count| seen[count as usize] += 1);
        }
        let share = |count: usize| f64::from(seen[count]) / 200_000.0;
        for (count, expected) in [(0, 0.367_879), (1, 0.367_879), (2, 0.183_940), (3, 0.061_313)] {
            assert!((share(count) - expected).abs() < 0.005, "{count}: {}", share(count));
        }
        let mean: f64 = (0..COUNTS).map(|count| count as f64 * share(count)).sum();
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn draws_depend_on_seed_document_and_replicate_alone() {
        let draws = |seed, document| Bootstrap::new(seed, 50).counts(document).collect::<Vec<_>>();
        assert_eq!(draws(1, 2), draws(1, 2));
        assert_ne!(draws(1, 2), draws(1, 3));
        assert_ne!(draws(1, 2), draws(2, 1));
        assert_eq!(draws(1, 2)[..10], Bootstrap::new(1, 50).at_most(10).counts(2).collect::<Vec<_>>());
    }

    #[test]
    fn intervals_are_quantiles() {
        let values: Vec<f64> = (0..=40).rev().map(f64::from).collect();
        assert_eq!(Interval::of(values), Some(Interval { low: 1.0, high: 39.0 }));
        assert_eq!(Interval::of(vec![0.5]), Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!(Interval::of(vec![]), None);
        assert_eq!(Interval::around(0.5, vec![]), None);
        let moved = Interval::around(0.5, vec![0.1, 0.3]).unwrap();
        assert!((moved.low - 0.405).abs() < 1e-12 && (moved.high - 0.595).abs() < 1e-12, "{moved:?}");
    }
}
