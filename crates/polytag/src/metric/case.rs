//! One document to be measured: what was predicted beside what is right.

use crate::ids::LabelId;

/// A document's ranking and its gold labels.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The predicted labels out of all labels, best first, each once, as deep as the metrics ask.
    /// A method that found fewer labels gives a shorter list, or an empty one.
    pub ranking: &'a [LabelId],
    /// How probable each of them is, where the model's scores are probabilities.
    pub chances: Option<&'a [f32]>,
    /// The ranking restricted to unseen labels, which is not a part of `ranking`: it is as deep again.
    /// Wanted for documents with an unseen gold label; without it they are left out of the
    /// unseen-only metrics.
    pub unseen_ranking: Option<&'a [LabelId]>,
    /// The right labels, ascending, each once, at least one.
    pub gold: &'a [LabelId],
}

impl<'a> Case<'a> {
    /// The labels on the first `k` places, fewer where the ranking is shorter.
    pub fn top(&self, k: usize) -> &'a [LabelId] {
        &self.ranking[..k.min(self.ranking.len())]
    }

    /// Whether `label` is right for the document. Cost: logarithmic in the gold labels.
    pub fn is_gold(&self, label: LabelId) -> bool {
        self.gold.binary_search(&label).is_ok()
    }

    /// How many of the first `k` places hold a right label.
    pub fn hits(&self, k: usize) -> usize {
        self.top(k).iter().filter(|&&label| self.is_gold(label)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::ids;
    use crate::ranking::{Ranking, Scored};

    #[test]
    fn hits_are_counted_within_the_first_places() {
        let (ranking, gold) = (ids(&[4, 1, 3]), ids(&[1, 3, 9]));
        let case = Case { ranking: &ranking, chances: None, unseen_ranking: None, gold: &gold };
        assert_eq!([0, 1, 2, 3, 10].map(|k| case.hits(k)), [0, 0, 1, 2, 2]);
        assert_eq!(case.top(10).len(), 3);
    }

    #[test]
    fn ties_are_settled_by_the_ranking() {
        let tied = [5, 1, 3].map(|label| Scored { label: LabelId(label), score: 0.5 });
        let ranking: Vec<LabelId> = Ranking::new(tied.to_vec(), 3).unwrap().labels().collect();
        let hits_first = |gold| {
            Case { ranking: &ranking, chances: None, unseen_ranking: None, gold: &[LabelId(gold)] }.hits(1)
        };
        assert_eq!([1, 3, 5].map(hits_first), [1, 0, 0]);
    }
}
