//! RP@k: precision among as many places as could be right.

use super::case::Case;
use super::config::Cutoffs;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// R-precision at k (Chalkidis et al., 2019), averaged over documents: right labels on the first k
/// places, out of k or of the gold labels where there are fewer. A perfect ranking scores one
/// whatever the size of the gold.
#[derive(Clone, Debug)]
pub struct RPrecision(pub Cutoffs);

impl PerDocument for RPrecision {
    fn group(&self) -> Group {
        Group::Ranking
    }

    fn names(&self) -> Vec<String> {
        self.0.names("RP")
    }

    fn contributions(&self, case: &Case<'_>, _table: &LabelTable, out: &mut Vec<Ratio>) {
        let possible = |k: usize| k.min(case.gold.len()) as f64;
        out.extend(self.0.iter().map(|k| Ratio::mean(case.hits(k) as f64 / possible(k))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{assert_values, cutoffs, seen};

    #[test]
    fn by_hand() {
        let metric = RPrecision(cutoffs(&[1, 3, 5]));
        let table = seen(10);
        assert_values(&metric, &table, &[(&[1, 2, 3, 4, 5], &[1, 3, 9])], &[1.0, 2.0 / 3.0, 2.0 / 3.0]);
        // Perfect with one gold label, and perfect with more gold than places.
        assert_values(&metric, &table, &[(&[1], &[1])], &[1.0, 1.0, 1.0]);
        assert_values(&metric, &table, &[(&[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4, 5])], &[1.0, 1.0, 1.0]);
        assert_values(&metric, &table, &[(&[], &[1, 2])], &[0.0, 0.0, 0.0]);
    }
}
