//! Vectors of some labels: what labels are compared by, on its way from one place to another.

use crate::ids::LabelId;

/// Vectors by label, all of one length.
///
/// ```
/// use polytag::ids::LabelId;
/// use polytag::predict::Embeddings;
/// let mut vectors = Embeddings::new(2);
/// vectors.push(LabelId(7), &[0.0, 1.0]);
/// vectors.push(LabelId(3), &[1.0, 0.0]);
/// assert_eq!(vectors.of(LabelId(7)), Some(&[0.0, 1.0][..]));
/// assert_eq!(vectors.of(LabelId(4)), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    dim: usize,
    /// Where each label's vector is.
    places: std::collections::BTreeMap<LabelId, usize>,
    numbers: Vec<f32>,
}

impl Embeddings {
    /// None yet, of `dim` numbers each.
    pub fn new(dim: usize) -> Embeddings {
        Embeddings { dim, ..Embeddings::default() }
    }

    /// The vectors of `labels`, which lie end to end.
    ///
    /// # Panics
    /// If there is not one for each.
    pub fn of_all(dim: usize, labels: &[LabelId], numbers: Vec<f32>) -> Embeddings {
        assert_eq!(numbers.len(), labels.len() * dim, "a vector for each label");
        Embeddings { dim, places: labels.iter().copied().zip(0..).collect(), numbers }
    }

    /// Adds the vector of a label, in place of the one it had.
    ///
    /// # Panics
    /// If it is of another length than the others.
    pub fn push(&mut self, label: LabelId, vector: &[f32]) {
        assert_eq!(vector.len(), self.dim, "vectors of one length");
        self.places.insert(label, self.numbers.len() / self.dim.max(1));
        self.numbers.extend_from_slice(vector);
    }

    /// The vector of a label, if it is here.
    pub fn of(&self, label: LabelId) -> Option<&[f32]> {
        self.places.get(&label).map(|place| &self.numbers[place * self.dim..(place + 1) * self.dim])
    }

    /// How many labels have a vector here.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no label has a vector here.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Labels with their vectors, by label.
    pub fn iter(&self) -> impl Iterator<Item = (LabelId, &[f32])> {
        self.places
            .iter()
            .map(|(&label, place)| (label, &self.numbers[place * self.dim..(place + 1) * self.dim]))
    }
}
