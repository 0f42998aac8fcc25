//! `polytag inspect`: what a task holds, how long its tail is, what is wrong with it.

use std::path::PathBuf;

use clap::Args;
use polytag::data::{SplitStatistics, Statistics, TailBin};

use super::{DONE, Done};
use crate::failure::USER;
use crate::output;
use crate::page;
use crate::settings::Session;
use crate::table::{Table, count};

/// Width of the longest bar of the histogram.
const BAR: u64 = 40;

/// Show what a task folder holds and what is wrong with it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag inspect tasks/eurlex
  polytag inspect tasks/eurlex --html eurlex.html
  polytag inspect tasks/eurlex --json | jq .unseen

The exit code is 2 where something is wrong with a line.")]
pub(crate) struct Inspect {
    /// The task folder
    task: PathBuf,
    /// Write the same as a page with a picture
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let task = session.task(&self.task)?;
        let counted = Statistics::of(&task, session.progress.as_ref(), &session.stop);
        let statistics = counted.map_err(polytag::Error::from)?;
        let name = self.task.display().to_string();
        if let Some(path) = &self.html {
            output::write_file(path, &page::statistics(&name, &statistics), &[&self.task])?;
        }
        if self.json {
            output::print_json(&statistics)?;
        } else {
            output::print_text(&describe(&name, &statistics))?;
        }
        Ok(if statistics.problem_count > 0 { USER.into() } else { DONE })
    }
}

/// The statistics as text.
pub(crate) fn describe(name: &str, statistics: &Statistics) -> String {
    let mut text = format!("{name}\n\n");
    text.push_str(&splits(&statistics.splits).render(2));
    text.push('\n');
    text.push_str(&labels(statistics).render(2));
    text.push_str("\n  labels by training documents\n");
    text.push_str(&histogram(&statistics.tail).render(2));
    for note in notes(statistics) {
        text.push_str(&format!("\n  note: {note}\n"));
    }
    if statistics.problem_count > 0 {
        text.push_str(&format!("\n  {} problems\n", count(statistics.problem_count)));
        for problem in &statistics.problems {
            text.push_str(&format!("  {problem}\n"));
        }
        let unshown = statistics.problem_count - statistics.problems.len() as u64;
        if unshown > 0 {
            text.push_str(&format!("  … and {} more\n", count(unshown)));
        }
    }
    text
}

/// What is not wrong, but may not be meant.
pub(crate) fn notes(statistics: &Statistics) -> Vec<String> {
    let mut notes = Vec::new();
    let mut unread = |file: &str, field: &str, lines: u64| {
        let lines = count(lines);
        notes.push(format!(
            "{file} has a field {field:?} on {lines} of its first 1,000 lines, which is not read"
        ));
    };
    for (field, lines) in &statistics.unknown_label_fields {
        unread("labels.jsonl", field, *lines);
    }
    for split in &statistics.splits {
        for (field, lines) in &split.unknown_fields {
            unread(split.split, field, *lines);
        }
    }
    notes.extend(statistics.unread_files.iter().map(ToString::to_string));
    if statistics.same_name > 0 {
        let labels = count(statistics.same_name);
        notes.push(format!("{labels} labels have the name of an earlier one, and a text fits them alike"));
    }
    if statistics.in_circles > 0 {
        let labels = count(statistics.in_circles);
        notes.push(format!("the parents of {labels} labels lead in circles, or from one to another"));
    }
    for split in statistics.splits.iter().filter(|split| split.empty > 0) {
        notes.push(format!("{} documents of {} say nothing", count(split.empty), split.split));
    }
    notes
}

/// The splits, a column each.
pub(crate) fn splits(splits: &[SplitStatistics]) -> Table {
    let mut table = Table::default();
    table.row(std::iter::once("").chain(splits.iter().map(|split| split.split)));
    let mut row = |name: &str, value: &dyn Fn(&SplitStatistics) -> String| {
        table.row(std::iter::once(name.to_owned()).chain(splits.iter().map(value)));
    };
    row("documents", &|split| count(split.documents));
    row("labelled", &|split| count(split.labelled));
    row("with a title", &|split| count(split.titled));
    row("words", &|split| count(split.words));
    row("words a document", &|split| mean(split.words, split.documents));
    row("longest, in words", &|split| count(split.longest));
    row("pairs", &|split| count(split.pairs));
    row("labels a document", &|split| mean(split.pairs, split.labelled));
    row("pairs of unseen labels", &|split| count(split.unseen_pairs));
    row("documents with one", &|split| count(split.documents_with_unseen));
    table
}

/// The labels, a row a kind.
pub(crate) fn labels(statistics: &Statistics) -> Table {
    let whole = statistics.labels;
    let mut table = Table::default();
    let mut row = |name: &str, n: u64| {
        let share = if whole == 0 { 0.0 } else { 100.0 * n as f64 / whole as f64 };
        table.row([name.to_owned(), count(n), format!("{share:.1} %")]);
    };
    row("labels", whole);
    row("seen in train", statistics.seen);
    row("many (over 100 documents)", statistics.many);
    row("medium (21 to 100)", statistics.medium);
    row("few (1 to 20)", statistics.few);
    row("unseen in train", statistics.unseen);
    row("with aliases", statistics.with_aliases);
    row("with a description", statistics.with_description);
    row("with a parent", statistics.with_parents);
    if statistics.missing_parents > 0 {
        table.row(["parents that are no labels".to_owned(), count(statistics.missing_parents)]);
    }
    table
}

fn histogram(tail: &[TailBin]) -> Table {
    let most = tail.iter().map(|bin| bin.labels).max().unwrap_or(1).max(1);
    let mut table = Table::default();
    for bin in tail {
        let length = (bin.labels * BAR).div_ceil(most);
        table.row([bin_name(bin), count(bin.labels), "█".repeat(length as usize)]);
    }
    table
}

/// What a bar stands for.
pub(crate) fn bin_name(bin: &TailBin) -> String {
    match (bin.from, bin.to) {
        (0, 0) => "0 (unseen)".to_owned(),
        (from, to) if from == to => count(from.into()),
        (from, to) => format!("{}–{}", count(from.into()), count(to.into())),
    }
}

fn mean(sum: u64, n: u64) -> String {
    if n == 0 { "–".to_owned() } else { format!("{:.1}", sum as f64 / n as f64) }
}
