//! What the tests of all metrics share: small tables, cases by hand and random splits.

use std::sync::Arc;

use super::bootstrap::mix;
use super::*;
use crate::data::{Label, LabelSpace};
use crate::ids::LabelId;

/// A ranking and gold labels, by position.
pub(super) type ByHand<'a> = (&'a [u32], &'a [u32]);

pub(super) fn ids(positions: &[u32]) -> Vec<LabelId> {
    positions.iter().copied().map(LabelId).collect()
}

pub(super) fn cutoffs(ks: &[usize]) -> Cutoffs {
    Cutoffs::new("ks", ks).unwrap()
}

/// A table of labels with these training counts.
pub(super) fn table(counts: &[u32], documents: u64) -> LabelTable {
    let mut space = LabelSpace::default();
    for index in 0..counts.len() {
        space.add(Label::new(index.to_string(), "name")).unwrap();
    }
    space.set_train_counts(counts.to_vec(), documents);
    LabelTable::new(&space, Propensity::default())
}

/// A table of labels that training saw.
pub(super) fn seen(labels: usize) -> LabelTable {
    table(&vec![5; labels], 100)
}

/// The values of `metric` over `cases`, without replicates.
fn document_values<M: PerDocument + Clone + 'static>(
    metric: &M,
    table: &LabelTable,
    cases: &[ByHand<'_>],
) -> Vec<Option<f64>> {
    let averages =
        DocumentAverages::new(vec![Box::new(metric.clone())], Arc::new(table.clone()), Bootstrap::new(0, 0));
    add_by_hand(&averages, cases).1
}

fn add_by_hand<M: Metric>(metric: &M, cases: &[ByHand<'_>]) -> (Vec<String>, Vec<Option<f64>>) {
    let mut tally = metric.start();
    for (number, (ranking, gold)) in cases.iter().enumerate() {
        let (ranking, gold) = (ids(ranking), ids(gold));
        let case = Case { ranking: &ranking, chances: None, unseen_ranking: None, gold: &gold };
        metric.add(&mut tally, number as u64, &case);
    }
    (metric.names().into_iter().map(|name| name.name).collect(), metric.values(&tally))
}

pub(super) fn assert_values<M: PerDocument + Clone + 'static>(
    metric: &M,
    table: &LabelTable,
    cases: &[ByHand<'_>],
    expected: &[f64],
) {
    let values = document_values(metric, table, cases);
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        assert!((value.unwrap() - expected).abs() < 1e-9, "{values:?}, not {expected}, for {cases:?}");
    }
}

pub(super) fn assert_undefined<M: PerDocument + Clone + 'static>(
    metric: &M,
    table: &LabelTable,
    cases: &[ByHand<'_>],
) {
    assert!(document_values(metric, table, cases).iter().all(Option::is_none));
}

/// The values of a metric over labels, with their names.
pub(super) fn label_values<M: PerLabel + Clone + 'static>(
    metric: &M,
    ks: &[usize],
    table: &LabelTable,
    cases: &[ByHand<'_>],
) -> Vec<(String, Option<f64>)> {
    let table = Arc::new(table.clone());
    let averages =
        LabelAverages::new(vec![Box::new(metric.clone())], cutoffs(ks), table, &Bootstrap::new(0, 0));
    let (names, values) = add_by_hand(&averages, cases);
    names.into_iter().zip(values).collect()
}

/// Documents of 1 to 9 gold labels among 60, with rankings of 0 to 19 places that are often right.
pub(super) struct RandomSplit {
    pub(super) table: LabelTable,
    pub(super) cases: Vec<OwnedCase>,
}

pub(super) struct OwnedCase {
    pub(super) number: u64,
    pub(super) ranking: Vec<LabelId>,
    pub(super) unseen_ranking: Vec<LabelId>,
    pub(super) gold: Vec<LabelId>,
}

impl OwnedCase {
    pub(super) fn borrow(&self) -> Case<'_> {
        Case {
            ranking: &self.ranking,
            chances: None,
            unseen_ranking: Some(&self.unseen_ranking),
            gold: &self.gold,
        }
    }
}

impl RandomSplit {
    pub(super) const LABELS: u64 = 60;

    pub(super) fn new(seed: u64, documents: u64) -> RandomSplit {
        let counts: Vec<u32> =
            (0..Self::LABELS).map(|label| [0, 1, 7, 30, 400][label as usize % 5]).collect();
        let table = table(&counts, 1000);
        let mut state = mix(seed);
        let mut below = move |n: u64| {
            state = mix(state);
            state % n
        };
        let cases = (0..documents).map(|number| {
            let mut gold: Vec<LabelId> =
                (0..=below(9)).map(|_| LabelId(below(Self::LABELS) as u32)).collect();
            gold.sort_unstable();
            gold.dedup();
            let places = below(20);
            let mut ranking: Vec<LabelId> = Vec::new();
            for _ in 0..places {
                let any = LabelId(below(Self::LABELS) as u32);
                let label = if below(3) == 0 { gold[below(gold.len() as u64) as usize] } else { any };
                if !ranking.contains(&label) {
                    ranking.push(label);
                }
            }
            let unseen_ranking = ranking.iter().copied().filter(|&label| !table.is_seen(label)).collect();
            OwnedCase { number, ranking, unseen_ranking, gold }
        });
        RandomSplit { cases: cases.collect(), table: table.clone() }
    }
}

/// The tally of a split that was cut into chunks.
pub(super) fn measure<M: Metric>(metric: &M, split: &RandomSplit, chunk: usize) -> M::Tally {
    let mut tally = metric.start();
    for cases in split.cases.chunks(chunk) {
        let mut later = metric.start();
        cases.iter().for_each(|case| metric.add(&mut later, case.number, &case.borrow()));
        metric.merge(&mut tally, later);
    }
    tally
}

/// A report with one value a group.
pub(super) fn small_report() -> Report {
    let measured = |name: &str, group, value, ends: Option<(f64, f64)>| Measured {
        name: name.to_owned(),
        group,
        value,
        interval: ends.map(|(low, high)| Interval { low, high }),
    };
    Report {
        metrics: vec![
            measured("P@1", Group::Ranking, 61.111_111, Some((59.876_54, 62.3))),
            measured("PSP@1", Group::Tail, 7.0, Some((0.0, 100.0))),
            measured("ZSR@100", Group::Unseen, 0.5, None),
        ],
        documents: 9,
        documents_without_gold: 1,
        documents_with_unseen_gold: 2,
        labels: 40,
        unseen_labels: 5,
        unknown_gold_labels: 1,
    }
}
