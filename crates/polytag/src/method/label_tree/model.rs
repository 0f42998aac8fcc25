//! The model: trees, and the way down them.

#![allow(unsafe_code)] // instructions that the processor is asked for first

use polytag_nn::device::Device;
use rayon::prelude::*;

use super::LabelTreeConfig;
use super::explain::{Turn, attribute};
use super::features::Features;
use super::tree::Tree;
use super::weights::{MOST_CHILDREN, Weights, names};
use crate::artifact::{Array, ArtifactError, MANIFEST, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::method::seen_labels::{changed_among_seen, seen_labels};
use crate::predict::{Ask, Explanation, PredictError, Predictor};
use crate::ranking::{Ranking, Scored};
use crate::sparse::Entry;

/// The file of trees and classifiers.
const TREES: &str = "trees.safetensors";

/// Passages that are made into rows at once.
const WINDOW: usize = 1024;

/// A fitted label tree, or several.
pub struct LabelTreeModel {
    config: LabelTreeConfig,
    features: Features,
    trees: Vec<Grown>,
    /// The labels that trees know, row by row, in rising order.
    labels: Vec<LabelId>,
    space: LabelSpace,
}

/// A tree with its classifiers.
pub(super) struct Grown {
    pub(super) tree: Tree,
    pub(super) weights: Weights,
    /// The number of each level's first node among all nodes.
    pub(super) first_node: Vec<usize>,
    /// The number of each level's first node among all that are children.
    pub(super) first_child: Vec<usize>,
}

impl Grown {
    fn new((tree, weights): (Tree, Weights)) -> Grown {
        let (mut first_node, mut first_child) = (vec![0], vec![0, 0]);
        for level in 0..tree.depth() {
            first_node.push(first_node[level] + tree.nodes(level));
            first_child.push(first_child[level + 1] + tree.nodes(level + 1));
        }
        Grown { tree, weights, first_node, first_child }
    }

    /// The nodes on the way to a place in the order of labels: level, node and child, by its place among its siblings.
    pub(super) fn path(&self, place: u32) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.tree.depth()).map(move |level| {
            let at = |level: usize| self.tree.levels[level].partition_point(|&cut| cut <= place) - 1;
            let node = at(level);
            (level, node, at(level + 1) - self.tree.children(level, node).start)
        })
    }
}

/// Rows that walk down a tree together: enough for the weights of a node to be used while they are at hand.
const TOGETHER: usize = 512;

/// Labels that rows walking together may come to in a tree; 8 bytes each.
const MOST_WAYS: usize = 1 << 22;

/// Labels that are looked for in a node, about, where many are wanted.
const OF_A_NODE: usize = 8;

/// Nodes of the last level that every row looks at.
const FIRST: usize = 3;

/// A node whose labels are less likely than the last one wanted by this factor, as a logarithm, is left alone: a 55th.
const FAR: f32 = 4.0;

/// What is asked of one tree.
struct Search<'a> {
    rows: &'a [Vec<Entry>],
    beam: usize,
    /// How many labels are wanted.
    wanted: usize,
    power: f32,
    /// The places of the labels that may be answered with, in rising order; none for all.
    places: Option<&'a [u32]>,
}

impl LabelTreeModel {
    pub(super) fn new(
        config: LabelTreeConfig,
        features: Features,
        trees: Vec<(Tree, Weights)>,
        labels: Vec<LabelId>,
        space: LabelSpace,
    ) -> LabelTreeModel {
        LabelTreeModel { config, features, trees: trees.into_iter().map(Grown::new).collect(), labels, space }
    }

