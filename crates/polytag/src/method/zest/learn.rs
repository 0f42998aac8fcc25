//! What links weigh: logistic regression over the labels on documents' shortlists.
//!
//! Documents come in batches. What each of them says of the weights is worked out side by side, and then added up link by
//! link in the order of documents, so that the number of threads changes nothing. Steps are as large as a link's
//! gradients so far allow (AdaGrad).

use rayon::prelude::*;

use super::labels::LabelFeatures;
use super::links::{Links, Scratch};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::training::probability;
use crate::progress::{Event, Stage};
use crate::sparse::{GOLDEN, RowStore, mixed};
use crate::storage::StorageError;

/// Where weights that have no gradient yet start: what the first step is divided by, at least.
const LEAST: f32 = 1e-6;

/// Documents whose shortlists are made at once.
const WAVE: usize = 1024;

/// What is learned from.
pub(super) struct Lesson<'a> {
    /// Documents, a row each.
    pub(super) rows: &'a RowStore,
    /// Their labels, in rising order.
    pub(super) labels: &'a [Vec<u32>],
    pub(super) features: &'a LabelFeatures,
}

/// How it is learned.
pub(super) struct Learning {
    pub(super) shortlist: usize,
    pub(super) passes: usize,
    pub(super) batch: usize,
    pub(super) rate: f32,
    pub(super) decay: f32,
    pub(super) seed: u64,
}

/// What was learned: a weight for each link, that of the same word, and the bias.
pub(super) struct Learned {
    pub(super) weights: Vec<f32>,
    pub(super) same: f32,
    pub(super) bias: f32,
}

/// A weight that moves.
#[derive(Clone, Copy, Default)]
struct Moving {
    value: f32,
    squares: f32,
}

impl Moving {
    fn step(&mut self, gradient: f32, learning: &Learning) {
        let gradient = gradient + learning.decay * self.value;
        self.squares += gradient * gradient;
        self.value -= learning.rate * gradient / self.squares.sqrt().max(LEAST);
    }
}

/// Weights while they are learned.
struct State {
    links: Vec<Moving>,
    same: Moving,
    bias: Moving,
}

/// What a document says of the weights.
struct Said {
    /// Features, how far off labels with them are, and the links to them that the document's words have.
    features: Vec<(u32, f32, std::ops::Range<usize>)>,
    /// Those links: their places among a feature's, and the words' weights.
    links: Vec<(u32, f32)>,
    same: f32,
    bias: f32,
    loss: f64,
}

/// Buffers of a thread.
#[derive(Default)]
struct Buffers {
    /// The document, by word.
    words: Vec<f32>,
    /// By feature: what the document calls for, how far off its labels are, and the links of it.
    called: Vec<Option<(f32, f32, std::ops::Range<usize>)>>,
}

