//! Losses over labels on the CPU.
//!
//! Scores lie label by label here, the documents side by side: so the labels, which are many, are read as
//! they are stored, and only the documents are laid out for the products. Sums are made by segments of
//! labels, whichever thread takes one, and the segments are added up in order.

use rayon::prelude::*;

use super::{Kept, Kind, Learned, OverLabels, Pass, Target};
use crate::cpu::{self, Packed, Then, View};
use crate::element::Element;
use crate::error::Error;
use crate::loss::elementary::{exp, sigmoid, softplus};
use crate::loss::scores::{Chunk, Labels, Number, chunk_length};
use crate::parameters::Parameters;
use crate::tensor::Tensor;

/// How many labels are summed up at a time.
const SEGMENT: usize = 256;

/// What the scores of a chunk take unless told otherwise: little enough to stay in the cache.
const CHUNK_MEMORY: usize = 1 << 20;

/// Both passes on the CPU.
pub(super) struct CpuPass {
    documents: usize,
    dimensions: usize,
    chunk_length: usize,
    original: Tensor,
    /// The documents times the scale; nothing where scores are given.
    scaled: Tensor,
    /// The same, exchanged: the right-hand side of the scores.
    exchanged: Packed,
    /// The same as they are: the right-hand side of the labels' gradient. Only on the way back.
    plain: Option<Packed>,
    scale: f32,
    bias: Vec<f32>,
    /// A chunk of scores, or of their gradient: a row for each label.
    chunk: Tensor,
    /// What a segment has to say of each document.
    partial: Vec<f32>,
    sums: Vec<Sum>,
    entries: Vec<f32>,
    shifts: Vec<f32>,
    factors: Vec<f32>,
    /// The gradient of the documents times the scale, exchanged.
    towards_documents: Vec<f32>,
    /// The gradient of the scale, where scores are given.
    scale_sum: f64,
    bias_sum: f64,
}

impl Pass for CpuPass {
    fn begin(problem: &OverLabels, parameters: &Parameters) -> Result<CpuPass, Error> {
        let scores = &problem.scores;
        let original = scores.documents.tensor().clone();
        let (documents, dimensions) = (original.rows(), original.columns());
        let number = |number: Number| match number {
            Number::Constant(value) => vec![value],
            Number::Learned(id) => parameters.values(id).to_vec(),
        };
        let (scale, bias) = (number(scores.scale)[0], number(scores.bias));
        let device = parameters.device();
        let rows = if scores.are_given() { 0 } else { documents };
        let mut scaled = Tensor::scratch(device, rows, dimensions, Element::F32)?;
        for (scaled, value) in scaled.values_mut().iter_mut().zip(original.values()) {
            *scaled = scale * value;
        }
        let exchanged = Packed::new(View::new(scaled.values(), rows, dimensions).transposed());
        let memory = scores.chunk_memory.unwrap_or(CHUNK_MEMORY);
        let chunk_length = chunk_length(memory, documents, SEGMENT, scores.label_count(parameters));
        Ok(CpuPass {
            documents,
            dimensions,
            chunk_length,
            original,
            scaled,
            exchanged,
            plain: None,
            scale,
            bias,
            chunk: Tensor::scratch(device, chunk_length, documents, Element::F32)?,
            partial: vec![0.0; 2 * documents * (chunk_length / SEGMENT)],
            sums: vec![Sum { greatest: f32::MIN, beyond: 0.0 }; documents],
            entries: vec![0.0; problem.positives.len()],
            shifts: Vec::new(),
            factors: Vec::new(),
            towards_documents: Vec::new(),
            scale_sum: 0.0,
            bias_sum: 0.0,
        })
    }

    fn chunk_length(&self) -> usize {
        self.chunk_length
    }

    fn multiply(&mut self, parameters: &Parameters, labels: &Labels, chunk: &Chunk) -> Result<(), Error> {
        let length = chunk.rows.len() * self.documents;
        if let Labels::Given(values) = labels {
            let values = values.tensor().values();
            let scores = self.chunk.values_mut()[..length].par_chunks_mut(self.documents);
            scores.zip(chunk.rows.clone()).for_each(|(scores, label)| {
                for (score, values) in scores.iter_mut().zip(values.chunks_exact(self.dimensions)) {
                    *score = self.scale * values[label];
                }
            });
            return Ok(());
        }
        let labels = rows(labels.values(parameters), chunk, self.dimensions);
        cpu::multiply(labels, &self.exchanged, &mut self.chunk.values_mut()[..length], Then::Store);
        Ok(())
    }

