//! `lexical` on a real task. EURLEX57K is too large to bundle: where it is not beside the
//! repository, the test says so and passes.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;

use polytag::data::{ReadOptions, Split, Task};
use polytag::encoder::EncoderCache;
use polytag::method::{MethodConfig, TrainContext, fit};
use polytag::metric::{EvaluationConfig, EvaluationPlan, evaluate};
use polytag::progress::{Silent, Stop, Watch};
use polytag_nn::device::Device;

#[test]
fn lexical_finds_concepts_it_was_never_shown() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/eurlex57k");
    if !dir.is_dir() {
        // Straight to standard error: what a passing test prints is otherwise not shown.
        let _ = writeln!(std::io::stderr(), "skipped: EURLEX57K is not beside the repository (shared/data)");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let stop = Stop::default();
    let task = Task::open(&dir, &ReadOptions::with_spool(scratch.path())).unwrap();
    let (device, encoders) = (Device::cpu(), EncoderCache::new("encoders"));
    let context = TrainContext::new((&device, &encoders), (&stop, &Silent));
    let config = MethodConfig::named("lexical", &serde_json::json!({})).unwrap();
    let fitted = fit(&task, config, &scratch.path().join("model"), &context).unwrap();
    assert_eq!((fitted.manifest.labels, fitted.manifest.train_documents), (4271, 45_000));

    let plan = EvaluationPlan::try_from(EvaluationConfig { replicates: 0, ..Default::default() }).unwrap();
    let watch = Watch { progress: &Silent, stop: &stop };
    let report = evaluate(fitted.predictor.as_ref(), &task, Split::Dev, &plan, &watch).unwrap();
    assert_eq!((report.documents, report.documents_with_unseen_gold), (6000, 87));
    for (name, expected) in [("nDCG@5", 45.9), ("PSP@5", 37.9), ("ZSR@100", 58.0)] {
        let value = report.value(name).unwrap();
        assert!((value - expected).abs() < 0.1, "{name} is {value}, and was {expected}");
    }
}
