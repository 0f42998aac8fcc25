//! The label space: every label there is, which of them training has seen, and how often.
//!
//! Labels come and go while a model lives. A position, once given, is never given again, so that
//! weights and indexes laid out by [`LabelId`] stay right.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::label::Label;
use crate::ids::LabelId;

/// A change that the label space does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// The id is in use.
    #[error("a label with the id {id:?} is there already; choose another id, or rename that label")]
    Taken {
        /// The id.
        id: String,
    },
    /// No label has the id.
    #[error("no label has the id {id:?}; `polytag labels MODEL list` shows those there are")]
    Unknown {
        /// The id.
        id: String,
    },
    /// The id is empty.
    #[error("a label has an empty id; give it one")]
    EmptyId,
    /// The name is empty or blank.
    #[error("the label {id:?} has no name; give it one that says what it means")]
    EmptyName {
        /// Its id.
        id: String,
    },
}

impl SpaceError {
    /// The id of the label in question, where it has one.
    pub fn id(&self) -> Option<&str> {
        match self {
            SpaceError::Taken { id } | SpaceError::Unknown { id } | SpaceError::EmptyName { id } => Some(id),
            SpaceError::EmptyId => None,
        }
    }
}

/// How often training saw a label, in the classes of paper 004, section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frequency {
    /// In no training document.
    Unseen,
    /// In 1 to 20.
    Few,
    /// In 21 to 100.
    Medium,
    /// In more than 100.
    Many,
}

impl Frequency {
    /// The class of a label that `count` training documents carry.
    pub fn of(count: u32) -> Frequency {
        match count {
            0 => Frequency::Unseen,
            1..=20 => Frequency::Few,
            21..=100 => Frequency::Medium,
            _ => Frequency::Many,
        }
    }
}

/// All labels of a task or a model, by position.
///
/// ```
/// use polytag::data::{Label, LabelSpace};
/// let mut space = LabelSpace::default();
/// let glue = space.add(Label::new("3", "adhesive"))?;
/// assert_eq!(space.find("3"), Some(glue));
/// assert!(!space.is_seen(glue));
/// space.remove("3")?;
/// assert_eq!(space.find("3"), None);
/// # Ok::<(), polytag::data::SpaceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LabelSpace {
    /// Shared between copies until one of them changes, as are the ids: a task, its documents and a model have the same
    /// labels, and texts are most of what a label takes.
    labels: Arc<Vec<Label>>,
    active: Vec<bool>,
    train_counts: Vec<u32>,
    train_documents: u64,
    by_id: Arc<FxHashMap<String, LabelId>>,
}

