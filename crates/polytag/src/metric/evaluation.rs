//! The evaluation of a model on a split: every metric in one pass, with intervals.
//!
//! Cases enter document by document into tallies; tallies of chunks are merged in order; what
//! leaves is a [`Report`].

use std::sync::Arc;

use super::calibration::{Calibration, CalibrationBins};
use super::case::Case;
use super::config::EvaluationPlan;
use super::coverage::Coverage;
use super::macro_average::MacroAverage;
use super::ndcg::Ndcg;
use super::per_document::{AveragesTally, DocumentAverages, PerDocument};
use super::per_label::{LabelAverages, LabelsTally, PerLabel};
use super::precision::Precision;
use super::psndcg::PropensityNdcg;
use super::psp::PropensityPrecision;
use super::r_precision::RPrecision;
use super::recall::Recall;
use super::reciprocal_rank::ReciprocalRank;
use super::report::{Measured, Report};
use super::seam::Metric;
use super::table::LabelTable;
use super::unseen_only::UnseenOnly;
use super::unseen_share::UnseenShare;
use super::zero_shot_recall::ZeroShotRecall;

/// All metrics of a report.
///
/// ```
/// use polytag::data::{Label, LabelSpace};
/// use polytag::metric::{Case, Evaluation, EvaluationConfig, EvaluationPlan, LabelTable};
/// let mut space = LabelSpace::default();
/// let glue = space.add(Label::new("3", "adhesive"))?;
///
/// let plan = EvaluationPlan::try_from(EvaluationConfig::default())?;
/// let evaluation = Evaluation::new(LabelTable::new(&space, plan.propensity()), &plan);
/// let mut tally = evaluation.start_tally();
/// evaluation.add(&mut tally, 0, &Case { ranking: &[glue], chances: None, unseen_ranking: None, gold: &[glue] });
/// let report = evaluation.report(tally, 0);
/// assert_eq!(report.value("P@1"), Some(100.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Evaluation {
    table: Arc<LabelTable>,
    by_document: DocumentAverages,
    by_label: LabelAverages,
    calibration: Calibration,
}

/// The documents evaluated so far.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationTally {
    documents: u64,
    documents_with_unseen_gold: u64,
    by_document: AveragesTally,
    by_label: LabelsTally,
    calibration: CalibrationBins,
}

impl Evaluation {
    /// Measures what `plan` asks for. `table` already has a position for every gold label.
    pub fn new(table: LabelTable, plan: &EvaluationPlan) -> Evaluation {
        let table = Arc::new(table);
        let bootstrap = plan.bootstrap.clone();
        Evaluation {
            by_document: DocumentAverages::new(document_metrics(plan), Arc::clone(&table), bootstrap),
            by_label: LabelAverages::new(
                label_metrics(plan),
                plan.ks.clone(),
                Arc::clone(&table),
                &plan.bootstrap,
            ),
            calibration: Calibration { places: plan.ks.deepest() },
            table,
        }
    }

    /// The tally of no document.
    pub fn start_tally(&self) -> EvaluationTally {
        EvaluationTally {
            documents: 0,
            documents_with_unseen_gold: 0,
            by_document: self.by_document.start(),
            by_label: self.by_label.start(),
            calibration: self.calibration.start(),
        }
    }

    /// Adds a document; `document` is its number in the split, and no other document's.
    ///
    /// # Panics
    /// When the case has no gold label, or a label that has no position in the table.
    pub fn add(&self, tally: &mut EvaluationTally, document: u64, case: &Case<'_>) {
        assert!(!case.gold.is_empty(), "documents without gold labels are left out by the caller");
        debug_assert!(case.gold.is_sorted(), "gold labels are ascending");
        tally.documents += 1;
        tally.documents_with_unseen_gold +=
            u64::from(case.gold.iter().any(|&label| !self.table.is_seen(label)));
        self.by_document.add(&mut tally.by_document, document, case);
        self.by_label.add(&mut tally.by_label, document, case);
        self.calibration.add(&mut tally.calibration, document, case);
    }

    /// Adds the documents of `later`, a chunk that follows those of `tally`.
    pub fn merge(&self, tally: &mut EvaluationTally, later: EvaluationTally) {
        tally.documents += later.documents;
        tally.documents_with_unseen_gold += later.documents_with_unseen_gold;
        self.by_document.merge(&mut tally.by_document, later.by_document);
        self.by_label.merge(&mut tally.by_label, later.by_label);
        self.calibration.merge(&mut tally.calibration, later.calibration);
    }

    /// The values and their intervals. `documents_without_gold` were left out by the caller.
    ///
    /// Cost: one pass over the documents for each of at most 200 replicates, on all threads.
    pub fn report(&self, tally: EvaluationTally, documents_without_gold: u64) -> Report {
        let mut metrics = measured(&self.by_document, &tally.by_document);
        metrics.extend(measured(&self.by_label, &tally.by_label));
        metrics.extend(measured(&self.calibration, &tally.calibration));
        Report {
            metrics,
            documents: tally.documents,
            documents_without_gold,
            documents_with_unseen_gold: tally.documents_with_unseen_gold,
            labels: self.table.labels(),
            unseen_labels: self.table.unseen_labels(),
            unknown_gold_labels: self.table.unknown_labels(),
        }
    }
}

