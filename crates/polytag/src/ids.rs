//! Identifiers: positions in a split and in a label space, as types that cannot be mixed up.

use std::fmt;

/// A document's position in its split, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocId(pub u32);

/// A label's position in its [`LabelSpace`](crate::data::LabelSpace), from zero.
///
/// Positions are stable: a label that is removed leaves its position empty, and a label that is
/// added takes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(pub u32);

impl DocId {
    /// The position as an index into a slice.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl LabelId {
    /// The position as an index into a slice.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of the label at `index`.
    ///
    /// # Panics
    /// When `index` does not fit in 32 bits: no label space is that large.
    pub fn from_index(index: usize) -> LabelId {
        LabelId(u32::try_from(index).expect("a label space holds fewer than 2^32 labels"))
    }
}

impl fmt::Display for DocId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}", self.0)
    }
}

impl fmt::Display for LabelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label {}", self.0)
    }
}
