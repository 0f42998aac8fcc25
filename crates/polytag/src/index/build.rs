//! How a graph is made: batch by batch, the same whatever the number of threads.
//!
//! Layers are made from the highest to the lowest, so that those above lead to where a label belongs. The labels of a batch
//! look for their neighbours in the graph as it stands before it, and among each other; all of them at once, as none of
//! them changes it. Then their links are put in, and the labels that they lead to choose anew among their own and the new
//! ones: no two at the same label, so again all at once.

use rayon::prelude::*;

use super::Allowed;
use super::codes::CodedQuery;
use super::graph::{Graph, Ground, Layer, NONE, Near, Walker, descend, walk};
use crate::ids::LabelId;
use crate::progress::{Progress, Stage, Stop};

/// Labels that are put in at once, at most.
const BATCH: usize = 1024;

/// Highest layer.
const TALLEST: usize = 12;

/// How a graph is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Links of a label in the lowest layer; half as many in those above.
    pub(super) width: usize,
    /// How many labels are looked at for them.
    pub(super) breadth: usize,
    pub(super) seed: u64,
}

/// Makes the graph of `labels`, of which there is one at least; none if it was stopped.
pub(super) fn build(
    ground: Ground<'_>,
    labels: &Allowed,
    plan: Plan,
    (progress, stop): (&dyn Progress, &Stop),
) -> Option<Graph> {
    let labels: Vec<u32> = labels.iter().map(|label| label.0).collect();
    let heights: Vec<usize> = labels.par_iter().map(|&label| height(label, plan)).collect();
    let tallest = heights.iter().copied().max()?;
    let entry = labels[heights.iter().position(|&height| height == tallest)?];
    let stage = Stage::start(progress, "linking labels", Some(labels.len() as u64));
    let mut above: Vec<Layer> = Vec::new();
    for height in (0..=tallest).rev() {
        let at_least = |least: usize| {
            let both = labels.iter().zip(&heights).filter(move |(_, height)| **height >= least);
            both.map(|(&label, _)| label)
        };
        // Those that layers above lead to come first.
        let taller: Allowed = at_least(height + 1).map(LabelId).collect();
        let order: Vec<u32> = at_least(height + 1)
            .chain(at_least(height).filter(|&label| !taller.contains(LabelId(label))))
            .collect();
        let (nodes, width) = match height {
            0 => (Vec::new(), plan.width),
            _ => (at_least(height).collect(), plan.width / 2),
        };
        let rows = if height == 0 { ground.codes.len() } else { nodes.len() };
        let layer = Layer { nodes: nodes.into(), links: vec![NONE; rows * width].into(), width };
        let mut making = Making { ground, plan, layer, above: &above };
        let mut done = 1.min(order.len());
        while done < order.len() {
            if stop.is_asked() {
                return None;
            }
            let batch = &order[done..order.len().min(done + done.clamp(1, BATCH))];
            // Where layers above lead to may not be in yet.
            let led = done >= taller.len() && !above.is_empty();
            making.put_in(batch, if led { Start::Above(entry) } else { Start::At(order[0]) });
            done += batch.len();
            if height == 0 {
                stage.advance(batch.len() as u64);
            }
        }
        let layer = making.layer;
        above.insert(0, layer);
    }
    stage.finish();
    Some(Graph { layers: above, entry })
}

/// In how many layers above the lowest a label is: in one more for every time that chance has it, one in `width` / 2.
fn height(label: u32, plan: Plan) -> usize {
    // The finaliser of SplitMix64: every bit of what goes in changes half of what comes out.
    let mut bits = (u64::from(label) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ plan.seed.wrapping_mul(0xD1B5_4A32_D192_ED03);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    let one_in = (plan.width as u64 / 2).max(2);
    let mut height = 0;
    while bits.is_multiple_of(one_in) && height < TALLEST {
        bits /= one_in;
        height += 1;
    }
    height
}

/// Where walks for neighbours begin.
#[derive(Clone, Copy)]
enum Start {
    /// Where the layers above lead to, from here.
    Above(u32),
    At(u32),
}

/// A layer being made.
struct Making<'a> {
    ground: Ground<'a>,
    plan: Plan,
    layer: Layer,
    above: &'a [Layer],
}

