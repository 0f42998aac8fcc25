//! Clusters of labels, for label sets so large that not all can be judged for every document (paper 002, section 3.4).
//!
//! Labels that go with documents of like words are together. An expert of its own judges clusters; only labels of the
//! best ones are judged then. While it learns, a step judges one set of labels for all its documents: all that they
//! carry, and those of the clusters that seem best for any of them, which are the negatives that are hardest to tell.

use rustc_hash::FxHashMap;

use crate::data::{Dataset, Document, LabelSpace};
use crate::ids::{DocId, LabelId};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::progress::Stage;
use crate::sparse::{Csr, Tfidf, TfidfConfig, balanced_groups};

/// How many words of a label count, the heaviest ones.
const WORDS: usize = 256;

/// Rows of labels in clusters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clusters {
    members: Vec<Vec<u32>>,
    cluster_of: Vec<u32>,
}

impl Clusters {
    /// From the cluster of each row.
    pub(super) fn new(cluster_of: Vec<u32>) -> Clusters {
        let count = cluster_of.iter().max().map_or(0, |&last| last as usize + 1);
        let mut members = vec![Vec::new(); count];
        cluster_of.iter().zip(0..).for_each(|(&cluster, row)| members[cluster as usize].push(row));
        Clusters { members, cluster_of }
    }

    /// Clusters of at most `largest` labels, by the words of the documents that carry them and of their own names.
    pub(super) fn of_task(
        dataset: &dyn Dataset,
        (space, labels): (&LabelSpace, &[LabelId]),
        largest: usize,
        context: &TrainContext<'_>,
    ) -> Result<Clusters, MethodError> {
        let stage = Stage::start(context.progress, "grouping labels", None);
        let document = |place: usize| -> Result<Document, MethodError> {
            if context.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            Ok(dataset.document(DocId(place as u32))?)
        };
        let text = |place: usize| document(place).map(|document| document.whole().into_owned().into());
        let tfidf = Tfidf::fit::<MethodError>(&TfidfConfig::default(), dataset.len(), text)?;
        let documents = tfidf.transform::<MethodError>(dataset.len(), text)?;
        let names = tfidf.transform::<MethodError>(labels.len(), |row| {
            let label = space.label(labels[row]);
            Ok([&[label.name.clone()][..], &label.aliases].concat().join("\n").into())
        })?;
        let mut carried: Vec<Vec<u32>> = vec![Vec::new(); labels.len()];
        let row_of: FxHashMap<LabelId, usize> = labels.iter().copied().zip(0..).collect();
        for place in 0..dataset.len() {
            for label in dataset.labels_of(DocId(place as u32)) {
                if let Some(&row) = row_of.get(label) {
                    carried[row].push(place as u32);
                }
            }
        }
        let mut rows = Csr::empty(documents.columns());
        for (row, places) in carried.iter().enumerate() {
            rows.push(heaviest(&names, row, &documents, places));
        }
        rows.normalize_rows();
        let groups = balanced_groups(&rows, largest, context.seed);
        let mut cluster_of = vec![0; labels.len()];
        for (cluster, group) in groups.iter().enumerate() {
            group.iter().for_each(|&row| cluster_of[row as usize] = cluster as u32);
        }
        stage.finish();
        Ok(Clusters::new(cluster_of))
    }

    /// How many clusters.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The cluster of each row.
    pub(super) fn of_rows(&self) -> &[u32] {
        &self.cluster_of
    }

    /// The clusters of rows, each once.
    pub(super) fn of(&self, rows: &[u32]) -> Vec<u32> {
        let mut clusters: Vec<u32> = rows.iter().map(|&row| self.cluster_of[row as usize]).collect();
        clusters.sort_unstable();
        clusters.dedup();
        clusters
    }

    /// The rows of the best `beam` clusters of a document by their scores, in rising order, with some of the next one up to
    /// a multiple of eight.
    pub(super) fn best(&self, scores: &[f32], beam: usize) -> Vec<u32> {
        let order = self.order(scores);
        let beam = beam.min(order.len());
        let rows =
            order[..beam].iter().flat_map(|&cluster| &self.members[cluster as usize]).copied().collect();
        self.filled(rows, &order[beam..])
    }

