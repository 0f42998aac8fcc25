//! `polytag serve-key`: a key for a server that other machines reach.

use clap::{Args, ValueEnum};
use polytag_server::keys::{KeyConfig, Scope};

use super::{DONE, Done};
use crate::output;

/// Make an API key for `polytag serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  polytag serve-key --name catalogue --scope label-write

The key is shown once and kept nowhere; what goes into the server's settings is its hash.")]
pub(crate) struct ServeKey {
    /// What the key is called in the server's journal
    #[arg(long)]
    name: String,
    /// What it opens
    #[arg(long, value_enum, default_value_t = Choice::Read)]
    scope: Choice,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    /// Tagging, explaining, looking at labels
    Read,
    /// Also changing labels, and saying which fit
    LabelWrite,
    /// Also reading what people said, with their texts
    Admin,
}

impl ServeKey {
    pub(crate) fn run(&self) -> Done {
        let scope = match self.scope {
            Choice::Read => Scope::Read,
            Choice::LabelWrite => Scope::LabelWrite,
            Choice::Admin => Scope::Admin,
        };
        let (key, kept) = KeyConfig::random(&self.name, scope);
        let settings = toml::to_string(&kept)?;
        output::print_text(&format!(
            "The key, for whoever asks:\n\n  {key}\n\nIts hash, for the file of `polytag serve --config`:\n\n[[keys]]\n{settings}"
        ))?;
        Ok(DONE)
    }
}
