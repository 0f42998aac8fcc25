//! New tasks out of old, with less supervision: labels or pairs are taken off the train documents.
//!
//! A task enters; what leaves is a task folder with the same labels, the same dev and test, and the
//! same train documents, of which fewer pairs are known. A train document that loses all its labels
//! becomes unlabelled, without the field `labels`: to say that it is labelled with nothing would
//! teach methods what is not true. One that was labelled with nothing before stays so.
//!
//! The files are read twice, first to count; memory grows with the labels, not with the documents.
//! Fields that polytag does not read are not carried over.

mod draw;

use std::path::Path;

use serde::{Deserialize, Serialize};

use self::draw::{PassingDraw, draw_labels};
use super::document::Document;
use super::error::DataError;
use super::record::DocumentRecord;
use super::share::Share;
use super::space::LabelSpace;
use super::task::{Split, Task};
use super::writer::{TaskSummary, TaskWriter};
use crate::ids::LabelId;
use crate::progress::{Progress, Stage, Stop};

/// What is taken off the train documents.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Cut {
    /// So many labels, which stay in dev and test: zero-shot labels (paper 000, section IV-A). They
    /// are drawn from those that train carries and dev or test too, as others cannot be measured.
    ZeroShot {
        /// How many.
        labels: usize,
    },
    /// All labels but a share of those that train carries, which keep all their pairs: few-shot by
    /// label coverage (paper 001, section 5.3).
    FewShot {
        /// The share that stays; nothing at 0%, which is extreme zero-shot.
        share: Share,
    },
    /// All pairs but a share of them: few-shot by pairs (paper 001, appendix A).
    FewShotPairs {
        /// The share that stays.
        share: Share,
    },
}

/// How a task is split anew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitConfig {
    /// What is taken off.
    pub cut: Cut,
    /// What makes one drawing differ from another.
    #[serde(default)]
    pub seed: u64,
}

/// What a split left of the train documents' labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SplitSummary {
    /// Labels that train documents still carry.
    pub labels_kept: u64,
    /// Labels that they carried before and no longer do.
    pub labels_dropped: u64,
    /// Labels that no train document carries now, whether they were dropped or never there.
    pub unseen_labels: u64,
    /// Pairs of a train document and a label that stayed.
    pub pairs_kept: u64,
    /// Pairs that were taken off.
    pub pairs_dropped: u64,
    /// Train documents that lost their last label.
    pub documents_unlabelled: u64,
    /// What the new folder holds.
    pub task: TaskSummary,
}

/// Writes `task` with the labels that `config` leaves it as the new task folder `target`.
///
/// ```no_run
/// use polytag::data::split::{Cut, SplitConfig, split};
/// use polytag::data::{ReadOptions, Task};
/// use polytag::progress::{Silent, Stop};
///
/// let task = Task::open("tasks/mag-cs".as_ref(), &ReadOptions::with_spool("/tmp"))?;
/// let config = SplitConfig { cut: Cut::ZeroShot { labels: 500 }, seed: 1 };
/// let summary = split(&task, &config, "tasks/mag-cs-500".as_ref(), &Silent, &Stop::default())?;
/// assert_eq!(summary.labels_dropped, 500);
/// # Ok::<(), polytag::data::DataError>(())
/// ```
pub fn split(
    task: &Task,
    config: &SplitConfig,
    target: &Path,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<SplitSummary, DataError> {
    let mut writer = TaskWriter::create(target, &[task.dir()])?;
    let reading = Reading { task, progress, stop };
    let before = Counts::of(&reading)?;
    if before.train.iter().all(|&documents| documents == 0) {
        let path = task.required_file(Split::Train)?;
        return Err(DataError::Split {
            problem: format!("{}: no document carries a label, so none can be taken off", path.display()),
            remedy: "split a task whose train documents are labelled",
        });
    }
    let mut keeper = Keeper::new(config, &before)?;
    for (_, label) in task.labels().iter() {
        writer.label(label.clone())?;
    }
    let mut kept = vec![0; task.labels().positions()];
    let mut documents_unlabelled = 0;
    for split in Split::ALL {
        reading.documents(split, "writing documents", |mut document| {
            if split == Split::Train {
                documents_unlabelled += u64::from(keeper.strip(&mut document));
                document.gold().iter().for_each(|label| kept[label.index()] += 1);
            }
            writer.document(split, &record_of(document, task.labels()))
        })?;
    }
    let seen = |counts: &[u64]| counts.iter().filter(|&&count| count > 0).count() as u64;
    let (pairs_kept, labels_kept) = (kept.iter().sum(), seen(&kept));
    Ok(SplitSummary {
        labels_kept,
        labels_dropped: seen(&before.train).saturating_sub(labels_kept),
        unseen_labels: task.labels().len() as u64 - labels_kept,
        pairs_kept,
        pairs_dropped: before.train.iter().sum::<u64>().saturating_sub(pairs_kept),
        documents_unlabelled,
        task: writer.finish()?,
    })
}

/// A task being read, watched and stopped.
struct Reading<'a> {
    task: &'a Task,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

impl Reading<'_> {
    /// Hands each document of `split` to `take`; none where dev or test is missing.
    fn documents(
        &self,
        split: Split,
        stage: &str,
        mut take: impl FnMut(Document) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        if split != Split::Train && self.task.file(split)?.is_none() {
            return Ok(());
        }
        let stage = Stage::start(self.progress, stage, None);
        for document in self.task.documents(split)? {
            if self.stop.is_asked() {
                return Err(DataError::Stopped);
            }
            take(document?)?;
            stage.step();
        }
        stage.finish();
        Ok(())
    }
}

