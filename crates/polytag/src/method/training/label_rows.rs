//! Which row of the label matrix is whose: labels with training documents come first, so that they are a
//! prefix of it.

use crate::data::LabelSpace;
use crate::ids::LabelId;

/// The labels in the order of their rows.
#[derive(Debug)]
pub(in crate::method) struct LabelRows {
    labels: Vec<LabelId>,
    seen: usize,
    row_of: Vec<u32>,
}

impl LabelRows {
    pub(in crate::method) fn new(space: &LabelSpace) -> LabelRows {
        let active = || space.iter().map(|(label, _)| label);
        let mut labels: Vec<LabelId> = active().filter(|&label| space.is_seen(label)).collect();
        let seen = labels.len();
        labels.extend(active().filter(|&label| !space.is_seen(label)));
        let mut row_of = vec![u32::MAX; space.positions()];
        for (row, label) in labels.iter().enumerate() {
            row_of[label.index()] = row as u32;
        }
        LabelRows { labels, seen, row_of }
    }

    /// How many rows.
    pub(in crate::method) fn len(&self) -> usize {
        self.labels.len()
    }

    /// How many of them, the first ones, are of labels with training documents.
    pub(in crate::method) fn seen(&self) -> usize {
        self.seen
    }

    /// The labels, row by row.
    pub(in crate::method) fn labels(&self) -> &[LabelId] {
        &self.labels
    }

    /// The row of a label.
    pub(in crate::method) fn row(&self, label: LabelId) -> u32 {
        self.row_of[label.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;

    #[test]
    fn seen_labels_come_first() {
        let mut space = LabelSpace::default();
        for id in ["a", "b", "c", "d"] {
            space.add(Label::new(id, id)).unwrap();
        }
        space.set_train_counts(vec![0, 2, 0, 1], 3);
        space.remove("c").unwrap();
        let rows = LabelRows::new(&space);
        assert_eq!(rows.labels(), [LabelId(1), LabelId(3), LabelId(0)]);
        assert_eq!((rows.len(), rows.seen(), rows.row(LabelId(3))), (3, 2, 1));
    }
}
