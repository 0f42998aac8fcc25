//! Label vectors turned so that labels which documents carry together are near each other.
//!
//! In many label sets the nearest labels by meaning exclude each other: a law on Algeria is not one on Tunisia. What goes
//! with a label is another matter, and the label sets of training documents tell it. Let `y` be the vector of a label that a
//! document carries, and `x` the sum of those of its other labels, both less the mean of all labels and of unit length.
//! Canonical correlation finds directions of the one that go with directions of the other: with the covariances
//!
//! ```text
//! Cxx = Lx·Lxᵀ,   Cyy = Ly·Lyᵀ,   K = Lx⁻¹·Cxy·Ly⁻ᵀ = P·S·Qᵀ
//! ```
//!
//! labels that are predicted become `x·Lx⁻ᵀ·P·S`, labels that are looked for `y·Ly⁻ᵀ·Q·S`, so that a direction counts as much
//! as it is shared. Both maps are linear: sums of turned vectors are turned sums, and any combination can be searched as
//! before. A pair weighs one over the root of how often its label is carried, so that frequent labels do not teach alone.
//!
//! Some labels are near any sum of labels. What counts is how much nearer a label is to those of a document than it usually is:
//! its cosine `c` with what is predicted becomes `s·(c − m)/d`, where `m` and `d` are mean and deviation of its cosines with
//! label sets of training documents, and `s` is the mean deviation of seen labels, so that scores stay as large as cosines are.
//!
//! Nothing is trained by steps and nothing of unseen labels is looked at; a label that is added later is turned by the same
//! map. Cost: three products of matrices a label set, and some `10·dim³` operations; memory: 100 bytes for each of `dim²`, and
//! 12,288 vectors.

use polytag_nn::cpu::{View, multiply_once};

use crate::algebra::{Triangle, dot, eigen};
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::Dataset;
use crate::ids::{DocId, LabelId};
use crate::index::Allowed;

/// The file it is kept in.
const FILE: &str = "together.safetensors";

/// What is added to the covariances' diagonals, as a share of their mean: directions in which labels hardly differ are noise.
const RIDGE: f64 = 0.003;

/// Label sets that are looked at, evenly out of all.
const SETS: usize = 100_000;

/// Fewer pairs than this for each direction say nothing.
const PAIRS_A_DIRECTION: usize = 2;

/// For so many directions there must be a label at least: what few labels do says nothing of the directions of others.
const DIRECTIONS_A_LABEL: usize = 2;

/// Label sets that tell what is usual, evenly out of all.
const USUAL: usize = 1024;

/// The least deviation, as a share of the mean one: a label that is as near to any labels as to others is told little by them.
const STEADY: f32 = 0.1;

/// Labels whose cosines with label sets are computed at once.
const BLOCK: usize = 256;

/// Pairs whose products are added up at once.
const CHUNK: usize = 4096;

/// A pair of maps.
pub(super) struct Together {
    /// What is taken off a vector before it is made one long.
    mean: Vec<f32>,
    /// For labels that are predicted, `dim` rows end to end.
    predicted: Vec<f32>,
    /// For labels that are looked for.
    wanted: Vec<f32>,
    /// Sums of the turned labels of documents, one long each, end to end.
    usual: Vec<f32>,
    /// How far a label's cosines with them deviate, in the mean of all labels.
    spread: f32,
}

/// What is usual for a label: mean and deviation of its cosines with label sets of documents, and the mean deviation of all
/// labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    mean: f32,
    deviation: f32,
    spread: f32,
}

impl Usual {
    /// How much a cosine counts above what is usual.
    pub(super) fn above(&self, cosine: f32) -> f32 {
        (cosine - self.mean) * self.factor()
    }

    /// What is taken off for being usual, as it counts.
    pub(super) fn taken(&self) -> f32 {
        -self.mean * self.factor()
    }

    /// What parts of a cosine are multiplied by.
    pub(super) fn factor(&self) -> f32 {
        self.spread / self.deviation.max(STEADY * self.spread).max(f32::MIN_POSITIVE)
    }
}

/// Which map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Predicted,
    Wanted,
}

