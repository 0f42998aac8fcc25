//! What a folder says about how texts become vectors: the layout of sentence-transformers, or a bare
//! Hugging Face folder.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::op::Pooling;

/// Where the length that texts are cut to is written; old versions named the file after the family.
const LENGTH_FILES: [&str; 4] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_xlm-roberta_config.json",
];

/// What a folder says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Where the encoder and its tokenizer are.
    pub(super) encoder: PathBuf,
    /// How many tokens texts are cut to, if it says so.
    pub(super) max_tokens: Option<usize>,
    pub(super) pooling: Pooling,
    pub(super) normalise: bool,
}

impl Layout {
    /// Reads `modules.json` and what it names. A folder without one is a bare encoder, for which the mean
    /// of all tokens is taken and made one long.
    pub(super) fn read(folder: &Path) -> Result<Layout, Error> {
        let modules_path = folder.join("modules.json");
        if !modules_path.exists() {
            return Layout::bare(folder);
        }
        let modules: Vec<Module> = read_json(&modules_path)?;
        let mut steps = modules.iter();
        let mut next = |kind: &str| match steps.next() {
            Some(module) if module.kind() == kind => module.folder(folder, &modules_path).map(Some),
            Some(module) => Err(Error::file(
                &modules_path,
                format!(
                    "has the module {:?} where {kind} is expected; a Transformer, a Pooling and, perhaps, a \
                     Normalize can be run",
                    module.kind
                ),
            )),
            None => Ok(None),
        };
        let missing = |kind: &str| Error::file(&modules_path, format!("has no module {kind}"));
        let encoder = next("Transformer")?.ok_or_else(|| missing("Transformer"))?;
        let pooling = next("Pooling")?.ok_or_else(|| missing("Pooling"))?;
        let normalise = next("Normalize")?.is_some();
        if let Some(module) = steps.next() {
            let problem = format!("has the module {:?} after the last that can be run", module.kind);
            return Err(Error::file(&modules_path, problem));
        }
        refuse_prompt(folder)?;
        Ok(Layout {
            max_tokens: max_tokens(&encoder)?,
            encoder,
            pooling: read_pooling(&pooling.join("config.json"))?,
            normalise,
        })
    }

    fn bare(folder: &Path) -> Result<Layout, Error> {
        Ok(Layout {
            encoder: folder.to_owned(),
            max_tokens: max_tokens(folder)?,
            pooling: Pooling::Mean,
            normalise: true,
        })
    }
}

/// A step of `modules.json`.
#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Module {
    /// The class, without the modules it is in, which change between versions.
    fn kind(&self) -> &str {
        self.kind.rsplit('.').next().unwrap_or_default()
    }

    /// Its folder, which must be inside.
    fn folder(&self, root: &Path, modules: &Path) -> Result<PathBuf, Error> {
        let path = Path::new(&self.path);
        if path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Ok(if self.path.is_empty() { root.to_owned() } else { root.join(path) });
        }
        Err(Error::file(modules, format!("names the folder {:?}, which is not inside", self.path)))
    }
}

/// Texts that a prompt is put before would need the same here to give the same vectors.
fn refuse_prompt(folder: &Path) -> Result<(), Error> {
    let path = folder.join("config_sentence_transformers.json");
    if !path.exists() {
        return Ok(());
    }
    let file: Map<String, Value> = read_json(&path)?;
    match file.get("default_prompt_name") {
        None | Some(Value::Null) => Ok(()),
        Some(name) => Err(Error::file(
            path,
            format!("puts the prompt {name} before every text, which is not supported"),
        )),
    }
}

fn max_tokens(folder: &Path) -> Result<Option<usize>, Error> {
    let Some(path) = LENGTH_FILES.iter().map(|name| folder.join(name)).find(|path| path.exists()) else {
        return Ok(None);
    };
    let file: Map<String, Value> = read_json(&path)?;
    if file.get("do_lower_case") == Some(&Value::Bool(true)) {
        let problem = "asks for texts to be lower-cased before the tokenizer (do_lower_case), which is not \
                       supported; the tokenizer itself can do it";
        return Err(Error::file(path, problem));
    }
    match file.get("max_seq_length") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|length| usize::try_from(length).ok()) {
            Some(length) => Ok(Some(length)),
            None => Err(Error::file(path, format!("max_seq_length is not a number of tokens: {value}"))),
        },
    }
}

