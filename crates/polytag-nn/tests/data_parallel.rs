//! Devices that train an encoder together: CPUs in every run; one GPU, through NCCL, where there is one and somebody asks.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Instant;

use polytag_nn::batch::Batch;
use polytag_nn::cuda::CudaOptions;
use polytag_nn::device::Device;
use polytag_nn::encoder::{Encoder, EncoderConfig, Family};
use polytag_nn::error::Error;
use polytag_nn::loss::{Number, Positives, Scores, binary_cross_entropy};
use polytag_nn::measure::{Lesson, TrainStep};
use polytag_nn::op::{self, Pooling};
use polytag_nn::optimizer::Group;
use polytag_nn::parameters::{ParameterId, Parameters, ParametersBuilder};
use polytag_nn::random::Key;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::train::{Evaluation, Objective, Order, Place, Point, TrainConfig, Trainer, Watch};
use polytag_nn::world::{Member, World};

/// What is learned: which labels a text of random tokens carries.
#[derive(Clone)]
struct Task {
    encoder: Encoder,
    vectors: ParameterId,
    biases: ParameterId,
    labels: usize,
    /// Texts of a step, in how many parts, and tokens of a text at most.
    batch: usize,
    parts: usize,
    tokens: u32,
}

/// The task on a device.
struct Tagging<'a> {
    task: &'a Task,
    order: Order,
    device: Device,
}

impl Task {
    fn of(encoder: Encoder, builder: &mut ParametersBuilder, (labels, hidden): (usize, usize)) -> Task {
        let vectors = builder.add("labels", (labels, hidden), &Key::new(9).small_normals((labels, hidden)));
        let biases = builder.add("biases", (1, labels), &vec![-2.0; labels]);
        Task { encoder, vectors, biases, labels, batch: 8, parts: 1, tokens: 20 }
    }

    fn text(&self, example: usize) -> Vec<u32> {
        let key = Key::new(5).part(example as u64);
        let least = self.tokens / 2;
        let length = least + key.bits(0, 999) % (self.tokens - least + 1);
        let words = self.encoder.config().vocabulary as u32 - 5;
        (0..length).map(|at| 5 + key.bits(1, at) % words).collect()
    }

    fn labels_of(&self, example: usize) -> Vec<u32> {
        let key = Key::new(6).part(example as u64);
        let mut labels: Vec<u32> = (0..3).map(|at| key.bits(0, at) % self.labels as u32).collect();
        labels.sort_unstable();
        labels.dedup();
        labels
    }
}

impl Objective for Tagging<'_> {
    fn prepare(&mut self, _: Place) -> Result<(), Error> {
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        let task = self.task;
        let count = task.batch / task.parts;
        let first = place.step * task.batch as u64 + (place.part * count) as u64;
        let examples = self.order.examples(first, count);
        let texts: Vec<Vec<u32>> = examples.iter().map(|&example| task.text(example)).collect();
        let labels: Vec<Vec<u32>> = examples.iter().map(|&example| task.labels_of(example)).collect();
        let batch = task.encoder.batch(&self.device, texts.iter().map(Vec::as_slice))?;
        let positives = Positives::new(&self.device, task.labels, labels.iter().map(Vec::as_slice))?;
        let states = task.encoder.forward(tape, &batch, &[task.encoder.last()])?;
        let pooled = op::pool(tape, &states[0], &batch, Pooling::Mean)?;
        let scores = Scores::with_weight(&pooled, task.vectors).bias(Number::Learned(task.biases));
        Ok(vec![(binary_cross_entropy(tape, scores, &positives)?, 1.0)])
    }

    fn evaluate(&mut self, _: &Parameters) -> Result<Option<Evaluation>, Error> {
        Ok(None)
    }
}

/// A training of a task, on one device or several.
struct Training {
    task: Task,
    builder: ParametersBuilder,
    config: TrainConfig,
    rate: f64,
}

/// What it leaves.
struct Left {
    weights: Vec<f32>,
    points: Vec<Point>,
    /// When each point was noted, for which the device is waited for.
    noted: Vec<Instant>,
}

impl Left {
    /// Whether weights and course are the same, bit for bit.
    fn is(&self, other: &Left) -> bool {
        self.weights == other.weights && self.points == other.points
    }

