//! Why there is no encoder, each with its remedy.

use std::path::PathBuf;

use crate::Fault;
use crate::storage::StorageError;

/// A failure to find, check or fetch an encoder.
#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    /// Neither a known name, nor a folder, nor a name on the hub.
    #[error(
        "no encoder is called {name:?}; known are {}; or give a folder that holds one, or a Hugging Face name \
         such as sentence-transformers/all-MiniLM-L12-v2", known.join(", ")
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names that would do.
        known: Vec<String>,
    },
    /// The encoder was never fetched.
    #[error(
        "the encoder {name} is not in {}; fetch it with `polytag encoders pull {name}`", folder.display()
    )]
    NotHere {
        /// Its name.
        name: String,
        /// Where it would be.
        folder: PathBuf,
    },
    /// An encoder that was fetched is no longer what it was.
    #[error("{}: {problem}; fetch it again with `polytag encoders pull {name}`", folder.display())]
    Damaged {
        /// Its name.
        name: String,
        /// Where it lies.
        folder: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A folder of the user that lacks something.
    #[error("{}: not the folder of an encoder: {problem}", folder.display())]
    Incomplete {
        /// The folder.
        folder: PathBuf,
        /// What is missing.
        problem: String,
    },
    /// Word vectors where a network is needed.
    #[error(
        "{name}: these are word vectors, which are averaged as they are: there is no network in them that could be \
         trained or timed; take an encoder such as minilm, or use them with `fit --method frozen`"
    )]
    WordVectors {
        /// What was asked for.
        name: String,
    },
    /// A folder whose weights are a pickle.
    #[error(
        "{place}: the weights are there only as pytorch_model.bin, a pickle, and reading a pickle runs \
         whatever code it holds; if you trust it, convert it once with `{}` and give the \
         folder `converted`",
        convert_command(place)
    )]
    PickleOnly {
        /// The folder, or the name on the hub.
        place: String,
    },
    /// A program that can fetch packages was not found.
    #[error(
        "no Python with pip was found ({}); install one, for example with `apt install python3-pip`, or name it \
         with --python", tried.join("; ")
    )]
    NoPip {
        /// What was tried, and why each did not do.
        tried: Vec<String>,
    },
    /// pip did not bring a package.
    #[error(
        "pip could not fetch {package}; check the network, or pip's own settings for mirror and proxy \
         (`pip config list`). pip said:\n{said}"
    )]
    Pip {
        /// The package and its version.
        package: String,
        /// The end of what pip said.
        said: String,
    },
    /// A file that was fetched is not the one that was expected.
    #[error(
        "{file}: {found}, but {expected} is expected; what was fetched is removed, so pull again, and where it \
         stays so, the mirror serves another file"
    )]
    Mismatch {
        /// The file.
        file: String,
        /// What should have come: its size or checksum.
        expected: String,
        /// What came.
        found: String,
    },
    /// A package with the right checksum does not hold what the catalogue says.
    #[error("{package}: {problem}; this is a fault of polytag's catalogue")]
    Package {
        /// The package.
        package: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The hub has no such encoder, or does not give it to everyone.
    #[error(
        "{endpoint} gives no {name} ({status}): there is none, or it is not open to all; check the name, or \
         download it yourself and give its folder"
    )]
    NotOnHub {
        /// The name on the hub.
        name: String,
        /// The hub's address.
        endpoint: String,
        /// Its answer.
        status: u16,
    },
    /// The hub cannot be reached, or the connection broke more than once.
    #[error(
        "{endpoint} cannot be reached ({problem}); check the network, name a mirror in HF_ENDPOINT or a proxy in \
         HTTPS_PROXY, or bring the folder of {name} by other means and give its path instead of the name"
    )]
    HubUnreachable {
        /// The name on the hub.
        name: String,
        /// The hub's address.
        endpoint: String,
        /// What happened.
        problem: String,
    },
    /// The hub's answer makes no sense, or the model there cannot be used.
    #[error("{endpoint}, {name}: {problem}")]
    Hub {
        /// The name on the hub.
        name: String,
        /// The hub's address.
        endpoint: String,
        /// What is wrong.
        problem: String,
    },
    /// Word vectors could not be written.
    #[error(transparent)]
    Write(Box<polytag_nn::Error>),
    /// Reading or writing bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The work was asked to stop.
    #[error("stopped before the end; what was fetched so far is kept for the next time")]
    Stopped,
}

impl EncoderError {
    /// Whose move it is.
    pub fn fault(&self) -> Fault {
        match self {
            EncoderError::Package { .. } => Fault::Ours,
            _ => Fault::User,
        }
    }
}

/// What makes a safe folder out of one with a pickle.
fn convert_command(place: &str) -> String {
    format!(
        "python3 -c \"from transformers import AutoModel, AutoTokenizer; m = '{place}'; \
         AutoModel.from_pretrained(m).save_pretrained('converted'); \
         AutoTokenizer.from_pretrained(m).save_pretrained('converted')\""
    )
}
