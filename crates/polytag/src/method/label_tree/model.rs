//! The model: trees, what they see of a document, and their answers.

use polytag_nn::device::Device;
use rayon::prelude::*;

use super::LabelTreeConfig;
use super::descent::{Search, descend};
use super::explain::{Turn, attribute};
use super::features::Features;
use super::tree::Tree;
use super::weights::{MOST_CHILDREN, Weights, names};
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::method::seen_labels::{changed_among_seen, seen_labels};
use crate::predict::{Ask, Embeddings, Explanation, PredictError, Predictor};
use crate::ranking::{Ranking, Scored};
use crate::sparse::Entry;
use crate::storage::Array;

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

    fn prepare(&self, changes: &[LabelChange]) -> Result<Embeddings, PredictError> {
        changed_among_seen(&self.space, changes).map(|_| Embeddings::default())
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

    fn gives_probabilities(&self) -> bool {
        true
    }

    fn takes_new_labels(&self) -> bool {
        false
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
