//! Running a model over a split.
//!
//! Documents enter as a stream and are asked of the model in batches; what leaves is the [`Report`].
//! Documents that carry an unseen label are asked a second time, among unseen labels alone (paper
//! 000's protocol). Memory: one batch of documents, and the tallies.

use rayon::prelude::*;

use super::case::Case;
use super::config::EvaluationPlan;
use super::error::MetricError;
use super::evaluation::{Evaluation, EvaluationTally};
use super::report::Report;
use super::table::LabelTable;
use crate::Error;
use crate::data::{DataError, Document, Passage, Split, Task};
use crate::ids::LabelId;
use crate::index::Allowed;
use crate::predict::{Ask, Predictor};
use crate::progress::{Event, Watch};
use crate::ranking::Ranking;

/// Documents asked at once.
const BATCH: usize = 1024;

/// Bytes of text asked at once, whichever is reached first.
const BATCH_BYTES: usize = 64 << 20;

/// Documents tallied at once; fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 256;

/// Measures `model` on a split of `task`.
///
/// Labels are matched by id. One that the model does not know counts as unseen and is always missed.
/// Documents without a label are left out of every average and counted in the report; pyxclib counts
/// those that are labelled with nothing as misses.
pub fn evaluate(
    model: &dyn Predictor,
    task: &Task,
    split: Split,
    plan: &EvaluationPlan,
    watch: &Watch<'_>,
) -> Result<Report, Error> {
    let (table, positions) = match_labels(model, task, split, plan)?;
    let runner = Runner { model, plan, unseen: unseen(model), evaluation: Evaluation::new(table, plan) };
    let mut tally = runner.evaluation.start_tally();
    let (mut batch, mut bytes, mut number, mut without_gold) = (Vec::new(), 0, 0, 0);
    watch.progress.report(Event::Started { stage: "evaluating documents", total: None });
    for document in task.documents(split)? {
        if watch.stop.is_asked() {
            return Err(DataError::Stopped.into());
        }
        let document = document?;
        number += 1;
        if document.gold().is_empty() {
            without_gold += 1;
            continue;
        }
        let mut gold: Vec<LabelId> = document.gold().iter().map(|label| positions[label.index()]).collect();
        gold.sort_unstable();
        bytes += document.passage().bytes();
        batch.push(Asked { number, document, gold });
        if batch.len() == BATCH || bytes >= BATCH_BYTES {
            runner.measure(&batch, &mut tally)?;
            watch.progress.report(Event::Advanced(batch.len() as u64));
            batch.clear();
            bytes = 0;
        }
    }
    if number == 0 {
        let path = task.required_file(split)?;
        return Err(DataError::Empty { path, expected: "one document a line" }.into());
    }
    if number == without_gold {
        return Err(MetricError::NoGold { path: task.required_file(split)?, documents: number }.into());
    }
    runner.measure(&batch, &mut tally)?;
    watch.progress.report(Event::Advanced(batch.len() as u64));
    watch.progress.report(Event::Finished);
    Ok(runner.evaluation.report(tally, without_gold))
}

/// A document to be asked, its labels by the model's positions.
struct Asked {
    number: u64,
    document: Document,
    gold: Vec<LabelId>,
}

/// The labels of a ranking and their scores.
struct Ranked {
    labels: Vec<LabelId>,
    scores: Vec<f32>,
}

struct Runner<'a> {
    model: &'a dyn Predictor,
    plan: &'a EvaluationPlan,
    unseen: Allowed,
    evaluation: Evaluation,
}

