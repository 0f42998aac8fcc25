//! Which files are to be tagged, and what their answers are called.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::answers::AnswerForm;
use super::error::TablesError;
use crate::storage::StorageError;

/// A file to tag.
pub(super) struct Input {
    pub(super) path: PathBuf,
    /// Its name below the folder, with `/` between folders.
    pub(super) name: String,
    /// The name of its answer.
    pub(super) output: String,
}

/// The files to tag at `input`, a folder or a file, in order of their names.
pub(super) fn inputs(input: &Path, form: AnswerForm) -> Result<Vec<Input>, TablesError> {
    let mut names = Vec::new();
    if input.is_dir() {
        list(input, "", &mut names)?;
        names.sort_unstable();
    } else {
        fs::metadata(input).map_err(StorageError::io(input, "open"))?;
        let name = input.file_name().unwrap_or_default().to_string_lossy().into_owned();
        names.push((name, input.to_owned()));
    }
    if names.is_empty() {
        return Err(TablesError::NoInput { path: input.to_owned() });
    }
    let mut outputs: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut inputs = Vec::new();
    for (name, path) in names {
        let output = output_of(&name, form);
        if let Some(first) = outputs.insert(output.clone(), path.clone()) {
            return Err(TablesError::SameOutput { first, second: path, output });
        }
        inputs.push(Input { path, name, output });
    }
    Ok(inputs)
}

/// What the answer to the file of this name is called.
pub(super) fn output_of(name: &str, form: AnswerForm) -> String {
    format!("{}.{}", stem(name), form.ending())
}

/// The files below a folder; names that begin with a dot or an underscore are somebody's own notes.
fn list(folder: &Path, before: &str, names: &mut Vec<(String, PathBuf)>) -> Result<(), TablesError> {
    for entry in fs::read_dir(folder).map_err(StorageError::io(folder, "read"))? {
        let path = entry.map_err(StorageError::io(folder, "read"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(['.', '_']) {
            continue;
        }
        let name = format!("{before}{name}");
        match path.is_dir() {
            true => list(&path, &format!("{name}/"), names)?,
            false => names.push((name, path)),
        }
    }
    Ok(())
}

/// A name without what says how its file is written.
fn stem(name: &str) -> &str {
    let name = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let endings = [".parquet", ".pq", ".arrow", ".feather", ".ipc", ".jsonl", ".ndjson", ".json", ".txt"];
    endings
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .filter(|stem| !stem.is_empty())
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_says_how_files_are_written() {
        for (name, expected) in [
            ("a.parquet", "a"),
            ("x/b.jsonl.gz", "x/b"),
            ("c.v2.arrow", "c.v2"),
            ("d.json.zst", "d"),
            ("e.csv", "e.csv"),
            (".parquet", ".parquet"),
        ] {
            assert_eq!(stem(name), expected);
        }
    }
}