impl LabelSpace {
    /// How many positions there are, those of removed labels among them.
    pub fn positions(&self) -> usize {
        self.labels.len()
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The labels there are, by position.
    pub fn iter(&self) -> impl Iterator<Item = (LabelId, &Label)> {
        self.labels
            .iter()
            .enumerate()
            .map(|(index, label)| (LabelId::from_index(index), label))
            .filter(|&(id, _)| self.is_active(id))
    }

    /// The label at a position, removed or not.
    ///
    /// # Panics
    /// When `id` is not of this space.
    pub fn label(&self, id: LabelId) -> &Label {
        &self.labels[id.index()]
    }

    /// The position of the label with this id, if there is one.
    pub fn find(&self, id: &str) -> Option<LabelId> {
        self.by_id.get(id).copied()
    }

    /// Whether the label at this position has not been removed.
    pub fn is_active(&self, id: LabelId) -> bool {
        self.active[id.index()]
    }

    /// The broader labels that exist.
    pub fn parents(&self, id: LabelId) -> impl Iterator<Item = LabelId> {
        self.label(id).parents.iter().filter_map(|parent| self.find(parent))
    }

    /// A label and all that have it among their broader labels, or among those of these, and so on; by position.
    pub fn below(&self, id: LabelId) -> Vec<LabelId> {
        let mut narrower: FxHashMap<LabelId, Vec<LabelId>> = FxHashMap::default();
        for (label, _) in self.iter() {
            self.parents(label).for_each(|parent| narrower.entry(parent).or_default().push(label));
        }
        // Broader labels may go round in a circle: nobody is visited twice.
        let (mut found, mut open) = (vec![id], vec![id]);
        let mut known: FxHashSet<LabelId> = [id].into_iter().collect();
        while let Some(label) = open.pop() {
            for &child in narrower.get(&label).into_iter().flatten() {
                if known.insert(child) {
                    found.push(child);
                    open.push(child);
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// How many training documents carry the label.
    pub fn train_count(&self, id: LabelId) -> u32 {
        self.train_counts[id.index()]
    }

    /// How many training documents there were.
    pub fn train_documents(&self) -> u64 {
        self.train_documents
    }

    /// Whether at least one training document carries the label.
    pub fn is_seen(&self, id: LabelId) -> bool {
        self.train_count(id) > 0
    }

    /// Which frequency class the label is in.
    pub fn frequency(&self, id: LabelId) -> Frequency {
        Frequency::of(self.train_count(id))
    }

    /// Sets how often training saw each label, by position.
    ///
    /// # Panics
    /// When there is not one count a position.
    pub fn set_train_counts(&mut self, counts: Vec<u32>, documents: u64) {
        assert_eq!(counts.len(), self.positions(), "one count a position");
        self.train_counts = counts;
        self.train_documents = documents;
    }

    /// Adds a label at a new position, as unseen.
    pub fn add(&mut self, label: Label) -> Result<LabelId, SpaceError> {
        if label.id.is_empty() {
            return Err(SpaceError::EmptyId);
        }
        if label.name.trim().is_empty() {
            return Err(SpaceError::EmptyName { id: label.id });
        }
        if self.by_id.contains_key(&label.id) {
            return Err(SpaceError::Taken { id: label.id });
        }
        let position = LabelId::from_index(self.labels.len());
        Arc::make_mut(&mut self.by_id).insert(label.id.clone(), position);
        Arc::make_mut(&mut self.labels).push(label);
        self.active.push(true);
        self.train_counts.push(0);
        Ok(position)
    }

    /// Takes a label out; its position stays empty.
    pub fn remove(&mut self, id: &str) -> Result<LabelId, SpaceError> {
        let position = self.find(id).ok_or_else(|| SpaceError::Unknown { id: id.to_owned() })?;
        Arc::make_mut(&mut self.by_id).remove(id);
        self.active[position.index()] = false;
        Ok(position)
    }

    /// Gives a label another name.
    pub fn rename(&mut self, id: &str, name: &str) -> Result<LabelId, SpaceError> {
        let position = self.find(id).ok_or_else(|| SpaceError::Unknown { id: id.to_owned() })?;
        if name.trim().is_empty() {
            return Err(SpaceError::EmptyName { id: id.to_owned() });
        }
        name.clone_into(&mut Arc::make_mut(&mut self.labels)[position.index()].name);
        Ok(position)
    }

    /// Gives a label another description, or none.
    pub fn describe(&mut self, id: &str, description: Option<String>) -> Result<LabelId, SpaceError> {
        let position = self.find(id).ok_or_else(|| SpaceError::Unknown { id: id.to_owned() })?;
        let label = &mut Arc::make_mut(&mut self.labels)[position.index()];
        label.description = description.filter(|text| !text.trim().is_empty());
        Ok(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_never_given_twice() {
        let mut space = LabelSpace::default();
        let first = space.add(Label::new("a", "A")).unwrap();
        space.remove("a").unwrap();
        let second = space.add(Label::new("a", "A again")).unwrap();
        assert_ne!(first, second);
        assert_eq!(space.find("a"), Some(second));
        assert_eq!((space.len(), space.positions()), (1, 2));
        assert_eq!(space.iter().map(|(id, _)| id).collect::<Vec<_>>(), [second]);
    }

    #[test]
    fn bad_changes_are_refused_and_change_nothing() {
        let mut space = LabelSpace::default();
        space.add(Label::new("a", "A")).unwrap();
        assert_eq!(space.add(Label::new("a", "B")), Err(SpaceError::Taken { id: "a".into() }));
        assert_eq!(space.add(Label::new("", "B")), Err(SpaceError::EmptyId));
        assert_eq!(space.add(Label::new("b", " ")), Err(SpaceError::EmptyName { id: "b".into() }));
        assert_eq!(space.rename("a", ""), Err(SpaceError::EmptyName { id: "a".into() }));
        assert_eq!(space.remove("x"), Err(SpaceError::Unknown { id: "x".into() }));
        assert_eq!(space.label(LabelId(0)).name, "A");
        assert_eq!(space.positions(), 1);
    }

    #[test]
    fn labels_below_one_are_found_through_others_and_round_a_circle() {
        let mut space = LabelSpace::default();
        for (id, parents) in
            [("a", vec!["c"]), ("b", vec!["a"]), ("c", vec!["b", "x"]), ("d", vec!["b", "a"]), ("e", vec![])]
        {
            let parents = parents.into_iter().map(str::to_owned).collect();
            space.add(Label { parents, ..Label::new(id, id) }).unwrap();
        }
        let below =
            |id: &str| space.below(space.find(id).unwrap()).iter().map(|label| label.0).collect::<Vec<_>>();
        assert_eq!(below("b"), [0, 1, 2, 3]);
        assert_eq!(below("d"), [3]);
        assert_eq!(below("e"), [4]);
        space.remove("b").unwrap();
        assert_eq!(space.below(LabelId(0)), [LabelId(0), LabelId(3)]);
    }

    #[test]
    fn frequency_classes_have_the_papers_borders() {
        let classes: Vec<Frequency> = [0, 1, 20, 21, 100, 101].map(Frequency::of).to_vec();
        use Frequency::*;
        assert_eq!(classes, [Unseen, Few, Few, Medium, Medium, Many]);
    }
}
