//! Weights on disk: safetensors, one file or several.
//!
//! A folder enters; names, shapes and, one tensor at a time, values leave. Files come from anywhere, so
//! nothing in them is believed: the header is checked whole before a value is read, and values are read
//! by their place, never the whole file at once. Pickles are not read at all.

mod header; // what a file says it holds, checked
mod file; // one file
mod writer; // writing a file

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::Error;
pub use file::WeightFile;
pub use header::TensorInfo;
pub use writer::{NewTensor, write};

/// The name of a file that holds all weights.
pub const SINGLE: &str = "model.safetensors";

/// The name of the list of files that hold a part each.
const INDEX: &str = "model.safetensors.index.json";

/// More than any list of weights takes.
const LONGEST_INDEX: u64 = 16 << 20;

/// The weights of a folder.
pub struct Weights {
    folder: PathBuf,
    files: Vec<WeightFile>,
    places: BTreeMap<String, usize>,
}

impl Weights {
    /// Opens `model.safetensors` or, where there is none, the files that `model.safetensors.index.json`
    /// names.
    ///
    /// # Errors
    /// If there is neither, a file cannot be believed, or a name is not where the index says.
    pub fn open(folder: &Path) -> Result<Weights, Error> {
        let single = folder.join(SINGLE);
        let index = folder.join(INDEX);
        if single.exists() {
            let file = WeightFile::open(&single)?;
            let places = file.tensors().keys().map(|name| (name.clone(), 0)).collect();
            Ok(Weights { folder: folder.to_owned(), files: vec![file], places })
        } else if index.exists() {
            Weights::open_sharded(folder, &index)
        } else {
            Err(no_weights(folder))
        }
    }

    fn open_sharded(folder: &Path, index_path: &Path) -> Result<Weights, Error> {
        let length = fs::metadata(index_path).map_err(Error::io(index_path, "read"))?.len();
        if length > LONGEST_INDEX {
            return Err(Error::file(
                index_path,
                format!("{length} bytes are too many for a list of weights"),
            ));
        }
        let text = fs::read(index_path).map_err(Error::io(index_path, "read"))?;
        let index: Index = serde_json::from_slice(&text)
            .map_err(|problem| Error::file(index_path, format!("is not a list of weights: {problem}")))?;
        let (mut files, mut numbers) = (Vec::<WeightFile>::new(), HashMap::new());
        let mut places = BTreeMap::new();
        for (name, shard) in index.weight_map {
            // A name with a path in it would read from anywhere.
            if Path::new(&shard).file_name() != Some(shard.as_ref()) {
                let problem = format!("puts {name} into {shard:?}, which is not a file name");
                return Err(Error::file(index_path, problem));
            }
            let number = match numbers.get(&shard) {
                Some(&number) => number,
                None => {
                    files.push(WeightFile::open(&folder.join(&shard))?);
                    numbers.insert(shard.clone(), files.len() - 1);
                    files.len() - 1
                }
            };
            if !files[number].tensors().contains_key(&name) {
                return Err(Error::file(
                    index_path,
                    format!("puts {name} into {shard}, which has no such tensor"),
                ));
            }
            places.insert(name, number);
        }
        Ok(Weights { folder: folder.to_owned(), files, places })
    }

    /// The folder they were read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// What is known of a tensor, if there is one of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.places.get(name).map(|&number| &self.files[number].tensors()[name])
    }

    /// The values of a tensor.
    ///
    /// # Errors
    /// If there is none of that name, it does not hold floating-point numbers, or one of them is not
    /// finite.
    pub fn read(&self, name: &str) -> Result<Vec<f32>, Error> {
        match self.places.get(name) {
            Some(&number) => self.files[number].read(name),
            None => Err(Error::file(&self.folder, format!("the weights have no tensor {name}"))),
        }
    }
}

/// The list of files, as Hugging Face writes it.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn no_weights(folder: &Path) -> Error {
    let pickle = folder.join("pytorch_model.bin");
    if pickle.exists() || folder.join("pytorch_model.bin.index.json").exists() {
        let problem = "is a pickle, and reading a pickle runs whatever code is in it, so it is not read; convert \
                       it where you trust it, with: python3 -c 'from transformers import AutoModel; \
                       AutoModel.from_pretrained(\".\").save_pretrained(\".\")'";
        return Error::file(pickle, problem);
    }
    Error::file(folder, format!("there are no weights here: neither {SINGLE} nor {INDEX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: f32, path: &Path) {
        let tensors = [NewTensor { name: name.to_owned(), shape: vec![1] }];
        write(path, &tensors, |_| Ok(vec![value])).unwrap();
    }

    fn error(folder: &Path) -> String {
        Weights::open(folder).err().unwrap().to_string()
    }

    #[test]
    fn parts_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        one("a", 1.0, &folder.path().join("1.safetensors"));
        one("b", 2.0, &folder.path().join("2.safetensors"));
        let index = r#"{"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
        fs::write(folder.path().join(INDEX), index).unwrap();
        let weights = Weights::open(folder.path()).unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(weights.read("b").unwrap(), [2.0]);
        assert!(weights.read("c").unwrap_err().to_string().contains("no tensor c"));
    }

    #[test]
    fn an_index_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        one("a", 1.0, &folder.path().join("1.safetensors"));
        for (index, expected) in [
            (r#"{"weight_map": {"b": "1.safetensors"}}"#, "no such tensor"),
            (r#"{"weight_map": {"a": "../1.safetensors"}}"#, "not a file name"),
            (r#"{"weight_map": {"a": "/etc/passwd"}}"#, "not a file name"),
            (r#"{"weight_map": {"a": ".."}}"#, "not a file name"),
            (r#"{"weight_map": {"a": "2.safetensors"}}"#, "2.safetensors"),
            (r#"{"weight_map": "#, "not a list of weights"),
        ] {
            fs::write(folder.path().join(INDEX), index).unwrap();
            let message = error(folder.path());
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_pickle_is_refused_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        assert!(error(folder.path()).contains("model.safetensors"));
        fs::write(folder.path().join("pytorch_model.bin"), b"\x80\x02").unwrap();
        let message = error(folder.path());
        assert!(message.contains("runs whatever code") && message.contains("save_pretrained"), "{message}");
    }
}
