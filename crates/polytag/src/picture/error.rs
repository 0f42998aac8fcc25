//! Why vectors cannot be drawn.

/// Vectors that cannot be drawn or measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PictureError {
    /// Numbers that are no whole vectors.
    #[error("{found} numbers are no whole number of vectors of {dimension} numbers each")]
    Shape {
        /// How many numbers there were.
        found: usize,
        /// How many a vector has.
        dimension: usize,
    },
    /// Not one mark of seen or unseen for each vector.
    #[error("{found} labels are marked as seen or unseen, and there are {vectors} vectors; mark each once")]
    Seen {
        /// How many marks there were.
        found: usize,
        /// How many vectors there are.
        vectors: usize,
    },
    /// A number that is not finite.
    #[error("vector {vector}: number {place} is {value}, which is not finite; encode the labels again")]
    NotFinite {
        /// The vector, from zero.
        vector: usize,
        /// Where in it, from zero.
        place: usize,
        /// The number.
        value: f32,
    },
}
