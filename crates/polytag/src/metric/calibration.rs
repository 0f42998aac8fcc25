//! Calibration error@k: how far the probabilities on the first k places are from how often they are right.

use super::case::Case;
use super::seam::{Group, Metric, MetricName};

/// Bins of equal width that probabilities are put in.
const BINS: usize = 15;

/// How many probabilities fell into each bin, their sum, and how many were right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CalibrationBins([Bin; BINS]);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    count: u64,
    sum: f64,
    right: u64,
}

impl CalibrationBins {
    /// Adds a label that was given with a probability.
    pub(crate) fn add(&mut self, chance: f64, is_right: bool) {
        let bin = &mut self.0[((chance * BINS as f64) as usize).min(BINS - 1)];
        bin.count += 1;
        bin.sum += chance;
        bin.right += u64::from(is_right);
    }

    /// How far they are off on average: of each bin the mean probability from the share that is right, weighted by how
    /// many there are. None without any.
    pub(crate) fn error(&self) -> Option<f64> {
        let count: u64 = self.0.iter().map(|bin| bin.count).sum();
        let off: f64 = self.0.iter().map(|bin| (bin.sum - bin.right as f64).abs()).sum();
        (count > 0).then(|| off / count as f64)
    }
}

/// The expected calibration error over the first `places` of all documents, for scores that are probabilities.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// How many places count.
    pub places: usize,
}

impl Metric for Calibration {
    type Tally = CalibrationBins;

    fn names(&self) -> Vec<MetricName> {
        vec![MetricName { group: Group::Ranking, name: format!("calibration error@{}", self.places) }]
    }

    fn start(&self) -> CalibrationBins {
        CalibrationBins::default()
    }

    fn add(&self, tally: &mut CalibrationBins, _document: u64, case: &Case<'_>) {
        for (&label, &chance) in case.top(self.places).iter().zip(case.chances.unwrap_or_default()) {
            tally.add(f64::from(chance), case.is_gold(label));
        }
    }

    fn merge(&self, tally: &mut CalibrationBins, later: CalibrationBins) {
        for (bin, later) in tally.0.iter_mut().zip(later.0) {
            bin.count += later.count;
            bin.sum += later.sum;
            bin.right += later.right;
        }
    }

    fn values(&self, tally: &CalibrationBins) -> Vec<Option<f64>> {
        vec![tally.error()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::ids;

    #[test]
    fn by_hand() {
        let metric = Calibration { places: 2 };
        let (ranking, gold) = (ids(&[0, 1, 2]), ids(&[0, 2]));
        let case = |chances| Case { ranking: &ranking, chances, unseen_ranking: None, gold: &gold };
        let mut tally = metric.start();
        assert_eq!(metric.values(&tally), [None]);
        // Without probabilities there is nothing to measure.
        metric.add(&mut tally, 0, &case(None));
        assert_eq!(metric.values(&tally), [None]);
        // Of the first two one is right: off by 0.1 and by 0.5. The third place does not count.
        metric.add(&mut tally, 1, &case(Some(&[0.9, 0.5, 0.01])));
        let mut later = metric.start();
        metric.add(&mut later, 2, &case(Some(&[0.95, 0.9])));
        metric.merge(&mut tally, later);
        let error = metric.values(&tally)[0].unwrap();
        // One bin holds 0.9 twice, once right; the next 0.95, which is right; that of 0.5 one that is wrong.
        assert!((error - ((1.8 - 1.0) + (1.0 - 0.95) + 0.5) / 4.0).abs() < 1e-6, "{error}");
    }

    #[test]
    fn what_is_said_as_often_as_it_is_right_is_no_error() {
        let mut bins = CalibrationBins::default();
        (0..10).for_each(|place| bins.add(0.3, place < 3));
        assert!(bins.error().unwrap() < 1e-12);
    }
}
