//! From errors to words and exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

use polytag::data::DataError;
use polytag::encoder::EncoderError;
use polytag::method::MethodError;
use polytag::predict::tables::TablesError;
use polytag::{Error, Fault};

/// The user's input must be mended before the program can go on.
pub(crate) const USER: u8 = 2;
const OURS: u8 = 1;
const STOPPED: u8 = 130;

/// A complaint of the command line itself.
#[derive(Debug)]
pub(crate) struct UserError(pub(crate) String);

impl std::fmt::Display for UserError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UserError {}

/// An error that the user can mend.
pub(crate) fn user_error(message: impl Into<String>) -> anyhow::Error {
    UserError(message.into()).into()
}

/// Prints a line on standard error. Nobody may be listening there, and that stops no work.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says what went wrong and gives the exit code for it.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        // Whoever read our output has read enough.
        return ExitCode::SUCCESS;
    }
    // Our errors hold their causes in their own words.
    say(&format!("error: {error}"));
    ExitCode::from(exit_code(error))
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<UserError>().is_some() {
        return USER;
    }
    if let Some(engine) = error.downcast_ref::<polytag_nn::Error>() {
        return engine_exit_code(engine);
    }
    match error.downcast_ref::<Error>() {
        Some(Error::Data(DataError::Stopped) | Error::Method(MethodError::Stopped)) => STOPPED,
        Some(Error::Method(MethodError::Data(DataError::Stopped))) => STOPPED,
        Some(Error::Encoder(EncoderError::Stopped)) => STOPPED,
        Some(Error::Tables(TablesError::Stopped { .. } | TablesError::Data(DataError::Stopped))) => STOPPED,
        Some(library) if library.fault() == Fault::User => USER,
        _ => OURS,
    }
}

fn engine_exit_code(error: &polytag_nn::Error) -> u8 {
    use polytag_nn::Error::{File, Io, NoGpu, NoNccl, OutOfMemory, Stopped, Unfit};
    match error {
        Stopped => STOPPED,
        NoGpu { .. } | NoNccl { .. } | OutOfMemory { .. } | File { .. } | Io { .. } | Unfit(_) => USER,
        _ => OURS,
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
