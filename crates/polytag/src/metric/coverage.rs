//! coverage@k: how many of the labels in use are found at all.

use super::config::Cutoffs;
use super::per_label::{LabelCounts, PerLabel};
use super::seam::Group;
use super::table::LabelTable;

/// Of the distinct gold labels of the evaluated documents, the share that is right on the first k
/// places of at least one document.
#[derive(Clone, Debug)]
pub struct Coverage(pub Cutoffs);

impl PerLabel for Coverage {
    fn group(&self) -> Group {
        Group::Tail
    }

    fn names(&self) -> Vec<String> {
        self.0.names("coverage")
    }

    fn values(&self, counts: &LabelCounts, _table: &LabelTable, out: &mut Vec<Option<f64>>) {
        out.extend((0..self.0.len()).map(|cutoff| {
            let labels = counts.at(cutoff).count();
            let found = counts.at(cutoff).filter(|(_, count)| count.hits > 0).count();
            (labels > 0).then(|| found as f64 / labels as f64)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{cutoffs, label_values, seen};

    #[test]
    fn by_hand() {
        let metric = Coverage(cutoffs(&[1, 2]));
        // Distinct gold: 0, 1, 2. At 1 only label 0 is hit, at 2 label 1 as well.
        let cases: [(&[u32], &[u32]); 3] = [(&[0, 1], &[0, 1]), (&[0, 4], &[0, 2]), (&[2], &[1])];
        let values = label_values(&metric, &[1, 2], &seen(5), &cases);
        assert_eq!(
            values,
            [("coverage@1".to_owned(), Some(1.0 / 3.0)), ("coverage@2".to_owned(), Some(2.0 / 3.0))]
        );
        assert_eq!(label_values(&metric, &[1, 2], &seen(5), &[])[0].1, None);
    }
}
