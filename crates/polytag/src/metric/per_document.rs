//! Metrics that are averages over documents, and the adapter that adds them up.
//!
//! A [`PerDocument`] turns a case into a numerator and a denominator for each of its values;
//! [`DocumentAverages`] sums both over documents, once as they are and once for every bootstrap
//! replicate, and divides at the end. Documents are forgotten as soon as they are added.

use std::sync::Arc;

use super::bootstrap::{Bootstrap, Interval};
use super::case::Case;
use super::seam::{Group, Metric, MetricName};
use super::table::LabelTable;

/// What one document adds to a value: the value is the sum of `num` over the sum of `den`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Added above the line.
    pub num: f64,
    /// Added below it.
    pub den: f64,
}

impl Ratio {
    /// A document the value is not defined for.
    pub const NOTHING: Ratio = Ratio { num: 0.0, den: 0.0 };

    /// A document that enters a plain mean with `value`.
    pub fn mean(value: f64) -> Ratio {
        Ratio { num: value, den: 1.0 }
    }
}

/// A metric to which each document adds on its own.
///
/// ```
/// use polytag::metric::{Case, Group, LabelTable, PerDocument, Ratio};
///
/// /// How many places of the ranking are filled.
/// struct Length;
///
/// impl PerDocument for Length {
///     fn group(&self) -> Group {
///         Group::Ranking
///     }
///     fn names(&self) -> Vec<String> {
///         vec!["length".into()]
///     }
///     fn contributions(&self, case: &Case<'_>, _table: &LabelTable, out: &mut Vec<Ratio>) {
///         out.push(Ratio::mean(case.ranking.len() as f64));
///     }
/// }
/// assert_eq!(Length.names(), ["length"]);
/// ```
pub trait PerDocument: Send + Sync {
    /// Where its values belong.
    fn group(&self) -> Group;

    /// What its values are called.
    fn names(&self) -> Vec<String>;

    /// Pushes what the document adds to each value, one ratio a name, in their order.
    fn contributions(&self, case: &Case<'_>, table: &LabelTable, out: &mut Vec<Ratio>);
}

/// Any number of [`PerDocument`] metrics with their intervals.
///
/// A tally holds two numbers a value and replicate: with 40 values and 1000 replicates 0.6 MB, and
/// adding a document costs as many multiplications, some tens of microseconds.
pub struct DocumentAverages {
    metrics: Vec<Box<dyn PerDocument>>,
    table: Arc<LabelTable>,
    bootstrap: Bootstrap,
    /// How many values there are.
    width: usize,
}

/// Sums over the documents added so far.
#[derive(Clone, Debug, PartialEq)]
pub struct AveragesTally {
    /// Numerators and denominators in turn.
    sums: Vec<f64>,
    /// The same of each replicate, one after the other.
    replicates: Vec<f64>,
}

impl DocumentAverages {
    /// Measures `metrics`, in this order, of labels that `table` describes.
    pub fn new(
        metrics: Vec<Box<dyn PerDocument>>,
        table: Arc<LabelTable>,
        bootstrap: Bootstrap,
    ) -> DocumentAverages {
        let width = metrics.iter().map(|metric| metric.names().len()).sum();
        DocumentAverages { metrics, table, bootstrap, width }
    }
}

impl Metric for DocumentAverages {
    type Tally = AveragesTally;

    fn names(&self) -> Vec<MetricName> {
        let named = |metric: &dyn PerDocument| {
            let group = metric.group();
            metric.names().into_iter().map(move |name| MetricName { group, name })
        };
        self.metrics.iter().flat_map(|metric| named(metric.as_ref())).collect()
    }

    fn start(&self) -> AveragesTally {
        let sums = vec![0.0; 2 * self.width];
        AveragesTally { replicates: vec![0.0; sums.len() * self.bootstrap.replicates()], sums }
    }

