//! How long a training step takes, and how much the machine could do at best.
//!
//! The step: an encoder with random weights, random tokens, AdamW, and either InfoNCE between the halves of a batch or
//! binary cross-entropy over labels. The same as PyTorch is measured with, so that both can be told beside each other.

use std::time::Instant;

use crate::batch::Batch;
use crate::cpu;
use crate::device::Device;
use crate::encoder::{Encoder, EncoderConfig};
use crate::error::{Bytes, Error};
use crate::loss::{Number, Positives, Scores, binary_cross_entropy, info_nce};
use crate::op::{self, ChunkMemory, Comparison, LabelAttention, Pooling};
use crate::optimizer::{AdamW, Group};
use crate::parameters::{ParameterId, Parameters, ParametersBuilder};
use crate::random::Key;
use crate::tape::{BackwardOptions, Tape, Var};
use crate::tensor::Tensor;

/// How many steps are made at least before one is measured: memory and kernels are there by then.
const WARM_STEPS: usize = 5;

/// How many floating-point operations the CPU does in a second at best: fused multiplications and additions
/// of `f32` in the widest instructions, on all threads of the current rayon pool. Takes a fifth of a second.
pub fn peak_operations() -> f64 {
    cpu::peak()
}

/// How many floating-point operations the way forward takes for texts of these lengths: two for every
/// number that a weight multiplies, and as many for attention's two products.
pub fn forward_operations(config: &EncoderConfig, lengths: &[usize]) -> f64 {
    let EncoderConfig { hidden, inner, layers, .. } = *config;
    let weights = (4 * hidden * hidden + 2 * hidden * inner) as f64;
    let of_text = |&length: &usize| 2.0 * length as f64 * (weights + 2.0 * (length * hidden) as f64);
    layers as f64 * lengths.iter().map(of_text).sum::<f64>()
}

/// How many labels a text carries, where labels are learned.
const LABELS_A_TEXT: usize = 5;

/// What is learned in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// Which texts go together.
    Pairs,
    /// Which of so many labels each text carries, by its first token; and where labels look for themselves at the first
    /// layer, by that as well.
    Labels {
        /// How many there are.
        count: usize,
        /// Whether they look for themselves.
        looking: bool,
    },
}

/// A step to be measured.
#[derive(Clone, Debug)]
pub struct TrainStep {
    /// What is learned.
    pub lesson: Lesson,
    /// The encoder's shape. Dropout is as it says.
    pub config: EncoderConfig,
    /// Batches, gone through in turn: the length of each text. Each has an even number of texts, where pairs are learned.
    pub batches: Vec<Vec<usize>>,
    /// How many steps are measured, beginning with the first batch; before that, all batches are gone
    /// through once, or more often, to warm up.
    pub steps: usize,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct StepTimes {
    /// The seconds of each step, the device waited for.
    pub seconds: Vec<f64>,
    /// How many tokens the measured steps had.
    pub tokens: usize,
    /// How many floating-point operations they did in matrix products and attention.
    pub operations: f64,
    /// The most memory that was in use.
    pub peak_memory: Bytes,
    /// The last loss, to see that something was learned.
    pub loss: f32,
}

impl StepTimes {
    /// The step in the middle, in milliseconds.
    pub fn median_milliseconds(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).map_or(f64::NAN, |second| second * 1e3)
    }

    /// How many tokens were trained on in a second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.total()
    }

    /// How many floating-point operations were done in a second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations / self.total()
    }

    fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }
}

impl TrainStep {
    /// Measures on a device.
    ///
    /// # Errors
    /// If the shape or a batch is not possible, or the device fails.
    pub fn run(&self, device: &Device) -> Result<StepTimes, Error> {
        self.check()?;
        let mut builder = ParametersBuilder::default();
        let encoder = Encoder::random(self.config.clone(), Key::new(1), &mut builder)?;
        let head = Head::begin(self.lesson, self.config.hidden, &mut builder);
        let mut parameters = builder.build(device)?;
        let group = Group { learning_rate: 2e-5, weight_decay: 0.01, ..Group::default() };
        let mut optimizer = AdamW::new(&mut parameters, vec![group])?;
        // Made beforehand, as a training makes them while the device is busy with the step before.
        let batches = self.batches.iter().enumerate().map(|(index, lengths)| {
            let texts = self.tokens(index, lengths);
            let batch = encoder.batch(device, texts.iter().map(Vec::as_slice))?;
            Ok((batch, self.positives(index, lengths.len(), device)?))
        });
        let batches = batches.collect::<Result<Vec<(Batch, Option<Positives>)>, Error>>()?;
        let warm = batches.len() * WARM_STEPS.div_ceil(batches.len());
        let mut times = StepTimes {
            seconds: Vec::new(),
            tokens: 0,
            operations: 0.0,
            peak_memory: Bytes(0),
            loss: f32::NAN,
        };
        for step in 0..warm + self.steps {
            let which = step % batches.len();
            device.synchronize()?;
            let started = Instant::now();
            let (batch, positives) = &batches[which];
            let taught = (&encoder, &head, positives.as_ref());
            let loss = one_step(taught, &mut parameters, &mut optimizer, (batch, step))?;
            device.synchronize()?;
            if step >= warm {
                times.seconds.push(started.elapsed().as_secs_f64());
                times.tokens += self.batches[which].iter().sum::<usize>();
                // The way back costs twice the way forward.
                let lengths = &self.batches[which];
                times.operations +=
                    3.0 * (forward_operations(&self.config, lengths) + self.head_operations(lengths));
            }
            times.loss = loss.to_vec()?[0];
        }
        optimizer.settle()?;
        times.peak_memory = device.peak_memory();
        Ok(times)
    }

