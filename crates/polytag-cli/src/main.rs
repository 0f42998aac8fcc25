//! The `polytag` program: from a task folder to measured predictions on the command line.
//!
//! Arguments enter; tables, JSON and exit codes leave. Everything that counts is done by the library.

// This crate is where the program speaks.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod cache;
mod columns;
mod commands;
mod device;
mod failure;
mod output;
mod page;
mod progress;
mod settings;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{
    bench, completions, curves, demo, encoders, evaluate, explain, fit, import, inspect, labels, predict,
    serve, serve_key, split,
};
use settings::{Session, Settings};

/// Tag any text with the right labels out of a very large label set that keeps changing.
#[derive(Debug, Parser)]
#[command(
    name = "polytag",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  polytag demo                                     the whole story in a minute
  polytag fit TASK --out MODEL                     learn from a task folder
  polytag predict MODEL < docs.jsonl > tags.jsonl  tag documents
  polytag evaluate MODEL TASK --split dev          measure
  polytag serve MODEL                              an API and a page to tag with

Exit codes: 0 done, 1 a failure of ours, 2 something to mend in the input, 130 stopped by Ctrl-C.
The unpacked copy of a split lies in TMPDIR while a method is fitted."
)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    #[command(subcommand_value_name = "FORMAT", subcommand_help_heading = "Formats")]
    Import(import::Import),
    Inspect(inspect::Inspect),
    Split(split::Split),
    Fit(fit::Fit),
    Predict(predict::Predict),
    Evaluate(evaluate::Evaluate),
    Explain(explain::Explain),
    Labels(labels::Labels),
    Curves(curves::Curves),
    Serve(Box<serve::Serve>),
    ServeKey(serve_key::ServeKey),
    Encoders(encoders::Encoders),
    Bench(bench::Bench),
    Completions(completions::Completions),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let session = match Session::start(&arguments.settings) {
        Ok(session) => session,
        Err(error) => return failure::report(&error),
    };
    let done = match arguments.command {
        Command::Demo(command) => command.run(&session),
        Command::Import(command) => command.run(&session),
        Command::Inspect(command) => command.run(&session),
        Command::Split(command) => command.run(&session),
        Command::Fit(command) => command.run(&session),
        Command::Predict(command) => command.run(&session),
        Command::Evaluate(command) => command.run(&session),
        Command::Explain(command) => command.run(&session),
        Command::Labels(command) => command.run(&session),
        Command::Curves(command) => command.run(),
        Command::Serve(command) => command.run(&session),
        Command::ServeKey(command) => command.run(),
        Command::Encoders(command) => command.run(&session),
        Command::Bench(command) => command.run(&session),
        Command::Completions(command) => command.run::<Arguments>(),
    };
    match done {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_make_sense() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        let mut program = Arguments::command();
        program.build();
        for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("polytag "), "{} has no example", command.get_name());
        }
    }
}
