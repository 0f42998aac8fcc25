//! The loop as a whole, on a small model: early stopping, resuming, and what is said of numbers that
//! are none.

mod together; // several devices

use super::*;
use crate::device::Device;
use crate::element::Element;
use crate::loss::mean_squared_error;
use crate::op;
use crate::parameters::{ParameterId, ParametersBuilder};

/// A product that is to become another one, seen through dropout.
struct Imitation {
    weight: ParameterId,
    order: Order,
    prepared: Option<(Place, Vec<usize>)>,
    /// In how many parts a step is worked on, and how much is dropped.
    parts: usize,
    rate: f32,
    /// From this step on the inputs are infinite.
    broken_from: u64,
    evaluations: Vec<f64>,
}

/// Examples of a step.
const BATCH: usize = 16;

impl Objective for Imitation {
    fn prepare(&mut self, place: Place) -> Result<(), Error> {
        let count = BATCH / self.parts;
        let first = place.step * BATCH as u64 + (place.part * count) as u64;
        self.prepared = Some((place, self.order.examples(first, count)));
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        let (prepared, examples) = self.prepared.take().expect("the batch was prepared");
        assert_eq!(prepared, place, "it was prepared for this place");
        let key = Key::new(77);
        let broken = if place.step >= self.broken_from { f32::INFINITY } else { 1.0 };
        let rows = |columns: u32, key: Key| -> Vec<f32> {
            let row = |&example: &usize| (0..columns).map(move |column| key.normal(example as u32, column));
            examples.iter().flat_map(row).collect()
        };
        let device = tape.parameters().device().clone();
        let inputs: Vec<f32> = rows(6, key).iter().map(|value| value * broken).collect();
        let count = examples.len();
        let inputs = Var::constant(Tensor::new(&device, (count, 6), &inputs, Element::F32)?);
        let wanted = Tensor::new(&device, (count, 4), &rows(4, key.part(1)), Element::F32)?;
        let inputs = op::dropout(tape, &inputs, self.rate)?;
        let found = op::linear(tape, &inputs, self.weight, None)?;
        let loss = mean_squared_error(tape, &found, &Var::constant(wanted))?;
        Ok(vec![(loss, 1.0)])
    }

    fn evaluate(&mut self, _: &Parameters) -> Result<Option<Evaluation>, Error> {
        let measures =
            |score| BTreeMap::from([("twice".to_owned(), 2.0 * score), ("none".to_owned(), f64::NAN)]);
        Ok(self.evaluations.pop().map(|score| Evaluation { score: Some(score), measures: measures(score) }))
    }
}

fn model() -> (Parameters, Imitation) {
    model_on(&Device::cpu())
}

fn model_on(device: &Device) -> (Parameters, Imitation) {
    let mut builder = ParametersBuilder::default();
    let values: Vec<f32> = (0..24).map(|i| Key::new(1).normal(i, 0)).collect();
    let weight = builder.add("weight", (4, 6), &values);
    let parameters = builder.build(device).unwrap();
    let (order, prepared, evaluations) = (Order::new(50, 3), None, Vec::new());
    let objective =
        Imitation { weight, order, prepared, parts: 2, rate: 0.2, broken_from: u64::MAX, evaluations };
    (parameters, objective)
}

fn config() -> TrainConfig {
    TrainConfig { steps: 40, accumulation: 2, note_every: 7, checkpoint_every: 5, ..TrainConfig::default() }
}

fn groups() -> Vec<Group> {
    vec![Group { learning_rate: 0.05, ..Group::default() }]
}

/// Trains until the end or until `stop_after` steps, and gives the weights.
fn train(
    config: &TrainConfig,
    folder: Option<&Path>,
    stop_after: Option<u64>,
) -> (Ended, Vec<u32>, Vec<Point>) {
    let (mut parameters, mut objective) = model();
    let mut trainer = Trainer::new(config.clone(), groups(), &mut parameters, "test").unwrap();
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        stop_after.is_some_and(|after| asked.get() > after)
    };
    let mut points = Vec::new();
    let mut note = |point: &Point| points.push(point.clone());
    let mut watch = Watch { stop: &stop, note: &mut note, folder };
    let ended = trainer.run(&mut parameters, &mut objective, &mut watch).unwrap();
    let weights = parameters.to_vec(objective.weight).unwrap();
    (ended, weights.iter().map(|value| value.to_bits()).collect(), points)
}

