//! Changes to a label space, as they are logged and replayed.

use serde::{Deserialize, Serialize};

use super::label::Label;
use super::space::{LabelSpace, SpaceError};
use crate::ids::LabelId;

/// One change to a label space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum LabelChange {
    /// A new label.
    Add {
        /// The label.
        label: Label,
    },
    /// A label is taken out.
    Remove {
        /// Its id.
        id: String,
    },
    /// A label gets another name.
    Rename {
        /// Its id.
        id: String,
        /// Its new name.
        name: String,
    },
}

impl LabelSpace {
    /// Makes a change; the position it concerns.
    pub fn apply(&mut self, change: &LabelChange) -> Result<LabelId, SpaceError> {
        match change {
            LabelChange::Add { label } => self.add(label.clone()),
            LabelChange::Remove { id } => self.remove(id),
            LabelChange::Rename { id, name } => self.rename(id, name),
        }
    }
}
