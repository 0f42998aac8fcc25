//! The way down a tree: rows go together, so that a node's weights are used while they are at hand.

#![allow(unsafe_code)] // instructions that the processor is asked for first

use super::model::Grown;
use super::weights::MOST_CHILDREN;
use crate::sparse::Entry;

/// Nodes of the last level that every row looks at.
const FIRST: usize = 3;

/// A node whose labels are less likely than the last one wanted by this factor, as a logarithm, is left alone: a 55th.
const FAR: f32 = 4.0;

/// What is asked of one tree.
pub(super) struct Search<'a> {
    pub(super) rows: &'a [Vec<Entry>],
    pub(super) beam: usize,
    /// How many labels are wanted.
    pub(super) wanted: usize,
    pub(super) power: f32,
    /// The places of the labels that may be answered with, in rising order; none for all.
    pub(super) places: Option<&'a [u32]>,
}

/// Adds to each row's list the labels at the ends of its best ways down, by their rows, with their probabilities. All
/// rows are at one node before they are at the next.
pub(super) fn descend(grown: &Grown, search: &Search<'_>, found: &mut [Vec<(u32, f32)>]) {
    let tree = &grown.tree;
    let mut walk = Walk {
        grown,
        search,
        here: (0..search.rows.len() as u32).map(|row| (0, row, 0.0)).collect(),
        ways: vec![Vec::new(); search.rows.len()],
    };
    for level in 0..tree.depth() - 1 {
        walk.turn(level);
        walk.here.clear();
        for (row, ways) in (0..).zip(&mut walk.ways) {
            best(ways, search.beam);
            walk.here.extend(ways.drain(..).map(|(node, cost)| (node, row, cost)));
        }
    }
    walk.last();
    for (found, ways) in found.iter_mut().zip(walk.ways) {
        found.extend(ways.iter().map(|&(place, cost)| (tree.order[place as usize], (-cost).exp())));
    }
}

/// Leaves the `count` cheapest, in no order.
fn best(ways: &mut Vec<(u32, f32)>, count: usize) {
    if ways.len() > count {
        ways.select_nth_unstable_by(count - 1, |a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        ways.truncate(count);
    }
}

/// Rows on their way down a tree.
struct Walk<'a> {
    grown: &'a Grown,
    search: &'a Search<'a>,
    /// Which row is at which node, and what the way there cost.
    here: Vec<(u32, u32, f32)>,
    /// Where each row can go from there, and what it costs.
    ways: Vec<Vec<(u32, f32)>>,
}

impl Walk<'_> {
    /// Looks where rows can go from the nodes of a level, by the instruction set at hand: the same sums in the same order.
    fn turn(&mut self, level: usize) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { self.turn_avx2(level) };
        }
        self.turn_here(level);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn turn_avx2(&mut self, level: usize) {
        self.turn_here(level);
    }

    #[inline(always)]
    fn turn_here(&mut self, level: usize) {
        let (grown, search, tree) = (self.grown, self.search, &self.grown.tree);
        let mut margins = [0.0; MOST_CHILDREN];
        self.here.sort_unstable_by_key(|&(node, row, _)| (node, row));
        for at_node in self.here.chunk_by(|a, b| a.0 == b.0) {
            let node = at_node[0].0 as usize;
            let children = tree.children(level, node);
            let may = |child: usize| {
                search.places.is_none_or(|places| has_any(places, tree.labels(level + 1, child)))
            };
            let margins = &mut margins[..children.len()];
            let first_child = grown.first_child[level + 1] + children.start;
            for &(_, row, cost) in at_node {
                let (entries, ways) = (&search.rows[row as usize], &mut self.ways[row as usize]);
                grown.weights.margins(grown.first_node[level] + node, first_child, entries, margins);
                let turns = children.clone().zip(&*margins).filter(|(child, _)| may(*child));
                ways.extend(turns.map(|(child, &margin)| (child as u32, cost + turn(margin, search.power))));
            }
        }
    }

    /// The last turn: first from each row's best nodes, then from those whose labels might come near the best ones found.
    fn last(&mut self) {
        let level = self.grown.tree.depth() - 1;
        let mut later = std::mem::take(&mut self.here);
        later.sort_unstable_by(|a, b| a.1.cmp(&b.1).then(a.2.total_cmp(&b.2)).then(a.0.cmp(&b.0)));
        let (mut row, mut place) = (u32::MAX, 0);
        later.retain(|&at| {
            (row, place) = (at.1, if at.1 == row { place + 1 } else { 0 });
            if place < FIRST {
                self.here.push(at);
            }
            place >= FIRST
        });
        self.turn(level);
        let mut costs: Vec<f32> = Vec::new();
        let bounds: Vec<f32> = self
            .ways
            .iter()
            .map(|ways| {
                costs.clear();
                costs.extend(ways.iter().map(|(_, cost)| cost));
                match self.search.wanted {
                    wanted if wanted > costs.len() || wanted == 0 => f32::INFINITY,
                    wanted => *costs.select_nth_unstable_by(wanted - 1, f32::total_cmp).1 + FAR,
                }
            })
            .collect();
        later.retain(|&(_, row, cost)| cost < bounds[row as usize]);
        self.here = later;
        self.turn(level);
    }
}

/// What a turn with this margin costs.
fn turn(margin: f32, power: f32) -> f32 {
    let short = (1.0 - margin).max(0.0);
    // The usual one, a tenth of the time of any.
    if power == 3.0 { short * short * short } else { short.powf(power) }
}

/// Whether one of these places, in rising order, lies in a range.
fn has_any(places: &[u32], range: std::ops::Range<u32>) -> bool {
    let at = places.partition_point(|&place| place < range.start);
    places.get(at).is_some_and(|&place| place < range.end)
}
