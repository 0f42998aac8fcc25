//! A graph of labels in layers, walked towards a query (Malkov and Yashunin, 2016: HNSW).
//!
//! A label is linked to labels like it that are unlike each other. The lowest layer has all labels, each further one a
//! few of those below. A walk goes down greedily, then keeps the best `ef` of what it saw in the lowest layer and goes on
//! from each until none is left. Scores on the way are those of vectors in 8 bits, which are integers: the way, like the
//! graph, is the same on every machine.
//!
//! Memory: 4 bytes a link, of which a label has `width` and one in `width` / 2 some more; a walk takes a bit a label.

use super::codes::{CodedQuery, Codes};
use super::kernel8::{Integers, prefetch};
use crate::storage::Array;

/// What stands in a row of links behind the last one.
pub(super) const NONE: u32 = u32::MAX;

/// Labels in layers, the lowest first.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) layers: Vec<Layer>,
    /// Where walks begin: a label of the highest layer.
    pub(super) entry: u32,
}

/// Labels of one layer and their links.
#[derive(Debug)]
pub(super) struct Layer {
    /// The positions of its labels, rising; none in the lowest layer, where every position has a row of links.
    pub(super) nodes: Array<u32>,
    /// `width` positions a label, the best first, filled up with [`NONE`].
    pub(super) links: Array<u32>,
    pub(super) width: usize,
}

impl Layer {
    /// The links of the label at a position.
    #[inline]
    pub(super) fn of(&self, position: u32) -> &[u32] {
        let slot = match self.nodes.is_empty() {
            true => position as usize,
            false => match self.nodes.binary_search(&position) {
                Ok(slot) => slot,
                Err(_) => return &[],
            },
        };
        &self.links[slot * self.width..(slot + 1) * self.width]
    }
}

/// The label vectors that a walk compares with.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) codes: &'a Codes,
    pub(super) integers: Integers,
}

impl Ground<'_> {
    /// How near a label is to a query.
    #[inline]
    pub(super) fn score(&self, position: u32, query: &CodedQuery) -> f32 {
        let place = position as usize;
        self.integers.product(self.codes.row(place), self.codes.scale(place), query)
    }
}

/// A label that a walk has come by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Near {
    pub(super) score: f32,
    pub(super) position: u32,
    /// Whether the walk went on from it.
    done: bool,
}

impl Near {
    pub(super) fn new(position: u32, score: f32) -> Near {
        Near { score, position, done: false }
    }

    /// Whether it comes before another one: by score, then by position.
    #[inline]
    pub(super) fn is_before(&self, other: &Near) -> bool {
        self.score > other.score || (self.score == other.score && self.position < other.position)
    }
}

/// What a walk needs, kept for the next one.
#[derive(Debug, Default)]
pub(super) struct Walker {
    /// The best labels so far, the best first.
    pool: Vec<Near>,
    seen: Seen,
    fresh: Vec<u32>,
}

/// Which labels a walk has come by, a bit each.
#[derive(Debug, Default)]
struct Seen {
    bits: Vec<u64>,
    touched: Vec<u32>,
}

impl Seen {
    fn clear(&mut self, positions: usize) {
        for word in self.touched.drain(..) {
            self.bits[word as usize] = 0;
        }
        self.bits.resize(positions.div_ceil(64), 0);
    }

    /// Whether a position is new.
    #[inline]
    fn insert(&mut self, position: u32) -> bool {
        let (word, bit) = (position / 64, 1 << (position % 64));
        let bits = &mut self.bits[word as usize];
        if *bits == 0 {
            self.touched.push(word);
        }
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    }
}

impl Graph {
    /// Puts a graph together from what was kept, if every link leads to a label that is there: nothing that a file says
    /// is believed.
    pub(super) fn checked(layers: Vec<Layer>, entry: u32, positions: usize) -> Result<Graph, String> {
        let Some(lowest) = layers.first() else { return Err("it has no layer".to_owned()) };
        if !lowest.nodes.is_empty() || lowest.links.len() != positions.saturating_mul(lowest.width) {
            return Err(format!("its lowest layer is not one of {positions} labels"));
        }
        if entry as usize >= positions {
            return Err(format!("it begins at {entry}, where no label is"));
        }
        for (height, layer) in layers.iter().enumerate() {
            let rising = layer.nodes.is_sorted_by(|a, b| a < b);
            let within = layer.nodes.last().is_none_or(|&last| (last as usize) < positions);
            let rows = if height == 0 { positions } else { layer.nodes.len() };
            if layer.width == 0 || !rising || !within || layer.links.len() != rows.saturating_mul(layer.width)
            {
                return Err(format!("layer {height} is not made of labels and their links"));
            }
            if let Some(link) = layer.links.iter().find(|&&link| link != NONE && link as usize >= positions) {
                return Err(format!("layer {height} has a link to {link}, where no label is"));
            }
        }
        Ok(Graph { layers, entry })
    }

    /// The labels that a walk of width `ef` finds, the best first.
    pub(super) fn search<'w>(
        &self,
        ground: Ground<'_>,
        query: &CodedQuery,
        ef: usize,
        walker: &'w mut Walker,
    ) -> &'w [Near] {
        let entry = descend(&self.layers[1..], ground, query, self.entry);
        walk(&self.layers[0], ground, query, (entry, ef), walker)
    }
}

/// The label that a greedy walk down `layers` ends at.
pub(super) fn descend(layers: &[Layer], ground: Ground<'_>, query: &CodedQuery, entry: u32) -> u32 {
    let mut best = Near::new(entry, ground.score(entry, query));
    for layer in layers.iter().rev() {
        loop {
            let before = best.position;
            let links = layer.of(before).iter().take_while(|&&link| link != NONE);
            links.clone().for_each(|&link| prefetch(ground.codes.row(link as usize)));
            for &link in links {
                let near = Near::new(link, ground.score(link, query));
                if near.is_before(&best) {
                    best = near;
                }
            }
            if best.position == before {
                break;
            }
        }
    }
    best.position
}

/// The best `ef` labels of a layer that a walk from `entry` comes by.
pub(super) fn walk<'w>(
    layer: &Layer,
    ground: Ground<'_>,
    query: &CodedQuery,
    (entry, ef): (u32, usize),
    walker: &'w mut Walker,
) -> &'w [Near] {
    let Walker { pool, seen, fresh } = walker;
    // Nobody can look at more labels than there are, whatever a file says.
    let ef = ef.min(ground.codes.len());
    seen.clear(ground.codes.len());
    pool.clear();
    pool.reserve(ef + 1);
    seen.insert(entry);
    pool.push(Near::new(entry, ground.score(entry, query)));
    let mut at = 0;
    while at < pool.len() {
        if pool[at].done {
            at += 1;
            continue;
        }
        pool[at].done = true;
        fresh.clear();
        for &link in layer.of(pool[at].position) {
            if link == NONE {
                break;
            }
            if seen.insert(link) {
                prefetch(ground.codes.row(link as usize));
                fresh.push(link);
            }
        }
        // The next one to go on from, most likely.
        if let Some(next) = pool[at + 1..].iter().find(|near| !near.done) {
            prefetch(layer.of(next.position));
        }
        let mut first = pool.len();
        for &link in fresh.iter() {
            let near = Near::new(link, ground.score(link, query));
            if pool.len() < ef || near.is_before(&pool[pool.len() - 1]) {
                let place = pool.partition_point(|other| other.is_before(&near));
                pool.truncate(ef - 1);
                pool.insert(place, near);
                first = first.min(place);
            }
        }
        at = first.min(at + 1);
    }
    pool
}
