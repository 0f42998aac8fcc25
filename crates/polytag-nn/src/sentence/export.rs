//! Writing a folder that Python's sentence-transformers loads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::SentenceEncoder;
use crate::error::Error;
use crate::op::Pooling;

impl SentenceEncoder {
    /// Writes the encoder as a folder of sentence-transformers: f32 weights, the tokenizer's files byte for
    /// byte, and how texts become vectors. The folder is there whole or not at all.
    ///
    /// # Errors
    /// If there is something at `folder` already, or it cannot be written.
    pub fn export(&self, folder: &Path) -> Result<(), Error> {
        let staged = Staged::begin(folder)?;
        self.encoder.write(&self.parameters, &staged.path)?;
        self.tokenizer.write(&staged.path)?;
        for (name, value) in self.descriptions() {
            let path = staged.path.join(name);
            if let Some(inner) = path.parent() {
                fs::create_dir_all(inner).map_err(Error::io(inner, "create"))?;
            }
            let text = serde_json::to_string_pretty(&value).expect("a JSON value can be written");
            fs::write(&path, text + "\n").map_err(Error::io(&path, "write"))?;
        }
        staged.finish(folder)
    }

    /// The files that say how texts become vectors, in the form that every version of
    /// sentence-transformers reads.
    fn descriptions(&self) -> Vec<(&'static str, Value)> {
        let module = |index: usize, folder: &str, kind: &str| {
            let kind = format!("sentence_transformers.models.{kind}");
            json!({"idx": index, "name": index.to_string(), "path": folder, "type": kind})
        };
        let mut modules = vec![module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling")];
        if self.settings.normalise {
            modules.push(module(2, "2_Normalize", "Normalize"));
        }
        let pooling = json!({
            "word_embedding_dimension": self.dimension(),
            "pooling_mode_cls_token": self.settings.pooling == Pooling::Cls,
            "pooling_mode_mean_tokens": self.settings.pooling == Pooling::Mean,
            "pooling_mode_max_tokens": false,
            "pooling_mode_mean_sqrt_len_tokens": false,
        });
        let length = json!({"max_seq_length": self.settings.max_tokens, "do_lower_case": false});
        let about = json!({"prompts": {}, "default_prompt_name": null, "similarity_fn_name": "cosine"});
        vec![
            ("modules.json", Value::Array(modules)),
            ("1_Pooling/config.json", pooling),
            ("sentence_bert_config.json", length),
            ("config_sentence_transformers.json", about),
        ]
    }
}

/// A folder being written beside its place, inside a hidden one that goes away in any case.
struct Staged {
    path: PathBuf,
    hidden: tempfile::TempDir,
}

impl Staged {
    fn begin(target: &Path) -> Result<Staged, Error> {
        let taken = fs::symlink_metadata(target).is_ok()
            && fs::read_dir(target).map_or(true, |mut entries| entries.next().is_some());
        if taken {
            return Err(Error::file(target, "is there already; remove it or write to another place"));
        }
        let name = target.file_name().ok_or_else(|| Error::file(target, "is not a name for a folder"))?;
        let parent = parent(target);
        fs::create_dir_all(&parent).map_err(Error::io(&parent, "create"))?;
        let hidden = tempfile::Builder::new()
            .prefix(".export-")
            .tempdir_in(&parent)
            .map_err(Error::io(&parent, "create a folder in"))?;
        // The hidden folder is private; the one inside has the permissions of any new folder.
        let path = hidden.path().join(name);
        fs::create_dir(&path).map_err(Error::io(&path, "create"))?;
        Ok(Staged { path, hidden })
    }

    /// Sees everything onto the disk and puts the folder into its place.
    fn finish(self, target: &Path) -> Result<(), Error> {
        sync(&self.path)?;
        fs::rename(&self.path, target).map_err(Error::io(target, "write"))?;
        drop(self.hidden);
        sync_one(&parent(target))
    }
}

/// The folder that a path is in.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn sync(path: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(path).map_err(Error::io(path, "read"))? {
        let path = entry.map_err(Error::io(path, "read"))?.path();
        if path.is_dir() { sync(&path)? } else { sync_one(&path)? }
    }
    sync_one(path)
}

/// A folder cannot be opened everywhere; where it cannot, its entries are the system's to keep.
fn sync_one(path: &Path) -> Result<(), Error> {
    if cfg!(not(unix)) && path.is_dir() {
        return Ok(());
    }
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io(path, "write"))
}
