//! Stage one: pairs against the other pairs of a step, and against labels (paper 001, eq. 2 to 5).

use std::collections::BTreeSet;
use std::path::Path;

use polytag_nn::batch::Batch;
use polytag_nn::error::Error;
use polytag_nn::loss::{Positives, contrast_with_negatives, supervised_contrastive};
use polytag_nn::op::rows;
use polytag_nn::parameters::Parameters;
use polytag_nn::random::Key;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::train::{Ahead, Evaluation, Objective, Order, Place};

use super::clusters::{Clustering, Schedule};
use super::config::{MaclrConfig, PairKind};
use super::labels::Labels;
use super::pairs::{TextPairs, is_bare, pieces};
use super::siamese::{DevMeasures, Siamese};
use crate::ids::LabelId;

/// What stage one trains.
pub(super) struct StageOne<'a> {
    pub(super) config: &'a MaclrConfig,
    pub(super) siamese: Siamese<'a>,
    pub(super) pairs: &'a TextPairs,
    pub(super) labels: &'a Labels,
    /// For each pair the label that its document is itself, if any.
    pub(super) itself: &'a [Option<LabelId>],
    pub(super) schedule: Option<Schedule>,
    pub(super) measures: Option<&'a DevMeasures>,
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
    prepared: Ahead<Prepared>,
}

/// The texts of a step: contexts, contexts once more, titles, labels, labels once more, as far as they are wanted.
struct Prepared {
    batch: Batch,
    pairs: Vec<usize>,
    labels: Vec<u32>,
}

impl State {
    /// For so many pairs, and so many labels that say something.
    pub(super) fn new(pairs: usize, labels: usize, seed: u64) -> State {
        let label_order = Order::new(labels.max(1), seed ^ 0x6c61_6265_6c73);
        State { order: Order::new(pairs, seed), label_order, clustering: None, prepared: Ahead::default() }
    }
}

impl StageOne<'_> {
    /// How many labels a step is kept away from. A label drawn at random is hardly ever the document's own only where
    /// there are many more to draw from.
    fn regularised(&self) -> usize {
        self.config.label_regularisation.min(self.labels.readable.len() / 10)
    }

    /// How many labels a step compares with themselves.
    fn label_pairs(&self) -> usize {
        self.config.label_pairs.min(self.labels.readable.len())
    }

    fn make(&self, place: Place) -> Result<Prepared, Error> {
        let count = self.config.per_step(self.pairs.len());
        let pairs = self.state.order.examples(place.step * count as u64, count);
        let labels = self.draw(place.step, &pairs);
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
        let label = |&row: &u32| self.labels.texts.get(row as usize);
        texts.extend(labels.iter().map(label));
        texts.extend(labels.iter().take(self.label_pairs()).map(label));
        let batch = self.siamese.batch(texts)?;
        Ok(Prepared { batch, pairs, labels })
    }

    /// The labels of a step, drawn at random. None is one of the step's documents: a document is not to be kept away
    /// from itself.
    fn draw(&self, step: u64, pairs: &[usize]) -> Vec<u32> {
        let wanted = self.regularised().max(self.label_pairs());
        if wanted == 0 {
            return Vec::new();
        }
        let here: BTreeSet<LabelId> = pairs.iter().filter_map(|&pair| self.itself[pair]).collect();
        let drawn = self.state.label_order.examples(step * wanted as u64, wanted);
        let mut drawn: Vec<u32> = drawn.into_iter().map(|place| self.labels.readable[place]).collect();
        drawn.retain(|&row| !here.contains(&self.labels.ids[row as usize]));
        drawn
    }

    /// Two pieces of a document, or, half of the time, a piece and the title.
    fn cut(&self, pair: usize, step: u64, row: u32) -> [Vec<u32>; 2] {
        let key = Key::new(self.seed).part(0x6375_7473).part(step);
        let [one, other] = pieces(self.pairs.contexts.get(pair), key.bits(row, 0), self.siamese.max_tokens);
        let title = self.pairs.titles.get(pair);
        match key.bits(row, 1) % 4 {
            0 if !is_bare(title) => [one, title.to_vec()],
            1 if !is_bare(title) => [other, title.to_vec()],
            _ => [one, other],
        }
    }

    /// Makes sure of the clustering that is in force at a step, with the weights as they are then.
    pub(super) fn cluster(&mut self, parameters: &Parameters, step: u64) -> Result<(), Error> {
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
                // What is to be cut into pieces is longer than the encoder takes.
                let most = self.siamese.max_tokens;
                let texts: Vec<&[u32]> =
                    self.pairs.contexts.iter().map(|text| &text[..text.len().min(most)]).collect();
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
        alike(tape, pairs, |one, other| {
            one == other
                || self.pairs.same(one, other)
                || cluster(one).is_some_and(|of| Some(of) == cluster(other))
        })
    }
}

/// For each of `rows` those of them that are like it.
fn alike<T: Copy>(tape: &Tape<'_>, rows: &[T], are_alike: impl Fn(T, T) -> bool) -> Result<Positives, Error> {
    let like = |&one: &T| {
        rows.iter().zip(0..).filter(|(other, _)| are_alike(one, **other)).map(|(_, row)| row).collect()
    };
    let lists: Vec<Vec<u32>> = rows.iter().map(like).collect();
    Positives::new(tape.parameters().device(), rows.len(), lists.iter().map(Vec::as_slice))
}

impl Objective for StageOne<'_> {
    fn prepare(&mut self, place: Place) -> Result<(), Error> {
        let made = self.make(place)?;
        self.state.prepared.put(place, made);
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        self.cluster(tape.parameters(), place.step)?;
        let prepared = match self.state.prepared.take(place) {
            Some(prepared) => prepared,
            None => self.make(place)?,
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
        if !labels.is_empty() {
            let drawn = next(tape, labels.len())?;
            if let Some(again) = again {
                let away = rows(tape, &drawn, 0..self.regularised().min(labels.len()))?;
                losses.push((contrast_with_negatives(tape, &contexts, &again, &away, temperature)?, share));
            }
            let own = &labels[..self.label_pairs().min(labels.len())];
            if !own.is_empty() {
                let (once, twice) = (rows(tape, &drawn, 0..own.len())?, next(tape, own.len())?);
                let same =
                    alike(tape, own, |one, other| self.labels.text_of(one) == self.labels.text_of(other))?;
                let loss = supervised_contrastive(tape, &once, &twice, &same, temperature)?;
                losses.push((loss, 1.0 / own.len() as f32));
            }
        }
        Ok(losses)
    }

    fn evaluate(&mut self, parameters: &Parameters) -> Result<Option<Evaluation>, Error> {
        self.measures.map(|measures| measures.measure(&self.siamese, parameters, self.labels)).transpose()
    }
}
