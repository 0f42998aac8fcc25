//! What shape an encoder has: `config.json` of a Hugging Face folder, checked.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::batch::LONGEST;
use crate::error::Error;

/// Larger than any size in an encoder; keeps products of two sizes from overflowing.
const LARGEST: u64 = 1 << 28;

/// Which encoders are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// BERT, and what has its shape: MiniLM, BGE, E5, GTE, …
    Bert,
    /// MPNet: a bias that depends on the distance of two tokens, no token types.
    Mpnet,
    /// DistilBERT: no token types, names of its own.
    DistilBert,
    /// RoBERTa: BERT with positions that begin after the padding token's id.
    Roberta,
    /// XLM-RoBERTa: RoBERTa with another vocabulary.
    XlmRoberta,
}

impl Family {
    const ALL: [Family; 5] =
        [Family::Bert, Family::Mpnet, Family::DistilBert, Family::Roberta, Family::XlmRoberta];

    /// What `model_type` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Bert => "bert",
            Family::Mpnet => "mpnet",
            Family::DistilBert => "distilbert",
            Family::Roberta => "roberta",
            Family::XlmRoberta => "xlm-roberta",
        }
    }

    /// What Python calls the bare encoder.
    fn architecture(self) -> &'static str {
        match self {
            Family::Bert => "BertModel",
            Family::Mpnet => "MPNetModel",
            Family::DistilBert => "DistilBertModel",
            Family::Roberta => "RobertaModel",
            Family::XlmRoberta => "XLMRobertaModel",
        }
    }

    /// Whether positions are counted from the padding token's id on, passing over padding tokens.
    pub(crate) fn counts_from_padding(self) -> bool {
        matches!(self, Family::Mpnet | Family::Roberta | Family::XlmRoberta)
    }
}

/// The shape of an encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    /// Which kind it is.
    pub family: Family,
    /// How many rows the table of words has.
    pub vocabulary: usize,
    /// How many numbers a token has.
    pub hidden: usize,
    /// How many layers.
    pub layers: usize,
    /// How many heads attention has.
    pub heads: usize,
    /// How many numbers a token has inside the feed-forward part.
    pub inner: usize,
    /// How many rows the table of positions has.
    pub positions: usize,
    /// How many rows the table of token types has; none in some families.
    pub types: usize,
    /// What keeps layer norm from dividing by zero.
    pub epsilon: f32,
    /// How much is dropped after the embeddings and in each layer, while training.
    pub hidden_dropout: f32,
    /// How much of attention is dropped, while training.
    pub attention_dropout: f32,
    /// The padding token.
    pub padding: u32,
    /// The first and the last token of every text, where the file says so.
    pub ends: Option<(u32, u32)>,
}

/// How many buckets MPNet sorts distances into.
pub(crate) const BUCKETS: usize = 32;

/// What the files of a family call the sizes.
struct Fields {
    hidden: &'static str,
    layers: &'static str,
    heads: &'static str,
    inner: &'static str,
    activation: &'static str,
    hidden_dropout: &'static str,
    attention_dropout: &'static str,
}

impl Fields {
    fn of(family: Family) -> Fields {
        match family {
            Family::DistilBert => Fields {
                hidden: "dim",
                layers: "n_layers",
                heads: "n_heads",
                inner: "hidden_dim",
                activation: "activation",
                hidden_dropout: "dropout",
                attention_dropout: "attention_dropout",
            },
            _ => Fields {
                hidden: "hidden_size",
                layers: "num_hidden_layers",
                heads: "num_attention_heads",
                inner: "intermediate_size",
                activation: "hidden_act",
                hidden_dropout: "hidden_dropout_prob",
                attention_dropout: "attention_probs_dropout_prob",
            },
        }
    }
}

impl EncoderConfig {
    /// Reads `config.json` of a folder.
    ///
    /// # Errors
    /// If it is not there, or describes an encoder that is not known or cannot be run.
    pub fn read(folder: &Path) -> Result<EncoderConfig, Error> {
        let path = folder.join("config.json");
        let text = fs::read(&path).map_err(Error::io(&path, "read"))?;
        let file: Map<String, Value> = serde_json::from_slice(&text)
            .map_err(|problem| Error::file(&path, format!("is not a JSON object: {problem}")))?;
        EncoderConfig::from_json(&file).map_err(|problem| Error::file(&path, problem))
    }

