//! The classifiers of a tree, laid out for the way down: for each node the weights of all its children, feature by
//! feature.
//!
//! A document meets a node's children at once: for each of its features that the node knows, the children that have a
//! weight for it and the weights, which lie side by side. A feature that half of the children have a weight for has one
//! for all, zeros among them, which can be added without looking whose they are. Features are found through buckets of a few features each, so
//! that a feature takes three bytes beside its weights: what its bucket does not say of it, and how many there are. A
//! weight is a whole number of 16 bits, to be multiplied by its child's scale. The arrays lie in memory after a fit,
//! and stay in their file when a model is loaded.

use std::ops::Range;

use super::tree::Tree;
use crate::artifact::{ArtifactError, MappedTensors, TensorsBuilder};
use crate::sparse::Entry;
use crate::storage::Array;

/// The largest whole number of a weight.
const FULL: f32 = i16::MAX as f32;

/// Children of a node at most: their numbers within it are bytes.
pub(super) const MOST_CHILDREN: usize = 256;

/// The arrays' names in the file, behind the number of the tree.
const NAMES: [&str; 10] = [
    "node_rows",
    "node_entries",
    "node_buckets",
    "shifts",
    "buckets",
    "features",
    "lengths",
    "children",
    "weights",
    "scales_and_constants",
];

/// Rows that a bucket holds, about.
const BUCKET: usize = 2;

/// The most bits of a feature that a row keeps itself.
const MOST_BITS: u8 = 16;

/// A weight of a child for a feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weight {
    /// The feature.
    pub(super) feature: u32,
    /// The child, by its place among its siblings.
    pub(super) child: u8,
    /// How much the feature speaks for it.
    pub(super) value: f32,
}

/// The classifiers of all nodes of a tree, level by level.
#[derive(Debug)]
pub(super) struct Weights {
    /// The first row of each node, and how many there are; a row is a feature that a node knows.
    node_rows: Array<u64>,
    /// The first entry of each node, and how many there are.
    node_entries: Array<u64>,
    /// The first bucket of each node, and how many there are, closing ones among them.
    node_buckets: Array<u64>,
    /// By how many bits a feature is shifted to find its bucket, of each node.
    shifts: Array<u8>,
    /// The first row and the first entry of each bucket, from its node's: two numbers a bucket. Each node has one more
    /// bucket, its end.
    buckets: Array<u32>,
    /// The feature of each row, as far as its bucket does not say it.
    features: Array<u16>,
    /// How many entries each row has, less one.
    lengths: Array<u8>,
    /// The child of each entry.
    children: Array<u8>,
    /// Its weight.
    weights: Array<i16>,
    /// What the weights of each child are multiplied by, and its constant: two numbers a child, level by level.
    scales: Array<f32>,
}

impl Weights {
    /// How many entries there are.
    pub(super) fn entries(&self) -> usize {
        self.children.len()
    }

    /// The margins of a node's children for the entries of a row, by rising column, into `margins`. `node` is its number
    /// among the nodes of all levels, `first_child` that of its first child among all children.
    #[inline(always)]
    pub(super) fn margins(&self, node: usize, first_child: usize, row: &[Entry], margins: &mut [f32]) {
        let entries = self.range(&self.node_entries, node);
        let (children, weights) = (&self.children[entries.clone()], &self.weights[entries]);
        // As many as a byte can say, so that none is out of range.
        let mut sums = [0.0f32; MOST_CHILDREN];
        self.each(node, row, |_, value, entries| {
            if entries.len() == margins.len() {
                for (sum, &weight) in sums.iter_mut().zip(&weights[entries]) {
                    *sum += value * f32::from(weight);
                }
                return;
            }
            for (&child, &weight) in children[entries.clone()].iter().zip(&weights[entries]) {
                sums[child as usize] += value * f32::from(weight);
            }
        });
        let scales = self.scales[2 * first_child..2 * (first_child + margins.len())].as_chunks::<2>().0;
        for ((margin, sum), [scale, constant]) in margins.iter_mut().zip(sums).zip(scales) {
            *margin = sum * scale + constant;
        }
    }