fn document_metrics(plan: &EvaluationPlan) -> Vec<Box<dyn PerDocument>> {
    let (ks, recall_ks) = (&plan.ks, &plan.recall_ks);
    vec![
        Box::new(Precision(ks.clone())),
        Box::new(Recall(recall_ks.clone())),
        Box::new(RPrecision(ks.clone())),
        Box::new(Ndcg(ks.clone())),
        Box::new(PropensityPrecision(ks.clone())),
        Box::new(PropensityNdcg(ks.clone())),
        Box::new(ZeroShotRecall(plan.zsr_ks.clone())),
        Box::new(UnseenOnly(Precision(ks.clone()))),
        Box::new(UnseenOnly(Recall(recall_ks.clone()))),
        Box::new(UnseenOnly(Ndcg(ks.clone()))),
        Box::new(UnseenOnly(ReciprocalRank)),
        Box::new(UnseenShare(ks.clone())),
    ]
}

fn label_metrics(plan: &EvaluationPlan) -> Vec<Box<dyn PerLabel>> {
    vec![Box::new(MacroAverage(plan.ks.clone())), Box::new(Coverage(plan.ks.clone()))]
}

/// The values that are defined, in percent.
fn measured<M: Metric>(metric: &M, tally: &M::Tally) -> Vec<Measured> {
    let values = metric.values(tally).into_iter().zip(metric.intervals(tally));
    let named = metric.names().into_iter().zip(values);
    named
        .filter_map(|(name, (value, interval))| {
            let interval = interval.map(|interval| interval.scaled(100.0));
            Some(Measured { name: name.name, group: name.group, value: 100.0 * value?, interval })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::EvaluationConfig;
    use crate::metric::fixture::{RandomSplit, seen};

    fn report(split: &RandomSplit, config: EvaluationConfig, chunk: usize) -> Report {
        let plan = EvaluationPlan::try_from(config).unwrap();
        let evaluation = Evaluation::new(split.table.clone(), &plan);
        let mut tally = evaluation.start_tally();
        for cases in split.cases.chunks(chunk) {
            let mut later = evaluation.start_tally();
            cases.iter().for_each(|case| evaluation.add(&mut later, case.number, &case.borrow()));
            evaluation.merge(&mut tally, later);
        }
        evaluation.report(tally, 3)
    }

    #[test]
    fn chunks_merged_are_one_pass() {
        let split = RandomSplit::new(11, 60);
        let (whole, parts) =
            (report(&split, EvaluationConfig::default(), 60), report(&split, EvaluationConfig::default(), 9));
        assert_eq!(whole.metrics.len(), parts.metrics.len());
        for (a, b) in whole.metrics.iter().zip(&parts.metrics) {
            assert_eq!(a.name, b.name);
            assert!((a.value - b.value).abs() < 1e-9, "{}", a.name);
            let (a, b) = (a.interval.unwrap(), b.interval.unwrap());
            assert!((a.low - b.low).abs() < 1e-9 && (a.high - b.high).abs() < 1e-9);
        }
        assert_eq!((whole.documents, whole.documents_without_gold), (60, 3));
    }

    #[test]
    fn the_seed_moves_intervals_and_nothing_else() {
        let split = RandomSplit::new(12, 50);
        let with = |seed| report(&split, EvaluationConfig { seed, ..EvaluationConfig::default() }, 16);
        assert_eq!(with(1), with(1));
        let (one, two) = (with(1), with(2));
        assert_ne!(one, two);
        assert!(one.metrics.iter().zip(&two.metrics).all(|(a, b)| a.value == b.value));
    }

    #[test]
    fn what_is_undefined_is_left_out() {
        let mut split = RandomSplit::new(13, 20);
        split.table = seen(split.table.positions());
        let report = report(&split, EvaluationConfig { replicates: 0, ..EvaluationConfig::default() }, 8);
        assert_eq!(report.documents_with_unseen_gold, 0);
        for name in ["ZSR@10", "unseen P@1", "unseen R@100", "unseen nDCG@5", "unseen MRR"] {
            assert_eq!(report.value(name), None, "{name}");
        }
        assert_eq!(report.value("unseen share@5"), Some(0.0));
        assert!(
            report.metrics.iter().all(|measured| measured.interval.is_none() && measured.value.is_finite())
        );
    }

    #[test]
    fn the_default_names_are_these() {
        let split = RandomSplit::new(14, 400);
        let report = report(&split, EvaluationConfig { replicates: 0, ..EvaluationConfig::default() }, 100);
        let names: Vec<&str> = report.metrics.iter().map(|measured| measured.name.as_str()).collect();
        let expected = "P@1 P@3 P@5|R@1 R@3 R@5 R@10 R@100|RP@1 RP@3 RP@5|nDCG@1 nDCG@3 nDCG@5|\
            PSP@1 PSP@3 PSP@5|PSnDCG@1 PSnDCG@3 PSnDCG@5|ZSR@10 ZSR@50 ZSR@100";
        let expected: Vec<&str> = expected.split(['|', ' ']).collect();
        assert_eq!(names[..expected.len()], expected);
        for name in
            ["unseen MRR", "unseen share@5", "macro P@5", "macro P@5 few", "macro P@5 many", "coverage@5"]
        {
            assert!(names.contains(&name), "{name}");
        }
    }
}
