//! Bytes in and out.
//!
//! Paths enter. What leaves is either lines of checked UTF-8, however the file was compressed and
//! however long its lines are ([`open`], [`Lines`], and [`Metered`] for parsers that read on their
//! own), or a folder or file that is on disk whole or not at all ([`StagedFolder`],
//! [`StagedFile`]). Nothing here knows what the bytes mean.

mod error; // what the disk and its files can do to us
mod open; // files, compressed or not
mod lines; // their lines, one at a time
mod metered; // how far a foreign parser has come
mod descriptor; // paths that name what is open already
mod staged; // whole or not at all
mod append; // lines behind those of a file, on the disk before anybody is told
mod positioned; // at places in a file
mod mapped; // a file as memory
mod array; // numbers in memory or in such a file
mod checksum; // the same bytes as before

pub use append::append_durably;
pub use array::Array;
pub(crate) use checksum::{hex, sha256_hex};
pub use error::StorageError;
pub use lines::{DEFAULT_MAX_LINE, Line, Lines};
pub use mapped::Mapped;
pub use metered::{Meter, Metered};
pub use open::{
    Compression, Sink, compressed_variants, create, decode_error, open, read_bounded, require_folder,
};
pub(crate) use positioned::{read_exact_at, write_all_at};
pub use staged::{Existing, StagedFile, StagedFolder, resolve};