    fn from_json(file: &Map<String, Value>) -> Result<EncoderConfig, String> {
        let family = family(file)?;
        let fields = Fields::of(family);
        check_kind(file, fields.activation)?;
        let typed = matches!(family, Family::Bert | Family::Roberta | Family::XlmRoberta);
        let padding = if family.counts_from_padding() { 1 } else { 0 };
        let padding = token(file, "pad_token_id")?.unwrap_or(padding);
        let ends = token(file, "bos_token_id")?.zip(token(file, "eos_token_id")?);
        let epsilon = match family {
            // Written into its code, not into its files.
            Family::DistilBert => 1e-12,
            _ => number(file, "layer_norm_eps", 1e-12)?,
        };
        let config = EncoderConfig {
            family,
            vocabulary: size(file, "vocab_size")?,
            hidden: size(file, fields.hidden)?,
            layers: size(file, fields.layers)?,
            heads: size(file, fields.heads)?,
            inner: size(file, fields.inner)?,
            positions: size(file, "max_position_embeddings")?,
            types: if typed { size(file, "type_vocab_size")? } else { 0 },
            epsilon,
            hidden_dropout: number(file, fields.hidden_dropout, 0.1)?,
            attention_dropout: number(file, fields.attention_dropout, 0.1)?,
            padding,
            // Elsewhere these fields are left over from other uses and mean nothing.
            ends: ends.filter(|_| family.counts_from_padding()),
        };
        config.check()?;
        Ok(config)
    }

    /// What is wrong with it, if something is.
    pub(super) fn check(&self) -> Result<(), String> {
        let sizes = [self.vocabulary, self.hidden, self.layers, self.heads, self.inner, self.positions];
        if sizes.contains(&0) {
            return Err(format!("no size of an encoder may be zero: {self:?}"));
        }
        if self.hidden != 32 * self.heads && self.hidden != 64 * self.heads {
            return Err(format!(
                "{} heads over a hidden size of {} cannot be run: attention takes heads of 32 or 64",
                self.heads, self.hidden
            ));
        }
        for (name, rate) in [("hidden", self.hidden_dropout), ("attention", self.attention_dropout)] {
            if !(0.0..1.0).contains(&rate) {
                return Err(format!("a dropout rate lies in [0, 1), but that of {name} is {rate}"));
            }
        }
        if !(self.epsilon > 0.0 && self.epsilon < 1.0) {
            return Err(format!("layer_norm_eps must lie between 0 and 1, but is {}", self.epsilon));
        }
        if self.positions <= self.first_position() as usize {
            return Err(format!(
                "max_position_embeddings is {}, but the first position is {}",
                self.positions,
                self.first_position()
            ));
        }
        Ok(())
    }

    /// The position of a text's first token.
    pub fn first_position(&self) -> u32 {
        if self.family.counts_from_padding() { self.padding + 1 } else { 0 }
    }

    /// The longest input in tokens, special tokens included.
    pub fn longest(&self) -> usize {
        (self.positions - self.first_position() as usize).min(LONGEST)
    }

    /// The same as a `config.json` that Python's transformers read as the bare encoder.
    pub(super) fn to_json(&self) -> Value {
        let fields = Fields::of(self.family);
        let mut file = json!({
            "model_type": self.family.name(),
            "architectures": [self.family.architecture()],
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.positions,
            "pad_token_id": self.padding,
            "torch_dtype": "float32",
        });
        file[fields.hidden] = json!(self.hidden);
        file[fields.layers] = json!(self.layers);
        file[fields.heads] = json!(self.heads);
        file[fields.inner] = json!(self.inner);
        file[fields.activation] = json!("gelu");
        file[fields.hidden_dropout] = exactly(self.hidden_dropout);
        file[fields.attention_dropout] = exactly(self.attention_dropout);
        if self.family != Family::DistilBert {
            file["layer_norm_eps"] = exactly(self.epsilon);
        }
        if self.types > 0 {
            file["type_vocab_size"] = json!(self.types);
        }
        if self.family == Family::Mpnet {
            file["relative_attention_num_buckets"] = json!(BUCKETS);
        }
        if let Some((first, last)) = self.ends {
            file["bos_token_id"] = json!(first);
            file["eos_token_id"] = json!(last);
        }
        file
    }
}

/// A number as short as it was written: 0.1 rather than 0.10000000149.
fn exactly(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
}

fn family(file: &Map<String, Value>) -> Result<Family, String> {
    let name = file.get("model_type").and_then(Value::as_str).ok_or("model_type is missing")?;
    Family::ALL.into_iter().find(|family| family.name() == name).ok_or_else(|| {
        let known = Family::ALL.map(Family::name).join(", ");
        format!("model_type {name:?} is not an encoder that is known; these are: {known}")
    })
}