    /// What each entry of a row adds to the margin of one child of a node, by its place in the row, and the constant.
    pub(super) fn shares(
        &self,
        node: usize,
        (first_child, child): (usize, usize),
        row: &[Entry],
    ) -> (Vec<(usize, f32)>, f32) {
        let mut shares = Vec::new();
        let [scale, constant] = [0, 1].map(|part| self.scales[2 * (first_child + child) + part]);
        let first = self.node_entries[node] as usize;
        self.each(node, row, |place, value, entries| {
            let at = entries.map(|entry| first + entry).find(|&entry| self.children[entry] as usize == child);
            let share = at.map(|entry| (place, value * f32::from(self.weights[entry]) * scale));
            shares.extend(share.filter(|(_, share)| *share != 0.0));
        });
        (shares, constant)
    }

    /// Calls with the place and value of each entry of a row that a node has weights for, and where those are among the
    /// node's.
    #[inline(always)]
    fn each(&self, node: usize, row: &[Entry], mut found: impl FnMut(usize, f32, Range<usize>)) {
        let rows = self.range(&self.node_rows, node);
        let (features, lengths) = (&self.features[rows.clone()], &self.lengths[rows]);
        let buckets = self.buckets(node);
        let shift = self.shifts[node];
        for (place, entry) in row.iter().enumerate() {
            let bucket = (entry.column >> shift) as usize;
            let Some(&[[start, mut at], [end, _]]) = buckets.get(bucket..bucket + 2) else { continue };
            let rest = (entry.column & ((1 << shift) - 1)) as u16;
            let bucket = start as usize..end as usize;
            for (&feature, &length) in features[bucket.clone()].iter().zip(&lengths[bucket]) {
                let entries = at as usize..at as usize + usize::from(length) + 1;
                if feature >= rest {
                    if feature == rest {
                        found(place, entry.value, entries);
                    }
                    break;
                }
                at = entries.end as u32;
            }
        }
    }

    fn range(&self, starts: &Array<u64>, node: usize) -> Range<usize> {
        starts[node] as usize..starts[node + 1] as usize
    }

    /// The buckets of a node: the first row and the first entry of each.
    fn buckets(&self, node: usize) -> &[[u32; 2]] {
        &self.buckets.as_chunks::<2>().0[self.range(&self.node_buckets, node)]
    }

    /// Adds the arrays to a file, as those of the tree with this prefix; `names` are made by [`names`].
    pub(super) fn store<'a>(
        &'a self,
        names: &'a [String; 10],
        builder: TensorsBuilder<'a>,
    ) -> TensorsBuilder<'a> {
        let [rows, entries, buckets_at, shifts, buckets, features, lengths, children, weights, scales] =
            names;
        builder
            .numbers(rows, &self.node_rows)
            .numbers(entries, &self.node_entries)
            .numbers(buckets_at, &self.node_buckets)
            .numbers(shifts, &self.shifts)
            .numbers(buckets, &self.buckets)
            .numbers(features, &self.features)
            .numbers(lengths, &self.lengths)
            .numbers(children, &self.children)
            .numbers(weights, &self.weights)
            .numbers(scales, &self.scales)
    }

    /// Reads what [`store`](Weights::store) wrote, and looks whether it fits the tree.
    pub(super) fn load(
        file: &MappedTensors,
        names: &[String; 10],
        tree: &Tree,
    ) -> Result<Result<Weights, &'static str>, ArtifactError> {
        let [rows, entries, buckets_at, shifts, buckets, features, lengths, children, weights, scales] =
            names;
        let weights = Weights {
            node_rows: file.array(rows)?,
            node_entries: file.array(entries)?,
            node_buckets: file.array(buckets_at)?,
            shifts: file.array(shifts)?,
            buckets: file.array(buckets)?,
            features: file.array(features)?,
            lengths: file.array(lengths)?,
            children: file.array(children)?,
            weights: file.array(weights)?,
            scales: file.array(scales)?,
        };
        Ok(weights.check(tree).map(|()| weights))
    }

    /// Whether no look-up can leave the arrays, whatever the file says.
    fn check(&self, tree: &Tree) -> Result<(), &'static str> {
        let nodes: usize = (0..tree.depth()).map(|level| tree.nodes(level)).sum();
        let children: usize = (1..=tree.depth()).map(|level| tree.nodes(level)).sum();
        let starts = |starts: &[u64], end: usize| {
            starts.len() == nodes + 1 && starts[0] == 0 && starts[nodes] == end as u64 && starts.is_sorted()
        };
        let fits = starts(&self.node_rows, self.features.len())
            && starts(&self.node_entries, self.children.len())
            && starts(&self.node_buckets, self.buckets.len() / 2)
            && self.buckets.len().is_multiple_of(2)
            && self.shifts.len() == nodes
            && self.shifts.iter().all(|&shift| shift <= MOST_BITS)
            && self.lengths.len() == self.features.len()
            && self.weights.len() == self.children.len()
            && self.scales.len() == 2 * children;
        if !fits {
            return Err("its arrays do not fit each other or the tree");
        }
        if !self.scales.iter().all(|scale| scale.is_finite()) {
            return Err("a scale is not a finite number");
        }
        let mut node = 0;
        for level in 0..tree.depth() {
            for below in 0..tree.nodes(level) {
                let count = tree.children(level, below).len();
                let (rows, entries) =
                    (self.range(&self.node_rows, node), self.range(&self.node_entries, node));
                let is_right = self.fills_buckets(node, &rows, entries.len())
                    && self.children[entries].iter().all(|&child| (child as usize) < count);
                if !is_right {
                    return Err("a node's weights are out of order");
                }
                node += 1;
            }
        }
        Ok(())
    }

    /// Whether the buckets of a node hold its rows and so many entries, one bucket behind the other.
    fn fills_buckets(&self, node: usize, rows: &Range<usize>, entries: usize) -> bool {
        let buckets = self.buckets(node);
        let holds = |pair: &[[u32; 2]]| {
            let [[start, at], [end, until]] = [pair[0], pair[1]];
            let within = start <= end && end as usize <= rows.len();
            let lengths = || &self.lengths[rows.start + start as usize..rows.start + end as usize];
            within
                && u64::from(at) + lengths().iter().map(|&length| u64::from(length) + 1).sum::<u64>()
                    == u64::from(until)
        };
        buckets.first().is_none_or(|first| *first == [0, 0])
            && buckets.last().is_none_or(|last| *last == [rows.len() as u32, entries as u32])
            && (!buckets.is_empty() || (rows.is_empty() && entries == 0))
            && buckets.windows(2).all(holds)
    }
}

