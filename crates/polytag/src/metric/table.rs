//! What metrics ask about a label: was it seen, how often, and how much does finding it weigh.
//!
//! A [`LabelSpace`] enters; what leaves is a table by position that has room for more labels: gold
//! labels that the model has never heard of count as misses, so they need positions too.

use serde::{Deserialize, Serialize};

use crate::data::{Frequency, LabelSpace};
use crate::ids::LabelId;

/// The propensity model of Jain et al. (KDD 2016): how likely a true label is to be recorded.
///
/// Rare labels are forgotten by annotators more often, so finding one weighs more. The usual values
/// are a = 0.5, b = 0.4 for Wikipedia, a = 0.6, b = 2.6 for Amazon and the default for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Propensity {
    /// How fast the weight falls as a label grows more frequent.
    pub a: f64,
    /// Shifts the count, so that a label without training documents has a finite weight.
    pub b: f64,
}

impl Default for Propensity {
    fn default() -> Propensity {
        Propensity { a: 0.55, b: 1.5 }
    }
}

impl Propensity {
    /// The inverse propensity of a label that `count` of `documents` training documents carry:
    /// `1 + c (count + b)^-a` with `c = (ln documents - 1) (b + 1)^a`.
    ///
    /// With one or two training documents `c` would be negative and rare labels would weigh less
    /// than frequent ones; it is then taken as zero, and every label weighs one.
    pub fn inverse(&self, count: u32, documents: u64) -> f64 {
        let c = ((documents as f64).ln() - 1.0).max(0.0) * (self.b + 1.0).powf(self.a);
        1.0 + c * (f64::from(count) + self.b).powf(-self.a)
    }
}

/// By position: how often training saw each label and its inverse propensity. 12 bytes a label.
///
/// ```
/// use polytag::data::{Label, LabelSpace};
/// use polytag::metric::{LabelTable, Propensity};
/// let mut space = LabelSpace::default();
/// let glue = space.add(Label::new("3", "adhesive"))?;
/// space.set_train_counts(vec![7], 100);
/// let mut table = LabelTable::new(&space, Propensity::default());
/// let unknown = table.push_unknown();
/// assert!(table.is_seen(glue) && !table.is_seen(unknown));
/// assert!(table.inverse_propensity(glue) < table.inverse_propensity(unknown));
/// # Ok::<(), polytag::data::SpaceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LabelTable {
    counts: Vec<u32>,
    inverse: Vec<f64>,
    /// The weight of a label without training documents.
    unseen_inverse: f64,
    labels: u64,
    unseen_labels: u64,
    unknown_labels: u64,
}

impl LabelTable {
    /// The facts of `space`, with `propensity` taken from an
    /// [`EvaluationPlan`](super::EvaluationPlan), which has checked it.
    pub fn new(space: &LabelSpace, propensity: Propensity) -> LabelTable {
        let documents = space.train_documents();
        let counts: Vec<u32> =
            (0..space.positions()).map(|index| space.train_count(LabelId::from_index(index))).collect();
        LabelTable {
            inverse: counts.iter().map(|&count| propensity.inverse(count, documents)).collect(),
            counts,
            unseen_inverse: propensity.inverse(0, documents),
            labels: space.len() as u64,
            unseen_labels: space.iter().filter(|&(id, _)| !space.is_seen(id)).count() as u64,
            unknown_labels: 0,
        }
    }

    /// Gives a position past all others to a gold label that the label space does not have. It
    /// counts as unseen, and no ranking can hold it.
    pub fn push_unknown(&mut self) -> LabelId {
        let position = LabelId::from_index(self.counts.len());
        self.counts.push(0);
        self.inverse.push(self.unseen_inverse);
        self.unknown_labels += 1;
        position
    }

    /// How many positions there are, those of removed and of unknown labels among them.
    pub fn positions(&self) -> usize {
        self.counts.len()
    }

    /// How many labels the label space has.
    pub fn labels(&self) -> u64 {
        self.labels
    }

    /// How many of them training never saw.
    pub fn unseen_labels(&self) -> u64 {
        self.unseen_labels
    }

    /// How many labels were pushed on top.
    pub fn unknown_labels(&self) -> u64 {
        self.unknown_labels
    }

    /// Whether at least one training document carries the label.
    ///
    /// # Panics
    /// Here and below: when `label` has no position in the table.
    pub fn is_seen(&self, label: LabelId) -> bool {
        self.counts[label.index()] > 0
    }

    /// The label's frequency class.
    pub fn frequency(&self, label: LabelId) -> Frequency {
        Frequency::of(self.counts[label.index()])
    }

    /// How much finding the label weighs; at least one.
    pub fn inverse_propensity(&self, label: LabelId) -> f64 {
        self.inverse[label.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::table;

    #[test]
    fn inverse_propensity_follows_the_formula() {
        // ln 20 - 1 = 1.995732 and (3 + 1)^0.5 = 2 make c = 3.991465; (1 + 3)^-0.5 = 0.5.
        let propensity = Propensity { a: 0.5, b: 3.0 };
        assert!((propensity.inverse(1, 20) - 2.995_732_273_553_991).abs() < 1e-12);
        assert!(propensity.inverse(0, 20) > propensity.inverse(1, 20));
    }

    #[test]
    fn tiny_training_sets_weigh_all_labels_alike() {
        for documents in [0, 1, 2] {
            assert_eq!(Propensity::default().inverse(0, documents), 1.0);
            assert_eq!(Propensity::default().inverse(5, documents), 1.0);
        }
    }

    #[test]
    fn unknown_labels_are_counted_apart() {
        let mut table = table(&[0, 3, 50], 100);
        let unknown = table.push_unknown();
        assert_eq!(unknown, LabelId(3));
        assert_eq!((table.positions(), table.labels()), (4, 3));
        assert_eq!((table.unseen_labels(), table.unknown_labels()), (1, 1));
        assert_eq!(table.frequency(unknown), Frequency::Unseen);
        assert_eq!(table.inverse_propensity(unknown), table.inverse_propensity(LabelId(0)));
    }
}