/// Refuses encoders of a known family that compute something else.
fn check_kind(file: &Map<String, Value>, activation: &str) -> Result<(), String> {
    let is = |field: &str, expected: &str, why: &str| match file.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(format!("{field} is {found}, but only {expected:?} can be run{why}")),
    };
    is(
        activation,
        "gelu",
        " (the exact one, by the error function); other activations would give other numbers",
    )?;
    is("position_embedding_type", "absolute", "")?;
    if file.get("is_decoder") == Some(&Value::Bool(true)) {
        return Err("is_decoder is true, but only encoders can be run".to_owned());
    }
    match file.get("relative_attention_num_buckets").and_then(Value::as_u64) {
        Some(buckets) if buckets != BUCKETS as u64 => {
            Err(format!("relative_attention_num_buckets is {buckets}, but only {BUCKETS} can be run"))
        }
        _ => Ok(()),
    }
}

fn size(file: &Map<String, Value>, field: &str) -> Result<usize, String> {
    let value = file.get(field).ok_or_else(|| format!("{field} is missing"))?;
    match value.as_u64() {
        Some(size @ 1..=LARGEST) => Ok(size as usize),
        _ => Err(format!("{field} must be a number from 1 to {LARGEST}, but is {value}")),
    }
}

fn token(file: &Map<String, Value>, field: &str) -> Result<Option<u32>, String> {
    match file.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|&id| id <= LARGEST) {
            Some(id) => Ok(Some(id as u32)),
            None => Err(format!("{field} must be a token's number, but is {value}")),
        },
    }
}

fn number(file: &Map<String, Value>, field: &str, default: f32) -> Result<f32, String> {
    match file.get(field) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value
            .as_f64()
            .map(|number| number as f32)
            .ok_or_else(|| format!("{field} is not a number: {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bert() -> Map<String, Value> {
        let value = json!({
            "model_type": "bert", "vocab_size": 100, "hidden_size": 384, "num_hidden_layers": 6,
            "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512,
            "type_vocab_size": 2, "hidden_act": "gelu",
        });
        value.as_object().unwrap().clone()
    }

    fn changed(field: &str, value: Value) -> Result<EncoderConfig, String> {
        let mut file = bert();
        file.insert(field.to_owned(), value);
        EncoderConfig::from_json(&file)
    }

    #[test]
    fn positions_begin_where_the_family_says() {
        let config = EncoderConfig::from_json(&bert()).unwrap();
        assert_eq!((config.first_position(), config.longest(), config.padding), (0, 512, 0));
        let config = changed("model_type", json!("roberta")).unwrap();
        assert_eq!((config.first_position(), config.longest(), config.padding), (2, 510, 1));
        let config = changed("max_position_embeddings", json!(2048)).unwrap();
        assert_eq!(config.longest(), LONGEST);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for family in ["bert", "roberta", "xlm-roberta", "mpnet"] {
            let config = changed("model_type", json!(family)).unwrap();
            let again = EncoderConfig::from_json(config.to_json().as_object().unwrap()).unwrap();
            assert_eq!(again, config);
        }
        let distilbert = json!({
            "model_type": "distilbert", "vocab_size": 100, "dim": 64, "n_layers": 2, "n_heads": 2,
            "hidden_dim": 128, "max_position_embeddings": 64, "dropout": 0.2, "attention_dropout": 0.3,
        });
        let config = EncoderConfig::from_json(distilbert.as_object().unwrap()).unwrap();
        assert_eq!((config.hidden, config.inner, config.types), (64, 128, 0));
        assert_eq!((config.hidden_dropout, config.attention_dropout), (0.2, 0.3));
        assert_eq!(EncoderConfig::from_json(config.to_json().as_object().unwrap()).unwrap(), config);
        assert_eq!(exactly(0.1).to_string(), "0.1");
    }

    #[test]
    fn encoders_that_cannot_be_run_are_refused_by_name() {
        for (field, value, expected) in [
            ("model_type", json!("gpt2"), "gpt2"),
            ("hidden_act", json!("gelu_new"), "gelu_new"),
            ("hidden_act", json!("relu"), "relu"),
            ("position_embedding_type", json!("relative_key"), "relative_key"),
            ("is_decoder", json!(true), "is_decoder"),
            ("num_attention_heads", json!(4), "heads of 32 or 64"),
            ("num_attention_heads", json!(7), "heads of 32 or 64"),
            ("num_attention_heads", json!(0), "num_attention_heads"),
            ("hidden_size", json!(u64::MAX), "hidden_size"),
            ("hidden_size", json!(-1), "hidden_size"),
            ("hidden_size", json!("384"), "hidden_size"),
            ("hidden_dropout_prob", json!(1.0), "hidden is 1"),
            ("attention_probs_dropout_prob", json!(-0.5), "attention is -0.5"),
            ("layer_norm_eps", json!(0), "layer_norm_eps"),
            ("pad_token_id", json!(-3), "pad_token_id"),
            ("relative_attention_num_buckets", json!(64), "64"),
        ] {
            let problem = changed(field, value).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        let mut short = bert();
        short.remove("intermediate_size");
        assert!(EncoderConfig::from_json(&short).unwrap_err().contains("intermediate_size is missing"));
    }
}
