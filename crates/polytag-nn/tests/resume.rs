//! A training killed at random moments, as by `kill -9`, and resumed each time, ends with the weights of
//! one that was left alone, bit for bit.
//!
//! The training runs in a process of its own: this test's program, asked for the test that is ignored
//! otherwise.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polytag_nn::device::Device;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::loss::info_nce;
use polytag_nn::op::{self, Pooling};
use polytag_nn::optimizer::Group;
use polytag_nn::parameters::{Parameters, ParametersBuilder};
use polytag_nn::random::Key;
use polytag_nn::tape::{Tape, Var};
use polytag_nn::train::{Evaluation, Objective, Order, Place, TrainConfig, Trainer, Watch};

const FOLDER: &str = "POLYTAG_TEST_TRAINING";
const BATCH: usize = 6;

/// A tiny encoder of the test data, with its dropout, trained to tell texts of random tokens apart.
struct Apart {
    encoder: Encoder,
    order: Order,
}

impl Objective for Apart {
    fn prepare(&mut self, _: Place) -> Result<(), Error> {
        Ok(())
    }

    fn losses(&mut self, tape: &mut Tape<'_>, place: Place) -> Result<Vec<(Var, f32)>, Error> {
        let examples = self.order.examples(place.step * BATCH as u64, BATCH);
        let key = Key::new(5);
        let text = |example: usize, twin: u32| -> Vec<u32> {
            let length = 3 + key.bits(example as u32, 999) % 20;
            (0..length).map(|at| 5 + key.bits(example as u32, at + twin * (at % 3)) % 100).collect()
        };
        let texts: Vec<Vec<u32>> = [0, 1]
            .iter()
            .flat_map(|&twin| examples.iter().map(move |&e| (e, twin)))
            .map(|(e, t)| text(e, t))
            .collect();
        let device = tape.parameters().device().clone();
        let batch = self.encoder.batch(&device, texts.iter().map(Vec::as_slice))?;
        let states = self.encoder.forward(tape, &batch, &[self.encoder.last()])?;
        let pooled = op::pool(tape, &states[0], &batch, Pooling::Mean)?;
        let rows = op::normalise(tape, &pooled)?;
        let (anchors, positives) =
            (op::rows(tape, &rows, 0..BATCH)?, op::rows(tape, &rows, BATCH..2 * BATCH)?);
        Ok(vec![(info_nce(tape, &anchors, &positives, 0.1)?, 1.0 / BATCH as f32)])
    }

    fn evaluate(&mut self, _: &Parameters) -> Result<Option<Evaluation>, Error> {
        Ok(None)
    }
}

/// Trains in `folder` and writes the weights at the end.
fn train(folder: &Path) -> Result<(), Error> {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/encoders/bert");
    let mut builder = ParametersBuilder::default();
    let encoder = Encoder::load(&tiny, &mut builder)?;
    let mut parameters = builder.build(&Device::cpu())?;
    let config = TrainConfig { steps: 400, checkpoint_every: 7, ..TrainConfig::default() };
    let groups = vec![Group { learning_rate: 1e-3, ..Group::default() }];
    let mut trainer = Trainer::new(config, groups, &mut parameters, "resume")?;
    let mut objective = Apart { encoder, order: Order::new(40, 1) };
    let mut watch = Watch { stop: &|| false, note: &mut |_| {}, folder: Some(folder) };
    trainer.run(&mut parameters, &mut objective, &mut watch)?;
    let mut bytes = Vec::new();
    for id in parameters.ids() {
        bytes.extend(parameters.to_vec(id)?.iter().flat_map(|value| value.to_le_bytes()));
    }
    std::fs::write(folder.join("weights"), bytes).unwrap();
    Ok(())
}

#[test]
#[ignore = "the child of the test below"]
fn child() {
    train(&PathBuf::from(std::env::var_os(FOLDER).unwrap())).unwrap();
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_training_resumes_to_the_same_weights() {
    let (alone, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(start(alone.path()).wait().unwrap().success());
    let mut kills = 0;
    for attempt in 0.. {
        let mut child = start(killed.path());
        if kills >= 5 {
            assert!(child.wait().unwrap().success());
            break;
        }
        // Another moment each time, and another one in each run of the test.
        let moment = 20 + u64::from(std::process::id().wrapping_mul(2_654_435_761) ^ (attempt * 97)) % 400;
        std::thread::sleep(Duration::from_millis(moment));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 0, "it was killed at least once");
    let weights = |folder: &Path| std::fs::read(folder.join("weights")).unwrap();
    assert!(!weights(alone.path()).is_empty());
    assert!(weights(alone.path()) == weights(killed.path()), "the weights differ after {kills} kills");
    let curve = |folder: &Path| std::fs::read_to_string(folder.join("curve.jsonl")).unwrap();
    assert_eq!(curve(alone.path()), curve(killed.path()));
}