    fn check(&self) -> Result<(), Error> {
        let pairs = self.lesson == Lesson::Pairs;
        let has_halves = |batch: &Vec<usize>| !batch.is_empty() && (!pairs || batch.len().is_multiple_of(2));
        if self.batches.is_empty() || !self.batches.iter().all(has_halves) {
            let needed = match pairs {
                true => "every batch must have an even number of texts, two at least",
                false => "every batch must have a text",
            };
            return Err(Error::Unfit(needed.to_owned()));
        }
        if let Lesson::Labels { count: 0, .. } = self.lesson {
            return Err(Error::Unfit("there must be a label at least".to_owned()));
        }
        if self.config.vocabulary < 2 {
            return Err(Error::Unfit("the vocabulary must have two words at least".to_owned()));
        }
        Ok(())
    }

    /// How many floating-point operations scores of labels take, the way forward.
    fn head_operations(&self, lengths: &[usize]) -> f64 {
        let Lesson::Labels { count, looking } = self.lesson else { return 0.0 };
        let rows = lengths.len() + if looking { 2 * lengths.iter().sum::<usize>() } else { 0 };
        2.0 * (rows * count * self.config.hidden) as f64
    }

    /// The labels of a batch's texts, where labels are learned.
    fn positives(&self, batch: usize, texts: usize, device: &Device) -> Result<Option<Positives>, Error> {
        let Lesson::Labels { count, .. } = self.lesson else { return Ok(None) };
        let key = Key::new(4).part(batch as u64);
        let lists: Vec<Vec<u32>> = (0..texts as u32)
            .map(|text| {
                let drawn = (0..LABELS_A_TEXT as u32).map(|place| key.bits(text, place) % count as u32);
                let mut drawn: Vec<u32> = drawn.collect();
                drawn.sort_unstable();
                drawn.dedup();
                drawn
            })
            .collect();
        let columns = count.next_multiple_of(8);
        Positives::new(device, columns, lists.iter().map(Vec::as_slice)).map(Some)
    }

    fn tokens(&self, batch: usize, lengths: &[usize]) -> Vec<Vec<u32>> {
        let key = Key::new(2).part(batch as u64);
        let token = |row: usize, column: usize| {
            1 + key.bits(row as u32, column as u32) % (self.config.vocabulary as u32 - 1)
        };
        let text = |(row, &length): (usize, &usize)| (0..length).map(|column| token(row, column)).collect();
        lengths.iter().enumerate().map(text).collect()
    }
}

/// What is above the encoder.
enum Head {
    Pairs,
    Labels { vectors: ParameterId, bias: ParameterId, looking: Option<[ParameterId; 2]> },
}

impl Head {
    fn begin(lesson: Lesson, hidden: usize, builder: &mut ParametersBuilder) -> Head {
        let Lesson::Labels { count, looking } = lesson else { return Head::Pairs };
        // A multiple of eight, as a classifier has it on a GPU.
        let columns = count.next_multiple_of(8);
        let mut drawn = 0;
        let mut rows = |name: &str| {
            drawn += 1;
            let shape = (columns, hidden);
            builder.add(name, shape, &Key::new(5).part(drawn).small_normals(shape))
        };
        let vectors = rows("label vectors");
        let looking = looking.then(|| [rows("label queries"), rows("what labels expect")]);
        let bias = builder.add("label biases", (1, columns), &vec![-5.0; columns]);
        Head::Labels { vectors, bias, looking }
    }

