//! `polytag split`: a task with less supervision, for measuring how methods do without.

use std::path::PathBuf;

use clap::Args;
use polytag::data::Share;
use polytag::data::split::{Cut, SplitConfig, split};

use super::{DONE, Done};
use crate::output;
use crate::settings::Session;
use crate::table::{Table, count};

/// Make a zero-shot or few-shot task out of a task
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag split tasks/mag tasks/mag-500 --zero-shot 500 --seed 1
  polytag split tasks/amazon tasks/amazon-1 --few-shot 1%
  polytag split tasks/amazon tasks/amazon-p5 --few-shot-pairs 5%

Dev, test and the labels stay as they are. Train documents stay too, with fewer labels; one that loses
all of them counts as unlabelled.")]
pub(crate) struct Split {
    /// The task folder
    task: PathBuf,
    /// The new task folder
    out: PathBuf,
    #[command(flatten)]
    cut: CutArguments,
    /// What makes one drawing differ from another
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct CutArguments {
    /// Take so many labels off the train documents
    #[arg(long, value_name = "N")]
    zero_shot: Option<usize>,
    /// Keep all pairs of this share of the labels, such as 1%
    #[arg(long, value_name = "SHARE")]
    few_shot: Option<Share>,
    /// Keep this share of the pairs, such as 1%
    #[arg(long, value_name = "SHARE")]
    few_shot_pairs: Option<Share>,
}

impl CutArguments {
    fn cut(&self) -> Cut {
        match (self.zero_shot, self.few_shot, self.few_shot_pairs) {
            (Some(labels), _, _) => Cut::ZeroShot { labels },
            (_, Some(share), _) => Cut::FewShot { share },
            (_, _, Some(share)) => Cut::FewShotPairs { share },
            (None, None, None) => unreachable!("the group is required"),
        }
    }
}

impl Split {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let task = session.task(&self.task)?;
        let config = SplitConfig { cut: self.cut.cut(), seed: self.seed };
        let made = split(&task, &config, &self.out, session.progress.as_ref(), &session.stop);
        let summary = made.map_err(polytag::Error::from)?;
        if self.json {
            output::print_json(&summary)?;
            return Ok(DONE);
        }
        let mut table = Table::default();
        table
            .row(["", "kept", "dropped"])
            .row(["labels in train".to_owned(), count(summary.labels_kept), count(summary.labels_dropped)])
            .row(["pairs in train".to_owned(), count(summary.pairs_kept), count(summary.pairs_dropped)])
            .row(["labels unseen now".to_owned(), count(summary.unseen_labels)])
            .row(["documents unlabelled now".to_owned(), count(summary.documents_unlabelled)]);
        output::print_text(&format!("{}\n{}", self.out.display(), table.render(2)))?;
        Ok(DONE)
    }
}
