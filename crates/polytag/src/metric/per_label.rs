//! Metrics that look at each label over all documents, and the adapter that counts for them.
//!
//! A [`PerLabel`] reads its values off [`LabelCounts`]: how often each gold label was right, offered
//! and found. Such counts cannot be forgotten document by document as sums can, because a replicate
//! needs every label's count; so the tally of [`LabelAverages`] keeps the documents themselves, cut
//! to their first places, at four bytes a label. Replicates are counted from them at the end.

use std::sync::Arc;

use rayon::prelude::*;

use super::bootstrap::{Bootstrap, Interval};
use super::case::Case;
use super::config::Cutoffs;
use super::seam::{Group, Metric, MetricName};
use super::table::LabelTable;
use crate::ids::LabelId;

/// A replicate costs a pass over all documents, and the ends of an interval are steady enough with
/// a fifth of the usual thousand.
const MOST_REPLICATES: usize = 200;

/// How one label fared at one cutoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelCount {
    /// Documents that carry it.
    pub gold: u32,
    /// Documents whose first k places hold it.
    pub predicted: u32,
    /// Documents of which both are true.
    pub hits: u32,
}

/// How each gold label of the evaluated documents fared at each cutoff.
#[derive(Clone, Debug)]
pub struct LabelCounts {
    labels: Arc<Vec<LabelId>>,
    cutoffs: usize,
    gold: Vec<u32>,
    /// By label, then by cutoff; so are the hits.
    predicted: Vec<u32>,
    hits: Vec<u32>,
}

impl LabelCounts {
    /// The labels that some document carries, ascending, at the `cutoff`-th cutoff.
    pub fn at(&self, cutoff: usize) -> impl Iterator<Item = (LabelId, LabelCount)> + '_ {
        let count = move |index: usize| LabelCount {
            gold: self.gold[index],
            predicted: self.predicted[index * self.cutoffs + cutoff],
            hits: self.hits[index * self.cutoffs + cutoff],
        };
        // A replicate may have drawn none of the documents that carry a label.
        let labels = self.labels.iter().enumerate().filter(|&(index, _)| self.gold[index] > 0);
        labels.map(move |(index, &label)| (label, count(index)))
    }

    /// Counts, where document `i` stands `times(i)` times.
    fn of(replay: &Replay, times: impl Fn(&ReplayDocument) -> u32) -> LabelCounts {
        let cutoffs = replay.cutoffs;
        let mut counts = LabelCounts {
            labels: Arc::clone(&replay.labels),
            cutoffs,
            gold: vec![0; replay.labels.len()],
            predicted: vec![0; replay.labels.len() * cutoffs],
            hits: vec![0; replay.labels.len() * cutoffs],
        };
        let (mut places, mut gold) = (replay.places.as_slice(), replay.gold.as_slice());
        for document in &replay.documents {
            let times = times(document);
            for place in take(&mut places, document.places) {
                let cell = place.label as usize * cutoffs + place.cutoff as usize;
                counts.predicted[cell] += times;
                counts.hits[cell] += if place.is_hit { times } else { 0 };
            }
            for &label in take(&mut gold, document.gold) {
                counts.gold[label as usize] += times;
            }
        }
        // A place within one cutoff is within all deeper ones.
        for cells in [&mut counts.predicted, &mut counts.hits] {
            for row in cells.chunks_exact_mut(cutoffs) {
                (1..cutoffs).for_each(|cutoff| row[cutoff] += row[cutoff - 1]);
            }
        }
        counts
    }
}

/// A metric read off the counts of all labels.
///
/// ```
/// use polytag::metric::{Group, LabelCounts, LabelTable, PerLabel};
///
/// /// How many labels some document carries, as a share of all labels.
/// struct InUse;
///
/// impl PerLabel for InUse {
///     fn group(&self) -> Group {
///         Group::Tail
///     }
///     fn names(&self) -> Vec<String> {
///         vec!["in use".into()]
///     }
///     fn values(&self, counts: &LabelCounts, table: &LabelTable, out: &mut Vec<Option<f64>>) {
///         out.push(Some(counts.at(0).count() as f64 / table.positions() as f64));
///     }
/// }
/// assert_eq!(InUse.names(), ["in use"]);
/// ```
pub trait PerLabel: Send + Sync {
    /// Where its values belong.
    fn group(&self) -> Group;

