//! `polytag completions`: what the shell needs to complete our commands.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{DONE, Done};
use crate::output;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  polytag completions bash > ~/.local/share/bash-completion/completions/polytag"
)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run<Program: CommandFactory>(&self) -> Done {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Program::command(), "polytag", &mut script);
        output::print_text(&String::from_utf8_lossy(&script))?;
        Ok(DONE)
    }
}