    fn add(&self, tally: &mut AveragesTally, document: u64, case: &Case<'_>) {
        let mut ratios = Vec::with_capacity(self.width);
        for metric in &self.metrics {
            metric.contributions(case, &self.table, &mut ratios);
        }
        assert_eq!(ratios.len(), self.width, "a metric pushes one ratio a name");
        let added: Vec<f64> = ratios.iter().flat_map(|ratio| [ratio.num, ratio.den]).collect();
        add_times(&mut tally.sums, 1.0, &added);
        if added.is_empty() {
            return; // chunks of no numbers are not defined
        }
        for (sums, count) in
            tally.replicates.chunks_exact_mut(added.len()).zip(self.bootstrap.counts(document))
        {
            if count > 0 {
                add_times(sums, f64::from(count), &added);
            }
        }
    }

    fn merge(&self, tally: &mut AveragesTally, later: AveragesTally) {
        add_times(&mut tally.sums, 1.0, &later.sums);
        add_times(&mut tally.replicates, 1.0, &later.replicates);
    }

    fn values(&self, tally: &AveragesTally) -> Vec<Option<f64>> {
        (0..self.width).map(|value| quotient(&tally.sums, value)).collect()
    }

    fn intervals(&self, tally: &AveragesTally) -> Vec<Option<Interval>> {
        let rows = || tally.replicates.chunks_exact(2 * self.width);
        // A replicate that drew no document with a say in the value has nothing to tell.
        (0..self.width)
            .map(|value| Interval::of(rows().filter_map(|sums| quotient(sums, value)).collect()))
            .collect()
    }
}

fn add_times(sums: &mut [f64], times: f64, added: &[f64]) {
    for (sum, add) in sums.iter_mut().zip(added) {
        *sum += times * add;
    }
}

/// The value at `index`, if any document had a say in it.
fn quotient(sums: &[f64], index: usize) -> Option<f64> {
    let (num, den) = (sums[2 * index], sums[2 * index + 1]);
    (den > 0.0).then(|| num / den)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{RandomSplit, cutoffs, measure};
    use crate::metric::{Precision, PropensityPrecision};

    fn averages(split: &RandomSplit, replicates: usize) -> DocumentAverages {
        let ks = cutoffs(&[1, 3]);
        let metrics: Vec<Box<dyn PerDocument>> =
            vec![Box::new(Precision(ks.clone())), Box::new(PropensityPrecision(ks))];
        DocumentAverages::new(metrics, Arc::new(split.table.clone()), Bootstrap::new(5, replicates))
    }

    #[test]
    fn chunks_merged_are_one_pass() {
        let split = RandomSplit::new(1, 90);
        let averages = averages(&split, 20);
        let whole = measure(&averages, &split, 90);
        let parts = measure(&averages, &split, 7);
        for (a, b) in
            whole.sums.iter().chain(&whole.replicates).zip(parts.sums.iter().chain(&parts.replicates))
        {
            assert!((a - b).abs() < 1e-9);
        }
        assert_eq!(parts, measure(&averages, &split, 7), "equal chunks, equal bits");
    }

    #[test]
    fn intervals_hold_the_value_and_narrow() {
        let widths = [40, 1600].map(|documents| {
            let split = RandomSplit::new(2, documents);
            let averages = averages(&split, 400);
            let tally = measure(&averages, &split, 64);
            let (values, intervals) = (averages.values(&tally), averages.intervals(&tally));
            for (value, interval) in values.iter().zip(&intervals) {
                let (value, interval) = (value.unwrap(), interval.unwrap());
                assert!(interval.low < value && value < interval.high, "{value} {interval:?}");
            }
            intervals[0].unwrap().high - intervals[0].unwrap().low
        });
        // The width falls with the root of the number of documents: here sixfold.
        assert!(widths[1] < widths[0] / 4.0, "{widths:?}");
    }

    #[test]
    fn without_replicates_there_are_values_and_no_intervals() {
        let split = RandomSplit::new(3, 10);
        let averages = averages(&split, 0);
        let tally = measure(&averages, &split, 64);
        assert!(averages.values(&tally).iter().all(Option::is_some));
        assert_eq!(averages.intervals(&tally), vec![None; 4]);
        assert_eq!(averages.values(&averages.start()), vec![None; 4]);
    }
}