impl Together {
    /// Learns from which labels documents carry together; `vector` appends the vector of a label, if it has one. None where
    /// too few documents carry several labels.
    pub(super) fn learn(
        dataset: &dyn Dataset,
        dim: usize,
        vector: impl Fn(LabelId, &mut Vec<f32>) -> bool,
    ) -> Option<Together> {
        let space = dataset.label_space();
        let (mut mean, mut seen, mut row) = (vec![0f64; dim], 0, Vec::new());
        for (label, _) in space.iter().filter(|(label, _)| space.is_seen(*label)) {
            row.clear();
            if vector(label, &mut row) {
                mean.iter_mut().zip(&row).for_each(|(sum, value)| *sum += f64::from(*value));
                seen += 1;
            }
        }
        let mean: Vec<f32> = mean.iter().map(|sum| (sum / f64::from(seen.max(1))) as f32).collect();
        let centred = |label: LabelId, to: &mut Vec<f32>| {
            let start = to.len();
            let has = vector(label, to);
            centre(&mean, &mut to[start..]);
            has
        };
        let mut sums = Sums::new(dim);
        let mut pairs = Pairs::default();
        let mut paired = Allowed::default();
        for labels in label_sets(dataset, 2, SETS) {
            pairs.add(labels, dim, centred, |label| f64::from(space.train_count(label).max(1)).powf(-0.5));
            labels.iter().for_each(|label| {
                paired.insert(*label);
            });
            if pairs.weights.len() >= CHUNK {
                sums.add(&mut pairs);
            }
        }
        sums.add(&mut pairs);
        if paired.len() * DIRECTIONS_A_LABEL < dim {
            return None;
        }
        let [predicted, wanted] = sums.maps()?;
        let mut together = Together { mean, predicted, wanted, usual: Vec::new(), spread: 1.0 };
        together.usual = together.sums_of(dataset, &vector);
        let (mut spreads, mut rows) = (0.0, Vec::new());
        let mut add = |rows: &mut Vec<f32>| {
            let usual = together.usual_for(&together.turned(rows, Side::Wanted));
            spreads += usual.iter().map(|usual| f64::from(usual.deviation)).sum::<f64>();
            rows.clear();
        };
        for (label, _) in space.iter().filter(|(label, _)| space.is_seen(*label)) {
            vector(label, &mut rows);
            if rows.len() >= BLOCK * dim {
                add(&mut rows);
            }
        }
        add(&mut rows);
        together.spread = (spreads / f64::from(seen.max(1))) as f32;
        Some(together)
    }

    /// The sums of the turned labels of documents, one long each.
    fn sums_of(&self, dataset: &dyn Dataset, vector: &impl Fn(LabelId, &mut Vec<f32>) -> bool) -> Vec<f32> {
        let mut sums = Vec::with_capacity(USUAL * self.mean.len());
        for labels in label_sets(dataset, 1, USUAL) {
            let mut rows = Vec::new();
            for &label in labels {
                vector(label, &mut rows);
            }
            let start = sums.len();
            let turned = self.turned(&rows, Side::Predicted);
            let mut vectors = turned.chunks_exact(self.mean.len());
            let Some(first) = vectors.next() else { continue };
            sums.extend_from_slice(first);
            for vector in vectors {
                sums[start..].iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
            }
            unit(&mut sums[start..]);
        }
        sums
    }

    /// What is usual for labels whose turned vectors lie end to end.
    pub(super) fn usual_for(&self, turned: &[f32]) -> Vec<Usual> {
        let dim = self.mean.len();
        let sets = self.usual.len() / dim;
        let known = View::new(&self.usual, sets, dim).transposed();
        let mut found = Vec::with_capacity(turned.len() / dim);
        for block in turned.chunks(BLOCK * dim) {
            let mut own = block.to_vec();
            own.chunks_exact_mut(dim).for_each(unit);
            let labels = own.len() / dim;
            let mut cosines = vec![0.0; labels * sets];
            multiply_once(View::new(&own, labels, dim), known, &mut cosines, false);
            found.extend((0..labels).map(|label| self.usual_of(&cosines[label * sets..][..sets])));
        }
        found
    }

    /// What is usual for a label with these cosines.
    fn usual_of(&self, cosines: &[f32]) -> Usual {
        let count = cosines.len().max(1) as f64;
        let mean = cosines.iter().map(|cosine| f64::from(*cosine)).sum::<f64>() / count;
        let off = cosines.iter().map(|cosine| (f64::from(*cosine) - mean).powi(2)).sum::<f64>();
        Usual { mean: mean as f32, deviation: (off / count).sqrt() as f32, spread: self.spread }
    }

