//! nDCG@k: right labels count more on earlier places.

use super::case::Case;
use super::config::Cutoffs;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// Normalised discounted cumulative gain within the first k places, averaged over documents.
///
/// The place `i` weighs `1 / log2(i + 1)`. The ideal fills the first `min(k, gold)` places.
#[derive(Clone, Debug)]
pub struct Ndcg(pub Cutoffs);

/// What a right label on the place `rank`, counted from one, is worth.
pub(crate) fn discount(rank: usize) -> f64 {
    1.0 / ((rank + 1) as f64).log2()
}

/// What the first `places` places are worth when all of them are right.
pub(crate) fn ideal_gain(places: usize) -> f64 {
    (1..=places).map(discount).sum()
}

impl PerDocument for Ndcg {
    fn group(&self) -> Group {
        Group::Ranking
    }

    fn names(&self) -> Vec<String> {
        self.0.names("nDCG")
    }

    fn contributions(&self, case: &Case<'_>, _table: &LabelTable, out: &mut Vec<Ratio>) {
        let gain = |k: usize| -> f64 {
            let places = case.top(k).iter().zip(1..);
            places.filter(|&(&label, _)| case.is_gold(label)).map(|(_, rank)| discount(rank)).sum()
        };
        let ideal = |k: usize| ideal_gain(k.min(case.gold.len()));
        out.extend(self.0.iter().map(|k| Ratio::mean(gain(k) / ideal(k))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{assert_values, cutoffs, seen};

    #[test]
    fn by_hand() {
        let metric = Ndcg(cutoffs(&[1, 3, 5]));
        let table = seen(10);
        // Weights of the places: 1, 0.630930, 0.5, 0.430677, 0.386853.
        let at_three = 1.5 / 2.130_929_754;
        assert_values(&metric, &table, &[(&[1, 2, 3, 4, 5], &[1, 3, 9])], &[1.0, at_three, at_three]);
        // One gold label on the second place: the ideal has it on the first.
        assert_values(&metric, &table, &[(&[2, 1], &[1])], &[0.0, 0.630_929_754, 0.630_929_754]);
        assert_values(&metric, &table, &[(&[], &[1])], &[0.0, 0.0, 0.0]);
        // A short ranking, all right, against three gold labels.
        assert_values(
            &metric,
            &table,
            &[(&[1], &[1, 2, 3])],
            &[1.0, 1.0 / 2.130_929_754, 1.0 / 2.130_929_754],
        );
        // More gold than places.
        assert_values(&metric, &table, &[(&[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4, 5])], &[1.0, 1.0, 1.0]);
    }
}
