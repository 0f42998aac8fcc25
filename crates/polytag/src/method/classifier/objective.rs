//! The losses of a step: experts on their own or together, how they differ, and the guides.

use std::ops::Range;

use polytag_nn::batch::Batch;
use polytag_nn::device::Device;
use polytag_nn::element::Element;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::loss::{Number, Positives, Scores, bernoulli_kl, binary_cross_entropy, mean_squared_error};
use polytag_nn::op::{RowIds, linear, sum};
use polytag_nn::parameters::{ParameterId, Parameters};
use polytag_nn::tape::{Tape, Var};
use polytag_nn::tensor::Tensor;
use polytag_nn::train::{Ahead, Evaluation, Objective, Order, Place};

use super::config::{ClassifierConfig, Together};
use super::measured::Measured;
use super::network::{Network, Read};
use crate::method::training::{Documents, LabelRows, Texts};

/// What documents are guided by.
pub(super) enum Guides {
    /// The texts of each document's labels, one after the other.
    Texts(Texts),
    /// For each layer of each expert that pools a column a label, and what is added then.
    OneHot(Vec<Vec<(ParameterId, ParameterId)>>),
}

/// What is trained.
pub(super) struct Lessons<'a> {
    pub(super) config: &'a ClassifierConfig,
    pub(super) encoder: &'a Encoder,
    pub(super) network: &'a Network,
    pub(super) documents: &'a Documents,
    pub(super) rows: &'a LabelRows,
    pub(super) guides: Option<&'a Guides>,
    /// How many documents carry each label, row by row.
    pub(super) counts: &'a [f32],
    pub(super) measured: Option<&'a Measured>,
    pub(super) order: Order,
    pub(super) prepared: Ahead<Lesson>,
    pub(super) device: Device,
    /// From which step experts are to differ.
    pub(super) diverse_from: u64,
}

/// What a step needs besides the weights. Documents come first in the batch, those with labels before others; then the
/// texts of their labels.
pub(super) struct Lesson {
    batch: Batch,
    /// The rows that each document carries.
    carried: Vec<Vec<u32>>,
    labels: Labels,
    guided: Option<Guided>,
}

/// Which labels a step judges.
enum Labels {
    /// All of them.
    All(Judged),
    /// Those of the best clusters, which the step itself has to find: which clusters documents carry labels of.
    OfClusters(Positives),
}

/// The labels that a step judges.
struct Judged {
    /// Their rows, if not all.
    rows: Option<RowIds>,
    /// Which of them documents carry, and those that are guided.
    positives: Positives,
    guided: Option<Positives>,
    /// How many documents carry each, where experts are to differ.
    counts: Option<Tensor>,
}

/// Documents that are guided, the first ones, and by what.
struct Guided {
    count: usize,
    /// A one for each label of each document, where numbers of labels' own guide.
    ones: Option<Tensor>,
}

