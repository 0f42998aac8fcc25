//! Standard input that can be stopped while it waits.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use polytag::progress::Stop;

const CHUNK: usize = 1 << 16;
/// Chunks read ahead.
const AHEAD: usize = 4;
/// How long a wish to stop may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(50);

/// Standard input, read by a thread of its own: a read that waits for a person or a slow program
/// cannot be called off, but waiting for that thread can.
pub(crate) struct Stdin {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    used: usize,
    stop: Stop,
}

impl Stdin {
    /// Starts to read.
    pub(crate) fn start(stop: &Stop) -> Stdin {
        let (sender, chunks) = sync_channel(AHEAD);
        thread::spawn(move || {
            let mut input = io::stdin().lock();
            loop {
                let mut chunk = vec![0; CHUNK];
                let read = input.read(&mut chunk).map(|length| {
                    chunk.truncate(length);
                    chunk
                });
                let ended = read.as_ref().map_or(true, Vec::is_empty);
                if sender.send(read).is_err() || ended {
                    return;
                }
            }
        });
        Stdin { chunks, chunk: Vec::new(), used: 0, stop: stop.clone() }
    }
}

impl BufRead for Stdin {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.used == self.chunk.len() {
            if self.stop.is_asked() {
                return Err(io::Error::other("asked to stop"));
            }
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => (self.chunk, self.used) = (chunk?, 0),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.chunk.is_empty() {
                break;
            }
        }
        Ok(&self.chunk[self.used..])
    }

    fn consume(&mut self, amount: usize) {
        self.used += amount;
    }
}

impl Read for Stdin {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.fill_buf()?.read(out)?;
        self.consume(taken);
        Ok(taken)
    }
}
