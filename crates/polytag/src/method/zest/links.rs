//! Which words call for which features: the greatest entries of the first step of a bilinear model, and what they weigh.

use rayon::prelude::*;

use super::labels::LabelFeatures;
use super::learn::Learned;
use crate::method::seen_labels::carriers;
use crate::sparse::{Csr, CsrError, Entry, Row, RowStore, keep_greatest};
use crate::storage::StorageError;

/// Words of a label's documents that are looked at, the weightiest.
const OF_A_LABEL: usize = 2048;

/// Rows that are read at once.
const WAVE: usize = 4096;

/// What a word that stands in document and label adds when a shortlist is made.
const SAME: f32 = 1.0;

/// How words of documents and features of labels come together.
pub(super) struct Sums {
    /// What the documents of each label say, a row a label.
    of_labels: Csr,
    /// How much of each word there is in all documents.
    of_words: Vec<f32>,
    /// How much of each feature the labels of all documents have.
    of_features: Vec<f32>,
}

impl Sums {
    /// Of documents in `rows`, which carry these labels.
    pub(super) fn of(
        rows: &RowStore,
        labels: &[Vec<u32>],
        features: &LabelFeatures,
    ) -> Result<Sums, StorageError> {
        let mut of_words = vec![0.0f64; rows.columns()];
        let mut buffer = Vec::new();
        for start in (0..rows.rows()).step_by(WAVE) {
            for entry in rows.read(start..rows.rows().min(start + WAVE), &mut buffer)? {
                of_words[entry.column as usize] += f64::from(entry.value * entry.value);
            }
        }
        // A feature of several of a document's labels counts as often.
        let mut of_features = vec![0.0f64; features.len()];
        let (mut held, mut touched) = (vec![0.0f32; features.len()], Vec::new());
        for labels in labels {
            for &label in labels {
                for (&feature, value) in features.of(label).indices.iter().zip(features.of(label).values) {
                    held[feature as usize] += value;
                    touched.push(feature);
                }
            }
            for feature in touched.drain(..) {
                of_features[feature as usize] +=
                    f64::from(std::mem::take(&mut held[feature as usize])).powi(2);
            }
        }
        let length = |squares: Vec<f64>| squares.into_iter().map(|square| square.sqrt() as f32).collect();
        let of_labels = rows.sums(&carriers(labels, features.labels()), OF_A_LABEL)?;
        Ok(Sums { of_labels, of_words: length(of_words), of_features: length(of_features) })
    }
}

/// The links, feature by feature: the words that call for it, and how much they go together.
pub(super) struct Links(Csr);

impl Links {
    /// The words that go best with each feature, by the cosine of how they are spread over documents: so many for a word
    /// of labels, and so many for a label's own feature.
    pub(super) fn choose(sums: &Sums, features: &LabelFeatures, (of_word, of_own): (usize, usize)) -> Links {
        let of_feature = |(held, touched): &mut (Vec<f32>, Vec<u32>), feature: u32| {
            held.resize(sums.of_words.len(), 0.0);
            let having = features.having(feature);
            for (&label, share) in having.indices.iter().zip(having.values) {
                let said = sums.of_labels.row(label as usize);
                for (&word, value) in said.indices.iter().zip(said.values) {
                    if held[word as usize] == 0.0 {
                        touched.push(word);
                    }
                    held[word as usize] += share * value;
                }
            }
            touched.sort_unstable();
            touched.dedup();
            let length = sums.of_features[feature as usize];
            let cosine = |word: u32| {
                let sum = std::mem::take(&mut held[word as usize]);
                (word, sum / (length * sums.of_words[word as usize]))
            };
            let mut links: Vec<(u32, f32)> = touched.drain(..).map(cosine).collect();
            links.retain(|(_, cosine)| cosine.is_finite());
            keep_greatest(&mut links, if (feature as usize) < features.words() { of_word } else { of_own });
            links
        };
        let links: Vec<Vec<(u32, f32)>> =
            (0..features.len() as u32).into_par_iter().map_init(Default::default, of_feature).collect();
        let mut matrix = Csr::empty(sums.of_words.len());
        links.into_iter().for_each(|links| matrix.push(links));
        Links(matrix)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.entries()
    }

    /// The first link of each feature, and behind the last feature how many there are.
    pub(super) fn starts(&self) -> &[usize] {
        self.0.parts().0
    }

    /// The words that call for a feature.
    pub(super) fn words(&self, feature: u32) -> &[u32] {
        self.0.row(feature as usize).indices
    }

    /// The same by word, before anything was learned.
    pub(super) fn unlearned(&self) -> Bilinear {
        Bilinear { first: self.0.transpose(), weights: None, same: 0.0, bias: 0.0 }
    }

    /// The same by word, with what was learned.
    pub(super) fn with_weights(&self, learned: Learned) -> Bilinear {
        let (starts, words, _) = self.0.parts();
        let weighed = Csr::from_parts(self.0.columns(), starts.to_vec(), words.to_vec(), learned.weights)
            .expect("links stay where they are, and what is learned is finite");
        let weights = weighed.transpose().parts().2.to_vec();
        Bilinear { first: self.0.transpose(), weights: Some(weights), same: learned.same, bias: learned.bias }
    }
}

/// From words of documents to features of labels.
pub(super) struct Bilinear {
    /// A row a word: the features it calls for, and how much they go together.
    first: Csr,
    /// What each link weighs, once that is learned.
    weights: Option<Vec<f32>>,
    /// What a word that stands in document and label weighs.
    same: f32,
    bias: f32,
}

