//! What a task holds, counted in one pass over its files, with what is wrong in them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde::Serialize;

use super::error::DataError;
use super::record::{self, DOCUMENT_FIELDS, LABEL_FIELDS};
use super::space::{Frequency, LabelSpace};
use super::table_lines::unknown_columns;
use super::task::{Split, Task};
use super::unread::UnreadFile;
use crate::progress::{Event, Progress, Stop};
use crate::storage::Lines;

/// How many problems are kept word for word; the rest are counted.
const KEPT_PROBLEMS: usize = 20;

/// How many lines of each file are looked through for unknown fields.
const FIELD_SAMPLE: usize = 1000;

/// Counts over one split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SplitStatistics {
    /// Its name.
    pub split: &'static str,
    /// Documents that are in order.
    pub documents: u64,
    /// Documents that carry labels or say that they have none.
    pub labelled: u64,
    /// Documents with a title.
    pub titled: u64,
    /// Documents with neither title nor text.
    pub empty: u64,
    /// Words of titles and texts, by white space.
    pub words: u64,
    /// Words of the longest document.
    pub longest: u64,
    /// Pairs of a document and a label.
    pub pairs: u64,
    /// Pairs whose label no training document carries.
    pub unseen_pairs: u64,
    /// Documents with at least one such pair.
    pub documents_with_unseen: u64,
    /// Fields of the first lines that polytag does not read, with how often they stand there.
    pub unknown_fields: BTreeMap<String, u64>,
}

/// One bar of the histogram of labels by training documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TailBin {
    /// The least number of training documents.
    pub from: u32,
    /// The greatest.
    pub to: u32,
    /// How many labels lie between, ends included.
    pub labels: u64,
}

/// Counts over a whole task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// Labels.
    pub labels: u64,
    /// Labels that some training document carries.
    pub seen: u64,
    /// Labels that none carries.
    pub unseen: u64,
    /// Labels in 1 to 20 training documents.
    pub few: u64,
    /// Labels in 21 to 100.
    pub medium: u64,
    /// Labels in more than 100.
    pub many: u64,
    /// Labels with at least one alias.
    pub with_aliases: u64,
    /// Labels with a description.
    pub with_description: u64,
    /// Labels with a parent that exists.
    pub with_parents: u64,
    /// Parents named by labels that are not themselves labels.
    pub missing_parents: u64,
    /// Labels with the name of an earlier one, whatever the case of its letters.
    pub same_name: u64,
    /// Labels whose parents lead back to them, or lie between such.
    pub in_circles: u64,
    /// Fields of the first lines of the label file that polytag does not read, with how often they
    /// stand there.
    pub unknown_label_fields: BTreeMap<String, u64>,
    /// What lies in the folder, looks like a part of the task, and is not read.
    pub unread_files: Vec<UnreadFile>,
    /// The splits there are.
    pub splits: Vec<SplitStatistics>,
    /// Labels by how many training documents carry them.
    pub tail: Vec<TailBin>,
    /// The first things wrong, with file, line and remedy.
    pub problems: Vec<String>,
    /// How many things are wrong in all.
    pub problem_count: u64,
}

impl Statistics {
    /// Counts `task`, going on past lines that are wrong.
    pub fn of(task: &Task, progress: &dyn Progress, stop: &Stop) -> Result<Statistics, DataError> {
        let mut statistics = Statistics { unread_files: task.unread_files(), ..Statistics::default() };
        let mut space = task.labels().clone();
        for split in Split::ALL {
            if task.file(split)?.is_none() {
                continue;
            }
            progress.report(Event::Started { stage: split.as_str(), total: None });
            let counted = statistics.count_split(task, split, &mut space, stop)?;
            progress.report(Event::Advanced(counted.documents));
            progress.report(Event::Finished);
            statistics.splits.push(counted);
        }
        statistics.count_labels(&space);
        if let Some(path) = task.labels_file()? {
            statistics.unknown_label_fields = unknown_fields(&path, LABEL_FIELDS, task.options().max_line)?;
        }
        Ok(statistics)
    }