/// The names of a tree's arrays.
pub(super) fn names(tree: usize) -> [String; 10] {
    NAMES.map(|name| format!("{tree}.{name}"))
}

/// Weights being put together, node by node in the order of levels.
#[derive(Default)]
pub(super) struct WeightsBuilder {
    node_rows: Vec<u64>,
    node_entries: Vec<u64>,
    node_buckets: Vec<u64>,
    shifts: Vec<u8>,
    buckets: Vec<u32>,
    features: Vec<u16>,
    lengths: Vec<u8>,
    children: Vec<u8>,
    weights: Vec<i16>,
    scales: Vec<f32>,
}

impl WeightsBuilder {
    /// Adds a node: the weights of its children, by feature and then child, and the constant of each child. `columns` is
    /// how many features there are.
    pub(super) fn push(&mut self, weights: &[Weight], constants: &[f32], columns: usize) {
        let mut largest = vec![0.0f32; constants.len()];
        for weight in weights {
            let most = &mut largest[weight.child as usize];
            *most = most.max(weight.value.abs());
        }
        self.node_rows.push(self.features.len() as u64);
        self.node_entries.push(self.children.len() as u64);
        self.node_buckets.push(self.buckets.len() as u64 / 2);
        let rows = || weights.chunk_by(|a, b| a.feature == b.feature);
        // A few rows a bucket, unless that leaves more of a feature than a row keeps.
        let wanted = rows().count().div_ceil(BUCKET).max(1);
        let shift = (0..MOST_BITS).find(|shift| columns >> shift <= wanted).unwrap_or(MOST_BITS);
        self.shifts.push(shift);
        let (mut bucket, mut row, mut entry) = (0, 0, 0);
        for run in rows() {
            let feature = run[0].feature;
            while bucket <= feature >> shift {
                self.buckets.extend([row, entry]);
                bucket += 1;
            }
            self.features.push((feature & ((1 << shift) - 1)) as u16);
            let before = self.children.len();
            let whole = |weight: &Weight| {
                let share = weight.value / largest[weight.child as usize];
                (share * FULL).round() as i16
            };
            if 2 * run.len() >= constants.len() {
                self.children.extend((0..constants.len()).map(|child| child as u8));
                self.weights.resize(before + constants.len(), 0);
                run.iter().for_each(|weight| self.weights[before + weight.child as usize] = whole(weight));
            } else {
                self.children.extend(run.iter().map(|weight| weight.child));
                self.weights.extend(run.iter().map(whole));
            }
            let length = self.children.len() - before;
            self.lengths.push((length - 1) as u8);
            (row, entry) = (row + 1, entry + length as u32);
        }
        self.buckets.extend([row, entry]);
        let scales = largest.iter().map(|largest| largest / FULL);
        self.scales.extend(scales.zip(constants).flat_map(|(scale, &constant)| [scale, constant]));
    }