/// Old files have a switch for each way of pooling, new ones the name of one.
fn read_pooling(path: &Path) -> Result<Pooling, Error> {
    let file: Map<String, Value> = read_json(path)?;
    let modes: Vec<&str> = match file.get("pooling_mode") {
        Some(Value::String(mode)) => vec![mode],
        Some(Value::Array(modes)) => modes.iter().filter_map(Value::as_str).collect(),
        _ => file
            .iter()
            .filter(|(_, value)| **value == Value::Bool(true))
            .filter_map(|(name, _)| name.strip_prefix("pooling_mode_"))
            .collect(),
    };
    match modes[..] {
        ["mean" | "mean_tokens"] => Ok(Pooling::Mean),
        ["cls" | "cls_token"] => Ok(Pooling::Cls),
        _ => {
            let problem =
                format!("pools by {modes:?}; either the mean or the first token (cls) can be taken");
            Err(Error::file(path, problem))
        }
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = fs::read(path).map_err(Error::io(path, "read"))?;
    serde_json::from_slice(&text).map_err(|problem| Error::file(path, format!("cannot be read: {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &str = r#"[
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn problem(files: &[(&str, &str)]) -> String {
        Layout::read(folder(files).path()).unwrap_err().to_string()
    }

    #[test]
    fn the_layout_is_read_and_a_bare_folder_has_a_default() {
        let pooling =
            ("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true, "include_prompt": true}"#);
        let length = ("sentence_bert_config.json", r#"{"max_seq_length": 256, "do_lower_case": false}"#);
        let layout = Layout::read(folder(&[("modules.json", MODULES), pooling, length]).path()).unwrap();
        assert_eq!((layout.max_tokens, layout.pooling, layout.normalise), (Some(256), Pooling::Cls, true));
        let layout = Layout::read(folder(&[length]).path()).unwrap();
        assert_eq!((layout.max_tokens, layout.pooling, layout.normalise), (Some(256), Pooling::Mean, true));
        let two = serde_json::from_str::<Vec<Value>>(MODULES).unwrap();
        let two = serde_json::to_string(&two[..2]).unwrap().replace("_transformers.models", "_new.place");
        let pooling = ("1_Pooling/config.json", r#"{"pooling_mode": "mean"}"#);
        let layout = Layout::read(folder(&[("modules.json", &two), pooling]).path()).unwrap();
        assert_eq!((layout.max_tokens, layout.pooling, layout.normalise), (None, Pooling::Mean, false));
    }

    #[test]
    fn what_cannot_be_run_is_refused_by_name() {
        let mean = ("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
        let dense = MODULES.replace("Normalize", "Dense");
        assert!(problem(&[("modules.json", &dense), mean]).contains("Dense"));
        let outside = MODULES.replace("1_Pooling", "../1_Pooling");
        assert!(problem(&[("modules.json", &outside), mean]).contains("not inside"));
        assert!(problem(&[("modules.json", "[]")]).contains("no module Transformer"));
        assert!(problem(&[("modules.json", "{")]).contains("cannot be read"));
        let modules = ("modules.json", MODULES);
        for pooling in ["{}", r#"{"pooling_mode": "max"}"#, r#"{"pooling_mode": ["mean", "cls"]}"#] {
            assert!(problem(&[modules, ("1_Pooling/config.json", pooling)]).contains("pools by"));
        }
        let prompt = ("config_sentence_transformers.json", r#"{"default_prompt_name": "query"}"#);
        assert!(problem(&[modules, mean, prompt]).contains("query"));
        for length in [r#"{"max_seq_length": "long"}"#, r#"{"max_seq_length": -1}"#] {
            assert!(problem(&[modules, mean, (LENGTH_FILES[0], length)]).contains("max_seq_length"));
        }
        assert!(problem(&[modules, mean, (LENGTH_FILES[0], r#"{"do_lower_case": true}"#)]).contains("lower"));
    }
}