impl Runner<'_> {
    fn measure(&self, batch: &[Asked], tally: &mut EvaluationTally) -> Result<(), Error> {
        let rankings = self.rank(batch.iter(), None)?;
        // The unseen labels of the gold may be unknown to the model, too.
        let is_unseen = |label: &LabelId| !self.is_seen(*label);
        let with_unseen: Vec<bool> = batch.iter().map(|asked| asked.gold.iter().any(is_unseen)).collect();
        let asked_again = batch.iter().zip(&with_unseen).filter(|(_, with)| **with).map(|(asked, _)| asked);
        let mut among_unseen = self.rank(asked_again, Some(&self.unseen))?.into_iter();
        let unseen_rankings: Vec<Option<Ranked>> =
            with_unseen.iter().map(|&with| if with { among_unseen.next() } else { None }).collect();
        let are_chances = self.model.gives_probabilities();
        let cases: Vec<(u64, Case<'_>)> = batch
            .iter()
            .zip(rankings.iter().zip(&unseen_rankings))
            .map(|(asked, (ranked, unseen))| {
                let case = Case {
                    ranking: &ranked.labels,
                    chances: are_chances.then_some(&ranked.scores),
                    unseen_ranking: unseen.as_ref().map(|unseen| &unseen.labels[..]),
                    gold: &asked.gold,
                };
                (asked.number, case)
            })
            .collect();
        let tallies: Vec<EvaluationTally> = cases
            .par_chunks(CHUNK)
            .map(|chunk| {
                let mut part = self.evaluation.start_tally();
                chunk.iter().for_each(|(number, case)| self.evaluation.add(&mut part, *number, case));
                part
            })
            .collect();
        tallies.into_iter().for_each(|part| self.evaluation.merge(tally, part));
        Ok(())
    }

    fn rank<'b>(
        &self,
        asked: impl Iterator<Item = &'b Asked>,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranked>, Error> {
        let asked: Vec<&Asked> = asked.collect();
        let passages: Vec<Passage<'_>> = asked.iter().map(|asked| asked.document.passage()).collect();
        let depth = self.plan.depth();
        // One more where the document itself may be among them.
        let ask = Ask { k: depth + usize::from(self.item_to_item()), allowed };
        let rankings = self.model.predict(&passages, &ask)?;
        let labels = |(asked, ranking): (&&Asked, &Ranking)| {
            let itself = self.itself(&asked.document);
            let others = ranking.entries().iter().filter(|entry| Some(entry.label) != itself);
            let (labels, scores) = others.take(depth).map(|entry| (entry.label, entry.score)).unzip();
            Ranked { labels, scores }
        };
        Ok(asked.iter().zip(&rankings).map(labels).collect())
    }

    /// The label that a document is itself, where documents are labels.
    fn itself(&self, document: &Document) -> Option<LabelId> {
        self.item_to_item().then(|| self.model.label_space().find(&document.id)).flatten()
    }

    /// Whether documents are labels, as the caller says or the model.
    fn item_to_item(&self) -> bool {
        self.plan.item_to_item || self.model.item_to_item()
    }

    fn is_seen(&self, label: LabelId) -> bool {
        let space = self.model.label_space();
        label.index() < space.positions() && space.is_seen(label)
    }
}

fn unseen(model: &dyn Predictor) -> Allowed {
    let space = model.label_space();
    space.iter().map(|(id, _)| id).filter(|&id| !space.is_seen(id)).collect()
}

