//! The losses: values enter, a single number `[1, 1]` leaves, from which the tape goes back.
//!
//! Those over labels ([`binary_cross_entropy`], [`softmax`], [`decoupled_softmax`]) are of [`Scores`], which
//! are never all there at once unless they are given, and [`Positives`]. They are means over documents. Those between rows
//! ([`info_nce`], [`supervised_contrastive`], [`contrast_with_negatives`]) are the same sums over a batch's
//! own rows, and as in their paper they are sums over rows, not means. Where a mean is wanted, or the
//! documents of several batches make one step, the weight that the tape takes for each loss sets it right.

mod elementary; // exponential and its kin
mod positives; // which labels a document carries
mod scores; // documents · labelsᵀ · scale + bias, in chunks
mod total; // the last sum on a GPU
mod over_labels; // what the losses over labels have in common
mod binary_cross_entropy; // every label a question of its own
mod softmax; // positives share the mass of all labels
mod decoupled_softmax; // each positive against the negatives
mod contrastive; // rows against rows
mod mean_squared_error; // the distance of two matrices
mod wanted_products; // pairs of rows, each with what its product should be
mod bernoulli_kl; // how differently two experts judge the labels

pub use bernoulli_kl::bernoulli_kl;
pub use binary_cross_entropy::binary_cross_entropy;
pub use contrastive::{contrast_with_negatives, info_nce, supervised_contrastive};
pub use decoupled_softmax::decoupled_softmax;
pub use mean_squared_error::mean_squared_error;
pub use positives::Positives;
pub use scores::{Number, Scores};
pub use softmax::softmax;
pub use wanted_products::wanted_products;

#[cfg(test)]
mod testing; // the formulas in f64, word for word
