//! ZSR@k: how many unseen right labels make it into the ranking over all labels.

use super::case::Case;
use super::config::Cutoffs;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// Zero-shot recall: of a document's unseen gold labels, the share on the first k places of the
/// ranking over all labels, averaged over documents that have an unseen gold label.
///
/// It tells whether unseen labels hold their own beside seen ones, which the unseen-only ranking
/// does not ask.
#[derive(Clone, Debug)]
pub struct ZeroShotRecall(pub Cutoffs);

impl PerDocument for ZeroShotRecall {
    fn group(&self) -> Group {
        Group::Unseen
    }

    fn names(&self) -> Vec<String> {
        self.0.names("ZSR")
    }

    fn contributions(&self, case: &Case<'_>, table: &LabelTable, out: &mut Vec<Ratio>) {
        let unseen = case.gold.iter().filter(|&&label| !table.is_seen(label)).count();
        if unseen == 0 {
            out.extend(self.0.iter().map(|_| Ratio::NOTHING));
            return;
        }
        let is_found = |label| case.is_gold(label) && !table.is_seen(label);
        let found = |k: usize| case.top(k).iter().filter(|&&label| is_found(label)).count();
        out.extend(self.0.iter().map(|k| Ratio::mean(found(k) as f64 / unseen as f64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{assert_undefined, assert_values, cutoffs, table};

    #[test]
    fn by_hand() {
        let metric = ZeroShotRecall(cutoffs(&[1, 3]));
        let table = table(&[5, 5, 0, 0, 0], 10);
        // The gold label 0 is found, and does not count: it is seen.
        assert_values(&metric, &table, &[(&[0, 4, 2, 3], &[0, 2, 3])], &[0.0, 0.5]);
        // A document without unseen gold stays out of the mean.
        assert_values(&metric, &table, &[(&[2], &[2]), (&[0], &[1])], &[1.0, 1.0]);
        assert_values(&metric, &table, &[(&[2], &[2]), (&[], &[3])], &[0.5, 0.5]);
        assert_undefined(&metric, &table, &[(&[0], &[0])]);
    }
}
