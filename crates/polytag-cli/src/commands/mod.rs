//! One file or folder a command: its arguments, what it does, what it prints.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod curves;
pub(crate) mod demo;
pub(crate) mod encoders;
pub(crate) mod evaluate;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod labels;
pub(crate) mod predict;
pub(crate) mod serve;
pub(crate) mod serve_key;
pub(crate) mod split;

/// What a command leaves: an exit code, or an error that decides it.
pub(crate) type Done = anyhow::Result<std::process::ExitCode>;

/// The exit code of a command that did its work.
pub(crate) const DONE: std::process::ExitCode = std::process::ExitCode::SUCCESS;
