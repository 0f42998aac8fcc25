//! Where changes of labels are kept, so that they last.
//!
//! A change enters as what a client wants of the labels as they are; it leaves once it is kept and in the next answer.
//! It is kept in the model folder, unless several servers share labels in PostgreSQL: then it is in a table, in one order
//! for all, and every server takes in what others did. Every server has the texts of all labels in memory, and where it
//! has their vectors, too, it goes on answering while the database is away.

mod error; // why a store cannot be used
mod tls; // private connections
mod address; // where it is
mod link; // a connection that comes back
mod rows; // labels as rows of a table
mod tables; // the tables, made, read and written
mod health; // how a store is doing
mod graph; // the graph over labels in the database
mod search; // labels searched there
mod choice; // where labels are searched
mod shared; // labels of several servers

pub(crate) use address::{Address, Parts};
pub use address::{LabelSearch, Secret};
pub use error::StoreError;
pub(crate) use health::Figures;
pub(crate) use link::Engine;
pub(crate) use shared::Shared;

use std::path::Path;
use std::sync::Arc;

use polytag::data::{LabelChange, LabelSpace};

use crate::api::ApiError;
use crate::journal::Journal;
use crate::live::Live;

/// What a store is opened for.
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) dir: &'a Path,
    pub(crate) live: &'a Arc<Live>,
    pub(crate) journal: &'a Arc<Journal>,
}

/// Where the changes of a model's labels are kept.
pub(crate) enum LabelStore {
    /// In its folder.
    Embedded,
    /// In a database, with other servers.
    Shared(Arc<Shared>),
}

impl LabelStore {
    /// Makes the changes that `make` wants of the labels, for `by`; what `told` says of them before anybody else can
    /// change them again. When this returns, they are kept and in the next answer. It may take long. What `make` wants may
    /// be asked twice, where another server was faster.
    pub(crate) fn change<T>(
        &self,
        live: &Live,
        by: &str,
        make: impl Fn(&LabelSpace) -> Result<Vec<LabelChange>, ApiError>,
        told: impl FnOnce(&LabelSpace, &[LabelChange]) -> T,
    ) -> Result<T, ApiError> {
        match self {
            LabelStore::Embedded => live.change(make, told),
            LabelStore::Shared(shared) => shared.change(by, make, told),
        }
    }

    /// Whether answers need it, too, and not only changes.
    pub(crate) fn answers(&self) -> bool {
        matches!(self, LabelStore::Shared(shared) if shared.answers())
    }

    /// Whether answers need it, and did not get it lately.
    pub(crate) fn fails_to_answer(&self) -> bool {
        matches!(self, LabelStore::Shared(shared) if shared.fails_to_answer())
    }

    /// How it is doing, if it is shared.
    pub(crate) fn figures(&self) -> Option<Figures> {
        match self {
            LabelStore::Embedded => None,
            LabelStore::Shared(shared) => Some(shared.figures()),
        }
    }

    /// Waits for nobody any more.
    pub(crate) fn close(&self) {
        if let LabelStore::Shared(shared) = self {
            shared.close();
        }
    }
}
