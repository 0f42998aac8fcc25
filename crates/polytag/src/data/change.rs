//! Changes to a label space, as they are logged and replayed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// A label gets another description, or none.
    Describe {
        /// Its id.
        id: String,
        /// What it means.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
}

impl LabelChange {
    /// The id of the label that it is about.
    pub fn id(&self) -> &str {
        match self {
            LabelChange::Add { label } => &label.id,
            LabelChange::Remove { id }
            | LabelChange::Rename { id, .. }
            | LabelChange::Describe { id, .. } => id,
        }
    }

    /// Fewer changes that leave the same labels in the same order: what was added and removed again is not among them,
    /// and a label that was added and changed is added as it is now.
    ///
    /// ```
    /// use polytag::data::{Label, LabelChange};
    /// let changes = [
    ///     LabelChange::Add { label: Label::new("a", "A") },
    ///     LabelChange::Add { label: Label::new("b", "B") },
    ///     LabelChange::Remove { id: "a".to_owned() },
    ///     LabelChange::Rename { id: "b".to_owned(), name: "C".to_owned() },
    /// ];
    /// assert_eq!(LabelChange::compacted(&changes), [LabelChange::Add { label: Label::new("b", "C") }]);
    /// ```
    pub fn compacted(changes: &[LabelChange]) -> Vec<LabelChange> {
        // Labels from before stay in front: what happened to them, and then what was added, by when it was.
        let (mut before, mut added) = (BTreeMap::<&str, Before<'_>>::new(), Vec::<Option<Label>>::new());
        let mut places = HashMap::<&str, usize>::new();
        for change in changes {
            let place = places.get(change.id()).copied();
            match (change, place) {
                (LabelChange::Add { label }, _) => {
                    places.insert(&label.id, added.len());
                    added.push(Some(label.clone()));
                }
                (LabelChange::Remove { id }, Some(place)) => {
                    added[place] = None;
                    places.remove(id.as_str());
                }
                (LabelChange::Remove { id }, None) => {
                    before.insert(id, Before { removed: true, ..Before::default() });
                }
                (LabelChange::Rename { name, .. }, Some(place)) => {
                    added[place].iter_mut().for_each(|label| name.clone_into(&mut label.name));
                }
                (LabelChange::Rename { id, name }, None) => before.entry(id).or_default().name = Some(name),
                (LabelChange::Describe { description, .. }, Some(place)) => {
                    let description = description.clone().filter(|text| !text.trim().is_empty());
                    added[place].iter_mut().for_each(|label| label.description.clone_from(&description));
                }
                (LabelChange::Describe { id, description }, None) => {
                    before.entry(id).or_default().description = Some(description);
                }
            }
        }
        let before = before.into_iter().flat_map(|(id, before)| before.into_changes(id));
        before.chain(added.into_iter().flatten().map(|label| LabelChange::Add { label })).collect()
    }
}

/// What became of a label that was there before.
#[derive(Default)]
struct Before<'a> {
    removed: bool,
    name: Option<&'a String>,
    description: Option<&'a Option<String>>,
}

impl Before<'_> {
    fn into_changes(self, id: &str) -> impl Iterator<Item = LabelChange> {
        let removal = self.removed.then(|| LabelChange::Remove { id: id.to_owned() });
        let name = self.name.map(|name| LabelChange::Rename { id: id.to_owned(), name: name.clone() });
        let description = self
            .description
            .map(|description| LabelChange::Describe { id: id.to_owned(), description: description.clone() });
        removal.into_iter().chain(name).chain(description)
    }
}

impl LabelSpace {
    /// Makes a change; the position it concerns.
    pub fn apply(&mut self, change: &LabelChange) -> Result<LabelId, SpaceError> {
        match change {
            LabelChange::Add { label } => self.add(label.clone()),
            LabelChange::Remove { id } => self.remove(id),
            LabelChange::Rename { id, name } => self.rename(id, name),
            LabelChange::Describe { id, description } => self.describe(id, description.clone()),
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

    use proptest::prelude::*;

    /// Any change of a few labels, possible or not.
    fn change() -> impl Strategy<Value = LabelChange> {
        let (id, text) = ("[a-e]", "[A-Z]");
        prop_oneof![
            (id, text).prop_map(|(id, name)| LabelChange::Add { label: Label::new(id, name) }),
            id.prop_map(|id| LabelChange::Remove { id }),
            (id, text).prop_map(|(id, name)| LabelChange::Rename { id, name }),
            (id, proptest::option::of("[A-Z ]"))
                .prop_map(|(id, description)| LabelChange::Describe { id, description }),
        ]
    }

    proptest! {
        #[test]
        fn compacted_changes_leave_the_same_labels(changes in proptest::collection::vec(change(), 0..40)) {
            let mut fitted = LabelSpace::default();
            for id in ["a", "b", "c"] {
                fitted.add(Label::new(id, id)).unwrap();
            }
            let mut space = fitted.clone();
            let made: Vec<LabelChange> =
                changes.into_iter().filter(|change| space.apply(change).is_ok()).collect();
            let compacted = LabelChange::compacted(&made);
            prop_assert!(compacted.len() <= made.len());
            let (again, _) = fitted.changed(&compacted).unwrap();
            let labels = |space: &LabelSpace| space.iter().map(|(_, label)| label.clone()).collect::<Vec<_>>();
            prop_assert_eq!(labels(&space), labels(&again));
        }
    }

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
