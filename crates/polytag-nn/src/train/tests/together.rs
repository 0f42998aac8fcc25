//! The same small model on several devices that train together. CPUs stand for GPUs: all but the sum itself is the same.

use std::io::Write as _;

use super::*;
use crate::world::{Member, World};

/// How a run of several devices is set up, each from its own rank.
struct Run<'a> {
    config: TrainConfig,
    rate: f32,
    folder: Option<&'a Path>,
    stop_after: Option<u64>,
    /// From which step the inputs of which rank are infinite.
    broken: Option<(usize, u64)>,
    evaluations: &'a [f64],
}

impl Default for Run<'_> {
    fn default() -> Self {
        Run { config: config(), rate: 0.2, folder: None, stop_after: None, broken: None, evaluations: &[] }
    }
}

/// What a run leaves.
#[derive(Debug, PartialEq)]
struct Left {
    ended: Ended,
    weights: Vec<f32>,
    points: Vec<Point>,
}

impl Run<'_> {
    fn model(&self, device: &Device, rank: usize) -> (Parameters, Imitation, Trainer) {
        let (mut parameters, mut objective) = model_on(device);
        objective.parts = self.config.accumulation;
        objective.rate = self.rate;
        objective.broken_from =
            self.broken.filter(|broken| broken.0 == rank).map_or(u64::MAX, |(_, from)| from);
        let trainer = Trainer::new(self.config.clone(), groups(), &mut parameters, "test").unwrap();
        (parameters, objective, trainer)
    }

    /// The rank that decides; `None` for a device that trains alone.
    fn lead(&self, device: &Device, member: Option<&Member>) -> Result<Left, Error> {
        let (mut parameters, mut objective, mut trainer) = self.model(device, 0);
        objective.evaluations = self.evaluations.iter().rev().copied().collect();
        if let Some(member) = member {
            trainer = trainer.join(member)?;
        }
        let asked = std::cell::Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            self.stop_after.is_some_and(|after| asked.get() > after)
        };
        let mut points = Vec::new();
        let mut note = |point: &Point| points.push(point.clone());
        let mut watch = Watch { stop: &stop, note: &mut note, folder: self.folder };
        let ended = trainer.run(&mut parameters, &mut objective, &mut watch)?;
        Ok(Left { ended, weights: parameters.to_vec(objective.weight)?, points })
    }

    fn follow(&self, member: &Member) -> Result<(), Error> {
        let (mut parameters, mut objective, trainer) = self.model(member.device(), member.rank());
        let mut trainer = trainer.join(member)?;
        let mut watch =
            Watch { stop: &|| unreachable!("only the first is asked"), note: &mut |_| {}, folder: None };
        trainer.run(&mut parameters, &mut objective, &mut watch).map(drop)
    }

    fn alone(&self) -> Left {
        self.lead(&Device::cpu(), None).unwrap()
    }

    fn on(&self, size: usize) -> Result<Left, Error> {
        let world = World::new((0..size).map(|_| Device::cpu()).collect()).unwrap();
        world.run(|first| self.lead(first.device(), Some(first)), |other| self.follow(other))
    }
}

fn in_parts(accumulation: usize) -> TrainConfig {
    TrainConfig { accumulation, ..config() }
}

/// Equal but for the order of sums, at every point of the course.
fn assert_near(left: &Left, right: &Left) {
    assert_eq!(left.ended, right.ended);
    for (left, right) in left.weights.iter().zip(&right.weights) {
        assert!((left - right).abs() < 1e-5 * right.abs().max(1.0), "{left} {right}");
    }
    assert_eq!(left.points.len(), right.points.len());
    for (left, right) in left.points.iter().zip(&right.points) {
        assert_eq!(left.step, right.step);
        assert!((left.loss - right.loss).abs() < 1e-5 * right.loss, "{left:?} {right:?}");
        assert!((left.gradient_norm - right.gradient_norm).abs() < 1e-4 * right.gradient_norm);
    }
}

#[test]
fn a_world_of_one_is_a_device_alone_to_the_last_bit() {
    let run = Run::default();
    assert_eq!(run.on(1).unwrap(), run.alone());
}

#[test]
fn a_gpu_that_is_a_world_of_one_trains_as_it_does_alone() {
    let Some(gpu) = crate::op::testing::gpu("a training in a world of one") else { return };
    let world = match World::new(vec![gpu.clone()]) {
        Ok(world) => world,
        Err(why) => {
            writeln!(std::io::stderr(), "skipped on the GPU: a training in a world of one ({why})").ok();
            return;
        }
    };
    let run = Run::default();
    let together =
        world.run(|first| run.lead(first.device(), Some(first)), |other| run.follow(other)).unwrap();
    assert_eq!(together, run.lead(&gpu, None).unwrap());
}

