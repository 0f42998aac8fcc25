//! Learning the classifiers of a tree, level by level.
//!
//! A node's children are told apart on the documents that carry a label below the node, and on no others: those of other
//! nodes never come to it (the negatives of Parabel and XR-Linear). Nodes of a level are learned in waves that fit the
//! memory there is; a node that does not fit alone is learned from the disk.

use rayon::prelude::*;

use super::solve::{Effort, Rows, SIBLINGS, solve};
use super::tree::Tree;
use super::weights::{Weight, Weights, WeightsBuilder};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::progress::Stage;
use crate::sparse::{Entry, Room, RowStore};
use crate::storage::StorageError;

/// Documents whose rows are copied at once.
const COPIED: usize = 4096;

/// What trees are learned from.
pub(super) struct Lesson<'a> {
    /// The documents, a row each.
    pub(super) rows: &'a RowStore,
    /// The labels of each document, by their rows.
    pub(super) labels: &'a [Vec<u32>],
    /// The memory for the rows of nodes.
    pub(super) room: &'a Room,
}

/// How classifiers are learned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learning {
    /// How well.
    pub(super) effort: Effort,
    /// Weights smaller than this are dropped.
    pub(super) smallest: f32,
    /// What makes one run differ from another.
    pub(super) seed: u64,
}

/// A node and the documents that come to it.
struct Node {
    level: usize,
    number: usize,
    documents: Vec<u32>,
}

/// A node that is ready to be learned: its documents' rows over its own columns.
struct Prepared<'a> {
    node: &'a Node,
    /// Its own rows; none for the root, which has all.
    own: Option<RowStore>,
    /// The feature of each of its columns; empty for the root, whose columns are the features.
    features: Vec<u32>,
    squares: Vec<f32>,
    /// For each document, by its place, and each of its labels below the node: the child.
    places: Vec<(u32, u16)>,
    children: usize,
}

/// Learns the classifiers of `tree`.
pub(super) fn learn(
    tree: &Tree,
    lesson: &Lesson<'_>,
    learning: &Learning,
    context: &TrainContext<'_>,
) -> Result<Weights, MethodError> {
    let mut places = vec![0u32; tree.order.len()];
    tree.order.iter().zip(0..).for_each(|(&label, place)| places[label as usize] = place);
    // The labels of documents by their places in the tree, so that those below a node are a run.
    let labels: Vec<Vec<u32>> = lesson
        .labels
        .par_iter()
        .map(|labels| {
            let mut at: Vec<u32> = labels.iter().map(|&label| places[label as usize]).collect();
            at.sort_unstable();
            at
        })
        .collect();
    let nodes: u64 = (1..=tree.depth()).map(|level| tree.nodes(level) as u64).sum();
    let stage = Stage::start(context.progress, "learning labels", Some(nodes));
    let mut builder = WeightsBuilder::default();
    let mut level_nodes = vec![Node { level: 0, number: 0, documents: (0..labels.len() as u32).collect() }];
    for level in 0..tree.depth() {
        let mut rest = &level_nodes[..];
        while !rest.is_empty() {
            let (wave, later) = rest.split_at(wave(rest, lesson));
            rest = later;
            let prepared: Vec<Prepared<'_>> = wave
                .par_iter()
                .map_init(Columns::default, |columns, node| prepare(node, tree, lesson, &labels, columns))
                .collect::<Result<_, _>>()?;
            let tasks: Vec<(usize, usize)> = prepared
                .iter()
                .enumerate()
                .flat_map(|(at, node)| (0..node.children).step_by(SIBLINGS).map(move |first| (at, first)))
                .collect();
            let learned: Vec<Group> = tasks
                .par_iter()
                .map(|&(at, first)| {
                    let group = learn_group(&prepared[at], lesson, first, learning, context)?;
                    stage.advance(group.constants.len() as u64);
                    Ok(group)
                })
                .collect::<Result<_, MethodError>>()?;
            let mut learned = learned.into_iter();
            for node in &prepared {
                let groups: Vec<Group> = learned.by_ref().take(node.children.div_ceil(SIBLINGS)).collect();
                let mut weights: Vec<Weight> =
                    Vec::with_capacity(groups.iter().map(|group| group.weights.len()).sum());
                let mut constants = Vec::with_capacity(node.children);
                for group in groups {
                    weights.extend(group.weights);
                    constants.extend(group.constants);
                }
                if i32::try_from(weights.len()).is_err() {
                    let problem = "a node has more than two billion weights; raise `smallest`".to_owned();
                    return Err(MethodError::Config { method: "label-tree", problem });
                }
                weights.sort_unstable_by_key(|weight| (weight.feature, weight.child));
                builder.push(&weights, &constants, lesson.rows.columns());
            }
        }
        if level + 1 < tree.depth() {
            level_nodes = below(tree, level, &level_nodes, &labels);
        }
    }
    stage.finish();
    Ok(builder.finish())
}

