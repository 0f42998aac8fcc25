//! Sets of labels, a bit a position.

use crate::ids::LabelId;

/// A set of labels that may be answered with.
///
/// ```
/// use polytag::{ids::LabelId, index::Allowed};
/// let allowed: Allowed = [LabelId(2), LabelId(7)].into_iter().collect();
/// assert!(allowed.contains(LabelId(7)) && !allowed.contains(LabelId(3)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    bits: Vec<u64>,
    count: usize,
}

impl Allowed {
    /// The labels at the positions below `count`.
    pub fn first(count: usize) -> Allowed {
        let mut bits = vec![u64::MAX; count.div_ceil(64)];
        if let Some(last) = bits.last_mut() {
            *last >>= (64 - count % 64) % 64;
        }
        Allowed { bits, count }
    }

    /// Puts a label in; says whether it was not there before.
    pub fn insert(&mut self, label: LabelId) -> bool {
        let (word, bit) = place(label);
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.count += usize::from(new);
        new
    }

    /// Takes a label out; says whether it was there.
    pub fn remove(&mut self, label: LabelId) -> bool {
        let (word, bit) = place(label);
        let there = self.contains(label);
        if there {
            self.bits[word] &= !bit;
            self.count -= 1;
        }
        there
    }

    /// The labels in the set, by position.
    pub fn iter(&self) -> impl Iterator<Item = LabelId> + '_ {
        let all = (0..self.bits.len() * 64).map(LabelId::from_index);
        all.filter(|&label| self.contains(label))
    }

    /// Whether a label is in the set.
    pub fn contains(&self, label: LabelId) -> bool {
        let (word, bit) = place(label);
        self.word(word) & bit != 0
    }

    /// How many labels are in the set.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Those of the labels that are in another set, too, if there is one.
    pub fn intersected(&self, other: Option<&Allowed>) -> Allowed {
        let bits =
            (0..self.words()).map(|word| self.word(word) & other.map_or(u64::MAX, |other| other.word(word)));
        Allowed::from_words(bits.collect())
    }

    /// Those of the labels that are not in another set.
    pub fn without(&self, other: &Allowed) -> Allowed {
        Allowed::from_words((0..self.words()).map(|word| self.word(word) & !other.word(word)).collect())
    }

    fn from_words(bits: Vec<u64>) -> Allowed {
        let count = bits.iter().map(|word| word.count_ones() as usize).sum();
        Allowed { bits, count }
    }

    /// The labels from position 64 · `index` on, one a bit, the first in the lowest.
    pub(super) fn word(&self, index: usize) -> u64 {
        self.bits.get(index).copied().unwrap_or(0)
    }

    /// How many words it takes to hold every label of the set.
    pub(super) fn words(&self) -> usize {
        self.bits.len()
    }
}

fn place(label: LabelId) -> (usize, u64) {
    (label.index() / 64, 1 << (label.index() % 64))
}

/// Sets are equal when they hold the same labels, whatever they held before.
impl PartialEq for Allowed {
    fn eq(&self, other: &Allowed) -> bool {
        let words = self.words().max(other.words());
        self.count == other.count && (0..words).all(|index| self.word(index) == other.word(index))
    }
}

impl Eq for Allowed {}

impl FromIterator<LabelId> for Allowed {
    fn from_iter<T: IntoIterator<Item = LabelId>>(labels: T) -> Allowed {
        let mut set = Allowed::default();
        for label in labels {
            set.insert(label);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_and_go() {
        let mut set = Allowed::default();
        assert!(set.insert(LabelId(70)) && set.insert(LabelId(3)) && !set.insert(LabelId(70)));
        assert_eq!(set.len(), 2);
        assert!(set.remove(LabelId(70)) && !set.remove(LabelId(70)) && !set.remove(LabelId(1000)));
        assert_eq!(set, [LabelId(3), LabelId(3)].into_iter().collect());
        assert!(set.remove(LabelId(3)) && set.is_empty());
        assert_eq!(set, Allowed::default());
    }

    #[test]
    fn the_first_labels_are_a_set_like_any_other() {
        for count in [0, 1, 63, 64, 65, 128, 200] {
            let set: Allowed = (0..count).map(LabelId).collect();
            assert_eq!(Allowed::first(count as usize), set);
        }
    }
}
