//! `polytag bench`: how fast the parts are on this machine, beside the peers that are installed.

mod peer; // another program's figure, from a Python that has it
mod encode; // texts to vectors
mod train_step; // a step of training an encoder
mod search; // the best labels for a vector
mod index; // an index over vectors of a file
mod fusion; // the best combinations of predicted labels

use std::io::{self, Write};

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use polytag::method::MethodError;

use super::Done;
use crate::settings::Session;

/// Measure the speed of a part, and of its peers where they are installed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag bench encode --encoder minilm --texts texts.txt --threads 2
  polytag bench train-step --shape minilm --batch 256
  polytag bench search --labels 1000000 --batch 64 --threads 2
  polytag bench fusion --predicted 15 --unseen 500 --threads 2

No results are kept. A peer is used through Python where that has it, in the same run with as many
threads; `--python` says which Python.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    Encode(encode::Encode),
    TrainStep(train_step::TrainStep),
    Search(search::Search),
    Index(index::Index),
    Fusion(fusion::Fusion),
}

impl Bench {
    pub(crate) fn run(&self, session: &Session) -> Done {
        match &self.part {
            Part::Encode(encode) => encode.run(session),
            Part::TrainStep(train_step) => train_step.run(session),
            Part::Search(search) => search.run(session),
            Part::Index(index) => index.run(session),
            Part::Fusion(fusion) => fusion.run(session),
        }
    }
}

fn at_least_one(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

fn unless_stopped(session: &Session) -> Result<(), polytag::Error> {
    if session.stop.is_asked() { Err(MethodError::Stopped.into()) } else { Ok(()) }
}

fn write(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}
