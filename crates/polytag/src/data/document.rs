//! Documents, with what they say and what they are labelled with.

use std::borrow::Cow;

use crate::ids::LabelId;

/// A document of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its id, unique in its split.
    pub id: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// Its text.
    pub text: String,
    /// Its labels in ascending order, each once. `None`: nobody labelled it, which is not the same
    /// as being labelled with nothing.
    pub labels: Option<Vec<LabelId>>,
}

impl Document {
    /// What the document says.
    pub fn passage(&self) -> Passage<'_> {
        Passage { id: Some(&self.id), title: self.title.as_deref(), text: &self.text }
    }

    /// Title and text as one, a line end between them.
    pub fn whole(&self) -> Cow<'_, str> {
        self.passage().whole()
    }

    /// Its labels; empty where nobody labelled it.
    pub fn gold(&self) -> &[LabelId] {
        self.labels.as_deref().unwrap_or_default()
    }
}

/// What there is to tag: a text, and its title where it has one.
///
/// Title and text stay apart because methods weigh them differently.
///
/// ```
/// let passage = polytag::data::Passage::from("Rules of the Transport Committee");
/// assert_eq!(passage.title, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage<'a> {
    /// The id of the document it is from, where it is from one: for methods that know documents by their ids.
    pub id: Option<&'a str>,
    /// The title.
    pub title: Option<&'a str>,
    /// The text.
    pub text: &'a str,
}

impl<'a> Passage<'a> {
    /// Title and text as one, a line end between them.
    pub fn whole(&self) -> Cow<'a, str> {
        match self.title {
            Some(title) => format!("{title}\n{}", self.text).into(),
            None => self.text.into(),
        }
    }

    /// How long title and text are together.
    pub fn bytes(&self) -> usize {
        self.title.map_or(0, str::len) + self.text.len()
    }
}

impl<'a> From<&'a str> for Passage<'a> {
    fn from(text: &'a str) -> Passage<'a> {
        Passage { id: None, title: None, text }
    }
}