/// How many of these nodes are learned together.
fn wave(nodes: &[Node], lesson: &Lesson<'_>) -> usize {
    let most = lesson.room.memory.unwrap_or(usize::MAX).min(1 << 29) as u64;
    let mut bytes = 0;
    let fits = nodes.iter().take_while(|node| {
        let rows = node.documents.iter().map(|&document| lesson.rows.range(document as usize));
        bytes += rows.map(|range| (range.end - range.start) * size_of::<Entry>() as u64).sum::<u64>();
        bytes <= most
    });
    fits.count().max(1)
}

/// The nodes of the level below, each with its documents.
fn below(tree: &Tree, level: usize, nodes: &[Node], labels: &[Vec<u32>]) -> Vec<Node> {
    let mut all = Vec::with_capacity(tree.nodes(level + 1));
    for node in nodes {
        let children = tree.children(level, node.number);
        let first = children.start;
        let mut found: Vec<Node> =
            children.map(|number| Node { level: level + 1, number, documents: Vec::new() }).collect();
        for &document in &node.documents {
            for child in children_of(tree, (level, node.number), &labels[document as usize]) {
                found[child - first].documents.push(document);
            }
        }
        all.extend(found);
    }
    all
}

/// The children of a node that labels, by their places in rising order, are below of; each once.
fn children_of(tree: &Tree, (level, node): (usize, usize), labels: &[u32]) -> Vec<usize> {
    let (range, cuts) = (tree.labels(level, node), &tree.levels[level + 1]);
    let start = labels.partition_point(|&label| label < range.start);
    let below = labels[start..].iter().take_while(|&&label| label < range.end);
    let mut children: Vec<usize> =
        below.map(|&label| cuts.partition_point(|&cut| cut <= label) - 1).collect();
    children.dedup();
    children
}

/// A node's documents over its own columns, and to which children they belong.
fn prepare<'a>(
    node: &'a Node,
    tree: &Tree,
    lesson: &Lesson<'_>,
    labels: &[Vec<u32>],
    columns: &mut Columns,
) -> Result<Prepared<'a>, StorageError> {
    let children = tree.children(node.level, node.number);
    let mut places = Vec::new();
    for (at, &document) in node.documents.iter().enumerate() {
        let found = children_of(tree, (node.level, node.number), &labels[document as usize]);
        places.extend(found.into_iter().map(|child| (at as u32, (child - children.start) as u16)));
    }
    let mut prepared = Prepared {
        node,
        own: None,
        features: Vec::new(),
        squares: Vec::new(),
        places,
        children: children.len(),
    };
    if node.level > 0 {
        prepared.copy_rows(lesson, columns)?;
    }
    prepared.squares = squares(prepared.own.as_ref().unwrap_or(lesson.rows))?;
    Ok(prepared)
}