    /// What its values are called.
    fn names(&self) -> Vec<String>;

    /// Pushes its values, one a name, in their order; `None` where no label defines one.
    fn values(&self, counts: &LabelCounts, table: &LabelTable, out: &mut Vec<Option<f64>>);
}

/// Any number of [`PerLabel`] metrics with their intervals, from at most 200 replicates.
pub struct LabelAverages {
    metrics: Vec<Box<dyn PerLabel>>,
    cutoffs: Cutoffs,
    table: Arc<LabelTable>,
    bootstrap: Bootstrap,
}

/// The documents added so far: their numbers, first places and gold labels, end to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelsTally {
    documents: Vec<ReplayDocument>,
    places: Vec<LabelId>,
    gold: Vec<LabelId>,
}

/// A document's number, and how many entries of the two lists are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplayDocument {
    number: u64,
    places: u32,
    gold: u32,
}

/// A tally made ready for counting: labels numbered among the gold labels, other labels left out,
/// because no average takes them in.
struct Replay {
    labels: Arc<Vec<LabelId>>,
    cutoffs: usize,
    documents: Vec<ReplayDocument>,
    places: Vec<Place>,
    gold: Vec<u32>,
}

/// A place that holds a label some document carries.
struct Place {
    label: u32,
    /// The first cutoff that takes the place in.
    cutoff: u16,
    is_hit: bool,
}

impl LabelAverages {
    /// Measures `metrics`, in this order, at `cutoffs`, which are those the metrics were made with,
    /// of labels that `table` describes.
    ///
    /// # Panics
    /// When there is no cutoff to count at.
    pub fn new(
        metrics: Vec<Box<dyn PerLabel>>,
        cutoffs: Cutoffs,
        table: Arc<LabelTable>,
        bootstrap: &Bootstrap,
    ) -> LabelAverages {
        assert!(!cutoffs.is_empty(), "labels are counted at one cutoff or more");
        LabelAverages { metrics, cutoffs, table, bootstrap: bootstrap.at_most(MOST_REPLICATES) }
    }

    fn replay(&self, tally: &LabelsTally) -> Replay {
        let mut labels = tally.gold.clone();
        labels.sort_unstable();
        labels.dedup();
        let number = |label: LabelId| labels.binary_search(&label).ok().map(|index| index as u32);
        let mut replay = Replay {
            cutoffs: self.cutoffs.len(),
            documents: Vec::with_capacity(tally.documents.len()),
            places: Vec::new(),
            gold: tally.gold.iter().filter_map(|&label| number(label)).collect(),
            labels: Arc::default(),
        };
        let (mut places, mut gold) = (tally.places.as_slice(), tally.gold.as_slice());
        for &document in &tally.documents {
            let gold = take(&mut gold, document.gold);
            let before = replay.places.len();
            for (&label, rank) in take(&mut places, document.places).iter().zip(1..) {
                let cutoff = self.cutoffs.first_reaching(rank) as u16;
                let is_hit = gold.binary_search(&label).is_ok();
                replay.places.extend(number(label).map(|label| Place { label, cutoff, is_hit }));
            }
            let places = (replay.places.len() - before) as u32;
            replay.documents.push(ReplayDocument { places, ..document });
        }
        replay.labels = Arc::new(labels);
        replay
    }

    fn read(&self, counts: &LabelCounts) -> Vec<Option<f64>> {
        let mut out = Vec::new();
        for metric in &self.metrics {
            metric.values(counts, &self.table, &mut out);
        }
        out
    }
}

impl Metric for LabelAverages {
    type Tally = LabelsTally;