#[test]
fn several_devices_learn_what_one_learns_in_as_many_parts() {
    // With dropout: masks are functions of the part, not of the device.
    for (size, parts) in [(2, 2), (2, 4), (4, 4)] {
        let run = Run { config: in_parts(parts), ..Run::default() };
        let together = run.on(size).unwrap();
        assert_near(&together, &run.alone());
        assert_eq!(together, run.on(size).unwrap(), "and the same bits each time");
    }
}

#[test]
fn several_devices_learn_what_one_learns_from_the_whole_batch() {
    let whole = Run { config: in_parts(1), rate: 0.0, ..Run::default() }.alone();
    for size in [2, 4] {
        let run = Run { config: in_parts(size), rate: 0.0, ..Run::default() };
        assert_near(&run.on(size).unwrap(), &whole);
    }
}

#[test]
fn a_world_that_was_stopped_goes_on_to_the_same_bits_and_another_one_to_the_same_numbers() {
    let run = Run::default();
    let expected = run.on(2).unwrap();
    for stop_after in [0, 1, 5, 13, 39] {
        let folder = tempfile::tempdir().unwrap();
        let stopped = Run { folder: Some(folder.path()), stop_after: Some(stop_after), ..Run::default() };
        assert_eq!(stopped.on(2).unwrap().ended, Ended::Stopped);
        let checkpoint = std::fs::read(folder.path().join(CHECKPOINT)).unwrap();
        let curve = std::fs::read(folder.path().join(CURVE)).unwrap();
        let resumed = Run { folder: Some(folder.path()), ..Run::default() };
        assert_eq!(resumed.on(2).unwrap(), expected, "stopped after {stop_after}");
        std::fs::write(folder.path().join(CHECKPOINT), checkpoint).unwrap();
        std::fs::write(folder.path().join(CURVE), curve).unwrap();
        assert_near(&resumed.alone(), &expected);
    }
}

#[test]
fn the_first_one_measures_for_all_and_the_best_weights_are_kept() {
    let config = TrainConfig { evaluate_every: Some(5), patience: Some(2), ..config() };
    let evaluations = [0.1, 0.5, 0.4, 0.5, 0.9, 0.9];
    let run = Run { config, evaluations: &evaluations, ..Run::default() };
    let together = run.on(2).unwrap();
    assert_eq!(together.ended, Ended::NoBetter);
    assert_near(&together, &run.alone());
}

#[test]
fn the_op_is_named_that_made_a_gradient_no_number_on_any_device() {
    for rank in 0..2 {
        let run = Run { broken: Some((rank, 9)), ..Run::default() };
        let error = run.on(2).unwrap_err().to_string();
        assert!(error.contains("step 10") && error.contains("mean squared error"), "{rank}: {error}");
    }
}

#[test]
fn parts_that_cannot_be_shared_and_other_trainings_are_refused() {
    let error = Run { config: in_parts(2), ..Run::default() }.on(3).unwrap_err().to_string();
    assert!(error.contains("2 parts") && error.contains("3 devices"), "{error}");
    let world = World::new(vec![Device::cpu(), Device::cpu()]).unwrap();
    let (run, other) =
        (Run::default(), Run { config: TrainConfig { seed: 1, ..config() }, ..Run::default() });
    let error = world.run(|first| run.lead(first.device(), Some(first)), |member| other.follow(member));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("not the same training"), "{error}");
}

#[test]
fn weights_that_drift_apart_are_noticed() {
    let world = World::new(vec![Device::cpu(), Device::cpu()]).unwrap();
    let compared = |member: &Member, moved: f32| {
        let (mut parameters, objective, trainer) = Run::default().model(member.device(), member.rank());
        let mut values = parameters.to_vec(objective.weight)?;
        values[3] += moved;
        parameters.set(objective.weight, &values)?;
        trainer.join(member)?.compare_weights(&parameters)
    };
    assert!(world.run(|first| compared(first, 0.0), |other| compared(other, 0.0)).is_ok());
    let error = world.run(|first| compared(first, 0.0), |other| compared(other, 1e-6)).unwrap_err();
    assert!(error.to_string().contains("no longer have the same weights"), "{error}");
}