    /// The losses of a batch, each with its weight.
    fn losses(
        &self,
        tape: &mut Tape<'_>,
        encoder: &Encoder,
        (batch, positives): (&Batch, Option<&Positives>),
    ) -> Result<Vec<(Var, f32)>, Error> {
        let (Head::Labels { vectors, bias, looking }, Some(positives)) = (self, positives) else {
            let states = encoder.forward(tape, batch, &[encoder.last()])?;
            let pooled = op::pool(tape, &states[0], batch, Pooling::Mean)?;
            let rows = op::normalise(tape, &pooled)?;
            let half = batch.len() / 2;
            let anchors = op::rows(tape, &rows, 0..half)?;
            let positives = op::rows(tape, &rows, half..2 * half)?;
            return Ok(vec![(info_nce(tape, &anchors, &positives, 0.05)?, 1.0 / half as f32)]);
        };
        let states = encoder.forward(tape, batch, &[1, encoder.last()])?;
        let first = op::pool(tape, &states[1], batch, Pooling::Cls)?;
        let scores = Scores::with_weight(&first, *vectors).bias(Number::Learned(*bias));
        let mut losses = vec![(binary_cross_entropy(tape, scores, positives)?, 1.0)];
        if let Some([queries, outputs]) = looking {
            let (queries, outputs) = (op::weight(tape, *queries)?, op::weight(tape, *outputs)?);
            let memory = ChunkMemory::new(512 << 20);
            let labels = LabelAttention {
                sequences: 0..batch.len(),
                queries: &queries,
                outputs: &outputs,
                comparison: Comparison::Product,
                memory: &memory,
            };
            let found = op::label_attention(tape, &states[0], batch, &labels)?;
            let scores = Scores::given(&op::add_bias(tape, &found, *bias)?);
            losses.push((binary_cross_entropy(tape, scores, positives)?, 1.0));
        }
        Ok(losses)
    }
}

fn one_step(
    (encoder, head, positives): (&Encoder, &Head, Option<&Positives>),
    parameters: &mut Parameters,
    optimizer: &mut AdamW,
    (batch, step): (&Batch, usize),
) -> Result<Tensor, Error> {
    let mut tape = Tape::training(parameters, Key::new(3).part(step as u64));
    let losses = head.losses(&mut tape, encoder, (batch, positives))?;
    let weighted: Vec<(&Var, f32)> = losses.iter().map(|(loss, weight)| (loss, *weight)).collect();
    tape.finish().backward(&weighted, parameters, BackwardOptions::default())?;
    optimizer.step(parameters, 1.0, None)?;
    Ok(losses[0].0.tensor().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::Family;
    use crate::op::testing;

    fn config() -> EncoderConfig {
        EncoderConfig {
            family: Family::Bert,
            vocabulary: 50,
            hidden: 64,
            layers: 2,
            heads: 2,
            inner: 128,
            positions: 32,
            types: 0,
            epsilon: 1e-12,
            hidden_dropout: 0.0,
            attention_dropout: 0.0,
            padding: 0,
            ends: None,
        }
    }

    #[test]
    fn steps_are_timed_and_learn_on_every_device() {
        let step = TrainStep {
            lesson: Lesson::Pairs,
            config: config(),
            batches: vec![vec![5, 9, 1, 30]],
            steps: 20,
        };
        for device in testing::devices("the measured step") {
            let first = TrainStep { steps: 0, ..step.clone() }.run(&device).unwrap();
            let times = step.run(&device).unwrap();
            assert_eq!((times.seconds.len(), times.tokens), (20, 20 * 45));
            assert!(times.loss < first.loss, "{} {}", times.loss, first.loss);
            let products = 45.0 * (4.0 * 64.0 * 64.0 + 2.0 * 64.0 * 128.0);
            let attention = (25.0 + 81.0 + 1.0 + 900.0) * 2.0 * 64.0;
            let expected = 20.0 * 3.0 * 2.0 * 2.0 * (products + attention);
            assert!((times.operations / expected - 1.0).abs() < 1e-9, "{} {expected}", times.operations);
        }
        let none = TrainStep { lesson: Lesson::Labels { count: 0, looking: false }, ..step.clone() };
        assert!(none.run(&Device::cpu()).unwrap_err().to_string().contains("a label at least"));
        for batches in [vec![], vec![vec![]], vec![vec![3, 4], vec![5]]] {
            let refused = TrainStep { batches, ..step.clone() }.run(&Device::cpu()).unwrap_err();
            assert!(refused.to_string().contains("even number of texts"), "{refused}");
        }
    }

    #[test]
    fn steps_that_learn_labels_are_timed_and_learn_on_every_device() {
        let batches = vec![vec![5, 9, 1]];
        for device in testing::devices("the measured step with labels") {
            for looking in [false, true] {
                let lesson = Lesson::Labels { count: 13, looking };
                let step = TrainStep { lesson, config: config(), batches: batches.clone(), steps: 20 };
                let first = TrainStep { steps: 0, ..step.clone() }.run(&device).unwrap();
                let times = step.run(&device).unwrap();
                assert!(times.loss < first.loss, "{looking}: {} {}", times.loss, first.loss);
                let rows = if looking { 3 + 2 * 15 } else { 3 };
                let of_labels = 20.0 * 3.0 * 2.0 * f64::from(rows * 13 * 64);
                let of_encoder = 20.0 * 3.0 * forward_operations(&step.config, &[5, 9, 1]);
                assert_eq!(times.operations, of_encoder + of_labels);
            }
        }
    }

    #[test]
    fn the_peak_is_one_that_a_processor_can_have() {
        let peak = peak_operations();
        assert!(peak > 1e8 && peak < 1e15, "{peak}");
    }
}
