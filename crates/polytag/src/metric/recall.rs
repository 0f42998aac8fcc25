//! R@k: how many of the right labels stand on the first k places.

use super::case::Case;
use super::config::Cutoffs;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// Recall within the first k places, averaged over documents.
#[derive(Clone, Debug)]
pub struct Recall(pub Cutoffs);

impl PerDocument for Recall {
    fn group(&self) -> Group {
        Group::Ranking
    }

    fn names(&self) -> Vec<String> {
        self.0.names("R")
    }

    fn contributions(&self, case: &Case<'_>, _table: &LabelTable, out: &mut Vec<Ratio>) {
        out.extend(self.0.iter().map(|k| Ratio::mean(case.hits(k) as f64 / case.gold.len() as f64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{assert_values, cutoffs, seen};

    #[test]
    fn by_hand() {
        let metric = Recall(cutoffs(&[1, 3, 100]));
        let table = seen(10);
        assert_values(&metric, &table, &[(&[1, 2, 3, 4, 5], &[1, 3, 9])], &[1.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0]);
        assert_values(&metric, &table, &[(&[1], &[1])], &[1.0, 1.0, 1.0]);
        assert_values(&metric, &table, &[(&[], &[1])], &[0.0, 0.0, 0.0]);
        // More gold than places: R@1 cannot reach one.
        assert_values(&metric, &table, &[(&[0, 1, 2, 3], &[0, 1, 2, 3])], &[0.25, 0.75, 1.0]);
        assert_values(&metric, &table, &[(&[1], &[1, 2]), (&[4], &[4])], &[0.75, 0.75, 0.75]);
    }
}
