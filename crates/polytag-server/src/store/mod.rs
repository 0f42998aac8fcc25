//! Where changes of labels are kept, so that they last.
//!
//! A change enters as what a client wants of the labels as they are; it leaves once it is kept and in the next answer.
//! It is kept in the model folder, unless several servers share labels in PostgreSQL: then it is in a table, in one order
//! for all, and every server takes in what others did. Every server has all labels in memory and goes on answering while
//! the database is away.

mod error; // why a store cannot be used
mod tls; // private connections
mod address; // where it is
mod link; // a connection that comes back
mod rows; // labels as rows of a table
mod tables; // the tables, made, read and written
mod health; // how a store is doing
mod shared; // labels of several servers

pub use address::Secret;
pub(crate) use address::{Address, Parts};
pub use error::StoreError;
pub(crate) use health::Figures;
pub(crate) use link::Engine;
pub(crate) use shared::{Place, Shared};

use std::sync::Arc;

use polytag::data::{LabelChange, LabelSpace};

use crate::api::ApiError;
use crate::live::Live;

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
