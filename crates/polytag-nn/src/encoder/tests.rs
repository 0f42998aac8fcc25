use super::*;
use crate::golden::{self, Expected, FAMILIES};
use crate::op::testing::devices;
use crate::op::{Pooling, pool};

/// An encoder and its weights.
fn load(folder: &Path, device: &Device) -> (Encoder, Parameters) {
    let mut builder = ParametersBuilder::default();
    let encoder = Encoder::load(folder, &mut builder).unwrap();
    (encoder, builder.build(device).unwrap())
}

/// The pooled states of these layers for texts packed into one batch: texts by layers by hidden size.
fn pooled(
    (encoder, parameters): &(Encoder, Parameters),
    texts: &[&[u32]],
    layers: &[usize],
    pooling: Pooling,
) -> Vec<f32> {
    let batch = encoder.batch(parameters.device(), texts.iter().copied()).unwrap();
    let mut tape = Tape::inference(parameters);
    let states = encoder.forward(&mut tape, &batch, layers).unwrap();
    let pooled: Vec<Vec<f32>> = states
        .iter()
        .map(|state| pool(&mut tape, state, &batch, pooling).unwrap().tensor().to_vec().unwrap())
        .collect();
    let hidden = encoder.config().hidden;
    (0..texts.len())
        .flat_map(|text| pooled.iter().flat_map(move |layer| &layer[text * hidden..(text + 1) * hidden]))
        .copied()
        .collect()
}

/// Token ids by text.
fn split<'a>(ids: &'a [u32], counts: &[u32]) -> Vec<&'a [u32]> {
    let mut rest = ids;
    counts
        .iter()
        .map(|&count| {
            let (text, after) = rest.split_at(count as usize);
            rest = after;
            text
        })
        .collect()
}

#[test]
fn tiny_encoders_compute_what_transformers_compute() {
    for device in devices("tiny encoders") {
        for family in FAMILIES {
            let model = load(&golden::tiny(family), &device);
            let expected = Expected::read(&golden::tiny(family).join("expected.safetensors"));
            let (ids, counts) = (expected.integers("token_ids"), expected.integers("token_counts"));
            let texts = split(&ids, &counts);
            for (layers, pooling, name) in [
                (&[0, 1, 2][..], Pooling::Mean, "layers"),
                (&[2], Pooling::Mean, "mean_pooled"),
                (&[2], Pooling::Cls, "cls"),
            ] {
                let found = pooled(&model, &texts, layers, pooling);
                let (expected, what) = (expected.floats(name), format!("{family} {name} on {device:?}"));
                match device {
                    Device::Cpu(_) => golden::assert_close(&found, &expected, 1e-5, &what),
                    Device::Cuda(_) => golden::assert_aligned(&found, &expected, 64, &what),
                }
            }
        }
    }
}

#[test]
fn every_layer_of_real_encoders_is_right() {
    for name in ["minilm", "mpnet"] {
        let Some(folder) = golden::real(name) else { continue };
        let expected = Expected::read(&golden::testdata(&format!("embeddings/{name}.safetensors")));
        let lines = fs::read_to_string(golden::testdata(&format!("embeddings/tokens.{name}.jsonl"))).unwrap();
        let ids: Vec<Vec<u32>> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for device in devices("real encoders") {
            let model = load(&folder, &device);
            let longest = model.0.config().longest();
            let texts: Vec<&[u32]> = expected
                .integers("layer_texts")
                .iter()
                .map(|&text| &ids[text as usize][..ids[text as usize].len().min(longest)])
                .collect();
            let layers: Vec<usize> = (0..=model.0.last()).collect();
            let found = pooled(&model, &texts, &layers, Pooling::Mean);
            let tolerance = golden::tolerance(&folder);
            let (expected, what) = (expected.floats("layers"), format!("layers of {name} on {device:?}"));
            match device {
                Device::Cpu(_) => golden::assert_close(&found, &expected, tolerance, &what),
                Device::Cuda(_) => golden::assert_aligned(&found, &expected, model.0.config().hidden, &what),
            }
        }
    }
}

#[test]
fn layers_come_in_the_order_asked_for() {
    let model = load(&golden::tiny("bert"), &Device::cpu());
    let all = pooled(&model, &[&[2, 9, 3]], &[0, 1, 2], Pooling::Mean);
    let some = pooled(&model, &[&[2, 9, 3]], &[2, 0, 2], Pooling::Mean);
    assert_eq!(some, [&all[128..], &all[..64], &all[128..]].concat());
    let (encoder, parameters) = &model;
    let batch = encoder.batch(&Device::cpu(), [&[2, 3][..]]).unwrap();
    let mut tape = Tape::inference(parameters);
    assert!(encoder.forward(&mut tape, &batch, &[]).unwrap().is_empty());
    let error = encoder.forward(&mut tape, &batch, &[3]).err().unwrap().to_string();
    assert!(error.contains("layer 3") && error.contains('2'), "{error}");
    let batch = encoder.batch(&Device::cpu(), [&[2, 204][..]]).unwrap();
    assert!(encoder.forward(&mut tape, &batch, &[0]).is_err(), "a token without a row is no panic");
    let batch = encoder.batch(&Device::cpu(), [&[2; 65][..]]).unwrap();
    assert!(encoder.forward(&mut tape, &batch, &[0]).is_err(), "a position without a row is no panic");
}