impl Prepared<'_> {
    /// Copies the rows of the node's documents, with columns for the features that they have alone.
    fn copy_rows(&mut self, lesson: &Lesson<'_>, columns: &mut Columns) -> Result<(), StorageError> {
        let documents = &self.node.documents;
        let mut buffer = Vec::new();
        columns.of_feature.resize(lesson.rows.columns(), NONE);
        for &document in documents {
            let row = document as usize;
            for entry in lesson.rows.read(row..row + 1, &mut buffer)? {
                let column = &mut columns.of_feature[entry.column as usize];
                if *column == NONE {
                    *column = 0;
                    self.features.push(entry.column);
                }
            }
        }
        self.features.sort_unstable();
        for (&feature, column) in self.features.iter().zip(0..) {
            columns.of_feature[feature as usize] = column;
        }
        let mut own = RowStore::new(self.features.len(), lesson.room);
        let (mut entries, mut lengths) = (Vec::new(), Vec::new());
        for part in documents.chunks(COPIED) {
            entries.clear();
            lengths.clear();
            for &document in part {
                let row = document as usize;
                let read = lesson.rows.read(row..row + 1, &mut buffer)?;
                lengths.push(read.len());
                entries.extend(read.iter().map(|entry| Entry {
                    column: columns.of_feature[entry.column as usize],
                    value: entry.value,
                }));
            }
            own.extend(&entries, &lengths)?;
        }
        self.features.iter().for_each(|&feature| columns.of_feature[feature as usize] = NONE);
        self.own = Some(own);
        Ok(())
    }
}

/// No column.
const NONE: u32 = u32::MAX;

/// The columns of a node's features; used again and again. Memory: 4 bytes a feature and thread.
#[derive(Default)]
struct Columns {
    of_feature: Vec<u32>,
}

/// The squared lengths of rows, with the constant.
fn squares(rows: &RowStore) -> Result<Vec<f32>, StorageError> {
    let mut squares = Vec::with_capacity(rows.rows());
    let mut buffer = Vec::new();
    for start in (0..rows.rows()).step_by(COPIED) {
        let end = rows.rows().min(start + COPIED);
        let first = rows.range(start).start;
        let entries = rows.read(start..end, &mut buffer)?;
        for row in start..end {
            let range = rows.range(row);
            let entries = &entries[(range.start - first) as usize..(range.end - first) as usize];
            squares.push(1.0 + entries.iter().map(|entry| entry.value * entry.value).sum::<f32>());
        }
    }
    Ok(squares)
}

/// What up to sixteen siblings learned.
struct Group {
    weights: Vec<Weight>,
    constants: Vec<f32>,
}

fn learn_group(
    node: &Prepared<'_>,
    lesson: &Lesson<'_>,
    first: usize,
    learning: &Learning,
    context: &TrainContext<'_>,
) -> Result<Group, MethodError> {
    let siblings = SIBLINGS.min(node.children - first);
    let mut positives = vec![0u16; node.node.documents.len()];
    for &(document, child) in &node.places {
        if let Some(lane) = (child as usize).checked_sub(first).filter(|&lane| lane < siblings) {
            positives[document as usize] |= 1 << lane;
        }
    }
    let rows = Rows { store: node.own.as_ref().unwrap_or(lesson.rows), squares: &node.squares };
    let place = [node.node.level, node.node.number, first];
    let seed = place.iter().fold(learning.seed, |seed, &part| {
        (seed ^ part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    let solved = solve(&rows, (&positives, siblings), &learning.effort, seed, context.stop)?;
    let (constants, columns) = solved.split_last().expect("the constant is always there");
    let mut weights = Vec::new();
    for (column, lanes) in columns.iter().enumerate() {
        let feature = if node.own.is_some() { node.features[column] } else { column as u32 };
        let kept = lanes.0.iter().take(siblings).enumerate();
        let kept = kept.filter(|(_, value)| value.abs() >= learning.smallest && **value != 0.0);
        weights.extend(kept.map(|(lane, &value)| Weight { feature, child: (first + lane) as u8, value }));
    }
    Ok(Group { weights, constants: constants.0[..siblings].to_vec() })
}