/// Learns what links weigh.
pub(super) fn learn(
    links: &Links,
    lesson: &Lesson<'_>,
    learning: &Learning,
    context: &TrainContext<'_>,
) -> Result<Learned, MethodError> {
    let candidates = shortlists(links, lesson, learning, context)?;
    let mut state = State {
        links: vec![Moving::default(); links.len()],
        same: Moving { value: 1.0, ..Moving::default() },
        bias: Moving { value: -3.0, ..Moving::default() },
    };
    let stage = Stage::start(
        context.progress,
        "learning links",
        Some((lesson.labels.len() * learning.passes) as u64),
    );
    let mut order: Vec<u32> = (0..lesson.labels.len() as u32).collect();
    let mut buffers: Vec<Buffers> = (0..rayon::current_num_threads()).map(|_| Buffers::default()).collect();
    let mut loss = 0.0;
    for pass in 0..learning.passes as u64 {
        let chance = |document: u32| {
            mixed(mixed(learning.seed ^ (pass << 32)) ^ GOLDEN.wrapping_mul(u64::from(document) + 1))
        };
        order.sort_unstable_by_key(|&document| (chance(document), document));
        loss = 0.0;
        for batch in order.chunks(learning.batch) {
            if context.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            let size = batch.len().div_ceil(buffers.len());
            let hear = |(buffers, part): (&mut Buffers, &[u32])| -> Result<Vec<Said>, StorageError> {
                let listen = |&document: &u32| {
                    let list = &candidates[document as usize];
                    listen((links, lesson, &state), (document, list), buffers)
                };
                part.iter().map(listen).collect()
            };
            let said: Vec<Vec<Said>> =
                buffers.par_iter_mut().zip(batch.par_chunks(size)).map(hear).collect::<Result<_, _>>()?;
            let said: Vec<Said> = said.into_iter().flatten().collect();
            loss += said.iter().map(|said| said.loss).sum::<f64>();
            take_in(&mut state, links, &said, learning);
            stage.advance(batch.len() as u64);
        }
    }
    stage.finish();
    let value = loss / lesson.labels.len().max(1) as f64;
    context.progress.report(Event::Measured { name: "loss of a document in the last pass:", value });
    Ok(Learned {
        weights: state.links.iter().map(|link| link.value).collect(),
        same: state.same.value,
        bias: state.bias.value,
    })
}

/// The labels that each document is compared with: of those that documents carry, the likeliest, and its own.
fn shortlists(
    links: &Links,
    lesson: &Lesson<'_>,
    learning: &Learning,
    context: &TrainContext<'_>,
) -> Result<Vec<Vec<u32>>, MethodError> {
    let unlearned = links.unlearned();
    let mut is_carried = vec![false; lesson.features.labels()];
    lesson.labels.iter().flatten().for_each(|&label| is_carried[label as usize] = true);
    let documents = lesson.labels.len();
    let stage = Stage::start(context.progress, "making shortlists", Some(documents as u64));
    let mut lists: Vec<Vec<u32>> = Vec::with_capacity(documents);
    let mut found = 0;
    for start in (0..documents).step_by(WAVE) {
        if context.stop.is_asked() {
            return Err(MethodError::Stopped);
        }
        let end = documents.min(start + WAVE);
        let list = |(scratch, buffer): &mut (Scratch, Vec<_>), document: usize| {
            let row = lesson.rows.read(document..document + 1, buffer)?;
            let may = |label: u32| is_carried[label as usize];
            let best = unlearned.shortlist(row, lesson.features, (learning.shortlist, may), scratch);
            let mut list: Vec<u32> = best.into_iter().map(|compared| compared.label).collect();
            let own = &lesson.labels[document];
            let found = list.iter().filter(|label| own.binary_search(label).is_ok()).count();
            list.extend(own);
            list.sort_unstable();
            list.dedup();
            Ok((list, found))
        };
        let made: Vec<(Vec<u32>, usize)> = (start..end)
            .into_par_iter()
            .map_init(Default::default, list)
            .collect::<Result<_, StorageError>>()?;
        for (list, own) in made {
            found += own;
            lists.push(list);
        }
        stage.advance((end - start) as u64);
    }
    stage.finish();
    let pairs: usize = lesson.labels.iter().map(Vec::len).sum();
    let share = 100.0 * found as f64 / pairs.max(1) as f64;
    context
        .progress
        .report(Event::Measured { name: "labels of documents on their shortlists, %:", value: share });
    Ok(lists)
}