/// A label on a document's shortlist.
pub(super) struct Compared {
    pub(super) label: u32,
    /// Its log-odds.
    pub(super) odds: f32,
    /// The cosine of its words with the document's.
    pub(super) alike: f32,
}

/// What answering needs; used again and again. Memory: 12 bytes a feature and 12 a label.
#[derive(Default)]
pub(super) struct Scratch {
    /// By feature: what the document calls for, before anything was learned, after, and by the same word alone.
    called: Vec<[f32; 3]>,
    features: Vec<u32>,
    /// By label, likewise.
    scores: Vec<[f32; 3]>,
    labels: Vec<u32>,
}

impl Bilinear {
    /// From parts: links by word with what they were at first, what they weigh, what the same word weighs, and the bias.
    pub(super) fn from_parts(
        (columns, starts, features): (usize, Vec<usize>, Vec<u32>),
        (first, weights): (Vec<f32>, Vec<f32>),
        [same, bias]: [f32; 2],
    ) -> Result<Bilinear, CsrError> {
        if first.len() != weights.len() {
            return Err(CsrError::Starts);
        }
        let first = Csr::from_parts(columns, starts, features, first)?;
        let finite = weights.iter().chain([&same, &bias]).all(|weight| weight.is_finite());
        match finite {
            true => Ok(Bilinear { first, weights: Some(weights), same, bias }),
            false => Err(CsrError::NotFinite { row: 0 }),
        }
    }

    /// Its parts, as [`from_parts`](Bilinear::from_parts) takes them.
    pub(super) fn parts(&self) -> (&Csr, &[f32], [f32; 2]) {
        (&self.first, self.weights.as_deref().unwrap_or_default(), [self.same, self.bias])
    }

    /// The `most` labels with a feature of their own that fit a document best before anything was learned, and as many
    /// without, in no order. `may` says which labels count.
    pub(super) fn shortlist(
        &self,
        document: &[Entry],
        features: &LabelFeatures,
        (most, may): (usize, impl Fn(u32) -> bool),
        scratch: &mut Scratch,
    ) -> Vec<Compared> {
        let Scratch { called, features: touched, scores, labels } = scratch;
        called.resize(features.len(), [0.0; 3]);
        scores.resize(features.labels(), [0.0; 3]);
        let starts = self.first.parts().0;
        for entry in document {
            let links = self.first.row(entry.column as usize);
            let weights = self.weights.as_ref().map(|weights| {
                let first = starts[entry.column as usize];
                &weights[first..first + links.indices.len()]
            });
            for (place, (&feature, first)) in links.indices.iter().zip(links.values).enumerate() {
                let held = &mut called[feature as usize];
                if *held == [0.0; 3] {
                    touched.push(feature);
                }
                held[0] += entry.value * first;
                held[1] += entry.value * weights.map_or(0.0, |weights| weights[place]);
            }
            // The word itself, as a feature of labels.
            let held = &mut called[entry.column as usize];
            if *held == [0.0; 3] {
                touched.push(entry.column);
            }
            held[0] += entry.value * SAME;
            held[1] += entry.value * self.same;
            held[2] += entry.value;
        }
        for feature in touched.drain(..) {
            let held = std::mem::take(&mut called[feature as usize]);
            let having = features.having(feature);
            for (&label, share) in having.indices.iter().zip(having.values) {
                let sum = &mut scores[label as usize];
                if *sum == [0.0; 3] {
                    labels.push(label);
                }
                sum.iter_mut().zip(held).for_each(|(sum, held)| *sum += share * held);
            }
        }
        let mut found: Vec<(u32, [f32; 3])> = Vec::with_capacity(labels.len());
        for label in labels.drain(..) {
            let sums = std::mem::take(&mut scores[label as usize]);
            // A label whose sums were nothing on the way is there twice, once with nothing.
            if sums != [0.0; 3] && may(label) {
                found.push((label, sums));
            }
        }
        // Labels without a feature of their own have less to be called by, so that each kind has its places.
        let (mut carried, mut others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(label, _)| features.has_own(*label));
        for found in [&mut carried, &mut others] {
            if found.len() > most {
                found.select_nth_unstable_by(most.saturating_sub(1), |a, b| {
                    b.1[0].total_cmp(&a.1[0]).then(a.0.cmp(&b.0))
                });
                found.truncate(most);
            }
        }
        let compared =
            |(label, sums): (u32, [f32; 3])| Compared { label, odds: sums[1] + self.bias, alike: sums[2] };
        carried.into_iter().chain(others).map(compared).collect()
    }

    /// What each entry of the document adds to the log-odds of a label with these features, and to the cosine of its
    /// words with the document's; and the log-odds without any.
    pub(super) fn explained(&self, document: &[Entry], features: Row<'_>) -> (Vec<[f32; 2]>, f32) {
        let of = |feature: u32| {
            features.indices.binary_search(&feature).map_or(0.0, |place| features.values[place])
        };
        let starts = self.first.parts().0;
        let weights = self.weights.as_deref().unwrap_or_default();
        let adds = |entry: &Entry| {
            let links = self.first.row(entry.column as usize).indices;
            let weighed = links.iter().zip(&weights[starts[entry.column as usize]..]);
            let of_links: f32 = weighed.map(|(&feature, weight)| weight * of(feature)).sum();
            let same = of(entry.column);
            [entry.value * (of_links + self.same * same), entry.value * same]
        };
        (document.iter().map(adds).collect(), self.bias)
    }
}