    fn names(&self) -> Vec<MetricName> {
        let named = |metric: &dyn PerLabel| {
            let group = metric.group();
            metric.names().into_iter().map(move |name| MetricName { group, name })
        };
        self.metrics.iter().flat_map(|metric| named(metric.as_ref())).collect()
    }

    fn start(&self) -> LabelsTally {
        LabelsTally::default()
    }

    fn add(&self, tally: &mut LabelsTally, document: u64, case: &Case<'_>) {
        let places = case.top(self.cutoffs.deepest());
        tally.places.extend_from_slice(places);
        tally.gold.extend_from_slice(case.gold);
        let (places, gold) = (places.len() as u32, case.gold.len() as u32);
        tally.documents.push(ReplayDocument { number: document, places, gold });
    }

    fn merge(&self, tally: &mut LabelsTally, later: LabelsTally) {
        tally.documents.extend(later.documents);
        tally.places.extend(later.places);
        tally.gold.extend(later.gold);
    }

    fn values(&self, tally: &LabelsTally) -> Vec<Option<f64>> {
        self.read(&LabelCounts::of(&self.replay(tally), |_| 1))
    }

    fn intervals(&self, tally: &LabelsTally) -> Vec<Option<Interval>> {
        let replay = self.replay(tally);
        let drawn = |replicate| {
            let times = |document: &ReplayDocument| self.bootstrap.count(document.number, replicate);
            self.read(&LabelCounts::of(&replay, times))
        };
        let replicates: Vec<Vec<Option<f64>>> =
            (0..self.bootstrap.replicates()).into_par_iter().map(drawn).collect();
        let values = self.read(&LabelCounts::of(&replay, |_| 1));
        let interval = |(index, value): (usize, &Option<f64>)| {
            Interval::around((*value)?, replicates.iter().filter_map(|row| row[index]).collect())
        };
        values.iter().enumerate().map(interval).collect()
    }
}

/// Takes the first `count` of `rest` off it.
fn take<'a, T>(rest: &mut &'a [T], count: u32) -> &'a [T] {
    let (head, tail) = rest.split_at(count as usize);
    *rest = tail;
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{RandomSplit, cutoffs, measure};
    use crate::metric::{Coverage, MacroAverage};

    fn averages(split: &RandomSplit, seed: u64) -> LabelAverages {
        let ks = cutoffs(&[1, 3]);
        let metrics: Vec<Box<dyn PerLabel>> =
            vec![Box::new(MacroAverage(ks.clone())), Box::new(Coverage(ks.clone()))];
        LabelAverages::new(metrics, ks, Arc::new(split.table.clone()), &Bootstrap::new(seed, 1000))
    }

    #[test]
    fn chunks_merged_are_one_pass() {
        let split = RandomSplit::new(1, 50);
        let averages = averages(&split, 0);
        assert_eq!(measure(&averages, &split, 50), measure(&averages, &split, 7));
    }

    #[test]
    fn intervals_hold_the_value_narrow_and_repeat() {
        let widths = [40, 1600].map(|documents| {
            let split = RandomSplit::new(4, documents);
            let averages = averages(&split, 9);
            let tally = measure(&averages, &split, 64);
            let (values, intervals) = (averages.values(&tally), averages.intervals(&tally));
            assert_eq!(intervals, averages.intervals(&tally));
            for (value, interval) in values.iter().zip(&intervals) {
                assert_eq!(value.is_some(), interval.is_some());
                let (Some(value), Some(interval)) = (value, interval) else { continue };
                assert!(interval.low <= *value && *value <= interval.high, "{value} {interval:?}");
            }
            intervals[0].unwrap().high - intervals[0].unwrap().low
        });
        assert!(widths[1] < widths[0] / 2.0, "{widths:?}");
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let split = RandomSplit::new(6, 80);
        let averages = averages(&split, 2);
        let tally = measure(&averages, &split, 16);
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| averages.intervals(&tally))
        };
        assert_eq!(on(1), on(3));
    }
}