    /// The rows for a step: `carried` ones, and those of the clusters that score best for any of its documents, `wanted`
    /// in all or a few more. `scores` has a row of `columns` for each document.
    pub(super) fn for_step(
        &self,
        scores: &[f32],
        columns: usize,
        carried: &[Vec<u32>],
        wanted: usize,
    ) -> Vec<u32> {
        let mut best = vec![f32::NEG_INFINITY; self.len()];
        for row in scores.chunks_exact(columns) {
            best.iter_mut().zip(row).for_each(|(best, &score)| *best = best.max(score));
        }
        let mut certain = carried.concat();
        certain.sort_unstable();
        certain.dedup();
        let order = self.order(&best);
        let (mut rows, mut taken) = (certain.clone(), 0);
        while rows.len() < wanted && taken < order.len() {
            let more = self.members[order[taken] as usize].iter();
            rows.extend(more.filter(|row| certain.binary_search(row).is_err()));
            taken += 1;
        }
        self.filled(rows, &order[taken..])
    }

    /// Clusters by falling score.
    fn order(&self, scores: &[f32]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        let score = |cluster: u32| scores[cluster as usize];
        order.sort_unstable_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        order
    }

    /// Rows in rising order, with others of the next clusters or, where there are none, with rows after the last label, up
    /// to a multiple of eight.
    fn filled(&self, mut rows: Vec<u32>, next: &[u32]) -> Vec<u32> {
        rows.sort_unstable();
        let missing = rows.len().next_multiple_of(8) - rows.len();
        let beyond = self.cluster_of.len() as u32..;
        let others = next.iter().flat_map(|&cluster| &self.members[cluster as usize]).copied().chain(beyond);
        let others: Vec<u32> = others.filter(|row| rows.binary_search(row).is_err()).take(missing).collect();
        rows.extend(others);
        rows.sort_unstable();
        rows
    }
}

/// The sum of a label's own words and those of documents, its heaviest entries in the order of columns.
fn heaviest(names: &Csr, row: usize, documents: &Csr, places: &[u32]) -> Vec<(u32, f32)> {
    let mut sum: FxHashMap<u32, f32> = FxHashMap::default();
    let rows = places.iter().map(|&place| documents.row(place as usize)).chain([names.row(row)]);
    for row in rows {
        for (&column, &value) in row.indices.iter().zip(row.values) {
            *sum.entry(column).or_default() += value;
        }
    }
    let mut entries: Vec<(u32, f32)> = sum.into_iter().collect();
    entries.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    entries.truncate(WORDS);
    entries.sort_unstable_by_key(|&(column, _)| column);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters() -> Clusters {
        // Rows 0 to 19, five to a cluster.
        Clusters::new((0..20).map(|row| row / 5).collect())
    }

    #[test]
    fn a_document_is_judged_by_the_labels_of_its_best_clusters() {
        let found = clusters().best(&[0.1, 3.0, -1.0, 2.0], 2);
        // Ten, and of the next clusters six more that fill up.
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18, 19]);
        assert_eq!(clusters().best(&[0.1, 3.0, -1.0, 2.0], 1), [5, 6, 7, 8, 9, 15, 16, 17]);
    }

    #[test]
    fn a_step_judges_what_it_must_and_what_is_hardest() {
        // Two documents; the third cluster is best for one of them, the second for the other.
        let scores = [0.0, 1.0, 5.0, 0.0, 0.0, 4.0, 0.0, 0.0];
        let found = clusters().for_step(&scores, 4, &[vec![0, 19], vec![19]], 7);
        for row in [0, 19, 10, 11, 12, 13, 14] {
            assert!(found.contains(&row), "{found:?}");
        }
        assert!(found.len() == 8 && found.is_sorted());
        // Never more than there are, filled up beyond the last label.
        let all = clusters().for_step(&scores, 4, &[vec![]], 1000);
        assert_eq!(all, (0..24).collect::<Vec<u32>>());
        assert_eq!(clusters().of(&[0, 7, 1, 19]), [0, 1, 3]);
    }
}
