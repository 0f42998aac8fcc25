//! The best labels for a vector.
//!
//! Label vectors enter by position and can be added and removed at any time; a query leaves as the
//! best `k` labels, exactly, out of all of them or an allowed part. A sparse query is answered by
//! [`Inverted`].

mod inverted; // sparse, exact

pub use inverted::{FormEntry, Inverted, Query, SearchScratch};

use crate::ids::LabelId;

/// A set of labels that may be answered with.
///
/// ```
/// use polytag::{ids::LabelId, index::Allowed};
/// let allowed: Allowed = [LabelId(2), LabelId(7)].into_iter().collect();
/// assert!(allowed.contains(LabelId(7)) && !allowed.contains(LabelId(3)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    bits: Vec<u64>,
    count: usize,
}

impl Allowed {
    /// Whether a label is in the set.
    pub fn contains(&self, label: LabelId) -> bool {
        self.bits.get(label.index() / 64).is_some_and(|word| word >> (label.index() % 64) & 1 == 1)
    }

    /// How many labels are in the set.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl FromIterator<LabelId> for Allowed {
    fn from_iter<T: IntoIterator<Item = LabelId>>(labels: T) -> Allowed {
        let mut set = Allowed::default();
        for label in labels {
            let word = label.index() / 64;
            if word >= set.bits.len() {
                set.bits.resize(word + 1, 0);
            }
            let bit = 1 << (label.index() % 64);
            set.count += usize::from(set.bits[word] & bit == 0);
            set.bits[word] |= bit;
        }
        set
    }
}