#[test]
fn first_tokens_alone_are_what_they_are_among_others() {
    for family in FAMILIES {
        let (encoder, parameters) = load(&golden::tiny(family), &Device::cpu());
        let texts: [&[u32]; 3] = [&[2, 9, 7, 3], &[5], &[2, 3]];
        let batch = encoder.batch(&Device::cpu(), texts).unwrap();
        let mut tape = Tape::inference(&parameters);
        let wanted = [encoder.last(), 1];
        let all = encoder.forward(&mut tape, &batch, &wanted).unwrap();
        let some = encoder.states(&mut tape, &batch, (&wanted, Top::First)).unwrap();
        let first = crate::op::pool(&mut tape, &all[0], &batch, Pooling::Cls).unwrap();
        assert_eq!(some[0].tensor().rows(), 3);
        assert_eq!(some[0].tensor().values(), first.tensor().values(), "{family}");
        assert_eq!(some[1].tensor().values(), all[1].tensor().values(), "lower layers have all tokens");
    }
}

#[test]
fn what_is_written_is_loaded_with_the_same_values() {
    for family in FAMILIES {
        let (encoder, parameters) = load(&golden::tiny(family), &Device::cpu());
        let folder = tempfile::tempdir().unwrap();
        encoder.write(&parameters, folder.path()).unwrap();
        let (again, read) = load(folder.path(), &Device::cpu());
        assert_eq!(again.config(), encoder.config());
        for (&before, &after) in encoder.parameters().iter().zip(again.parameters()) {
            assert_eq!(parameters.to_vec(before).unwrap(), read.to_vec(after).unwrap());
        }
    }
}

#[test]
fn random_encoders_have_the_right_shape_and_follow_the_key() {
    let config = EncoderConfig::read(&golden::tiny("mpnet")).unwrap();
    let random = |seed| {
        let mut builder = ParametersBuilder::default();
        let encoder = Encoder::random(config.clone(), Key::new(seed), &mut builder).unwrap();
        (encoder, builder.build(&Device::cpu()).unwrap())
    };
    let (encoder, parameters) = random(1);
    assert_eq!(parameters.count(), load(&golden::tiny("mpnet"), &Device::cpu()).1.count());
    let words = |(encoder, parameters): &(Encoder, Parameters)| parameters.to_vec(encoder.words).unwrap();
    let model = (encoder, parameters);
    assert_eq!(words(&model), words(&random(1)));
    assert_ne!(words(&model), words(&random(2)));
    assert!(pooled(&model, &[&[0, 5, 2]], &[2], Pooling::Mean).iter().all(|value| value.is_finite()));
    let bad = EncoderConfig { heads: 3, ..config };
    assert!(Encoder::random(bad, Key::new(1), &mut ParametersBuilder::default()).is_err());
}

/// The message for the tiny BERT with another text in its `config.json`.
fn error_with_config(from: &str, to: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = fs::read_to_string(golden::tiny("bert").join("config.json")).unwrap();
    assert!(config.contains(from));
    fs::write(folder.path().join("config.json"), config.replace(from, to)).unwrap();
    fs::copy(golden::tiny("bert").join("model.safetensors"), folder.path().join("model.safetensors"))
        .unwrap();
    Encoder::load(folder.path(), &mut ParametersBuilder::default()).unwrap_err().to_string()
}

#[test]
fn a_config_that_does_not_fit_the_weights_is_an_error_that_names_them() {
    let error = error_with_config("\"vocab_size\": 204", "\"vocab_size\": 205");
    assert!(
        error.contains("embeddings.word_embeddings.weight has the shape [204, 64], but [205, 64]"),
        "{error}"
    );
    let error = error_with_config("\"intermediate_size\": 128", "\"intermediate_size\": 256");
    assert!(error.contains("encoder.layer.0.intermediate.dense.weight"), "{error}");
    let error = error_with_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4");
    assert!(error.contains("encoder.layer.2.attention.self.query.weight"), "{error}");
    assert!(error.contains("encoder.layer.3.output.LayerNorm.bias"), "{error}");
    let error = error_with_config("\"model_type\": \"bert\"", "\"model_type\": \"mpnet\"");
    assert!(error.contains("encoder.relative_attention_bias.weight"), "{error}");
}
