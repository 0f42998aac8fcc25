//! Model folders of every format version there has been must load and answer as they did.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use polytag::data::Passage;
use polytag::method::load;
use polytag::predict::Ask;
use polytag_nn::device::Device;

/// What each folder in testdata/models answers to the same passage, best first.
const ANSWERS: &[(&str, &[(&str, f32)])] =
    &[("v1-lexical", &[("tea", 0.881_651_6), ("trade", 0.223_506_26)])];

#[test]
fn old_models_answer_as_they_did() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/models");
    assert_eq!(fs::read_dir(&models).unwrap().count(), ANSWERS.len(), "one row for each folder");
    for (name, answers) in ANSWERS {
        let model = load(&models.join(name), &Device::cpu()).unwrap();
        let passage = Passage { id: None, title: Some("Tea"), text: "Trading green tea overseas" };
        let rankings = model.predict(&[passage], &Ask { k: 5, allowed: None }).unwrap();
        let entries = rankings[0].entries();
        assert_eq!(entries.len(), answers.len(), "{name}");
        for (entry, (id, score)) in entries.iter().zip(*answers) {
            assert_eq!(model.label_space().label(entry.label).id, *id, "{name}");
            assert!((entry.score - score).abs() < 1e-5, "{name}: {id} scores {}", entry.score);
        }
    }
}
