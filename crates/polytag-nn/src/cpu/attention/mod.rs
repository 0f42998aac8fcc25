//! Self-attention over packed sequences: the tokens of a batch lie end to end, and nothing is computed for
//! padding.
//!
//! Each head of each sequence is a task of its own, computed a few queries at a time: their scores against
//! all keys, softmax, and the sum of the values, all in a thread's own memory. No matrix of all scores ever
//! exists; the backward pass computes probabilities again, from the logarithms of their sums.

mod backward;
mod forward;
mod sequence;
#[cfg(test)]
mod tests;

pub use backward::{AttentionGradients, AttentionSaved, attention_backward};
pub use forward::attention;

use crate::random::PairedDropout;

/// The farthest that two tokens can lie apart where there is a bias by distance.
pub const SPAN: usize = 511;

/// What attention is computed over, and how.
///
/// Queries, keys and values are the columns of one matrix `[tokens, 3 * heads * head_dim]`: all queries,
/// then all keys, then all values, and head by head within each.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Sequence `b` is the tokens from `offsets[b]` to `offsets[b + 1]`.
    pub offsets: &'a [u32],
    /// How many heads there are.
    pub heads: usize,
    /// How many numbers a query, key or value of a head has.
    pub head_dim: usize,
    /// What scores are multiplied by; positive.
    pub scale: f32,
    /// `[heads, 2 * SPAN + 1]`: what is added to the score of query `i` and key `j`, at `j - i + SPAN`.
    pub bias: Option<&'a [f32]>,
    /// Applied to probabilities. The place of one is `query * heads + head` with the query's token in the
    /// batch, and the key's place in its sequence.
    pub dropout: Option<PairedDropout>,
}

impl Attention<'_> {
    /// How many numbers a token has.
    fn hidden(&self) -> usize {
        self.heads * self.head_dim
    }

    /// How many sequences there are.
    fn sequences(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Checks that the parts fit together; gives the number of tokens.
    fn check(&self, qkv: &[f32]) -> usize {
        let tokens = self.offsets.last().map_or(0, |&last| last as usize);
        assert!(self.offsets.first().is_none_or(|&first| first == 0), "the first sequence begins at zero");
        assert!(self.offsets.is_sorted(), "sequences lie end to end");
        assert_eq!(qkv.len(), 3 * tokens * self.hidden(), "a query, a key and a value a token");
        assert!(self.scale > 0.0, "a positive scale");
        if let Some(bias) = self.bias {
            assert_eq!(bias.len(), self.heads * (2 * SPAN + 1), "a bias a distance");
            let longest = self.offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max();
            assert!(longest.is_none_or(|longest| longest <= SPAN + 1), "a bias reaches over a sequence");
        }
        tokens
    }
}