    fn reduce(&mut self, problem: &OverLabels, chunk: &Chunk) -> Result<(), Error> {
        let (documents, positives) = (self.documents, &problem.positives);
        let values = &mut self.chunk.values_mut()[..chunk.rows.len() * documents];
        for document in 0..documents {
            for place in positives.places_within(document, &chunk.labels) {
                let label = positives.label(place);
                let score = &mut values[(label - chunk.labels.start) * documents + document];
                self.entries[place] = *score + self.bias[label % self.bias.len()];
                if problem.masks(positives.weight(place)) {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
        let bias = bias_of(&self.bias, chunk);
        let segments = values.par_chunks(SEGMENT * documents).zip(self.partial.par_chunks_mut(2 * documents));
        segments.enumerate().for_each(|(segment, (scores, partial))| {
            let bias = |row: usize| bias(segment * SEGMENT + row);
            match problem.kind {
                Kind::Sigmoid => sum_softplus(scores, partial, bias),
                Kind::Softmax | Kind::Decoupled => sum_exponentials(scores, partial, bias),
            }
        });
        let segments = chunk.rows.len().div_ceil(SEGMENT);
        for partial in self.partial.chunks_exact(2 * documents).take(segments) {
            let (greatest, sums) = partial.split_at(documents);
            for (document, sum) in self.sums.iter_mut().enumerate() {
                sum.add(greatest[document], f64::from(sums[document]));
            }
        }
        Ok(())
    }

    fn finish(mut self, problem: &OverLabels) -> Result<(Tensor, Kept), Error> {
        let share = f64::from(problem.share());
        let (mut total, mut shifts, mut factors) = (0.0, Vec::new(), Vec::new());
        for document in 0..self.documents {
            let outcome = self.finish_document(problem, document, share);
            total += share * outcome.loss;
            shifts.push(outcome.shift as f32);
            factors.push(outcome.factor as f32);
        }
        shifts.append(&mut factors);
        let device = self.original.device();
        let loss = Tensor::new(&device, (1, 1), &[total as f32], Element::F32)?;
        let documents = Tensor::new(&device, (2, self.documents), &shifts, Element::F32)?;
        let entries = Tensor::new(&device, (1, self.entries.len()), &self.entries, Element::F32)?;
        Ok((loss, Kept { documents, entries }))
    }

    fn turn(&mut self, kept: &Kept, gradient: Tensor) -> Result<(), Error> {
        let gradient = gradient.values()[0];
        let (shifts, factors) = kept.documents.values().split_at(self.documents);
        self.shifts = shifts.to_vec();
        self.factors = factors.iter().map(|factor| factor * gradient).collect();
        self.entries = kept.entries.values().iter().map(|entry| entry * gradient).collect();
        let rows = self.scaled.rows();
        self.towards_documents = vec![0.0; rows * self.dimensions];
        self.plain = Some(Packed::new(View::new(self.scaled.values(), rows, self.dimensions)));
        Ok(())
    }

    fn differentiate(&mut self, problem: &OverLabels, chunk: &Chunk) -> Result<(), Error> {
        let (documents, positives) = (self.documents, &problem.positives);
        let values = &mut self.chunk.values_mut()[..chunk.rows.len() * documents];
        let (factors, shifts) = (&self.factors, &self.shifts);
        let bias = bias_of(&self.bias, chunk);
        values.par_chunks_mut(SEGMENT * documents).enumerate().for_each(|(segment, scores)| {
            for (row, scores) in scores.chunks_exact_mut(documents).enumerate() {
                let bias = bias(segment * SEGMENT + row);
                let columns = scores.iter_mut().zip(factors).zip(shifts);
                match problem.kind {
                    Kind::Sigmoid => {
                        columns.for_each(|((score, factor), _)| *score = factor * sigmoid(*score + bias));
                    }
                    Kind::Softmax | Kind::Decoupled => columns.for_each(|((score, factor), shift)| {
                        *score = factor * exp(*score + bias - shift);
                    }),
                }
            }
        });
        for document in 0..documents {
            for place in positives.places_within(document, &chunk.labels) {
                let row = positives.label(place) - chunk.labels.start;
                values[row * documents + document] = self.entries[place];
            }
        }
        Ok(())
    }

    fn add_documents(
        &mut self,
        parameters: &Parameters,
        labels: &Labels,
        chunk: &Chunk,
    ) -> Result<(), Error> {
        if let Labels::Given(values) = labels {
            self.scale_sum += self.products_with(values.tensor().values(), chunk);
            return Ok(());
        }
        let labels = rows(labels.values(parameters), chunk, self.dimensions).transposed();
        let gradient = &self.chunk.values()[..chunk.rows.len() * self.documents];
        let gradient = View::new(gradient, chunk.rows.len(), self.documents);
        cpu::multiply_once(labels, gradient, &mut self.towards_documents, true);
        Ok(())
    }

    fn write_labels(
        &mut self,
        parameters: &mut Parameters,
        target: &mut Target,
        chunk: &Chunk,
    ) -> Result<(), Error> {
        let range = chunk.rows.start * self.dimensions..chunk.rows.end * self.dimensions;
        let (place, accumulate) = match target {
            Target::Nowhere => return Ok(()),
            Target::Weight(id, accumulate) => (&mut parameters.gradient(*id).0[range], *accumulate),
            Target::Value(_, place, accumulate) => (&mut place.values_mut()[range], *accumulate),
            Target::Given(_, place, accumulate) => {
                self.write_given(place.values_mut(), *accumulate, chunk);
                return Ok(());
            }
        };
        let gradient = View::new(self.gradient(chunk), chunk.rows.len(), self.documents);
        let documents = self.plain.as_ref().expect("the way back was begun");
        cpu::multiply(gradient, documents, place, if accumulate { Then::Add } else { Then::Store });
        Ok(())
    }

    fn add_bias(&mut self, parameters: &mut Parameters, bias: Learned, chunk: &Chunk) -> Result<(), Error> {
        let by_label = self.gradient(chunk).chunks_exact(self.documents).map(|row| row.iter().sum::<f32>());
        let place = parameters.gradient(bias.id).0;
        if place.len() == 1 {
            self.bias_sum += by_label.map(f64::from).sum::<f64>();
            return Ok(());
        }
        for (place, sum) in place[chunk.labels.clone()].iter_mut().zip(by_label) {
            *place = if bias.accumulate { *place + sum } else { sum };
        }
        Ok(())
    }

    fn write_numbers(
        &mut self,
        parameters: &mut Parameters,
        learned: [Option<Learned>; 2],
    ) -> Result<(), Error> {
        let [scale, bias] = learned;
        if let Some(scale) = scale {
            let products = (0..self.scaled.rows())
                .flat_map(|document| (0..self.dimensions).map(move |dimension| (document, dimension)));
            let sum = products
                .map(|(document, dimension)| {
                    let towards = self.towards_documents[dimension * self.documents + document];
                    f64::from(towards)
                        * f64::from(self.original.values()[document * self.dimensions + dimension])
                })
                .sum::<f64>();
            write_number(parameters, scale, self.scale_sum + sum);
        }
        if let Some(bias) = bias.filter(|bias| parameters.info(bias.id).len() == 1) {
            write_number(parameters, bias, self.bias_sum);
        }
        Ok(())
    }

    fn write_documents(&mut self, place: &mut Tensor, accumulate: bool) -> Result<(), Error> {
        for (document, place) in place.values_mut().chunks_exact_mut(self.dimensions).enumerate() {
            for (dimension, place) in place.iter_mut().enumerate() {
                let gradient = self.scale * self.towards_documents[dimension * self.documents + document];
                *place = if accumulate { *place + gradient } else { gradient };
            }
        }
        Ok(())
    }
}

/// A sum of exponentials of scores, `beyond · exp(greatest)`; or `beyond` is a sum of anything else, and the
/// greatest is the least there is.
#[derive(Clone, Copy)]
struct Sum {
    greatest: f32,
    beyond: f64,
}

impl Sum {
    /// Adds `beyond · exp(greatest)`.
    fn add(&mut self, greatest: f32, beyond: f64) {
        let now = self.greatest.max(greatest);
        let moved = |from: f32| if from == now { 1.0 } else { (f64::from(from) - f64::from(now)).exp() };
        self.beyond = self.beyond * moved(self.greatest) + beyond * moved(greatest);
        self.greatest = now;
    }
}

/// What becomes of a document when the sums over its scores are known.
struct Outcome {
    loss: f64,
    shift: f64,
    factor: f64,
}

impl CpuPass {
    /// The gradient of the scores of a chunk.
    fn gradient(&self, chunk: &Chunk) -> &[f32] {
        &self.chunk.values()[..chunk.rows.len() * self.documents]
    }

    /// The sum of the products of a chunk's gradient with values that lie document by document.
    fn products_with(&self, values: &[f32], chunk: &Chunk) -> f64 {
        let gradient = self.gradient(chunk).par_chunks(self.documents).zip(chunk.rows.clone());
        let by_label = gradient.map(|(gradient, label)| {
            let values = values.chunks_exact(self.dimensions).map(|values| values[label]);
            gradient.iter().zip(values).map(|(&a, b)| f64::from(a) * f64::from(b)).sum::<f64>()
        });
        by_label.collect::<Vec<f64>>().into_iter().sum()
    }

    /// Writes a chunk's part of the gradient of the scores that are given.
    fn write_given(&self, place: &mut [f32], accumulate: bool, chunk: &Chunk) {
        let (gradient, scale) = (self.gradient(chunk), self.scale);
        place.par_chunks_mut(self.dimensions).enumerate().for_each(|(document, place)| {
            let own = gradient.iter().skip(document).step_by(self.documents);
            for (place, gradient) in place[chunk.rows.clone()].iter_mut().zip(own) {
                *place = if accumulate { *place + scale * gradient } else { scale * gradient };
            }
        });
    }

    /// A document's loss; puts the gradients of its positives where their scores were.
    fn finish_document(&mut self, problem: &OverLabels, document: usize, share: f64) -> Outcome {
        let positives = &problem.positives;
        let places = positives.places(document);
        let counts = places.clone().any(|place| positives.weight(place) > 0.0);
        let sum = self.sums[document];
        let shift = match problem.kind {
            Kind::Sigmoid => 0.0,
            Kind::Softmax | Kind::Decoupled => f64::from(sum.greatest) + sum.beyond.ln(),
        };
        let (mut loss, mut factor) = match problem.kind {
            Kind::Sigmoid => (sum.beyond, 1.0),
            Kind::Softmax if counts => (shift, 1.0),
            Kind::Softmax | Kind::Decoupled => (0.0, 0.0),
        };
        for place in places {
            let (weight, score) = (f64::from(positives.weight(place)), f64::from(self.entries[place]));
            let gradient = match problem.kind {
                _ if weight == 0.0 => 0.0,
                Kind::Sigmoid => {
                    loss -= score;
                    -wide_sigmoid(-score)
                }
                Kind::Softmax => {
                    loss -= weight * score;
                    (score - shift).exp() - weight
                }
                Kind::Decoupled => {
                    let behind = wide_sigmoid(shift - score);
                    loss += weight * wide_softplus(shift - score);
                    factor += weight * behind;
                    -weight * behind
                }
            };
            self.entries[place] = (share * gradient) as f32;
        }
        Outcome { loss, shift, factor: share * factor }
    }
}

fn wide_sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn wide_softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The labels of a chunk.
fn rows<'a>(labels: &'a [f32], chunk: &Chunk, dimensions: usize) -> View<'a> {
    let values = &labels[chunk.rows.start * dimensions..chunk.rows.end * dimensions];
    View::new(values, chunk.rows.len(), dimensions)
}

/// What is added to the scores of the labels of a chunk.
fn bias_of<'a>(bias: &'a [f32], chunk: &Chunk) -> impl Fn(usize) -> f32 + Sync + 'a {
    let first = chunk.labels.start;
    move |row| if bias.len() == 1 { bias[0] } else { bias[first + row] }
}