impl Lessons<'_> {
    fn make(&self, place: Place) -> Result<Lesson, Error> {
        let steps = &self.config.steps;
        let mut chosen = steps.chosen(&self.order, place, steps.batch);
        chosen.sort_by_key(|&document| self.documents.labels(document).is_empty());
        let lists: Vec<Vec<u32>> = chosen
            .iter()
            .map(|&document| {
                self.documents.labels(document).iter().map(|&label| self.rows.row(label)).collect()
            })
            .collect();
        let columns = self.network.columns;
        let mut texts: Vec<&[u32]> = chosen.iter().map(|&place| self.documents.texts.get(place)).collect();
        let count = lists.iter().filter(|list| !list.is_empty()).count();
        let guided = match self.guides.filter(|_| count > 0) {
            None => None,
            Some(guides) => {
                let ones = match guides {
                    Guides::Texts(label_texts) => {
                        texts.extend(chosen[..count].iter().map(|&place| label_texts.get(place)));
                        None
                    }
                    Guides::OneHot(_) => {
                        let mut ones = vec![0.0; count * columns];
                        for (row, list) in ones.chunks_exact_mut(columns).zip(&lists) {
                            list.iter().for_each(|&label| row[label as usize] = 1.0);
                        }
                        Some(Tensor::new(&self.device, (count, columns), &ones, Element::F32)?)
                    }
                };
                Some(Guided { count, ones })
            }
        };
        let batch = self.encoder.batch(&self.device, texts)?;
        let guided_count = guided.as_ref().map(|guided| guided.count);
        let labels = match &self.network.recall {
            None => Labels::All(self.judged_rows(None, &lists, guided_count, self.counts)?),
            Some(recall) => {
                let of: Vec<Vec<u32>> = lists.iter().map(|list| recall.clusters.of(list)).collect();
                let lists = of.iter().map(Vec::as_slice);
                Labels::OfClusters(Positives::new(&self.device, recall.columns, lists)?)
            }
        };
        Ok(Lesson { batch, carried: lists, labels, guided })
    }

    /// Rows that are to be judged, in rising order, and which of them documents carry.
    fn some_labels(
        &self,
        rows: &[u32],
        carried: &[Vec<u32>],
        guided: Option<usize>,
    ) -> Result<Judged, Error> {
        let place = |row: &u32| rows.binary_search(row).expect("what documents carry is judged") as u32;
        let carried: Vec<Vec<u32>> = carried.iter().map(|list| list.iter().map(place).collect()).collect();
        let counts: Vec<f32> = rows.iter().map(|&row| self.counts[row as usize]).collect();
        self.judged_rows(Some(RowIds::new(&self.device, rows)?), &carried, guided, &counts)
    }

    fn judged_rows(
        &self,
        rows: Option<RowIds>,
        carried: &[Vec<u32>],
        guided: Option<usize>,
        counts: &[f32],
    ) -> Result<Judged, Error> {
        let columns = counts.len();
        let positives =
            |lists: &[Vec<u32>]| Positives::new(&self.device, columns, lists.iter().map(Vec::as_slice));
        Ok(Judged {
            rows,
            positives: positives(carried)?,
            guided: guided.map(|count| positives(&carried[..count])).transpose()?,
            counts: (self.config.diversity > 0.0)
                .then(|| Tensor::new(&self.device, (1, columns), counts, Element::F32))
                .transpose()?,
        })
    }

    /// The losses of experts over the documents.
    fn judged(
        &self,
        tape: &mut Tape<'_>,
        (lesson, reads): (&Lesson, &[Read]),
        labels: &Judged,
        diverse: bool,
    ) -> Result<Vec<(Var, f32)>, Error> {
        let documents = 0..lesson.carried.len();
        let chosen = labels.rows.as_ref();
        if reads.len() == 1 && chosen.is_none() {
            let scores = self.network.scores_for_loss(tape, 0, (&reads[0], &lesson.batch), documents)?;
            return Ok(vec![(binary_cross_entropy(tape, scores, &labels.positives)?, 1.0)]);
        }
        let scores: Vec<Var> = reads
            .iter()
            .enumerate()
            .map(|(expert, read)| {
                self.network.scores(tape, expert, (read, &lesson.batch), (documents.clone(), chosen))
            })
            .collect::<Result<_, Error>>()?;
        let share = 1.0 / reads.len() as f32;
        let mut losses = Vec::new();
        match self.config.together {
            Together::Individual => {
                for scores in &scores {
                    let loss = binary_cross_entropy(tape, Scores::given(scores), &labels.positives)?;
                    losses.push((loss, share));
                }
            }
            Together::Collaborative => {
                let total = Scores::given(&sum(tape, &scores)?).scale(Number::Constant(share));
                losses.push((binary_cross_entropy(tape, total, &labels.positives)?, 1.0));
            }
        }
        if let Some(counts) = labels.counts.as_ref().filter(|_| diverse) {
            for (place, left) in scores.iter().enumerate() {
                for right in &scores[place + 1..] {
                    let loss = bernoulli_kl(tape, (left, right), &labels.positives, counts)?;
                    losses.push((loss, self.config.diversity));
                }
            }
        }
        Ok(losses)
    }

    /// The losses of the guides, of each expert that pools.
    fn guided(
        &self,
        tape: &mut Tape<'_>,
        (lesson, reads): (&Lesson, &[Read]),
        guided: &Guided,
        judged: &Judged,
    ) -> Result<Vec<(Var, f32)>, Error> {
        let (first, count) = (lesson.carried.len(), guided.count);
        let pooled: Vec<(usize, &Vec<Var>)> = reads
            .iter()
            .enumerate()
            .filter_map(|(expert, read)| match read {
                Read::Vectors(vectors) => Some((expert, vectors)),
                Read::Tokens(_) => None,
            })
            .collect();
        let share = 1.0 / pooled.len() as f32;
        let mut losses = Vec::new();
        for (place, (expert, vectors)) in pooled.into_iter().enumerate() {
            let labels = self.label_vectors(tape, vectors, (place, first..first + count), guided)?;
            if self.config.feature_guide > 0.0 {
                for (text, label) in Network::some(tape, vectors, 0..count)?.iter().zip(&labels) {
                    let loss = mean_squared_error(tape, text, label)?;
                    losses.push((loss, self.config.feature_guide * share));
                }
            }
            if let Some(positives) = judged.guided.as_ref().filter(|_| self.config.link_guide > 0.0) {
                let scores = self.network.scores_of(tape, expert, &labels, judged.rows.as_ref())?;
                let loss = binary_cross_entropy(tape, Scores::given(&scores), positives)?;
                losses.push((loss, self.config.link_guide * share));
            }
        }
        Ok(losses)
    }

    /// What stands for the labels of the guided documents, for each layer of an expert: rows of the batch, or of numbers
    /// of the labels' own.
    fn label_vectors(
        &self,
        tape: &mut Tape<'_>,
        vectors: &[Var],
        (place, range): (usize, Range<usize>),
        guided: &Guided,
    ) -> Result<Vec<Var>, Error> {
        match (self.guides, &guided.ones) {
            (Some(Guides::OneHot(weights)), Some(ones)) => {
                let ones = Var::constant(ones.clone());
                weights[place].iter().map(|&(weight, bias)| linear(tape, &ones, weight, Some(bias))).collect()
            }
            _ => Network::some(tape, vectors, range),
        }
    }
}