    /// The weights of all nodes that were added.
    pub(super) fn finish(mut self) -> Weights {
        self.node_rows.push(self.features.len() as u64);
        self.node_entries.push(self.children.len() as u64);
        self.node_buckets.push(self.buckets.len() as u64 / 2);
        Weights {
            node_rows: self.node_rows.into(),
            node_entries: self.node_entries.into(),
            node_buckets: self.node_buckets.into(),
            shifts: self.shifts.into(),
            buckets: self.buckets.into(),
            features: self.features.into(),
            lengths: self.lengths.into(),
            children: self.children.into(),
            weights: self.weights.into(),
            scales: self.scales.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with two children, the first of which has three labels and the second two, over 100 features.
    fn weights() -> (Tree, Weights) {
        let tree =
            Tree { order: vec![3, 1, 4, 0, 2], levels: vec![vec![0, 5], vec![0, 3, 5], (0..6).collect()] };
        let weight = |feature, child, value| Weight { feature, child, value };
        let mut builder = WeightsBuilder::default();
        builder.push(&[weight(0, 0, 1.5), weight(0, 1, -0.5), weight(99, 1, 2.0)], &[0.25, -1.0], 100);
        builder.push(&[weight(7, 2, 1.0), weight(40, 0, -3.0), weight(41, 0, 0.1)], &[0.0, 0.0, 0.5], 100);
        builder.push(&[], &[1.0, -1.0], 100);
        (tree, builder.finish())
    }

    fn entry(column: u32, value: f32) -> Entry {
        Entry { column, value }
    }

    #[test]
    fn margins_are_products_and_constants() {
        let (tree, weights) = weights();
        assert_eq!(weights.check(&tree), Ok(()));
        // A zero among them: half of the root's children have a weight for the last feature, so that both do.
        assert_eq!(weights.entries(), 7);
        let margins = |node, first, row: &[Entry], count| {
            let mut margins = vec![f32::NAN; count];
            weights.margins(node, first, row, &mut margins);
            margins
        };
        let near = |found: Vec<f32>, expected: &[f32]| {
            assert_eq!(found.len(), expected.len());
            found.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-3, "{a} {b}"));
        };
        near(margins(0, 0, &[entry(0, 2.0), entry(5, 9.0), entry(99, 0.5)], 2), &[3.25, -1.0]);
        near(margins(1, 2, &[entry(40, 1.0), entry(41, 1.0), entry(7, 0.5)], 3), &[-2.9, 0.0, 1.0]);
        near(margins(2, 5, &[entry(0, 1.0)], 2), &[1.0, -1.0]);
        near(margins(0, 0, &[entry(u32::MAX, 1.0)], 2), &[0.25, -1.0]);
        let (shares, constant) = weights.shares(1, (2, 0), &[entry(7, 1.0), entry(40, 0.5), entry(41, 2.0)]);
        assert_eq!(constant, 0.0);
        assert_eq!(shares.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 2]);
        near(shares.into_iter().map(|(_, share)| share).collect(), &[-1.5, 0.2]);
    }

    #[test]
    fn arrays_that_do_not_fit_are_refused() {
        let broken = |change: fn(&mut Weights)| {
            let (tree, mut weights) = weights();
            change(&mut weights);
            weights.check(&tree).is_err()
        };
        assert!(broken(|weights| weights.node_rows = vec![0, 1, 2].into()));
        assert!(broken(|weights| weights.node_entries = vec![0, 4, 3, 7].into()));
        assert!(broken(|weights| weights.node_buckets = vec![1, 3, 7, 9].into()));
        assert!(broken(|weights| weights.shifts = vec![0, 0, 17].into()));
        assert!(broken(|weights| weights.lengths = vec![2, 0, 0, 0, 0].into()));
        assert!(broken(|weights| weights.lengths = vec![0; 4].into()));
        assert!(broken(|weights| weights.children = vec![0, 1, 0, 1, 2, 3, 0].into()));
        assert!(broken(|weights| weights.weights = vec![1].into()));
        assert!(broken(|weights| weights.scales = vec![f32::NAN; 14].into()));
        assert!(broken(|weights| weights.buckets = vec![9; weights.buckets.len()].into()));
        assert!(!broken(|_| ()));
    }
}
