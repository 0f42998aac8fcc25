//! What an encoder's folder must hold, and what it says of itself.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::error::EncoderError;
use super::word_vectors::{VECTORS, WORDS, WordVectors};
use crate::storage::{read_bounded, require_folder};

/// The weights in one file.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// Which file holds which weight, where they are in several.
pub(super) const WEIGHTS_INDEX: &str = "model.safetensors.index.json";
/// The weights as a pickle.
pub(super) const PICKLE: &str = "pytorch_model.bin";
pub(super) const CONFIG: &str = "config.json";
pub(super) const TOKENIZER: &str = "tokenizer.json";

/// Files that are taken along where a source has them.
pub(super) const OPTIONAL: [&str; 9] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "README.md",
    "LICENSE",
];

/// No configuration or index is larger than this.
const MAX_JSON: u64 = 16 << 20;

/// Makes sure that a folder holds an encoder that can be read safely.
pub(super) fn check(folder: &Path) -> Result<(), EncoderError> {
    require_folder(folder, "open the encoder's folder")?;
    let has = |name: &str| folder.join(name).is_file();
    let incomplete = |problem: String| EncoderError::Incomplete { folder: folder.to_owned(), problem };
    if WordVectors::are_in(folder) {
        return if has(WORDS) {
            Ok(())
        } else {
            Err(incomplete(format!("it has {VECTORS}, but no {WORDS}")))
        };
    }
    if !has(CONFIG) {
        return Err(incomplete(format!("it has no {CONFIG}")));
    }
    if !has(WEIGHTS) && !has(WEIGHTS_INDEX) {
        return Err(match has(PICKLE) || has("pytorch_model.bin.index.json") {
            true => EncoderError::PickleOnly { place: folder.display().to_string() },
            false => incomplete(format!("it has neither {WEIGHTS} nor {WEIGHTS_INDEX}")),
        });
    }
    if !has(TOKENIZER) {
        return Err(incomplete(format!(
            "it has no {TOKENIZER}; make one with `python3 -c \"from transformers import AutoTokenizer; d = '{0}'; \
             AutoTokenizer.from_pretrained(d).save_pretrained(d)\"`",
            folder.display()
        )));
    }
    if !has(WEIGHTS) {
        let index = read_bounded(&folder.join(WEIGHTS_INDEX), MAX_JSON)?;
        for shard in shards(&index).map_err(incomplete)? {
            if !has(&shard) {
                return Err(incomplete(format!("{WEIGHTS_INDEX} names {shard}, which is not there")));
            }
        }
    }
    Ok(())
}

/// The files that an index of weights names, in order. They are names in the same folder: anything else
/// is refused.
pub(super) fn shards(index: &[u8]) -> Result<BTreeSet<String>, String> {
    let index: Value = serde_json::from_slice(index).map_err(|error| format!("{WEIGHTS_INDEX}: {error}"))?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| format!("{WEIGHTS_INDEX}: it has no weight_map"))?;
    let mut names = BTreeSet::new();
    for name in map.values() {
        match name.as_str() {
            Some(name) if name.ends_with(".safetensors") && is_plain_name(name) => {
                names.insert(name.to_owned());
            }
            _ => return Err(format!("{WEIGHTS_INDEX}: {name} is not the name of a safetensors file")),
        }
    }
    if names.is_empty() { Err(format!("{WEIGHTS_INDEX}: its weight_map is empty")) } else { Ok(names) }
}

/// Whether a name has letters, digits, dots, dashes and underscores only, and hides nothing.
pub(super) fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= 96 && name.bytes().all(plain) && !name.starts_with('.')
}

/// Numbers in an embedding and tokens read of a text, as far as a folder tells.
pub(super) fn dimensions(folder: &Path) -> (Option<usize>, Option<usize>) {
    let read = |name: &str| -> Option<Value> {
        serde_json::from_slice(&read_bounded(&folder.join(name), MAX_JSON).ok()?).ok()
    };
    let number = |value: &Option<Value>, key: &str| {
        value.as_ref()?.get(key)?.as_u64().and_then(|number| usize::try_from(number).ok())
    };
    let (config, sentences) = (read(CONFIG), read("sentence_bert_config.json"));
    // DistilBERT calls its width `dim`.
    let dimension = number(&config, "hidden_size").or_else(|| number(&config, "dim"));
    let tokens = number(&sentences, "max_seq_length").or_else(|| number(&config, "max_position_embeddings"));
    (dimension, tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder_with(names: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in names {
            fs::write(dir.path().join(name), content).unwrap();
        }
        dir
    }

    #[test]
    fn what_is_missing_is_named() {
        let index = r#"{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}"#;
        for (files, complaint) in [
            (vec![], "no config.json"),
            (vec![(CONFIG, "{}")], "neither model.safetensors nor"),
            (vec![(VECTORS, "")], "it has word_vectors.safetensors, but no words.txt"),
            (vec![(CONFIG, "{}"), (WEIGHTS, "")], "from transformers import AutoTokenizer"),
            (vec![(CONFIG, "{}"), (PICKLE, "")], "runs whatever code it holds"),
            (
                vec![(CONFIG, "{}"), (TOKENIZER, ""), (WEIGHTS_INDEX, index), ("model-1.safetensors", "")],
                "names model-2.safetensors, which is not there",
            ),
        ] {
            let dir = folder_with(&files);
            let error = check(dir.path()).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
            assert!(error.starts_with(&dir.path().display().to_string()), "{error}");
        }
        check(folder_with(&[(CONFIG, "{}"), (WEIGHTS, ""), (TOKENIZER, "")]).path()).unwrap();
        check(folder_with(&[(VECTORS, ""), (WORDS, "")]).path()).unwrap();
        assert!(check(Path::new("nowhere")).is_err());
    }

    #[test]
    fn a_pickle_comes_with_a_way_to_convert_it() {
        let dir = folder_with(&[(CONFIG, "{}"), (PICKLE, ""), (TOKENIZER, "")]);
        let error = check(dir.path()).unwrap_err().to_string();
        assert!(error.contains("save_pretrained('converted')\"` and give the folder `converted`"), "{error}");
    }

    #[test]
    fn shards_stay_in_their_folder() {
        for name in ["../x.safetensors", "/x.safetensors", "a/b.safetensors", ".x.safetensors", "x.bin", ""] {
            let index = serde_json::json!({ "weight_map": { "a": name } }).to_string();
            assert!(shards(index.as_bytes()).is_err(), "{name}");
        }
        for index in ["", "{}", r#"{"weight_map":{}}"#, r#"{"weight_map":{"a":1}}"#] {
            assert!(shards(index.as_bytes()).is_err(), "{index}");
        }
    }
}