impl Objective for Lessons<'_> {
    fn prepare(&mut self, place: Place) -> Result<(), Error> {
        self.prepared.put(place, self.make(place)?);
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        let lesson = match self.prepared.take(place) {
            Some(lesson) => lesson,
            None => self.make(place)?,
        };
        let states = self.encoder.forward(tape, &lesson.batch, &self.network.layers)?;
        let reads = self.network.read(tape, &states, &lesson.batch)?;
        let mut losses = Vec::new();
        let of_clusters;
        let judged = match (&lesson.labels, &self.network.recall) {
            (Labels::OfClusters(positives), Some(recall)) => {
                let documents = 0..lesson.carried.len();
                let scores = self.network.recall_scores(tape, recall, (&states, &lesson.batch), documents)?;
                losses.push((binary_cross_entropy(tape, Scores::given(&scores), positives)?, 1.0));
                // The host has to see which clusters are best.
                let values = scores.tensor().to_vec()?;
                let wanted = self.config.cluster_labels;
                let rows = recall.clusters.for_step(&values, recall.columns, &lesson.carried, wanted);
                let guided = lesson.guided.as_ref().map(|guided| guided.count);
                of_clusters = self.some_labels(&rows, &lesson.carried, guided)?;
                &of_clusters
            }
            (Labels::All(judged), _) => judged,
            (Labels::OfClusters(_), None) => unreachable!("there are clusters only where they are judged"),
        };
        let diverse = place.step >= self.diverse_from;
        losses.extend(self.judged(tape, (&lesson, &reads), judged, diverse)?);
        if let Some(guided) = &lesson.guided {
            losses.extend(self.guided(tape, (&lesson, &reads), guided, judged)?);
        }
        Ok(losses)
    }

    fn evaluate(&mut self, parameters: &Parameters) -> Result<Option<Evaluation>, Error> {
        let Some(measured) = self.measured else { return Ok(None) };
        let labels = &self.rows.labels()[..self.rows.seen()];
        measured.evaluate((self.encoder, parameters), self.network, labels).map(Some)
    }
}