/// The greatest of each document's scores, then the sum of their exponentials beyond it.
fn sum_exponentials(scores: &[f32], partial: &mut [f32], bias: impl Fn(usize) -> f32) {
    let (greatest, sums) = partial.split_at_mut(partial.len() / 2);
    greatest.fill(f32::MIN);
    sums.fill(0.0);
    for (row, scores) in scores.chunks_exact(sums.len()).enumerate() {
        let bias = bias(row);
        for (greatest, score) in greatest.iter_mut().zip(scores) {
            *greatest = greatest.max(score + bias);
        }
    }
    for (row, scores) in scores.chunks_exact(sums.len()).enumerate() {
        let bias = bias(row);
        for ((sum, score), greatest) in sums.iter_mut().zip(scores).zip(greatest.iter()) {
            *sum += exp(score + bias - greatest);
        }
    }
}

/// The sum of `ln(1 + e^score)` over each document's scores.
fn sum_softplus(scores: &[f32], partial: &mut [f32], bias: impl Fn(usize) -> f32) {
    let (greatest, sums) = partial.split_at_mut(partial.len() / 2);
    greatest.fill(f32::MIN);
    sums.fill(0.0);
    for (row, scores) in scores.chunks_exact(sums.len()).enumerate() {
        let bias = bias(row);
        for (sum, score) in sums.iter_mut().zip(scores) {
            *sum += softplus(score + bias);
        }
    }
}

fn write_number(parameters: &mut Parameters, Learned { id, accumulate }: Learned, sum: f64) {
    let place: &mut f32 = &mut parameters.gradient(id).0[0];
    *place = if accumulate { *place + sum as f32 } else { sum as f32 };
}
