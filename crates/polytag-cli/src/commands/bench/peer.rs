//! A peer's figure: a small script in a Python that has the peer, fed through a pipe.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use serde::de::DeserializeOwned;

/// What came of asking a peer.
pub(super) enum Answer<T> {
    /// Its figures.
    Measured(T),
    /// Why there are none.
    Missing(String),
}

/// Runs `script` with arguments in a Python, hands `feed` its standard input, and reads the JSON on the
/// last line of its standard output. A peer that is not there is no error.
pub(super) fn ask<T: DeserializeOwned>(
    python: &Path,
    script: &str,
    arguments: &[String],
    feed: impl FnOnce(&mut BufWriter<ChildStdin>) -> io::Result<()>,
) -> Answer<T> {
    let name = python.display();
    let mut command = Command::new(python);
    command.arg("-c").arg(script).args(arguments);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Answer::Missing(format!("{name} cannot be run: {error}")),
    };
    let fed = child.stdin.take().map_or(Ok(()), |stdin| {
        let mut stdin = BufWriter::with_capacity(1 << 20, stdin);
        feed(&mut stdin).and_then(|()| stdin.flush())
    });
    let output = match child.wait_with_output() {
        Ok(output) => output,
        Err(error) => return Answer::Missing(format!("{name} cannot be heard: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let last = |text: &str| text.trim_end().lines().last().unwrap_or_default().to_owned();
    if !output.status.success() {
        return Answer::Missing(format!("{name}: {}", last(&said)));
    }
    if let Err(error) = fed {
        return Answer::Missing(format!("{name} did not take its input: {error}"));
    }
    match serde_json::from_str(&last(&String::from_utf8_lossy(&output.stdout))) {
        Ok(figures) => Answer::Measured(figures),
        Err(error) => Answer::Missing(format!("{name} gave no figures: {error}")),
    }
}
