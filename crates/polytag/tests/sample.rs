//! The bundled sample is in order, and small.

use std::path::Path;

use polytag::data::{ReadOptions, Statistics, Task};
use polytag::progress::{Silent, Stop};

#[test]
fn the_sample_is_a_task_without_faults_and_with_unseen_labels() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/debtags-sample");
    let task = Task::open(&dir, &ReadOptions::with_spool(std::env::temp_dir())).unwrap();
    let statistics = Statistics::of(&task, &Silent, &Stop::default()).unwrap();
    assert_eq!(statistics.problems, [""; 0]);
    assert_eq!(statistics.labels, 617);
    let documents: Vec<u64> = statistics.splits.iter().map(|split| split.documents).collect();
    assert_eq!(documents, [1400, 300, 300]);
    for split in &statistics.splits {
        assert_eq!((split.labelled, split.titled, split.empty), (split.documents, split.documents, 0));
    }
    assert!(statistics.splits[1..].iter().all(|split| split.unseen_pairs >= 10));

    let size: u64 =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 2_000_000, "{size} bytes");
}