/// How many documents carry each label, by position.
struct Counts {
    train: Vec<u64>,
    /// In dev and test together.
    measured: Vec<u64>,
}

impl Counts {
    fn of(reading: &Reading<'_>) -> Result<Counts, DataError> {
        let positions = reading.task.labels().positions();
        let mut counts = Counts { train: vec![0; positions], measured: vec![0; positions] };
        for split in Split::ALL {
            let counts = if split == Split::Train { &mut counts.train } else { &mut counts.measured };
            reading.documents(split, "counting labels", |document| {
                document.gold().iter().for_each(|label| counts[label.index()] += 1);
                Ok(())
            })?;
        }
        Ok(counts)
    }

    /// The labels in train for which `also` holds, in order.
    fn seen(&self, also: impl Fn(LabelId) -> bool) -> Vec<LabelId> {
        let labels = (0..self.train.len()).map(LabelId::from_index);
        labels.filter(|&label| self.train[label.index()] > 0 && also(label)).collect()
    }
}

/// Decides which pairs of the train documents stay.
enum Keeper {
    /// Those of certain labels, by position.
    Labels(Vec<bool>),
    /// So many, wherever they are.
    Pairs(Box<PassingDraw>),
}

impl Keeper {
    fn new(config: &SplitConfig, counts: &Counts) -> Result<Keeper, DataError> {
        match config.cut {
            Cut::ZeroShot { labels } => {
                let candidates = counts.seen(|label| counts.measured[label.index()] > 0);
                check_zero_shot(labels, candidates.len())?;
                let mut stays = vec![true; counts.train.len()];
                for label in draw_labels(candidates, labels, config.seed) {
                    stays[label.index()] = false;
                }
                Ok(Keeper::Labels(stays))
            }
            Cut::FewShot { share } => {
                let candidates = counts.seen(|_| true);
                let count = share.of(candidates.len() as u64) as usize;
                let mut stays = vec![false; counts.train.len()];
                for label in draw_labels(candidates, count, config.seed) {
                    stays[label.index()] = true;
                }
                Ok(Keeper::Labels(stays))
            }
            Cut::FewShotPairs { share } => {
                let pairs = counts.train.iter().sum();
                let draw = PassingDraw::new(share.of(pairs), pairs, config.seed);
                Ok(Keeper::Pairs(Box::new(draw)))
            }
        }
    }

    /// Takes the labels that do not stay off a document; whether it lost its last one.
    fn strip(&mut self, document: &mut Document) -> bool {
        let Some(labels) = &mut document.labels else { return false };
        if labels.is_empty() {
            return false;
        }
        labels.retain(|label| match self {
            Keeper::Labels(stays) => stays[label.index()],
            Keeper::Pairs(draw) => draw.take(),
        });
        let lost = labels.is_empty();
        if lost {
            document.labels = None;
        }
        lost
    }
}

fn check_zero_shot(labels: usize, candidates: usize) -> Result<(), DataError> {
    let problem = if labels == 0 {
        "no label is asked to be made zero-shot".to_owned()
    } else if labels > candidates {
        format!(
            "{labels} labels cannot be made zero-shot: only {candidates} are both in train and in dev or test"
        )
    } else {
        return Ok(());
    };
    Err(DataError::Split { problem, remedy: "ask for a number between one and that of those labels" })
}

fn record_of(document: Document, labels: &LabelSpace) -> DocumentRecord {
    let ids = |found: Vec<LabelId>| found.into_iter().map(|id| labels.label(id).id.clone()).collect();
    DocumentRecord {
        id: document.id,
        title: document.title,
        text: document.text,
        labels: document.labels.map(ids),
    }
}

#[cfg(test)]
mod tests;
