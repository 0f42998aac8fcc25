//! Rankings: labels with finite scores, best first, ties broken by position.
//!
//! Scores enter one by one or as a list; what leaves is a [`Ranking`] whose order is a function of
//! its content alone, so that equal inputs give equal bytes whatever the thread count.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::ids::LabelId;

/// A label and how well it fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The label.
    pub label: LabelId,
    /// Its score; always finite inside a [`Ranking`].
    pub score: f32,
}

impl Scored {
    /// Best first: the higher score, then the smaller label id.
    fn order(&self, other: &Scored) -> Ordering {
        other.score.total_cmp(&self.score).then(self.label.cmp(&other.label))
    }
}

/// A score that is not a finite number, caught where it was made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{label} has the score {score}, which is not a finite number")]
pub struct NotFinite {
    /// The label that was being scored.
    pub label: LabelId,
    /// What came out.
    pub score: f32,
}

/// Labels in order of score, best first, each at most once.
///
/// ```
/// use polytag::{ids::LabelId, ranking::{Ranking, Scored}};
/// let scored = |label, score| Scored { label: LabelId(label), score };
/// let ranking = Ranking::new(vec![scored(2, 0.5), scored(0, 0.5), scored(1, 0.9)], 2)?;
/// assert_eq!(ranking.labels().collect::<Vec<_>>(), [LabelId(1), LabelId(0)]);
/// # Ok::<(), polytag::ranking::NotFinite>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking(Vec<Scored>);

impl Ranking {
    /// The best `k` of `scored`.
    pub fn new(scored: Vec<Scored>, k: usize) -> Result<Ranking, NotFinite> {
        let mut top = TopK::new(k);
        for entry in scored {
            top.push(entry)?;
        }
        Ok(top.into_ranking())
    }

    /// The same order with other scores: what `score`, which must rise with a score, makes of each. Labels whose
    /// scores become the same by rounding stay in order.
    ///
    /// # Errors
    /// If a score becomes no finite number.
    pub fn rescored(mut self, score: impl Fn(f32) -> f32) -> Result<Ranking, NotFinite> {
        for entry in &mut self.0 {
            entry.score = score(entry.score);
            if !entry.score.is_finite() {
                return Err(NotFinite { label: entry.label, score: entry.score });
            }
        }
        Ok(self)
    }

    /// The entries, best first.
    pub fn entries(&self) -> &[Scored] {
        &self.0
    }

    /// The labels, best first.
    pub fn labels(&self) -> impl Iterator<Item = LabelId> + '_ {
        self.0.iter().map(|entry| entry.label)
    }

    /// How many labels are ranked.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no label is ranked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Keeps the best `k` of the scores pushed into it. Memory: `k` entries.
#[derive(Debug)]
pub struct TopK {
    k: usize,
    /// The worst kept entry on top.
    heap: BinaryHeap<WorstFirst>,
}

impl TopK {
    /// A collector of the best `k`.
    pub fn new(k: usize) -> TopK {
        TopK { k, heap: BinaryHeap::with_capacity(k.min(4096)) }
    }

    /// Offers one entry. The same label must not be offered twice.
    pub fn push(&mut self, entry: Scored) -> Result<(), NotFinite> {
        if !entry.score.is_finite() {
            return Err(NotFinite { label: entry.label, score: entry.score });
        }
        if self.heap.len() < self.k {
            self.heap.push(WorstFirst(entry));
        } else if let Some(mut worst) = self.heap.peek_mut()
            && entry.order(&worst.0) == Ordering::Less
        {
            *worst = WorstFirst(entry);
        }
        Ok(())
    }

    /// The worst of the entries kept, once there are `k`: a new one must be better.
    pub fn worst(&self) -> Option<Scored> {
        if self.heap.len() < self.k { None } else { self.heap.peek().map(|worst| worst.0) }
    }

    /// What was kept, best first.
    pub fn into_ranking(self) -> Ranking {
        let mut entries: Vec<Scored> = self.heap.into_iter().map(|worst| worst.0).collect();
        entries.sort_unstable_by(Scored::order);
        Ranking(entries)
    }
}

#[derive(Debug, PartialEq)]
struct WorstFirst(Scored);

impl Eq for WorstFirst {}

impl Ord for WorstFirst {
    fn cmp(&self, other: &WorstFirst) -> Ordering {
        self.0.order(&other.0)
    }
}

impl PartialOrd for WorstFirst {
    fn partial_cmp(&self, other: &WorstFirst) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scored(label: u32, score: f32) -> Scored {
        Scored { label: LabelId(label), score }
    }

    #[test]
    fn scores_that_become_the_same_stay_in_order() {
        let scored = |label, score| Scored { label: LabelId(label), score };
        let ranking = Ranking::new(vec![scored(0, 20.0), scored(1, 30.0)], 2).unwrap();
        let rescored = ranking.clone().rescored(|score| 1.0 / (1.0 + (-score).exp())).unwrap();
        assert_eq!(rescored.labels().collect::<Vec<_>>(), [LabelId(1), LabelId(0)]);
        assert!(ranking.rescored(|_| f32::NAN).is_err());
    }

    #[test]
    fn ties_go_to_the_smaller_id() {
        let ranking = Ranking::new(vec![scored(3, 1.0), scored(1, 1.0), scored(2, 1.0)], 2).unwrap();
        assert_eq!(ranking.entries(), [scored(1, 1.0), scored(2, 1.0)]);
    }

    #[test]
    fn a_score_that_is_not_finite_is_refused() {
        for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = Ranking::new(vec![scored(7, score)], 5).unwrap_err();
            assert_eq!(error.label, LabelId(7));
        }
    }

    #[test]
    fn nothing_is_kept_of_nothing() {
        assert!(Ranking::new(vec![], 5).unwrap().is_empty());
        assert!(Ranking::new(vec![scored(1, 1.0)], 0).unwrap().is_empty());
    }

    #[test]
    fn the_worst_is_known_once_there_are_enough() {
        let mut top = TopK::new(2);
        let mut worst = Vec::new();
        for (label, score) in [(0, 1.0), (1, 3.0), (2, 2.0), (3, 0.5)] {
            top.push(scored(label, score)).unwrap();
            worst.push(top.worst());
        }
        assert_eq!(worst, [None, Some(scored(0, 1.0)), Some(scored(2, 2.0)), Some(scored(2, 2.0))]);
        assert_eq!(TopK::new(0).worst(), None);
    }

    proptest! {
        #[test]
        fn top_k_is_the_head_of_the_sorted_list(scores in prop::collection::vec(-3i8..3, 0..40), k in 0usize..12) {
            let all: Vec<Scored> =
                scores.iter().enumerate().map(|(i, &s)| scored(i as u32, f32::from(s))).collect();
            let mut sorted = all.clone();
            sorted.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap().then(a.label.cmp(&b.label)));
            sorted.truncate(k);
            let ranking = Ranking::new(all, k).unwrap();
            prop_assert_eq!(ranking.entries(), &sorted[..]);
        }
    }
}
