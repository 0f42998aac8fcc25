//! Sequences of like length, to be padded to one length on a GPU.
//!
//! Every group costs a handful of launches and every token of padding is worked on for nothing: so lengths
//! are told apart in a few steps, and where little padding would be saved not at all. Long ones are rounded up
//! to a coarser grain, so that the same shapes come again: a product of a new shape has to be planned first.

use std::cmp::Reverse;

use crate::element::Element;

/// Lengths are told apart in so many steps, so that there are at most so many groups.
const STEPS: usize = 8;

/// What padded lengths are multiples of, up to the first length and beyond it. The longest sequence that
/// there can be is a multiple of both.
const GRAINS: (usize, usize) = (8, 32);
const SHORT: usize = 64;

/// How many tokens of padding cost about as much as the launches of another group.
const WORTH_A_GROUP: usize = 1024;

/// Sequences that are padded to one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// How many sequences stand in groups before.
    pub(super) first: usize,
    pub(super) sequences: usize,
    /// How many tokens each has with its padding; a multiple of eight.
    pub(super) padded: usize,
}

impl Group {
    /// How many tokens there are with all padding.
    pub(super) fn rows(&self) -> usize {
        self.sequences * self.padded
    }

    /// What a label takes of a chunk's memory: weights, their gradients, and what was found.
    pub(super) fn bytes_a_label(&self, columns: usize) -> usize {
        Element::Bf16.bytes() * (2 * self.rows() + self.sequences * columns)
    }
}

/// The sequences of these lengths in groups, longest first; and in which order they stand in them.
pub(super) fn grouped(lengths: &[usize]) -> (Vec<Group>, Vec<usize>) {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&sequence| Reverse(lengths[sequence]));
    let longest = order.first().map_or(0, |&sequence| lengths[sequence]);
    let grain = if longest <= SHORT { GRAINS.0 } else { GRAINS.1 };
    let step = longest.div_ceil(STEPS).next_multiple_of(grain).max(grain);
    let (mut groups, mut padding): (Vec<Group>, usize) = (Vec::new(), 0);
    for alike in order.chunk_by(|&a, &b| lengths[a].div_ceil(step) == lengths[b].div_ceil(step)) {
        let padded = lengths[alike[0]].next_multiple_of(grain);
        let first = groups.last().map_or(0, |last| last.first + last.sequences);
        let more = groups.last().map_or(usize::MAX, |last| (last.padded - padded) * alike.len());
        match groups.last_mut() {
            Some(last) if padding + more <= WORTH_A_GROUP => {
                last.sequences += alike.len();
                padding += more;
            }
            _ => {
                groups.push(Group { first, sequences: alike.len(), padded });
                padding = 0;
            }
        }
    }
    (groups, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_few_and_cover_every_sequence_once() {
        let uniform: Vec<usize> = (0..254).map(|i| 4 + i * 2).collect();
        let short: Vec<usize> = (0..64).map(|i| 4 + i % 17).collect();
        let one_short = [&[512; 63][..], &[5]].concat();
        for lengths in [&uniform[..], &short, &one_short, &[1], &[77, 1, 2, 512, 9], &[512; 64]] {
            let (groups, mut order) = grouped(lengths);
            assert!(groups.len() <= STEPS, "{groups:?}");
            let mut next = 0;
            for group in &groups {
                assert_eq!((group.first, group.padded % 8), (next, 0));
                assert!(group.padded <= crate::batch::LONGEST);
                next += group.sequences;
                let longest = order[group.first..next].iter().map(|&i| lengths[i]).max().unwrap();
                assert!((longest..longest + 32).contains(&group.padded), "{group:?} for {longest}");
            }
            order.sort_unstable();
            assert_eq!(order, (0..lengths.len()).collect::<Vec<_>>());
            let (rows, tokens) =
                (groups.iter().map(Group::rows).sum::<usize>(), lengths.iter().sum::<usize>());
            assert!(rows <= tokens * 8 / 7 + 32 * lengths.len() + 1024 * groups.len(), "{rows} for {tokens}");
        }
        assert_eq!(grouped(&short).0.len(), 1, "padding short sequences costs less than a group");
        assert_eq!(grouped(&one_short).0.len(), 1);
        assert_eq!(grouped(&uniform).0.len(), 8);
    }
}