/// The model's table of labels, and the position in it of each label of the task. Labels of the
/// split that the model does not know get positions past its own.
fn match_labels(
    model: &dyn Predictor,
    task: &Task,
    split: Split,
    plan: &EvaluationPlan,
) -> Result<(LabelTable, Vec<LabelId>), Error> {
    let space = model.label_space();
    let mut table = LabelTable::new(space, plan.propensity());
    let known: Vec<Option<LabelId>> = task.labels().iter().map(|(_, label)| space.find(&label.id)).collect();
    if known.iter().all(Option::is_some) {
        return Ok((table, known.into_iter().flatten().collect()));
    }
    let mut is_gold = vec![false; known.len()];
    for document in task.documents(split)? {
        document?.gold().iter().for_each(|label| is_gold[label.index()] = true);
    }
    // A label that is not gold is never looked up; any position does.
    let place = |(known, gold): (Option<LabelId>, bool)| match known {
        Some(id) => id,
        None if gold => table.push_unknown(),
        None => LabelId(0),
    };
    let positions = known.into_iter().zip(is_gold).map(place).collect();
    Ok((table, positions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Label, LabelSpace, ReadOptions};
    use crate::method::{LexicalConfig, LexicalModel};
    use crate::metric::EvaluationConfig;
    use crate::progress::{Silent, Stop};

    fn report(labels: &[(&str, &str, u32)], documents: &str) -> Report {
        report_with(labels, documents, EvaluationConfig::default())
    }

    fn report_with(labels: &[(&str, &str, u32)], documents: &str, config: EvaluationConfig) -> Report {
        let dir = tempfile::tempdir().unwrap();
        let names = "{\"id\":\"tea\",\"name\":\"tea\"}\n{\"id\":\"law\",\"name\":\"law\"}\n{\"id\":\"bee\",\"name\":\"bee\"}\n";
        std::fs::write(dir.path().join("labels.jsonl"), names).unwrap();
        std::fs::write(dir.path().join("dev.jsonl"), documents).unwrap();
        let mut space = LabelSpace::default();
        for (id, name, _) in labels {
            space.add(Label::new(*id, *name)).unwrap();
        }
        space.set_train_counts(labels.iter().map(|(_, _, count)| *count).collect(), 10);
        let model = LexicalModel::without_documents(&LexicalConfig::default(), space).unwrap();
        let task = Task::open(dir.path(), &ReadOptions::with_spool(dir.path())).unwrap();
        let plan = EvaluationPlan::try_from(config).unwrap();
        let watch = Watch { progress: &Silent, stop: &Stop::default() };
        evaluate(&model, &task, Split::Dev, &plan, &watch).unwrap()
    }

    const DOCUMENTS: &str = concat!(
        "{\"id\":\"1\",\"text\":\"tea law\",\"labels\":[\"law\",\"tea\"]}\n",
        "{\"id\":\"2\",\"text\":\"tea\",\"labels\":[\"bee\"]}\n",
        "{\"id\":\"3\",\"text\":\"tea\",\"labels\":[]}\n",
        "{\"id\":\"4\",\"text\":\"tea\"}\n",
    );

    #[test]
    fn labels_are_matched_by_id_whatever_their_order() {
        // The model knows the labels in another order than the task.
        let report = report(&[("bee", "bee", 0), ("law", "law", 3), ("tea", "tea", 1)], DOCUMENTS);
        assert_eq!((report.documents, report.documents_without_gold), (2, 2));
        assert_eq!(report.value("P@1"), Some(50.0));
        assert_eq!(report.value("R@3"), Some(50.0));
        assert_eq!(report.documents_with_unseen_gold, 1);
        assert_eq!(report.value("ZSR@10"), Some(0.0));
        assert_eq!(report.unknown_gold_labels, 0);
    }

    #[test]
    fn a_document_that_is_a_label_is_left_out_of_its_own_ranking() {
        let documents = "{\"id\":\"tea\",\"text\":\"tea tea law\",\"labels\":[\"law\"]}\n";
        let labels = [("law", "law", 1), ("tea", "tea", 1)];
        let precision = |item_to_item| {
            let config = EvaluationConfig { item_to_item, ..EvaluationConfig::default() };
            report_with(&labels, documents, config).value("P@1")
        };
        assert_eq!((precision(false), precision(true)), (Some(0.0), Some(100.0)));
    }

    #[test]
    fn a_label_the_model_lacks_is_missed_not_skipped() {
        let report = report(&[("law", "law", 3), ("tea", "tea", 1)], DOCUMENTS);
        assert_eq!(report.unknown_gold_labels, 1);
        assert_eq!(report.value("R@100"), Some(50.0));
        assert_eq!(report.value("unseen MRR"), Some(0.0));
    }
}
