//! Stage one: pairs against the other pairs of a step, and against labels (paper 001, eq. 2 to 5).

use std::path::Path;

use polytag_nn::batch::Batch;
use polytag_nn::error::Error;
use polytag_nn::loss::{Positives, contrast_with_negatives, info_nce, supervised_contrastive};
use polytag_nn::op::rows;
use polytag_nn::parameters::Parameters;
use polytag_nn::random::Key;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::train::{Evaluation, Objective, Order, Place};

use super::clusters::{Clustering, Schedule};
use super::config::{MaclrConfig, PairKind};
use super::pairs::{Pairs, pieces};
use super::siamese::{Course, Siamese};
use crate::method::training::Texts;

/// What stage one trains.
pub(super) struct StageOne<'a> {
    pub(super) config: &'a MaclrConfig,
    pub(super) siamese: Siamese<'a>,
    pub(super) pairs: &'a Pairs,
    /// The texts of labels.
    pub(super) labels: &'a Texts,
    pub(super) schedule: Option<Schedule>,
    pub(super) course: Option<&'a Course>,
    /// Where clusterings are kept, and whose they are.
    pub(super) folder: Option<&'a Path>,
    pub(super) about: String,
    pub(super) seed: u64,
    pub(super) state: State,
}

/// What changes from step to step.
pub(super) struct State {
    order: Order,
    label_order: Order,
    clustering: Option<Clustering>,
    prepared: Option<(Place, Prepared)>,
}

/// The texts of a step: contexts, contexts once more, titles, labels, labels once more, as far as they are wanted.
struct Prepared {
    batch: Batch,
    pairs: Vec<usize>,
    labels: usize,
}

impl State {
    pub(super) fn new(pairs: usize, labels: usize, seed: u64) -> State {
        let label_order = Order::new(labels.max(1), seed ^ 0x6c61_6265_6c73);
        State { order: Order::new(pairs, seed), label_order, clustering: None, prepared: None }
    }
}

