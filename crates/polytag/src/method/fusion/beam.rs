//! The best combination that a beam finds for one unseen label, where there are too many labels for all combinations.
//!
//! Begins with single labels. In each round every kept combination grows by every label that it does not have, and the
//! best of all that came of it are kept, equals by their members. What was best in any round is made better one label at a
//! time at the end. Nothing is promised but that it is at least as good as the best single label and as what adding the
//! best label again and again finds. Cost for an unseen label: kept combinations × labels a round.

use super::exact::Search;
use super::gram::{Gram, Sum, add, each};

/// Rounds without a better combination before the search ends.
const PATIENCE: usize = 3;

/// A combination that is kept.
struct Kept<const N: usize> {
    members: u64,
    sum: Sum,
    /// The products of all labels with its sum.
    shared: [f64; N],
}

/// The best combination of those that `width` kept ones lead to; its cosine and its members.
pub(super) fn best<const N: usize>(gram: &Gram<N>, dots: &[f64; N], width: usize) -> (f64, u64) {
    let mut search = Search::start(gram, dots);
    // One label is best of all where all are off: see the exact search.
    if search.cosine <= 0.0 {
        return (search.cosine, search.members);
    }
    let all = u64::MAX >> (64 - gram.labels());
    let mut kept = vec![Kept { members: 0, sum: Sum::default(), shared: [0.0; N] }];
    let mut fruitless = 0;
    while fruitless < PATIENCE && !kept.is_empty() {
        let mut grown: Vec<(f64, u64, usize, usize)> = Vec::new();
        for (place, old) in kept.iter().enumerate() {
            for (label, _) in each(all & !old.members) {
                let cosine = gram.with(old.sum, label, old.shared[label], dots).cosine();
                grown.push((cosine, old.members | 1 << label, place, label));
            }
        }
        grown.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        // The same members come of several; rounding may set them apart, which costs a place and no more.
        grown.dedup_by_key(|(_, members, ..)| *members);
        grown.truncate(width);
        kept = grown
            .iter()
            .map(|&(_, members, place, label)| grow(gram, &kept[place], (members, label), dots))
            .collect();
        fruitless += 1;
        if let Some(&(cosine, members, ..)) = grown.first()
            && cosine > search.cosine
        {
            (search.cosine, search.members) = (cosine, members);
            fruitless = 0;
        }
    }
    search.climb();
    (search.cosine, search.members)
}

fn grow<const N: usize>(
    gram: &Gram<N>,
    old: &Kept<N>,
    (members, label): (u64, usize),
    dots: &[f64; N],
) -> Kept<N> {
    let mut shared = old.shared;
    add(&mut shared, gram.row(label), 1.0);
    Kept { members, sum: gram.with(old.sum, label, old.shared[label], dots), shared }
}
