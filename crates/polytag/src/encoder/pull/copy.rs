//! Copying a stream into a file of the staged folder, measured on the way.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

use crate::encoder::error::EncoderError;
use crate::encoder::source::{CHUNK, FileRecord};
use crate::progress::{Stage, Stop};
use crate::storage::{Sink, hex};

/// How copying is watched and stopped.
pub(super) struct Copying<'a> {
    pub(super) stage: &'a Stage<'a>,
    pub(super) stop: &'a Stop,
}

impl Copying<'_> {
    /// Copies `input` to its end, or one byte past `limit`; gives what came. Errors of the input become
    /// what `read_error` makes of them.
    pub(super) fn copy(
        &self,
        input: impl Read,
        mut sink: Sink,
        limit: u64,
        read_error: impl FnOnce(io::Error) -> EncoderError,
    ) -> Result<FileRecord, EncoderError> {
        let (mut hasher, mut buffer, mut bytes) = (Sha256::new(), vec![0; CHUNK], 0);
        let mut input = input.take(limit.saturating_add(1));
        loop {
            if self.stop.is_asked() {
                return Err(EncoderError::Stopped);
            }
            let read = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(read_error(error)),
            };
            sink.write(&buffer[..read])?;
            hasher.update(&buffer[..read]);
            bytes += read as u64;
            self.stage.advance(read as u64);
        }
        sink.finish()?;
        Ok(FileRecord { bytes, sha256: hex(&hasher.finalize()) })
    }
}
