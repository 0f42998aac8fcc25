//! Changes to a label space, as they are logged and replayed.

use std::collections::BTreeSet;

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

    /// The space after `changes`, and which of its labels are new or have another text.
    ///
    /// # Errors
    /// The first change that is not possible, by its place.
    pub fn changed(&self, changes: &[LabelChange]) -> Result<(LabelSpace, Changed), (usize, SpaceError)> {
        let mut space = self.clone();
        let mut touched = BTreeSet::new();
        for (place, change) in changes.iter().enumerate() {
            touched.insert(space.apply(change).map_err(|error| (place, error))?);
        }
        let (written, removed) = touched.into_iter().partition(|&label| space.is_active(label));
        Ok((space, Changed { written, removed }))
    }
}

/// What became of labels that were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Those that are new or have another text, by position.
    pub written: Vec<LabelId>,
    /// Those that are gone.
    pub removed: Vec<LabelId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_down_to_what_is_written_and_what_is_gone() {
        let mut space = LabelSpace::default();
        for id in ["a", "b"] {
            space.add(Label::new(id, id)).unwrap();
        }
        let changes = [
            LabelChange::Add { label: Label::new("c", "C") },
            LabelChange::Rename { id: "a".into(), name: "A".into() },
            LabelChange::Remove { id: "b".into() },
            LabelChange::Add { label: Label::new("b", "another") },
        ];
        let (after, changed) = space.changed(&changes).unwrap();
        assert_eq!(changed.written, [LabelId(0), LabelId(2), LabelId(3)]);
        assert_eq!(changed.removed, [LabelId(1)]);
        assert_eq!((after.len(), space.len()), (3, 2));
        let twice = [changes[2].clone(), changes[2].clone()];
        assert_eq!(space.changed(&twice).unwrap_err().0, 1);
    }
}
