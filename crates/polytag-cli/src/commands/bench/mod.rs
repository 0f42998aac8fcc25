//! `polytag bench`: how fast the parts are on this machine, beside the peers that are installed.

mod peer; // another program's figure, from a Python that has it
mod search; // the best labels for a vector

use clap::{Args, Subcommand};

use super::Done;
use crate::settings::Session;

/// Measure the speed of a part, and of its peers where they are installed
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  polytag bench search --labels 1000000 --batch 64 --threads 2

Nothing is read or kept. A peer is used through Python where that has it, in the same run with as many
threads; `--python` says which Python.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    Search(search::Search),
}

impl Bench {
    pub(crate) fn run(&self, session: &Session) -> Done {
        match &self.part {
            Part::Search(search) => search.run(session),
        }
    }
}