    /// Milliseconds a step between two points: the least, the median and the most.
    fn milliseconds(&self) -> [f64; 3] {
        let between = self.noted.windows(2).zip(self.points.windows(2));
        let mut each: Vec<f64> = between
            .map(|(times, points)| {
                (times[1] - times[0]).as_secs_f64() * 1e3 / (points[1].step - points[0].step) as f64
            })
            .collect();
        each.sort_by(f64::total_cmp);
        [each[0], each[each.len() / 2], each[each.len() - 1]]
    }
}

impl Training {
    fn train(&self, device: &Device, member: Option<&Member>, folder: Option<&Path>) -> Result<Left, Error> {
        let mut parameters = self.builder.clone().build(device)?;
        let groups = vec![Group { learning_rate: self.rate, ..Group::default() }];
        let mut trainer = Trainer::new(self.config.clone(), groups, &mut parameters, "data parallel")?;
        if let Some(member) = member {
            trainer = trainer.join(member)?;
        }
        let mut objective = Tagging { task: &self.task, order: Order::new(64, 1), device: device.clone() };
        let (mut points, mut noted) = (Vec::new(), Vec::new());
        let mut note = |point: &Point| {
            points.push(point.clone());
            noted.push(Instant::now());
        };
        let mut watch = Watch { stop: &|| false, note: &mut note, folder };
        trainer.run(&mut parameters, &mut objective, &mut watch)?;
        let values: Result<Vec<Vec<f32>>, Error> = parameters.ids().map(|id| parameters.to_vec(id)).collect();
        Ok(Left { weights: values?.concat(), points, noted })
    }

    fn on(&self, world: &World) -> Result<Left, Error> {
        world.run(
            |first| self.train(first.device(), Some(first), None),
            |other| self.train(other.device(), Some(other), None).map(drop),
        )
    }
}

/// A tiny encoder of the test data, as it is or without its dropout, in so many parts.
fn tiny(parts: usize, dropout: Option<f32>) -> Training {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/encoders/bert");
    let mut builder = ParametersBuilder::default();
    let mut encoder = Encoder::load(&folder, &mut builder).unwrap();
    dropout.map_or(Ok(()), |rate| encoder.set_dropout(rate)).unwrap();
    let hidden = encoder.config().hidden;
    let task = Task { parts, ..Task::of(encoder, &mut builder, (24, hidden)) };
    let config = TrainConfig { steps: 30, accumulation: parts, ..TrainConfig::default() };
    Training { task, builder, config, rate: 1e-3 }
}

fn assert_near(left: &Left, right: &Left) {
    // AdamW divides by the size of a gradient: where that is next to nothing, rounding is all there is.
    let far = |(left, right): (&f32, &f32)| (left - right).abs() > 2e-3;
    let count = left.weights.iter().zip(&right.weights).filter(|&pair| far(pair)).count();
    assert!(count * 1000 < left.weights.len(), "{count} of {} weights differ", left.weights.len());
    for (left, right) in left.points.iter().zip(&right.points) {
        assert!((left.loss / right.loss - 1.0).abs() < 1e-3, "{left:?} {right:?}");
    }
    assert!(left.points.last().unwrap().loss < left.points[0].loss, "something was learned");
}

#[test]
fn two_devices_train_an_encoder_as_one_does() {
    let world = World::new(vec![Device::cpu(), Device::cpu()]).unwrap();
    let together = tiny(2, None).on(&world).unwrap();
    assert_near(&together, &tiny(2, None).train(&Device::cpu(), None, None).unwrap());
    assert!(together.is(&tiny(2, None).on(&world).unwrap()), "the same bits each time");
    // Without dropout, whose masks are functions of the part, the parts do not matter.
    let together = tiny(2, Some(0.0)).on(&world).unwrap();
    assert_near(&together, &tiny(1, Some(0.0)).train(&Device::cpu(), None, None).unwrap());
}

/// MiniLM's shape.
fn minilm(dropout: f32) -> EncoderConfig {
    EncoderConfig {
        family: Family::Bert,
        vocabulary: 30_522,
        hidden: 384,
        layers: 6,
        heads: 12,
        inner: 1536,
        positions: 512,
        types: 2,
        epsilon: 1e-12,
        hidden_dropout: dropout,
        attention_dropout: dropout,
        padding: 0,
        ends: None,
    }
}

