//! unseen share@k: how much of a ranking a method gives to unseen labels, right or wrong.

use super::case::Case;
use super::config::Cutoffs;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// The share of unseen labels among the first k places, averaged over all documents.
///
/// No measure of quality: it shows a method that never offers unseen labels, or hardly anything
/// else. Of a short ranking the places that are filled count; an empty one has a share of zero.
#[derive(Clone, Debug)]
pub struct UnseenShare(pub Cutoffs);

impl PerDocument for UnseenShare {
    fn group(&self) -> Group {
        Group::Unseen
    }

    fn names(&self) -> Vec<String> {
        self.0.names("unseen share")
    }

    fn contributions(&self, case: &Case<'_>, table: &LabelTable, out: &mut Vec<Ratio>) {
        out.extend(self.0.iter().map(|k| {
            let top = case.top(k);
            let unseen = top.iter().filter(|&&label| !table.is_seen(label)).count();
            Ratio::mean(unseen as f64 / top.len().max(1) as f64)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{assert_values, cutoffs, table};

    #[test]
    fn by_hand() {
        let metric = UnseenShare(cutoffs(&[1, 3]));
        let table = table(&[5, 5, 0, 0], 10);
        assert_values(&metric, &table, &[(&[2, 0, 1, 3], &[0])], &[1.0, 1.0 / 3.0]);
        assert_values(&metric, &table, &[(&[0, 3], &[0])], &[0.0, 0.5]);
        assert_values(&metric, &table, &[(&[], &[0])], &[0.0, 0.0]);
        assert_values(&metric, &table, &[(&[2], &[0]), (&[0], &[0])], &[0.5, 0.5]);
    }
}
