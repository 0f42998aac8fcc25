//! Metrics among unseen labels alone: the protocol of paper 000, section IV.

use super::case::Case;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// A metric over the ranking of unseen labels against the unseen gold labels.
///
/// Only documents with an unseen gold label and an unseen ranking count. Gold labels that the model
/// has never heard of are unseen too, and always missed.
#[derive(Clone, Debug)]
pub struct UnseenOnly<M>(pub M);

impl<M: PerDocument> PerDocument for UnseenOnly<M> {
    fn group(&self) -> Group {
        Group::Unseen
    }

    fn names(&self) -> Vec<String> {
        self.0.names().into_iter().map(|name| format!("unseen {name}")).collect()
    }

    fn contributions(&self, case: &Case<'_>, table: &LabelTable, out: &mut Vec<Ratio>) {
        let gold: Vec<_> = case.gold.iter().copied().filter(|&label| !table.is_seen(label)).collect();
        match case.unseen_ranking {
            Some(ranking) if !gold.is_empty() => {
                let among_unseen = Case { ranking, chances: None, unseen_ranking: None, gold: &gold };
                self.0.contributions(&among_unseen, table, out);
            }
            _ => out.extend(self.0.names().iter().map(|_| Ratio::NOTHING)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{cutoffs, ids, table};
    use crate::metric::{Ndcg, Precision, Recall, ReciprocalRank};

    /// What a document with the gold labels 0 (seen), 2 and 3 (unseen) adds.
    fn added(metric: impl PerDocument, unseen_ranking: Option<&[u32]>) -> Vec<Ratio> {
        let table = table(&[5, 5, 0, 0, 0, 0], 10);
        let (ranking, gold) = (ids(&[0, 1, 2]), ids(&[0, 2, 3]));
        let unseen_ranking = unseen_ranking.map(ids);
        let mut out = Vec::new();
        let case =
            Case { ranking: &ranking, chances: None, unseen_ranking: unseen_ranking.as_deref(), gold: &gold };
        UnseenOnly(metric).contributions(&case, &table, &mut out);
        out
    }

    #[test]
    fn by_hand() {
        let ks = || cutoffs(&[1, 3]);
        let ranking: &[u32] = &[4, 3, 5, 2];
        assert_eq!(added(Precision(ks()), Some(ranking)), [Ratio::mean(0.0), Ratio::mean(1.0 / 3.0)]);
        assert_eq!(added(Recall(ks()), Some(ranking)), [Ratio::mean(0.0), Ratio::mean(0.5)]);
        assert_eq!(added(ReciprocalRank, Some(ranking)), [Ratio::mean(0.5)]);
        let ndcg = added(Ndcg(ks()), Some(ranking));
        assert!((ndcg[1].num - 0.630_929_754 / 1.630_929_754).abs() < 1e-9);
        assert_eq!(UnseenOnly(Ndcg(ks())).names(), ["unseen nDCG@1", "unseen nDCG@3"]);
    }

    #[test]
    fn an_empty_unseen_ranking_is_a_miss_and_a_missing_one_is_nothing() {
        assert_eq!(added(ReciprocalRank, Some(&[])), [Ratio::mean(0.0)]);
        assert_eq!(added(ReciprocalRank, None), [Ratio::NOTHING]);
    }

    #[test]
    fn documents_without_unseen_gold_stay_out() {
        let table = table(&[5, 0], 10);
        let (ranking, unseen_ranking, gold) = (ids(&[0, 1]), ids(&[1]), ids(&[0]));
        let case =
            Case { ranking: &ranking, chances: None, unseen_ranking: Some(&unseen_ranking), gold: &gold };
        let mut out = Vec::new();
        UnseenOnly(Precision(cutoffs(&[1, 3]))).contributions(&case, &table, &mut out);
        assert_eq!(out, [Ratio::NOTHING, Ratio::NOTHING]);
    }
}
