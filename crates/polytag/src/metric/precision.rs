//! P@k: how many of the first k places hold a right label.

use super::case::Case;
use super::config::Cutoffs;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// Precision within the first k places, averaged over documents.
///
/// The divisor is k even where the ranking or the gold is shorter, as in pyxclib and the papers: a
/// place left empty is a place not used.
#[derive(Clone, Debug)]
pub struct Precision(pub Cutoffs);

impl PerDocument for Precision {
    fn group(&self) -> Group {
        Group::Ranking
    }

    fn names(&self) -> Vec<String> {
        self.0.names("P")
    }

    fn contributions(&self, case: &Case<'_>, _table: &LabelTable, out: &mut Vec<Ratio>) {
        out.extend(self.0.iter().map(|k| Ratio::mean(case.hits(k) as f64 / k as f64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{assert_values, cutoffs, seen};

    #[test]
    fn by_hand() {
        let metric = Precision(cutoffs(&[1, 3, 5]));
        let table = seen(10);
        assert_values(&metric, &table, &[(&[1, 2, 3, 4, 5], &[1, 3, 9])], &[1.0, 2.0 / 3.0, 0.4]);
        // A short ranking and an empty one still divide by k.
        assert_values(&metric, &table, &[(&[1], &[1])], &[1.0, 1.0 / 3.0, 0.2]);
        assert_values(&metric, &table, &[(&[], &[1])], &[0.0, 0.0, 0.0]);
        // More gold than places.
        assert_values(&metric, &table, &[(&[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4, 5, 6])], &[1.0, 1.0, 1.0]);
        // The mean of two documents.
        assert_values(&metric, &table, &[(&[1, 2, 3], &[1, 2]), (&[4], &[5])], &[0.5, 1.0 / 3.0, 0.2]);
    }
}