    /// Vectors that lie end to end, turned.
    pub(super) fn turned(&self, vectors: &[f32], side: Side) -> Vec<f32> {
        let dim = self.mean.len();
        let mut centred = vectors.to_vec();
        centred.chunks_exact_mut(dim).for_each(|vector| centre(&self.mean, vector));
        let map = match side {
            Side::Predicted => &self.predicted,
            Side::Wanted => &self.wanted,
        };
        let mut turned = vec![0.0; vectors.len()];
        let rows = View::new(&centred, vectors.len() / dim, dim);
        multiply_once(rows, View::new(map, dim, dim), &mut turned, false);
        turned
    }

    /// Writes it.
    pub(super) fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let tensors = TensorsBuilder::default().f32("mean", &self.mean);
        let tensors = tensors.f32("predicted", &self.predicted).f32("wanted", &self.wanted);
        let spread = [self.spread];
        model.tensors(FILE, &tensors.f32("usual", &self.usual).f32("spread", &spread))
    }

    /// Reads what [`save`](Together::save) wrote for vectors of `dim` numbers, if it did.
    pub(super) fn load(folder: &ModelFolder, dim: usize) -> Result<Option<Together>, ArtifactError> {
        if !folder.manifest().files.iter().any(|file| file.name == FILE) {
            return Ok(None);
        }
        let tensors = folder.tensors(FILE)?;
        let read = |name| tensors.f32(name);
        let [mean, predicted, wanted, usual, spread] =
            [read("mean")?, read("predicted")?, read("wanted")?, read("usual")?, read("spread")?];
        let fits = [mean.len(), predicted.len(), wanted.len()] == [dim, dim * dim, dim * dim]
            && usual.len().is_multiple_of(dim)
            && spread.len() == 1
            && spread[0] >= 0.0
            && [&mean, &predicted, &wanted, &usual, &spread]
                .into_iter()
                .flatten()
                .all(|value| value.is_finite());
        if !fits {
            return Err(folder.damaged(FILE, "its numbers are not those of the label vectors"));
        }
        Ok(Some(Together { mean, predicted, wanted, usual, spread: spread[0] }))
    }
}

/// The label sets of documents that carry `least` labels or more, `most` of them, evenly out of all.
fn label_sets<'a>(
    dataset: &'a dyn Dataset,
    least: usize,
    most: usize,
) -> impl Iterator<Item = &'a [LabelId]> + use<'a> {
    let is_taken = move |document: &DocId| dataset.labels_of(*document).len() >= least;
    let documents: Vec<DocId> = (0..dataset.len() as u32).map(DocId).filter(is_taken).collect();
    let count = documents.len().min(most);
    (0..count).map(move |set| dataset.labels_of(documents[set * documents.len() / count]))
}

/// Takes the mean off a vector and makes what is left one long; what has no length stays zero.
fn centre(mean: &[f32], vector: &mut [f32]) {
    vector.iter_mut().zip(mean).for_each(|(value, mean)| *value -= mean);
    unit(vector);
}

fn unit(vector: &mut [f32]) {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let factor = if length > 1e-9 { (1.0 / length) as f32 } else { 0.0 };
    vector.iter_mut().for_each(|value| *value *= factor);
}

/// Pairs of a label and the others of its document.
#[derive(Default)]
struct Pairs {
    others: Vec<f32>,
    labels: Vec<f32>,
    weights: Vec<f64>,
}

impl Pairs {
    /// Each label of a set that has a vector, with the sum of those of all others, where there are any.
    fn add(
        &mut self,
        set: &[LabelId],
        dim: usize,
        vector: impl Fn(LabelId, &mut Vec<f32>) -> bool,
        weight: impl Fn(LabelId) -> f64,
    ) {
        let start = self.labels.len();
        let weights: Vec<f64> = set
            .iter()
            .filter(|label| vector(**label, &mut self.labels))
            .map(|&label| weight(label))
            .collect();
        if weights.len() < 2 {
            self.labels.truncate(start);
            return;
        }
        self.weights.extend(weights);
        let own = &self.labels[start..];
        let mut all = vec![0f32; dim];
        for vector in own.chunks_exact(dim) {
            all.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
        }
        for vector in own.chunks_exact(dim) {
            let at = self.others.len();
            self.others.extend(all.iter().zip(vector).map(|(sum, value)| sum - value));
            unit(&mut self.others[at..]);
        }
    }
}

/// What covariances are made of.
struct Sums {
    dim: usize,
    pairs: usize,
    weight: f64,
    /// Weighted sums of the others, and of the labels.
    means: [Vec<f64>; 2],
    /// Weighted sums of products: others with others, others with labels, labels with labels.
    products: [Vec<f64>; 3],
}

