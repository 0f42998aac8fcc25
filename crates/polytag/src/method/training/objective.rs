//! The losses of a step: documents against labels, and label texts against labels.

use std::collections::HashMap;
use std::ops::Range;

use polytag_nn::batch::Batch;
use polytag_nn::device::Device;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::loss::{Positives, Scores, binary_cross_entropy, decoupled_softmax, softmax};
use polytag_nn::parameters::Parameters;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::train::{Ahead, Evaluation, Objective, Order, Place};

use super::config::{Loss, TrainingConfig, Unseen};
use super::course::{Course, Measured};
use super::head::Head;
use super::label_rows::LabelRows;
use super::texts::{Documents, Reading, Texts};
use super::tower::Tower;
use crate::data::LabelSpace;

/// Label texts as documents: each is to find its own label.
pub(super) struct LabelTexts {
    /// Row by row.
    pub(super) texts: Texts,
    /// Rows with the same text, and which of these groups each row is in.
    groups: Vec<Vec<u32>>,
    group_of: Vec<u32>,
}

impl LabelTexts {
    /// The texts of the labels whose texts are compared with each other.
    pub(super) fn read(
        config: &TrainingConfig,
        reading: Reading<'_>,
        space: &LabelSpace,
        rows: &LabelRows,
    ) -> Result<LabelTexts, Error> {
        let count = match config.unseen {
            Unseen::In | Unseen::Masked => rows.len(),
            Unseen::Out => rows.seen(),
        };
        let labels = &rows.labels()[..count];
        let longest = config.label_tokens.min(reading.max_tokens);
        let tokens = config.label_text.tokens(space, labels, reading.tokenizer, longest)?;
        let mut known: HashMap<&[u32], u32> = HashMap::new();
        let (mut groups, mut group_of) = (Vec::<Vec<u32>>::new(), Vec::new());
        for (row, text) in tokens.iter().enumerate() {
            let group = *known.entry(text).or_insert(groups.len() as u32);
            if group as usize == groups.len() {
                groups.push(Vec::new());
            }
            groups[group as usize].push(row as u32);
            group_of.push(group);
        }
        let mut texts = Texts::default();
        texts.extend(tokens);
        Ok(LabelTexts { texts, groups, group_of })
    }

    /// What to say of labels that nothing can tell apart, if there are any.
    pub(super) fn twins(&self, space: &LabelSpace, rows: &LabelRows) -> Option<String> {
        let twins = || self.groups.iter().filter(|group| group.len() > 1);
        let count: usize = twins().map(Vec::len).sum();
        let first = twins().next()?;
        let id = |row: u32| &space.label(rows.labels()[row as usize]).id;
        Some(format!(
            "{count} labels read the same as another one, such as {:?} and {:?}: only training documents can tell them apart",
            id(first[0]),
            id(first[1])
        ))
    }
}

/// What is trained: documents, label texts, and both sides of the model.
pub(super) struct Pairs<'a> {
    pub(super) config: &'a TrainingConfig,
    pub(super) encoder: &'a Encoder,
    pub(super) head: &'a Head,
    pub(super) tower: Tower,
    pub(super) rows: &'a LabelRows,
    pub(super) documents: &'a Documents,
    pub(super) label_texts: Option<&'a LabelTexts>,
    pub(super) course: Option<&'a Course>,
    pub(super) orders: Orders,
    pub(super) prepared: Ahead<Prepared>,
    pub(super) device: Device,
}

/// Which documents and which label texts a step sees.
pub(super) struct Orders {
    documents: Order,
    label_texts: Order,
}

/// What a step needs besides the weights. Documents come first in the batch, label texts after them.
pub(super) struct Prepared {
    batch: Batch,
    documents: Part,
    label_texts: Option<Part>,
}

/// Some texts of a batch, and which of the first labels they carry.
struct Part {
    texts: Range<usize>,
    labels: usize,
    positives: Positives,
}