impl Making<'_> {
    fn put_in(&mut self, batch: &[u32], start: Start) {
        let most = self.plan.width / 2;
        let chosen: Vec<Vec<Near>> = batch
            .par_iter()
            .map_init(Scratch::default, |scratch, &label| {
                self.neighbours(label, (batch, start), most, scratch)
            })
            .collect();
        let mut back: Vec<(u32, Near)> = Vec::with_capacity(batch.len() * most);
        for (&label, chosen) in batch.iter().zip(&chosen) {
            self.write(label, chosen);
            back.extend(chosen.iter().map(|near| (near.position, Near::new(label, near.score))));
        }
        back.sort_unstable_by_key(|(to, from)| (*to, from.position));
        let groups: Vec<&[(u32, Near)]> = back.chunk_by(|a, b| a.0 == b.0).collect();
        let changed: Vec<(u32, Vec<Near>)> = groups
            .into_par_iter()
            .map_init(Scratch::default, |scratch, group| (group[0].0, self.linked_back(group, scratch)))
            .collect();
        for (label, links) in &changed {
            self.write(*label, links);
        }
    }

    fn write(&mut self, label: u32, links: &[Near]) {
        let Layer { nodes, links: all, width } = &mut self.layer;
        let slot = if nodes.is_empty() {
            label as usize
        } else {
            nodes.binary_search(&label).expect("in the layer")
        };
        let row = &mut all.held_mut().expect("being made")[slot * *width..(slot + 1) * *width];
        row.fill(NONE);
        row.iter_mut().zip(links).for_each(|(slot, near)| *slot = near.position);
    }

    /// The labels that a new one is to be linked to.
    fn neighbours(
        &self,
        label: u32,
        (batch, start): (&[u32], Start),
        most: usize,
        scratch: &mut Scratch,
    ) -> Vec<Near> {
        let Scratch { query, walker, near, .. } = scratch;
        let codes = self.ground.codes;
        query.set_coded(codes.row(label as usize), codes.scale(label as usize));
        let entry = match start {
            Start::At(entry) => entry,
            Start::Above(entry) => descend(self.above, self.ground, query, entry),
        };
        near.clear();
        near.extend_from_slice(walk(&self.layer, self.ground, query, (entry, self.plan.breadth), walker));
        let others = batch.iter().filter(|&&other| other != label);
        near.extend(others.map(|&other| Near::new(other, self.ground.score(other, query))));
        self.choose(most, scratch)
    }

    /// The links of a label, and those that others offer it.
    fn linked_back(&self, group: &[(u32, Near)], scratch: &mut Scratch) -> Vec<Near> {
        let Scratch { query, near, .. } = scratch;
        let (label, codes) = (group[0].0, self.ground.codes);
        query.set_coded(codes.row(label as usize), codes.scale(label as usize));
        near.clear();
        let links = self.layer.of(label).iter().take_while(|&&link| link != NONE);
        near.extend(links.map(|&link| Near::new(link, self.ground.score(link, query))));
        for (_, from) in group {
            if near.iter().all(|known| known.position != from.position) {
                near.push(*from);
            }
        }
        if near.len() <= self.layer.width {
            return near.clone();
        }
        self.choose(self.layer.width, scratch)
    }

    /// Of what is near, the best that are not nearer to a better one than to the label itself.
    fn choose(&self, most: usize, scratch: &mut Scratch) -> Vec<Near> {
        let Scratch { query, near, .. } = scratch;
        let order = |a: &Near, b: &Near| b.score.total_cmp(&a.score).then(a.position.cmp(&b.position));
        if near.len() > self.plan.breadth {
            near.select_nth_unstable_by(self.plan.breadth, order);
            near.truncate(self.plan.breadth);
        }
        near.sort_unstable_by(order);
        let codes = self.ground.codes;
        let mut chosen: Vec<Near> = Vec::with_capacity(most);
        for candidate in near.iter() {
            if chosen.len() == most {
                break;
            }
            let place = candidate.position as usize;
            query.set_coded(codes.row(place), codes.scale(place));
            // As near is apart, too: labels of the same name keep links to each other.
            let apart = |better: &Near| self.ground.score(better.position, query) <= candidate.score;
            if chosen.iter().all(apart) {
                chosen.push(*candidate);
            }
        }
        chosen
    }
}

/// What the making of one label's links needs, kept for the next one.
#[derive(Default)]
struct Scratch {
    query: CodedQuery,
    walker: Walker,
    near: Vec<Near>,
}