impl StageOne<'_> {
    /// How many labels a step is kept away from. A label drawn at random is hardly ever the document's own only where
    /// there are many more to draw from.
    fn regularised(&self) -> usize {
        self.config.label_regularisation.min(self.labels.len() / 10)
    }

    /// How many labels a step compares with themselves.
    fn label_pairs(&self) -> usize {
        self.config.label_pairs.min(self.labels.len())
    }

    fn make(&self, place: Place) -> Result<Prepared, Error> {
        // A batch larger than the task would hold the same pair twice.
        let count = self.config.batch.min(self.pairs.len());
        let pairs = self.state.order.examples(place.step * count as u64, count);
        let labels = self.regularised().max(self.label_pairs());
        let drawn = match labels {
            0 => Vec::new(),
            _ => self.state.label_order.examples(place.step * labels as u64, labels),
        };
        let cut: Vec<[Vec<u32>; 2]> = match self.config.pairs {
            PairKind::Chunks => {
                pairs.iter().zip(0..).map(|(&pair, row)| self.cut(pair, place.step, row)).collect()
            }
            _ => Vec::new(),
        };
        let context = |place: usize| match cut.get(place) {
            Some([one, _]) => &one[..],
            None => self.pairs.contexts.get(pairs[place]),
        };
        let title = |place: usize| match cut.get(place) {
            Some([_, other]) => &other[..],
            None => self.pairs.titles.get(pairs[place]),
        };
        let mut texts: Vec<&[u32]> = (0..count).map(context).collect();
        if self.regularised() > 0 {
            texts.extend((0..count).map(context));
        }
        texts.extend((0..count).map(title));
        texts.extend(drawn.iter().map(|&label| self.labels.get(label)));
        texts.extend(drawn[..self.label_pairs()].iter().map(|&label| self.labels.get(label)));
        let batch = self.siamese.batch(texts)?;
        Ok(Prepared { batch, pairs, labels })
    }

    /// Two pieces of a document, or, half of the time, a piece and the title.
    fn cut(&self, pair: usize, step: u64, row: u32) -> [Vec<u32>; 2] {
        let key = Key::new(self.seed).part(0x6375_7473).part(step);
        let [one, other] = pieces(self.pairs.contexts.get(pair), key.bits(row, 0), self.siamese.max_tokens);
        match key.bits(row, 1) % 2 {
            0 => [one, other],
            _ => [one, self.pairs.titles.get(pair).to_vec()],
        }
    }

    /// Makes sure of the clustering that is in force at a step, with the weights as they are then.
    fn cluster(&mut self, parameters: &Parameters, step: u64) -> Result<(), Error> {
        let Some(due) = self.schedule.and_then(|schedule| schedule.at(step)) else {
            self.state.clustering = None;
            return Ok(());
        };
        if self.state.clustering.as_ref().is_some_and(|clustering| clustering.due == due) {
            return Ok(());
        }
        let documents = self.pairs.len();
        self.state.clustering = Some(match self.folder {
            // The weights have moved on since it was made: only what was kept is the same.
            Some(folder) if due.step < step => Clustering::kept(folder, &self.about, (due, documents))?,
            folder => {
                let texts: Vec<&[u32]> = self.pairs.contexts.iter().collect();
                let vectors = self.siamese.vectors(parameters, &texts)?;
                let dimension = self.siamese.encoder.config().hidden;
                let made = Clustering::make(parameters.device(), &vectors, dimension, (due, self.seed))?;
                if let Some(folder) = folder {
                    made.keep(folder, &self.about)?;
                }
                made
            }
        });
        Ok(())
    }

    /// Which titles of the step are as good as each context's own.
    fn positives(&self, tape: &Tape<'_>, pairs: &[usize]) -> Result<Positives, Error> {
        let cluster = |pair: usize| self.state.clustering.as_ref().map(|clustering| clustering.of[pair]);
        let alike = |one: usize, other: usize| {
            one == other
                || self.pairs.same(one, other)
                || cluster(one).is_some_and(|of| Some(of) == cluster(other))
        };
        let lists: Vec<Vec<u32>> = pairs
            .iter()
            .map(|&one| {
                pairs.iter().zip(0..).filter(|&(&other, _)| alike(one, other)).map(|(_, row)| row).collect()
            })
            .collect();
        Positives::new(tape.parameters().device(), pairs.len(), lists.iter().map(Vec::as_slice))
    }
}

impl Objective for StageOne<'_> {
    fn prepare(&mut self, place: Place) -> Result<(), Error> {
        self.state.prepared = Some((place, self.make(place)?));
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        self.cluster(tape.parameters(), place.step)?;
        let prepared = match self.state.prepared.take() {
            Some((at, prepared)) if at == place => prepared,
            _ => self.make(place)?,
        };
        let Prepared { batch, pairs, labels } = prepared;
        let all = self.siamese.embed(tape, &batch)?;
        let (count, temperature) = (pairs.len(), self.config.temperature);
        let mut first = 0;
        let mut next = |tape: &mut Tape<'_>, count: usize| {
            first += count;
            rows(tape, &all, first - count..first)
        };
        let contexts = next(tape, count)?;
        let again = if self.regularised() > 0 { Some(next(tape, count)?) } else { None };
        let titles = next(tape, count)?;
        let positives = self.positives(tape, &pairs)?;
        // The paper's losses are sums; means make the clipping of gradients independent of the batch.
        let share = 1.0 / count as f32;
        let mut losses =
            vec![(supervised_contrastive(tape, &contexts, &titles, &positives, temperature)?, share)];
        if labels > 0 {
            let drawn = next(tape, labels)?;
            if let Some(again) = again {
                let away = rows(tape, &drawn, 0..self.regularised())?;
                losses.push((contrast_with_negatives(tape, &contexts, &again, &away, temperature)?, share));
            }
            let own = self.label_pairs();
            if own > 0 {
                let (once, twice) = (rows(tape, &drawn, 0..own)?, next(tape, own)?);
                losses.push((info_nce(tape, &once, &twice, temperature)?, 1.0 / own as f32));
            }
        }
        Ok(losses)
    }

    fn evaluate(&mut self, parameters: &Parameters) -> Result<Option<Evaluation>, Error> {
        self.course.map(|course| course.measure(&self.siamese, parameters, self.labels)).transpose()
    }
}
