//! A step over 64 documents and a million labels of 384 dimensions fits in 4 GB.
//!
//! Too slow for every day: `cargo test --release -p polytag-nn --test million_labels -- --ignored`.

use std::io::Write as _;
use std::time::Instant;

use polytag_nn::Error;
use polytag_nn::device::Device;
use polytag_nn::element::Element;
use polytag_nn::loss::{Positives, Scores, binary_cross_entropy, decoupled_softmax, softmax};
use polytag_nn::parameters::ParametersBuilder;
use polytag_nn::random::Key;
use polytag_nn::tape::{BackwardOptions, Tape, Var};
use polytag_nn::tensor::Tensor;

const DOCUMENTS: usize = 64;
const LABELS: usize = 1_000_000;
const DIMENSIONS: usize = 384;

/// The most memory this process has had, in bytes, where the system tells.
fn peak_of_process() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

type Loss = fn(&mut Tape<'_>, Scores, &Positives) -> Result<Var, Error>;

#[test]
#[ignore = "takes 3 GB and a while"]
fn a_million_labels_fit_in_four_gigabytes() {
    let device = Device::cpu();
    let mut builder = ParametersBuilder::default();
    let key = Key::new(1);
    let value = |i: usize| 0.1 * (key.uniform((i >> 16) as u32, (i & 0xffff) as u32) - 0.5);
    let values: Vec<f32> = (0..LABELS * DIMENSIONS).map(value).collect();
    let labels = builder.add("labels", (LABELS, DIMENSIONS), &values);
    drop(values);
    let mut parameters = builder.build(&device).unwrap();
    let carried: Vec<Vec<u32>> = (0..DOCUMENTS as u32)
        .map(|document| (0..5).map(|i| (document * 7919 + i * 104_729) % LABELS as u32).collect())
        .collect();
    let positives = Positives::new(&device, LABELS, carried.iter().map(Vec::as_slice)).unwrap();
    let values: Vec<f32> = (0..DOCUMENTS * DIMENSIONS).map(|i| 10.0 * value(i)).collect();
    let documents = Tensor::new(&device, (DOCUMENTS, DIMENSIONS), &values, Element::F32).unwrap();
    let losses: [(&str, Loss); 3] = [
        ("softmax", softmax),
        ("decoupled softmax", decoupled_softmax),
        ("binary cross-entropy", binary_cross_entropy),
    ];
    for (name, loss) in losses {
        let start = Instant::now();
        let mut tape = Tape::training(&parameters, Key::new(0));
        let leaf = tape.leaf(documents.clone());
        let loss = loss(&mut tape, Scores::with_weight(&leaf, labels), &positives).unwrap();
        let forward = start.elapsed();
        let record = tape.finish();
        record.backward(&[(&loss, 1.0)], &mut parameters, BackwardOptions::default()).unwrap();
        let both = start.elapsed();
        let value = loss.tensor().values()[0];
        assert!(value.is_finite());
        let line = format!("{name}: loss {value}, forward {forward:.2?}, forward and backward {both:.2?}");
        writeln!(std::io::stderr(), "{line}, matrices {}", device.peak_memory()).ok();
    }
    assert!(device.peak_memory().0 < 4_000_000_000);
    if let Some(peak) = peak_of_process() {
        writeln!(std::io::stderr(), "the process took {:.2} GB at most", peak as f64 / 1e9).ok();
        assert!(peak < 4_000_000_000, "{peak}");
    }
}