    fn count_split(
        &mut self,
        task: &Task,
        split: Split,
        space: &mut LabelSpace,
        stop: &Stop,
    ) -> Result<SplitStatistics, DataError> {
        let mut counted = SplitStatistics { split: split.as_str(), ..SplitStatistics::default() };
        let mut counts = vec![0u32; space.positions()];
        let problems_before = self.problem_count;
        for document in task.documents(split)? {
            if stop.is_asked() {
                return Err(DataError::Stopped);
            }
            let document = match document {
                Ok(document) => document,
                Err(error) => {
                    self.note(&error);
                    continue;
                }
            };
            let title = document.title.as_deref().unwrap_or_default();
            let words = (title.split_whitespace().count() + document.text.split_whitespace().count()) as u64;
            counted.documents += 1;
            counted.labelled += u64::from(document.labels.is_some());
            counted.titled += u64::from(!title.trim().is_empty());
            counted.empty += u64::from(words == 0);
            counted.words += words;
            counted.longest = counted.longest.max(words);
            counted.pairs += document.gold().len() as u64;
            if split == Split::Train {
                document.gold().iter().for_each(|label| counts[label.index()] += 1);
            } else {
                let unseen = document.gold().iter().filter(|&&label| !space.is_seen(label)).count() as u64;
                counted.unseen_pairs += unseen;
                counted.documents_with_unseen += u64::from(unseen > 0);
            }
        }
        if split == Split::Train {
            space.set_train_counts(counts, counted.documents);
        }
        let path = task.required_file(split)?;
        counted.unknown_fields = unknown_fields(&path, DOCUMENT_FIELDS, task.options().max_line)?;
        if counted.documents == 0 && self.problem_count == problems_before {
            self.note(&DataError::Empty { path, expected: "one document a line" });
        }
        Ok(counted)
    }

    fn count_labels(&mut self, space: &LabelSpace) {
        let mut tail: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for (id, label) in space.iter() {
            self.labels += 1;
            match space.frequency(id) {
                Frequency::Unseen => self.unseen += 1,
                Frequency::Few => self.few += 1,
                Frequency::Medium => self.medium += 1,
                Frequency::Many => self.many += 1,
            }
            self.with_aliases += u64::from(!label.aliases.is_empty());
            self.with_description += u64::from(label.description.is_some());
            let parents = space.parents(id).count();
            self.with_parents += u64::from(parents > 0);
            self.missing_parents += (label.parents.len() - parents) as u64;
            *tail.entry(bin_of(space.train_count(id))).or_default() += 1;
        }
        let mut names = HashSet::new();
        self.same_name =
            space.iter().filter(|(_, label)| !names.insert(label.name.trim().to_lowercase())).count() as u64;
        self.in_circles = in_circles(space);
        self.seen = self.labels - self.unseen;
        self.tail = tail.into_iter().map(|((from, to), labels)| TailBin { from, to, labels }).collect();
    }

    fn note(&mut self, error: &DataError) {
        self.problem_count += 1;
        if self.problems.len() < KEPT_PROBLEMS {
            self.problems.push(error.to_string());
        }
    }
}

/// How many labels are left when those are taken away, again and again, that have no parent left or no child left.
fn in_circles(space: &LabelSpace) -> u64 {
    let mut parents: Vec<Vec<usize>> = vec![Vec::new(); space.positions()];
    let mut children = parents.clone();
    for (label, _) in space.iter() {
        for parent in space.parents(label) {
            parents[label.index()].push(parent.index());
            children[parent.index()].push(label.index());
        }
    }
    let mut is_left = vec![true; space.positions()];
    for (these, others) in [(&parents, &children), (&children, &parents)] {
        let left_of = |list: &Vec<usize>| list.iter().filter(|&&label| is_left[label]).count();
        let mut left: Vec<usize> = these.iter().map(left_of).collect();
        let mut free: Vec<usize> =
            (0..left.len()).filter(|&label| is_left[label] && left[label] == 0).collect();
        while let Some(label) = free.pop() {
            is_left[label] = false;
            for &other in others[label].iter().filter(|&&other| is_left[other]) {
                left[other] -= 1;
                if left[other] == 0 {
                    free.push(other);
                }
            }
        }
    }
    is_left.iter().filter(|is_left| **is_left).count() as u64
}

/// The bar that a count belongs to: 0, 1, 2, 3-5, 6-10, 11-20, 21-50, 51-100, 101-200, …
fn bin_of(count: u32) -> (u32, u32) {
    if count <= 2 {
        return (count, count);
    }
    let (mut below, mut decade) = (2u32, 10u32);
    loop {
        for step in [decade / 2, decade, decade.saturating_mul(2)] {
            if count <= step {
                return (below + 1, step);
            }
            below = step;
        }
        decade = decade.saturating_mul(10);
    }
}

