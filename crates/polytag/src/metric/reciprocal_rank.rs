//! MRR: how early the first right label comes.

use super::case::Case;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// How far down a ranking is looked through, whatever else is measured.
pub(super) const DEPTH: usize = 100;

/// One over the place of the first right label, averaged over documents; zero where the first 100 places
/// hold none.
#[derive(Clone, Copy, Debug)]
pub struct ReciprocalRank;

impl PerDocument for ReciprocalRank {
    fn group(&self) -> Group {
        Group::Ranking
    }

    fn names(&self) -> Vec<String> {
        vec!["MRR".to_owned()]
    }

    fn contributions(&self, case: &Case<'_>, _table: &LabelTable, out: &mut Vec<Ratio>) {
        let first = case.top(DEPTH).iter().position(|&label| case.is_gold(label));
        out.push(Ratio::mean(first.map_or(0.0, |index| 1.0 / (index + 1) as f64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{assert_values, seen};

    #[test]
    fn by_hand() {
        let table = seen(10);
        assert_values(&ReciprocalRank, &table, &[(&[4, 3, 1], &[1, 3])], &[0.5]);
        assert_values(&ReciprocalRank, &table, &[(&[], &[1])], &[0.0]);
        assert_values(
            &ReciprocalRank,
            &table,
            &[(&[1], &[1]), (&[2, 3, 4], &[4]), (&[2], &[4])],
            &[4.0 / 9.0],
        );
    }
}
