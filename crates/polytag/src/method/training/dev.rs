//! The dev split as token ids, and what rankings of its documents are worth.

use super::texts::Documents;
use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::metric::{Case, Evaluation, EvaluationConfig, EvaluationPlan, LabelTable, Report};

/// The documents of the dev split and what is measured on them.
pub(in crate::method) struct Dev {
    documents: Documents,
    /// The labels of each document in order.
    gold: Vec<Vec<LabelId>>,
    evaluation: Evaluation,
    depth: usize,
}

impl Dev {
    /// `space` has the counts of the train split; what is measured is measured at these depths, recall at the
    /// second ones.
    pub(in crate::method) fn new(
        documents: Documents,
        space: &LabelSpace,
        (ks, recall_ks): (&[usize], &[usize]),
    ) -> Dev {
        let config = EvaluationConfig {
            ks: ks.to_vec(),
            recall_ks: recall_ks.to_vec(),
            replicates: 0,
            ..EvaluationConfig::default()
        };
        let plan = EvaluationPlan::try_from(config).expect("these settings make sense");
        let evaluation = Evaluation::new(LabelTable::new(space, plan.propensity()), &plan);
        let gold = (0..documents.len())
            .map(|document| {
                let mut gold = documents.labels(document).to_vec();
                gold.sort_unstable();
                gold
            })
            .collect();
        Dev { documents, gold, evaluation, depth: plan.depth() }
    }

    /// The documents that are measured on.
    pub(in crate::method) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// How many labels of a document are looked at.
    pub(in crate::method) fn depth(&self) -> usize {
        self.depth
    }

    /// What the best labels of each document are worth.
    pub(in crate::method) fn report(&self, rankings: &[Vec<LabelId>]) -> Report {
        let mut tally = self.evaluation.start_tally();
        for (document, (ranking, gold)) in rankings.iter().zip(&self.gold).enumerate() {
            let case = Case { ranking, chances: None, unseen_ranking: None, gold };
            self.evaluation.add(&mut tally, self.documents.numbers[document], &case);
        }
        self.evaluation.report(tally, 0)
    }
}
