//! Labels as people describe them.

use serde::{Deserialize, Serialize};

/// A label: an id for programs, and words for people and for matching.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Its id, unique in its label space.
    pub id: String,
    /// Its name; never empty.
    pub name: String,
    /// What it means, in a sentence or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Other names for the same thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Ids of broader labels. They need not exist: taxonomies are often cut to a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

impl Label {
    /// A label with a name and nothing else.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Label {
        Label { id: id.into(), name: name.into(), ..Label::default() }
    }

    /// Its name, then its aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}