/// The fields on the first lines of a file that are not among the `known`.
fn unknown_fields(path: &Path, known: &[&str], max_line: usize) -> Result<BTreeMap<String, u64>, DataError> {
    if let Some((columns, rows)) = unknown_columns(path, known)? {
        return Ok(columns.into_iter().map(|column| (column, rows.min(FIELD_SAMPLE as u64))).collect());
    }
    let mut fields = BTreeMap::new();
    let mut lines = Lines::open(path, max_line)?;
    for _ in 0..FIELD_SAMPLE {
        match lines.next_line() {
            Ok(None) => break,
            Ok(Some(line)) => {
                for field in record::unknown_fields(line.text, known) {
                    *fields.entry(field).or_default() += 1;
                }
            }
            // What is wrong with the line has been noted by the count.
            Err(_) => {}
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ReadOptions;
    use crate::progress::Silent;

    fn statistics_of(files: &[(&str, &str)]) -> Statistics {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let task = Task::open(dir.path(), &ReadOptions::with_spool(dir.path())).unwrap();
        Statistics::of(&task, &Silent, &Stop::default()).unwrap()
    }

    #[test]
    fn an_empty_split_is_a_problem_whatever_else_is() {
        let statistics = statistics_of(&[
            ("labels.jsonl", "{\"id\":\"a\",\"name\":\"A\"}\n"),
            ("train.jsonl", "nonsense\n"),
            ("dev.jsonl", ""),
        ]);
        assert_eq!(statistics.problem_count, 2);
        assert!(statistics.problems[0].contains("train.jsonl, line 1: not a JSON object"));
        assert!(statistics.problems[1].contains("dev.jsonl: the file is empty"));
    }

    #[test]
    fn names_that_come_twice_and_circles_of_parents_are_counted() {
        let label = |id: &str, name: &str, parents: &[&str]| {
            format!("{}\n", serde_json::json!({"id": id, "name": name, "parents": parents}))
        };
        let of = |labels: &[String]| {
            let statistics = statistics_of(&[("labels.jsonl", &labels.concat())]);
            (statistics.same_name, statistics.in_circles)
        };
        let tree = [label("a", "Tea", &[]), label("b", "green tea", &["a"]), label("c", "tea ", &["a", "b"])];
        assert_eq!(of(&tree), (1, 0));
        let circle = [
            label("a", "1", &["b"]),
            label("b", "2", &["c"]),
            label("c", "3", &["a"]),
            label("below", "4", &["a"]),
            label("top", "5", &[]),
            label("self", "6", &["self", "top"]),
        ];
        assert_eq!(of(&circle), (0, 4));
    }

    #[test]
    fn fields_that_are_not_read_are_counted_for_documents_and_labels() {
        let statistics = statistics_of(&[
            (
                "labels.jsonl",
                "{\"id\":\"a\",\"name\":\"A\",\"code\":1}\n{\"id\":\"b\",\"name\":\"B\",\"code\":2,\"aliases\":[]}\n",
            ),
            ("train.jsonl", "{\"id\":\"d\",\"text\":\"x\",\"name\":\"y\"}\n"),
        ]);
        assert_eq!(statistics.unknown_label_fields, BTreeMap::from([("code".to_owned(), 2)]));
        assert_eq!(statistics.splits[0].unknown_fields, BTreeMap::from([("name".to_owned(), 1)]));
    }

    #[test]
    fn files_that_are_not_read_are_among_the_counts() {
        let labels = ("labels.jsonl", "{\"id\":\"a\",\"name\":\"A\"}\n");
        let statistics = statistics_of(&[labels, ("training.jsonl", "nonsense\n")]);
        assert_eq!((statistics.problem_count, statistics.splits.len()), (0, 0));
        assert_eq!(statistics.unread_files[0].name, "training.jsonl");
    }

    #[test]
    fn bins_touch_and_do_not_overlap() {
        let mut expected_start = 0;
        for count in 0..5000 {
            let (from, to) = bin_of(count);
            assert!((from..=to).contains(&count));
            if from == count {
                assert_eq!(count, expected_start);
                expected_start = to + 1;
            }
        }
        assert_eq!([3, 6, 11, 21, 51, 101].map(|n| bin_of(n).0), [3, 6, 11, 21, 51, 101]);
        assert!((bin_of(u32::MAX).0..=bin_of(u32::MAX).1).contains(&u32::MAX));
    }
}
