//! Agreement with pyxclib's definitions, written again the way pyxclib works: dense matrices, one
//! row a document, cumulative sums over columns, means over rows.

use std::sync::Arc;

use super::fixture::{RandomSplit, cutoffs, measure};
use super::*;
use crate::ids::LabelId;

const K: usize = 5;

type Matrix = Vec<Vec<f64>>;

/// Scores by document and label, and truth by document and label with a column of zeros for padding.
struct Dense {
    scores: Matrix,
    truth: Matrix,
    inverse: Vec<f64>,
}

impl Dense {
    fn of(split: &RandomSplit) -> Dense {
        let labels = RandomSplit::LABELS as usize;
        let mut dense = Dense {
            scores: vec![vec![0.0; labels]; split.cases.len()],
            truth: vec![vec![0.0; labels + 1]; split.cases.len()],
            inverse: (0..labels).map(|l| split.table.inverse_propensity(LabelId(l as u32))).collect(),
        };
        dense.inverse.push(0.0);
        for (row, case) in split.cases.iter().enumerate() {
            for (place, label) in case.ranking.iter().enumerate() {
                dense.scores[row][label.index()] = 1.0 / (place + 1) as f64;
            }
            for label in &case.gold {
                dense.truth[row][label.index()] = 1.0;
            }
        }
        dense
    }

    /// The columns of the `K` greatest entries of each row; the padding column stands for zeros.
    fn top(matrix: &Matrix, padding: usize) -> Vec<Vec<usize>> {
        let of_row = |row: &Vec<f64>| {
            let mut columns: Vec<usize> = (0..padding).filter(|&column| row[column] > 0.0).collect();
            columns.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).unwrap());
            columns.resize(K.max(columns.len()), padding);
            columns.truncate(K);
            columns
        };
        matrix.iter().map(of_row).collect()
    }

    /// Truth at the top columns of `by`, each weighted.
    fn flags(&self, by: &Matrix, weights: &[f64]) -> Matrix {
        let top = Dense::top(by, self.inverse.len() - 1);
        let flag = |row: usize, column: usize| self.truth[row][column] * weights[column];
        top.iter().enumerate().map(|(row, columns)| columns.iter().map(|&c| flag(row, c)).collect()).collect()
    }

    fn weighted_truth(&self) -> Matrix {
        let weigh = |row: &Vec<f64>| row.iter().zip(&self.inverse).map(|(t, w)| t * w).collect();
        self.truth.iter().map(weigh).collect()
    }

    fn precision(&self, flags: &Matrix) -> Vec<f64> {
        let rows = flags.iter().map(|row| cumulative(row)).collect::<Matrix>();
        (0..K).map(|k| mean(rows.iter().map(|row| row[k] / (k + 1) as f64))).collect()
    }

    fn ndcg(&self, flags: &Matrix) -> Vec<f64> {
        let weights: Vec<f64> = (0..100).map(|place| 1.0 / f64::from(place + 2).log2()).collect();
        let best = cumulative(&weights);
        let gains =
            |row: &Vec<f64>| cumulative(&row.iter().zip(&weights).map(|(f, w)| f * w).collect::<Vec<_>>());
        let rows: Matrix = flags.iter().map(gains).collect();
        let normaliser = |row: usize, k: usize| {
            let positives = self.truth[row].iter().sum::<f64>() as usize;
            best[positives - 1].min(best[k])
        };
        (0..K).map(|k| mean((0..rows.len()).map(|row| rows[row][k] / normaliser(row, k)))).collect()
    }
}

fn cumulative(row: &[f64]) -> Vec<f64> {
    row.iter()
        .scan(0.0, |sum, value| {
            *sum += value;
            Some(*sum)
        })
        .collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

fn ours(split: &RandomSplit, metric: Box<dyn PerDocument>) -> Vec<f64> {
    let averages = DocumentAverages::new(vec![metric], Arc::new(split.table.clone()), Bootstrap::new(0, 0));
    averages.values(&measure(&averages, split, 64)).into_iter().map(Option::unwrap).collect()
}

#[test]
fn agrees_with_a_dense_implementation() {
    let ks = || cutoffs(&[1, 2, 3, 4, 5]);
    for seed in 0..5 {
        let split = RandomSplit::new(100 + seed, 300);
        let dense = Dense::of(&split);
        let ones = vec![1.0; dense.inverse.len()];
        let plain = dense.flags(&dense.scores, &ones);
        let weighted = dense.flags(&dense.scores, &dense.inverse);
        let ideal = dense.flags(&dense.weighted_truth(), &dense.inverse);
        let expected = [
            dense.precision(&plain),
            dense.ndcg(&plain),
            ratios(&dense.precision(&weighted), &dense.precision(&ideal)),
            ratios(&dense.ndcg(&weighted), &dense.ndcg(&ideal)),
        ];
        let metrics: [Box<dyn PerDocument>; 4] = [
            Box::new(Precision(ks())),
            Box::new(Ndcg(ks())),
            Box::new(PropensityPrecision(ks())),
            Box::new(PropensityNdcg(ks())),
        ];
        for (expected, metric) in expected.iter().zip(metrics) {
            let names = metric.names();
            for ((name, ours), expected) in names.iter().zip(ours(&split, metric)).zip(expected) {
                assert!((ours - expected).abs() < 1e-6, "{name}: {ours}, not {expected}");
                assert!((0.01..0.99).contains(&ours), "{name} is {ours}: the split tells nothing");
            }
        }
    }
}