impl Orders {
    pub(super) fn new(documents: usize, labels: usize, seed: u64) -> Orders {
        let label_texts = Order::new(labels.max(1), seed ^ 0x6c61_6265_6c73);
        Orders { documents: Order::new(documents, seed), label_texts }
    }
}

impl Pairs<'_> {
    /// How many of the labels, the first ones, documents are compared with.
    fn document_labels(&self) -> usize {
        match self.config.unseen {
            Unseen::In => self.rows.len(),
            Unseen::Out | Unseen::Masked => self.rows.seen(),
        }
    }

    fn make(&self, place: Place) -> Result<Prepared, Error> {
        let documents = self.config.steps.chosen(&self.orders.documents, place, self.config.steps.batch);
        let row_lists: Vec<Vec<u32>> = documents
            .iter()
            .map(|&document| {
                self.documents.labels(document).iter().map(|&label| self.rows.row(label)).collect()
            })
            .collect();
        let mut texts: Vec<&[u32]> = documents.iter().map(|&place| self.documents.texts.get(place)).collect();
        let labels = self.document_labels();
        let positives = Positives::new(&self.device, labels, row_lists.iter().map(Vec::as_slice))?;
        let documents = Part { texts: 0..texts.len(), labels, positives };
        let mut label_texts = None;
        if let Some(known) = &self.label_texts {
            let labels = known.texts.len();
            let chosen =
                self.config.steps.chosen(&self.orders.label_texts, place, self.config.auxiliary_texts());
            let first = texts.len();
            texts.extend(chosen.iter().map(|&row| known.texts.get(row)));
            let same = chosen.iter().map(|&row| &known.groups[known.group_of[row] as usize][..]);
            let positives = Positives::new(&self.device, labels, same)?;
            label_texts = Some(Part { texts: first..texts.len(), labels, positives });
        }
        let batch = self.encoder.batch(&self.device, texts)?;
        Ok(Prepared { batch, documents, label_texts })
    }

    fn loss(&self, tape: &mut Tape<'_>, scores: Scores, positives: &Positives) -> Result<Var, Error> {
        match self.config.loss {
            Loss::Bce => binary_cross_entropy(tape, scores, positives),
            Loss::Softmax => softmax(tape, scores, positives),
            Loss::DecoupledSoftmax => decoupled_softmax(tape, scores, positives),
        }
    }
}

impl Objective for Pairs<'_> {
    fn prepare(&mut self, place: Place) -> Result<(), Error> {
        self.prepared.put(place, self.make(place)?);
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        let prepared = match self.prepared.take(place) {
            Some(prepared) => prepared,
            None => self.make(place)?,
        };
        let batch = &prepared.batch;
        let states = self.encoder.forward(tape, batch, &[self.encoder.last()])?;
        let ready = self.head.ready(tape, &states[0], batch, self.tower.comparison)?;
        let mut losses = Vec::new();
        let all = self.tower.all(tape)?;
        let parts =
            [(Some(&prepared.documents), 1.0), (prepared.label_texts.as_ref(), self.config.auxiliary)];
        for (part, weight) in parts {
            let Some(part) = part else { continue };
            let labels = all.first(tape, part.labels)?;
            let texts = part.texts.clone();
            let scores = self.head.scores(tape, (&ready, batch), texts, &labels)?;
            losses.push((self.loss(tape, scores, &part.positives)?, weight));
        }
        Ok(losses)
    }

    fn evaluate(&mut self, parameters: &Parameters) -> Result<Option<Evaluation>, Error> {
        let Some(course) = &self.course else { return Ok(None) };
        let (encoder, head, tower, rows) = (self.encoder, self.head, &self.tower, self.rows);
        let (score, measures) = course.measure(&Measured { encoder, head, tower, rows, parameters })?;
        Ok(Some(Evaluation { score: Some(score), measures }))
    }
}