impl Sums {
    fn new(dim: usize) -> Sums {
        let (means, products) = ([(); 2].map(|()| vec![0.0; dim]), [(); 3].map(|()| vec![0.0; dim * dim]));
        Sums { dim, pairs: 0, weight: 0.0, means, products }
    }

    /// Adds pairs, and forgets them.
    fn add(&mut self, pairs: &mut Pairs) {
        let Pairs { others, labels, weights } = std::mem::take(pairs);
        let (dim, count) = (self.dim, weights.len());
        self.pairs += count;
        self.weight += weights.iter().sum::<f64>();
        // Both sides of a product have the root of the weight.
        let [others, labels] = [(others, 0), (labels, 1)].map(|(mut vectors, side)| {
            for (vector, &weight) in vectors.chunks_exact_mut(dim).zip(&weights) {
                let sum = self.means[side].iter_mut().zip(vector.iter());
                sum.for_each(|(sum, value)| *sum += weight * f64::from(*value));
                vector.iter_mut().for_each(|value| *value *= weight.sqrt() as f32);
            }
            vectors
        });
        let (others, labels) = (View::new(&others, count, dim), View::new(&labels, count, dim));
        let mut products = vec![0f32; dim * dim];
        for (sum, (left, right)) in
            self.products.iter_mut().zip([(others, others), (others, labels), (labels, labels)])
        {
            multiply_once(left.transposed(), right, &mut products, false);
            sum.iter_mut().zip(&products).for_each(|(sum, value)| *sum += f64::from(*value));
        }
    }

    /// The maps of both sides: `Lx⁻ᵀ·P·S`, which is `Lx⁻ᵀ·K·Q`, and `Ly⁻ᵀ·Q·S`.
    fn maps(mut self) -> Option<[Vec<f32>; 2]> {
        let n = self.dim;
        if self.pairs < PAIRS_A_DIRECTION * n {
            return None;
        }
        let means = self.means.map(|sum| sum.iter().map(|sum| sum / self.weight).collect::<Vec<f64>>());
        for (products, (left, right)) in self.products.iter_mut().zip([(0, 0), (0, 1), (1, 1)]) {
            for (at, value) in products.iter_mut().enumerate() {
                *value = *value / self.weight - means[left][at / n] * means[right][at % n];
            }
        }
        let [mut xx, xy, mut yy] = self.products;
        for matrix in [&mut xx, &mut yy] {
            let mean = (0..n).map(|at| matrix[at * n + at]).sum::<f64>() / n as f64;
            (0..n).for_each(|at| matrix[at * n + at] += RIDGE * mean);
        }
        let (x, y) = (Triangle::of(&xx, n)?, Triangle::of(&yy, n)?);
        // Rows of Cxy are divided by Ly from the right, then its columns by Lx from the left.
        let mut k = xy;
        k.chunks_exact_mut(n).for_each(|row| y.undo(row));
        let mut k = transposed(&k, n);
        k.chunks_exact_mut(n).for_each(|column| x.undo(column));
        // The rows of `k` are now columns of K, and their products with each other Kᵀ·K.
        let square: Vec<f64> =
            (0..n * n).map(|at| dot(&k[at / n * n..][..n], &k[at % n * n..][..n])).collect();
        let (squares, q) = eigen(square, n);
        let (mut predicted, mut wanted) = (Vec::with_capacity(n * n), Vec::with_capacity(n * n));
        for (direction, square) in q.chunks_exact(n).zip(squares) {
            let mut of_x = vec![0.0; n];
            for (column, share) in k.chunks_exact(n).zip(direction) {
                of_x.iter_mut().zip(column).for_each(|(sum, value)| *sum += share * value);
            }
            x.undo_transposed(&mut of_x);
            predicted.extend(of_x);
            let strength = square.max(0.0).sqrt();
            let mut of_y: Vec<f64> = direction.iter().map(|value| value * strength).collect();
            y.undo_transposed(&mut of_y);
            wanted.extend(of_y);
        }
        // A direction a row so far; vectors are multiplied from the left.
        let map = |directions: Vec<f64>| -> Vec<f32> {
            transposed(&directions, n).into_iter().map(|value| value as f32).collect()
        };
        Some([map(predicted), map(wanted)])
    }
}

fn transposed(matrix: &[f64], n: usize) -> Vec<f64> {
    (0..n * n).map(|at| matrix[at % n * n + at / n]).collect()
}

#[cfg(test)]
mod tests;