#[test]
fn training_lowers_the_loss() {
    let (ended, _, points) = train(&config(), None, None);
    assert_eq!(ended, Ended::Finished);
    assert_eq!(points.iter().map(|point| point.step).collect::<Vec<_>>(), [7, 14, 21, 28, 35, 40]);
    assert!(points[5].loss < 0.7 * points[0].loss, "{points:?}");
    assert!(points.iter().all(|point| point.gradient_norm > 0.0));
}

#[test]
fn a_training_stopped_anywhere_and_resumed_ends_with_the_same_bits() {
    let (_, expected, points) = train(&config(), None, None);
    for stop_after in [0, 1, 4, 5, 13, 39] {
        let folder = tempfile::tempdir().unwrap();
        let (ended, stopped, _) = train(&config(), Some(folder.path()), Some(stop_after));
        assert_eq!(ended, Ended::Stopped);
        assert_ne!(stopped, expected);
        let (ended, resumed, _) = train(&config(), Some(folder.path()), None);
        assert_eq!((ended, resumed), (Ended::Finished, expected.clone()), "stopped after {stop_after}");
        let curve = std::fs::read_to_string(folder.path().join(CURVE)).unwrap();
        let curve: Vec<Point> = curve.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(curve, points, "stopped after {stop_after}");
    }
}

#[test]
fn it_stops_when_it_gets_no_better_and_keeps_the_best() {
    let config = TrainConfig { evaluate_every: Some(5), patience: Some(2), ..config() };
    let run = |evaluations: &[f64]| {
        let (mut parameters, mut objective) = model();
        objective.evaluations = evaluations.iter().rev().copied().collect();
        let mut trainer = Trainer::new(config.clone(), groups(), &mut parameters, "test").unwrap();
        let mut note = |point: &Point| {
            let measures: Vec<(&str, f64)> = point.measures.iter().map(|(name, &v)| (&name[..], v)).collect();
            let expected: Vec<(&str, f64)> =
                point.measured.iter().map(|score| ("twice", 2.0 * score)).collect();
            assert_eq!(measures, expected, "what was measured is noted, where it is a number");
        };
        let mut watch = Watch { stop: &|| false, note: &mut note, folder: None };
        let ended = trainer.run(&mut parameters, &mut objective, &mut watch).unwrap();
        (ended, trainer.step(), trainer.best(), parameters.to_vec(objective.weight).unwrap())
    };
    let (ended, step, best, weights) = run(&[0.1, 0.5, 0.4, 0.5, 0.9, 0.9]);
    assert_eq!((ended, step, best), (Ended::NoBetter, 20, Some((10, 0.5))));
    let (_, _, _, after_ten) = run(&[0.1, 0.5]);
    assert_eq!(weights, after_ten, "the weights are those of the best evaluation");
    assert_eq!(run(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]).0, Ended::Finished);
}

#[test]
fn a_gradient_that_is_no_number_names_its_step_and_op() {
    let (mut parameters, mut objective) = model();
    objective.broken_from = 9;
    let mut trainer = Trainer::new(config(), groups(), &mut parameters, "test").unwrap();
    let mut watch = Watch { stop: &|| false, note: &mut |_| {}, folder: None };
    let error = trainer.run(&mut parameters, &mut objective, &mut watch).err().unwrap().to_string();
    assert!(error.contains("step 10") && error.contains("mean squared error"), "{error}");
    assert!(error.contains("learning rate"), "{error}");
    assert!(parameters.to_vec(objective.weight).unwrap().iter().all(|value| value.is_finite()));
}

#[test]
fn another_training_does_not_go_on_from_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    train(&config(), Some(folder.path()), Some(6));
    let (mut parameters, mut objective) = model();
    let other = TrainConfig { seed: 1, ..config() };
    let mut trainer = Trainer::new(other, groups(), &mut parameters, "test").unwrap();
    let mut watch = Watch { stop: &|| false, note: &mut |_| {}, folder: Some(folder.path()) };
    let error = trainer.run(&mut parameters, &mut objective, &mut watch).err().unwrap().to_string();
    assert!(error.contains("another training"), "{error}");
}

#[test]
fn a_training_goes_on_in_the_precision_that_it_began_in() {
    let folder = tempfile::tempdir().unwrap();
    train(&config(), Some(folder.path()), Some(6));
    let (mut parameters, mut objective) = model_on(&Device::cpu_in(Precision::EightBit));
    let mut trainer = Trainer::new(config(), groups(), &mut parameters, "test").unwrap();
    let mut watch = Watch { stop: &|| false, note: &mut |_| {}, folder: Some(folder.path()) };
    let error = trainer.run(&mut parameters, &mut objective, &mut watch).err().unwrap().to_string();
    assert!(error.contains("another training") && error.contains("precision"), "{error}");
}
