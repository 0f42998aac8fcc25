//! A program that runs beside the test, and ends with it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long anything may take to show: machines that test also compile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where a program says that it is ready.
#[derive(Clone, Copy)]
pub(crate) enum Says {
    Output,
    Errors,
}

/// A running program; dropping it kills it.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a program and waits for the line that has `mark`; gives what comes after it there.
    pub(crate) fn start(mut command: Command, says: Says, mark: &'static str) -> (Process, String) {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match says {
            Says::Output => command.stdout(Stdio::piped()),
            Says::Errors => command.stderr(Stdio::piped()),
        };
        let mut child = command.spawn().unwrap();
        let said: Box<dyn Read + Send> = match says {
            Says::Output => Box::new(child.stdout.take().unwrap()),
            Says::Errors => Box::new(child.stderr.take().unwrap()),
        };
        let process = Process { child };
        let (sender, receiver) = mpsc::channel();
        // Reads on to the end, so that the program never waits for somebody to listen.
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once(mark) {
                    drop(sender.send(rest.to_owned()));
                }
            }
        });
        let rest = receiver.recv_timeout(PATIENCE);
        (process, rest.unwrap_or_else(|_| panic!("{command:?} never said {mark:?}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
