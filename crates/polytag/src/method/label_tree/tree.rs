//! The shape of a tree: in which order labels stand, and where each level cuts that order.
//!
//! Labels are halved again and again by what their documents say (balanced spherical 2-means), and stand in the order
//! of the halves. A node is a run of that order, so that its labels are a range, and a level is a list of cuts. How many
//! halvings make one level is what sets Parabel's binary trees, PECOS's trees of sixteen and Bonsai's wide ones apart.

use std::ops::Range;

use crate::sparse::{Csr, balanced_groups};

/// A tree over labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// The labels, by their rows, in the order of the leaves.
    pub(super) order: Vec<u32>,
    /// Where the nodes of each level begin in that order, and its end; the root first, the labels themselves last.
    pub(super) levels: Vec<Vec<u32>>,
}

impl Tree {
    /// A tree over the rows of `labels`: nodes of at most `branching` children, over groups of at most `leaf` labels.
    pub(super) fn grow(labels: &Csr, branching: usize, leaf: usize, seed: u64) -> Tree {
        let groups = balanced_groups(labels, leaf, seed);
        let mut cuts = vec![0];
        for group in &groups {
            cuts.push(cuts[cuts.len() - 1] + group.len() as u32);
        }
        let order = groups.concat();
        let mut levels = vec![(0..=order.len() as u32).collect()];
        // Groups are as many as a power of two, in the order of the halvings: every so many of them make a node. The
        // halvings are shared out among as few levels as they take.
        let halvings = groups.len().next_power_of_two().trailing_zeros();
        let most = branching.next_power_of_two().trailing_zeros().max(1);
        let depth = halvings.div_ceil(most);
        for level in (1..=depth).rev() {
            levels.push(every(&cuts, 1 << (halvings - halvings * level / depth)));
        }
        levels.push(vec![0, order.len() as u32]);
        levels.reverse();
        Tree { order, levels }
    }

    /// How many levels of nodes have children.
    pub(super) fn depth(&self) -> usize {
        self.levels.len() - 1
    }

    /// How many nodes a level has.
    pub(super) fn nodes(&self, level: usize) -> usize {
        self.levels[level].len() - 1
    }

    /// The labels under a node, by their places in the order.
    pub(super) fn labels(&self, level: usize, node: usize) -> Range<u32> {
        self.levels[level][node]..self.levels[level][node + 1]
    }

    /// The children of a node, among the nodes of the level below.
    pub(super) fn children(&self, level: usize, node: usize) -> Range<usize> {
        let (labels, below) = (self.labels(level, node), &self.levels[level + 1]);
        let place = |cut| below.partition_point(|&start| start < cut);
        place(labels.start)..place(labels.end)
    }
}

/// Every so many of the cuts, and the last one.
fn every(cuts: &[u32], step: usize) -> Vec<u32> {
    let mut some: Vec<u32> = cuts[..cuts.len() - 1].iter().copied().step_by(step).collect();
    some.push(cuts[cuts.len() - 1]);
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(count: usize) -> Csr {
        let mut rows = Csr::empty(count + 4);
        (0..count as u32).for_each(|label| rows.push([(label % 4, 0.8), (4 + label, 0.6)]));
        rows
    }

    #[test]
    fn every_label_is_below_one_node_of_each_level() {
        for (count, branching, leaf) in [(1, 2, 2), (5, 16, 10), (300, 2, 10), (300, 16, 10), (1000, 8, 3)] {
            let tree = Tree::grow(&labels(count), branching, leaf, 7);
            let mut order = tree.order.clone();
            order.sort_unstable();
            assert_eq!(order, (0..count as u32).collect::<Vec<_>>());
            assert_eq!(tree.nodes(0), 1);
            assert_eq!(tree.nodes(tree.depth()), count);
            for level in 0..tree.depth() {
                let mut next = 0;
                for node in 0..tree.nodes(level) {
                    let children = tree.children(level, node);
                    assert_eq!(children.start, next);
                    next = children.end;
                    let most = if level + 1 == tree.depth() { leaf } else { branching.max(2) };
                    assert!((1..=most).contains(&children.len()), "{count}: {children:?}");
                    let below = tree.labels(level + 1, children.start).start;
                    assert_eq!(below, tree.labels(level, node).start);
                }
                assert_eq!(next, tree.nodes(level + 1));
            }
        }
    }

    #[test]
    fn wide_trees_are_shallow() {
        let depth = |branching| Tree::grow(&labels(1024), branching, 16, 0).depth();
        assert_eq!((depth(2), depth(4), depth(8), depth(64)), (7, 4, 3, 2));
        let tree = Tree::grow(&labels(1024), 32, 8, 0);
        assert_eq!([0, 1, 2].map(|level| tree.nodes(level)), [1, 8, 128], "levels are as wide as each other");
    }
}
