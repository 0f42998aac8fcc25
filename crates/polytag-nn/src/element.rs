//! What a matrix is made of.

/// What a number is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32 bits: weights, embeddings, losses; on the CPU everything.
    F32,
    /// The upper 16 of those bits: activations on a GPU.
    Bf16,
}

impl Element {
    /// How many bytes a number takes.
    pub fn bytes(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }
}