/// A training of MiniLM's shape: 4,271 labels, as many steps as asked.
fn large(steps: u64) -> Training {
    let mut builder = ParametersBuilder::default();
    let encoder = Encoder::random(minilm(0.1), Key::new(1), &mut builder).unwrap();
    let task = Task { batch: 64, tokens: 256, ..Task::of(encoder, &mut builder, (4272, 384)) };
    let config = TrainConfig { steps, note_every: 50, ..TrainConfig::default() };
    Training { task, builder, config, rate: 1e-4 }
}

#[test]
#[ignore = "needs a GPU and NCCL; prints what a world of one costs"]
fn a_gpu_in_a_world_of_one() {
    let gpu = Device::cuda(&CudaOptions::default()).unwrap();
    let world = World::new(vec![gpu.clone()]).unwrap();
    let training = large(600);
    let run = |together: bool| match together {
        true => training.on(&world).unwrap(),
        false => training.train(&gpu, None, None).unwrap(),
    };
    // Once each, for kernels and memory.
    for together in [false, true] {
        run(together);
    }
    println!("{}: MiniLM's shape, 4,272 labels, 64 texts of 128 to 256 tokens, dropout 0.1", gpu.name());
    let mut courses = Vec::new();
    for together in [false, true, false, true, true, false] {
        let left = run(together);
        let name = if together { "a world of one, NCCL" } else { "alone" };
        let [least, median, most] = left.milliseconds();
        println!("{name:>22}: {median:.3} ms a step ({least:.3} to {most:.3} over 50 each)");
        let losses: Vec<String> = left.points.iter().map(|point| format!("{:.6}", point.loss)).collect();
        println!("{:>22}  losses {}", "", losses.join(" "));
        courses.push(left);
    }
    assert!(courses.iter().all(|course| course.is(&courses[0])), "the same bits, curve and weights");
    println!("weights and curves of all six are the same, bit for bit");
}

#[test]
#[ignore = "needs a GPU; prints rates for docs/hundred-million-labels.md"]
fn rates_of_a_gpu() {
    let gpu = Device::cuda(&CudaOptions::default()).unwrap();
    let mut builder = ParametersBuilder::default();
    let encoder = Encoder::random(minilm(0.0), Key::new(1), &mut builder).unwrap();
    let parameters = builder.build(&gpu).unwrap();
    for (texts, tokens) in [(4096, 8), (4096, 16), (2048, 32), (1024, 64), (512, 128), (256, 256)] {
        let key = Key::new(2);
        let text = |row: u32| -> Vec<u32> { (0..tokens).map(|at| 5 + key.bits(row, at) % 30_000).collect() };
        let all: Vec<Vec<u32>> = (0..texts).map(text).collect();
        let batch = encoder.batch(&gpu, all.iter().map(Vec::as_slice)).unwrap();
        let vectors = |batch: &Batch| {
            let mut tape = Tape::inference(&parameters);
            let states = encoder.forward(&mut tape, batch, &[encoder.last()]).unwrap();
            let pooled = op::pool(&mut tape, &states[0], batch, Pooling::Mean).unwrap();
            op::normalise(&mut tape, &pooled).unwrap()
        };
        (0..5).for_each(|_| drop(vectors(&batch)));
        gpu.synchronize().unwrap();
        let started = Instant::now();
        let rounds = 50;
        (0..rounds).for_each(|_| drop(vectors(&batch)));
        gpu.synchronize().unwrap();
        let rate = f64::from(rounds * texts) / started.elapsed().as_secs_f64();
        println!(
            "encoding, {tokens} tokens a text: {rate:.0} texts a second, {:.1} million tokens",
            rate * f64::from(tokens) / 1e6
        );
    }
    drop(parameters);
    for count in [4272, 100_000, 1_000_000] {
        let lesson = Lesson::Labels { count, looking: false };
        let step = TrainStep { lesson, config: minilm(0.0), batches: vec![vec![128; 64]], steps: 30 };
        gpu.reset_peak_memory();
        let times = step.run(&gpu).unwrap();
        println!(
            "a step over all of {count} labels, 64 x 128 tokens: {:.2} ms, {}",
            times.median_milliseconds(),
            times.peak_memory
        );
    }
}
