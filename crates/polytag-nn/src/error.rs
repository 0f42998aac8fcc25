//! What can go wrong in the engine, and whose move it is.

use std::path::PathBuf;

/// Why the engine could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no GPU that can be used, and why.
    #[error("no GPU can be used: {why}")]
    NoGpu {
        /// What is missing, and the remedy.
        why: String,
    },
    /// The device has not enough memory.
    #[error(
        "the {device} is out of memory: {asked} more were asked for, this program uses {used}, and {limit} is all \
         there is; lower the batch, the longest input (max_tokens) or the label chunk, or stop others that use it"
    )]
    OutOfMemory {
        /// Which device.
        device: String,
        /// How much was asked for.
        asked: Bytes,
        /// How much was in use.
        used: Bytes,
        /// How much there is.
        limit: Bytes,
    },
    /// A call to CUDA failed.
    #[error("CUDA failed {action}: {problem}")]
    Cuda {
        /// What was being done.
        action: String,
        /// What CUDA said.
        problem: String,
    },
    /// A kernel does not compile.
    #[error("the CUDA kernels of {module} do not compile here: {log}")]
    Kernel {
        /// Which source file.
        module: &'static str,
        /// What the compiler said.
        log: String,
    },
    /// A number is not finite.
    #[error("{what} is not a finite number{place}")]
    NotFinite {
        /// Which number.
        what: String,
        /// At which step, in which op; empty or starting with a comma.
        place: String,
    },
    /// A file cannot be used.
    #[error("{}: {problem}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
    /// Reading or writing failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// What was asked for cannot be done with this encoder or these settings.
    #[error("{0}")]
    Unfit(String),
    /// GPUs are to train together, and what adds up over them is not here.
    #[error(
        "NCCL, which GPUs that train together need, was not found ({problem}); install it (libnccl2 of the distribution or of \
         NVIDIA, or nvidia-nccl-cu13 of pip) and put the folder of libnccl.so.2 on the library path, or name one GPU"
    )]
    NoNccl {
        /// What the system said.
        problem: String,
    },
    /// Another device of those that train together failed.
    #[error("another device of the training failed")]
    Elsewhere,
    /// The work was told to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// A file that cannot be used.
    pub fn file(path: impl Into<PathBuf>, problem: impl Into<String>) -> Error {
        Error::File { path: path.into(), problem: problem.into() }
    }

    /// A closure for `map_err` on input and output.
    pub fn io(path: impl Into<PathBuf>, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, action, source }
    }

    /// A closure for `map_err` on calls to CUDA.
    pub(crate) fn cuda<E: std::fmt::Debug>(action: &'static str) -> impl FnOnce(E) -> Error {
        move |problem| Error::Cuda { action: action.to_owned(), problem: format!("{problem:?}") }
    }
}

/// A number of bytes that reads well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mebibytes = self.0 as f64 / (1 << 20) as f64;
        match self.0 {
            0..1024 => write!(f, "{} bytes", self.0),
            1024..1_048_576 => write!(f, "{:.1} KiB", self.0 as f64 / 1024.0),
            1_048_576..1_073_741_824 => write!(f, "{mebibytes:.1} MiB"),
            _ => write!(f, "{:.2} GiB", mebibytes / 1024.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_memory_says_how_much_and_what_to_lower() {
        let error = Error::OutOfMemory {
            device: "GPU".to_owned(),
            asked: Bytes(3 << 30),
            used: Bytes(1 << 20),
            limit: Bytes(2000),
        };
        let text = error.to_string();
        assert!(text.contains("3.00 GiB") && text.contains("1.0 MiB") && text.contains("2.0 KiB"), "{text}");
        assert!(text.contains("batch") && text.contains("max_tokens"), "{text}");
    }
}