    /// Reads a model that [`save`](Predictor::save) wrote. Its weights stay in their file; an encoder goes onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<LabelTreeModel, crate::Error> {
        let config: LabelTreeConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        if let Some(problem) = config.problem() {
            return Err(folder.damaged(MANIFEST, problem).into());
        }
        let features = Features::load(folder, &config, device)?;
        let space = folder.labels()?;
        let labels = seen_labels(&space);
        let file = folder.mapped(TREES)?;
        let mut trees = Vec::with_capacity(config.trees);
        for number in 0..config.trees {
            let order: Array<u32> = file.array(&format!("{number}.order"))?;
            let cuts: Array<u32> = file.array(&format!("{number}.cuts"))?;
            let tree = tree(&order, &cuts, labels.len());
            let tree = tree.ok_or_else(|| folder.damaged(TREES, "its tree is not one over the labels"))?;
            let weights = Weights::load(&file, &names(number), &tree)?;
            let weights = weights.map_err(|problem| folder.damaged(TREES, problem))?;
            trees.push((tree, weights));
        }
        Ok(LabelTreeModel::new(config, features, trees, labels, space))
    }

    /// What passages look like to the trees: entries by rising column, a row a passage.
    ///
    /// # Errors
    /// If an encoder fails.
    pub fn rows(&self, passages: &[Passage<'_>]) -> Result<Vec<Vec<Entry>>, PredictError> {
        Ok(self.features.weigh(passages)?)
    }

    /// The best labels of such rows.
    ///
    /// # Errors
    /// If a score is no finite number.
    pub fn rank(&self, rows: &[Vec<Entry>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let may = self.places(ask);
        let together = (MOST_WAYS / self.beam(ask, &may) / self.config.leaf).clamp(1, TOGETHER);
        let size = rows.len().div_ceil(rayon::current_num_threads()).clamp(1, together);
        let chunks: Vec<Vec<Ranking>> =
            rows.par_chunks(size).map(|rows| self.answer(rows, ask, &may)).collect::<Result<_, _>>()?;
        Ok(chunks.into_iter().flatten().collect())
    }

    /// How many weights there are, over all trees.
    pub fn weights(&self) -> usize {
        self.trees.iter().map(|grown| grown.weights.entries()).sum()
    }

    fn answer(
        &self,
        rows: &[Vec<Entry>],
        ask: &Ask<'_>,
        may: &[Option<Vec<u32>>],
    ) -> Result<Vec<Ranking>, PredictError> {
        let beam = self.beam(ask, may);
        let mut found: Vec<Vec<(u32, f32)>> = vec![Vec::new(); rows.len()];
        for (grown, may) in self.trees.iter().zip(may) {
            let search =
                Search { rows, beam, wanted: ask.k, power: self.config.power, places: may.as_deref() };
            descend(grown, &search, &mut found);
        }
        let mut sums = vec![0.0; self.labels.len()];
        let trees = self.trees.len() as f32;
        let ranking = |found: Vec<(u32, f32)>| {
            for &(row, probability) in &found {
                sums[row as usize] += probability;
            }
            let mut scored: Vec<Scored> = Vec::with_capacity(found.len());
            for &(row, _) in &found {
                let sum = std::mem::replace(&mut sums[row as usize], f32::NAN);
                if !sum.is_nan() {
                    scored.push(Scored { label: self.labels[row as usize], score: sum / trees });
                }
            }
            found.iter().for_each(|(row, _)| sums[*row as usize] = 0.0);
            Ok(Ranking::new(scored, ask.k)?)
        };
        found.into_iter().map(ranking).collect()
    }

    /// How many nodes of a level are followed: enough for as many labels as are wanted, of which a node has a few. Of labels
    /// that may be answered with it may have but one.
    fn beam(&self, ask: &Ask<'_>, may: &[Option<Vec<u32>>]) -> usize {
        // A node of the last level is at least half full.
        let few = if may.iter().any(Option::is_some) { 1 } else { OF_A_NODE.min(self.config.leaf / 2) };
        self.config.beam.max(ask.k.div_ceil(few)).min(self.labels.len())
    }

    /// The places in each tree of the labels that may be answered with; none where all may.
    fn places(&self, ask: &Ask<'_>) -> Vec<Option<Vec<u32>>> {
        let may =
            |label| self.space.is_active(label) && ask.allowed.is_none_or(|allowed| allowed.contains(label));
        if ask.allowed.is_none() && self.labels.iter().all(|&label| may(label)) {
            return self.trees.iter().map(|_| None).collect();
        }
        let places = |grown: &Grown| {
            let order = grown.tree.order.iter().zip(0..);
            Some(order.filter(|(row, _)| may(self.labels[**row as usize])).map(|(_, place)| place).collect())
        };
        self.trees.iter().map(places).collect()
    }
}

/// A tree from its parts, if they are one over so many labels.
fn tree(order: &[u32], cuts: &[u32], labels: usize) -> Option<Tree> {
    let mut seen = vec![false; labels];
    if order.len() != labels || order.iter().any(|&row| row as usize >= labels) {
        return None;
    }
    order.iter().for_each(|&row| seen[row as usize] = true);
    if !seen.iter().all(|seen| *seen) || labels == 0 {
        return None;
    }
    // Levels lie end to end, each from zero to the number of labels.
    let mut levels: Vec<Vec<u32>> = Vec::new();
    for &cut in cuts {
        if cut == 0 {
            levels.push(Vec::new());
        }
        levels.last_mut()?.push(cut);
    }
    let is_level = |level: &Vec<u32>| {
        level.len() > 1
            && level[level.len() - 1] as usize == labels
            && level.windows(2).all(|pair| pair[0] < pair[1])
    };
    let refines = |pair: &[Vec<u32>]| pair[0].iter().all(|cut| pair[1].binary_search(cut).is_ok());
    let is_tree = levels.len() > 1
        && levels.iter().all(is_level)
        && levels[0].len() == 2
        && levels[levels.len() - 1].len() == labels + 1
        && levels.windows(2).all(refines);
    if !is_tree {
        return None;
    }
    let tree = Tree { order: order.to_vec(), levels };
    let is_narrow = (0..tree.depth())
        .all(|level| (0..tree.nodes(level)).all(|node| tree.children(level, node).len() <= MOST_CHILDREN));
    is_narrow.then_some(tree)
}

/// Adds to each row's list the labels at the ends of its best ways down, by their rows, with their probabilities. All
/// rows are at one node before they are at the next.
fn descend(grown: &Grown, search: &Search<'_>, found: &mut [Vec<(u32, f32)>]) {
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

impl Predictor for LabelTreeModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let mut rankings = Vec::with_capacity(passages.len());
        for window in passages.chunks(WINDOW) {
            rankings.extend(self.rank(&self.rows(window)?, ask)?);
        }
        Ok(rankings)
    }

    /// Labels can be renamed and removed; one that was never trained has no weights, and is refused.
    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        self.space = changed_among_seen(&self.space, changes)?;
        Ok(())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let Ok(row) = self.labels.binary_search(&label) else {
            return Ok(Explanation { score: 0.0, matched: None, reasons: Vec::new(), marks: Vec::new() });
        };
        let features = self.features.weigh(&[passage])?.remove(0);
        let paths: Vec<Vec<Turn>> =
            self.trees.iter().map(|grown| grown.turns(row as u32, &features)).collect();
        let (score, weights, rest) = attribute(&paths, features.len(), self.config.power);
        let reasons = self.features.reasons(passage, (&features, &weights), rest);
        let matched = Some(self.space.label(label).name.clone());
        Ok(Explanation { score, matched, reasons, marks: Vec::new() })
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        self.features.save(model)?;
        let labels: Vec<[String; 2]> = (0..self.trees.len())
            .map(|number| [format!("{number}.order"), format!("{number}.cuts")])
            .collect();
        let names: Vec<[String; 10]> = (0..self.trees.len()).map(names).collect();
        let cuts: Vec<Vec<u32>> = self.trees.iter().map(|grown| grown.tree.levels.concat()).collect();
        let mut tensors = TensorsBuilder::default();
        for (number, grown) in self.trees.iter().enumerate() {
            tensors = tensors
                .numbers(&labels[number][0], &grown.tree.order)
                .numbers(&labels[number][1], &cuts[number]);
            tensors = grown.weights.store(&names[number], tensors);
        }
        model.tensors(TREES, &tensors)
    }
}