/// What a document says of the weights as they are.
fn listen(
    (links, lesson, state): (&Links, &Lesson<'_>, &State),
    (document, list): (u32, &[u32]),
    buffers: &mut Buffers,
) -> Result<Said, StorageError> {
    let Buffers { words, called } = buffers;
    words.resize(lesson.rows.columns(), 0.0);
    called.resize(lesson.features.len(), None);
    let mut read = Vec::new();
    let row = lesson.rows.read(document as usize..document as usize + 1, &mut read)?;
    row.iter().for_each(|entry| words[entry.column as usize] = entry.value);
    let mut said = Said { features: Vec::new(), links: Vec::new(), same: 0.0, bias: 0.0, loss: 0.0 };
    let mut touched: Vec<u32> = Vec::new();
    for &label in list {
        let features = lesson.features.of(label);
        let mut odds = state.bias.value;
        let mut same = 0.0;
        for (&feature, value) in features.indices.iter().zip(features.values) {
            let of_feature = called[feature as usize].get_or_insert_with(|| {
                touched.push(feature);
                let start = said.links.len();
                let places = (0..).zip(links.words(feature));
                let hits = places.map(|(place, &word)| (place, words[word as usize]));
                said.links.extend(hits.filter(|(_, weight)| *weight != 0.0));
                let weights = &state.links[links.starts()[feature as usize]..];
                let sum =
                    said.links[start..].iter().map(|&(place, weight)| weights[place as usize].value * weight);
                (sum.sum(), 0.0, start..said.links.len())
            });
            odds += value * of_feature.0;
            if (feature as usize) < lesson.features.words() {
                same += value * words[feature as usize];
            }
        }
        odds += state.same.value * same;
        let is_right = lesson.labels[document as usize].binary_search(&label).is_ok();
        let off = probability(odds) - f32::from(u8::from(is_right));
        let margin = f64::from(if is_right { -odds } else { odds });
        said.loss += margin.max(0.0) + (-margin.abs()).exp().ln_1p();
        said.bias += off;
        said.same += off * same;
        for (&feature, value) in features.indices.iter().zip(features.values) {
            if let Some((_, sum, _)) = called[feature as usize].as_mut() {
                *sum += off * value;
            }
        }
    }
    touched.sort_unstable();
    for feature in touched {
        if let Some((_, off, range)) = called[feature as usize].take() {
            said.features.push((feature, off, range));
        }
    }
    row.iter().for_each(|entry| words[entry.column as usize] = 0.0);
    Ok(said)
}

/// A feature, the document of a batch that says something of it, and at which place.
type Part = (u32, usize, usize);

/// Moves weights by what the documents of a batch say.
fn take_in(state: &mut State, links: &Links, said: &[Said], learning: &Learning) {
    state.bias.step(said.iter().map(|said| said.bias).sum(), learning);
    state.same.step(said.iter().map(|said| said.same).sum(), learning);
    let mut parts: Vec<Part> = Vec::new();
    for (document, said) in said.iter().enumerate() {
        parts.extend(
            said.features.iter().enumerate().map(|(place, (feature, ..))| (*feature, document, place)),
        );
    }
    parts.sort_unstable();
    // Each feature's links apart, so that threads can move them side by side.
    let mut work: Vec<(&mut [Moving], &[Part])> = Vec::new();
    let (mut rest, mut before) = (&mut state.links[..], 0);
    for of_feature in parts.chunk_by(|a, b| a.0 == b.0) {
        let feature = of_feature[0].0 as usize;
        let (start, end) = (links.starts()[feature], links.starts()[feature + 1]);
        let (own, after) = std::mem::take(&mut rest)[start - before..].split_at_mut(end - start);
        (rest, before) = (after, end);
        work.push((own, of_feature));
    }
    work.into_par_iter().with_min_len(64).for_each_init(
        Vec::new,
        |gradients: &mut Vec<f32>, (own, parts)| {
            gradients.clear();
            gradients.resize(own.len(), 0.0);
            for &(_, document, place) in parts {
                let (_, off, range) = &said[document].features[place];
                for &(link, weight) in &said[document].links[range.clone()] {
                    gradients[link as usize] += off * weight;
                }
            }
            let moved = own.iter_mut().zip(gradients.iter()).filter(|(_, gradient)| **gradient != 0.0);
            moved.for_each(|(link, gradient)| link.step(*gradient, learning));
        },
    );
}
