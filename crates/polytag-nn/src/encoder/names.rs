//! How each family names its tensors.
//!
//! An encoder is a list of weights in a fixed order. Each is one tensor of the file or several, joined
//! below each other: query, key and value are one product here and three tensors there.

use super::config::{BUCKETS, EncoderConfig, Family};
use crate::weights::Weights;

/// A weight, and the tensors it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// What it is called here.
    pub(super) name: String,
    /// What the tensors are called in files, without a prefix.
    pub(super) tensors: Vec<String>,
    /// The shape of each of the tensors.
    pub(super) shape: Vec<usize>,
}

impl Slot {
    fn new(name: String, tensors: Vec<String>, shape: &[usize]) -> Slot {
        Slot { name, tensors, shape: shape.to_vec() }
    }

    /// How many rows and columns it has.
    pub(super) fn size(&self) -> (usize, usize) {
        match self.shape[..] {
            [rows, columns] => (rows * self.tensors.len(), columns),
            _ => (1, self.shape[0] * self.tensors.len()),
        }
    }

    /// What its values are before training: scales are one, everything else that is a vector is zero.
    pub(super) fn initial(&self) -> Initial {
        match self.shape.len() {
            2 => Initial::Normal,
            _ if self.name.ends_with("norm.weight") => Initial::One,
            _ => Initial::Zero,
        }
    }
}

/// How a weight begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Initial {
    Normal,
    One,
    Zero,
}

/// What a family calls the parts of a layer.
struct Parts {
    layers: &'static str,
    projections: [&'static str; 3],
    attention_output: &'static str,
    attention_norm: &'static str,
    up: &'static str,
    down: &'static str,
    output_norm: &'static str,
}

impl Parts {
    fn of(family: Family) -> Parts {
        match family {
            Family::Bert | Family::Roberta | Family::XlmRoberta => Parts {
                layers: "encoder.layer",
                projections: ["attention.self.query", "attention.self.key", "attention.self.value"],
                attention_output: "attention.output.dense",
                attention_norm: "attention.output.LayerNorm",
                up: "intermediate.dense",
                down: "output.dense",
                output_norm: "output.LayerNorm",
            },
            Family::Mpnet => Parts {
                layers: "encoder.layer",
                projections: ["attention.attn.q", "attention.attn.k", "attention.attn.v"],
                attention_output: "attention.attn.o",
                attention_norm: "attention.LayerNorm",
                up: "intermediate.dense",
                down: "output.dense",
                output_norm: "output.LayerNorm",
            },
            Family::DistilBert => Parts {
                layers: "transformer.layer",
                projections: ["attention.q_lin", "attention.k_lin", "attention.v_lin"],
                attention_output: "attention.out_lin",
                attention_norm: "sa_layer_norm",
                up: "ffn.lin1",
                down: "ffn.lin2",
                output_norm: "output_layer_norm",
            },
        }
    }
}

const WORDS: &str = "embeddings.word_embeddings.weight";

/// The weights of an encoder, in the order in which [`Encoder`](super::Encoder) takes them.
pub(super) fn slots(config: &EncoderConfig) -> Vec<Slot> {
    let hidden = config.hidden;
    let mut slots = Vec::new();
    let mut table = |name: &str, tensor: &str, shape: [usize; 2]| {
        slots.push(Slot::new(name.to_owned(), vec![tensor.to_owned()], &shape));
    };
    table("words", WORDS, [config.vocabulary, hidden]);
    table("positions", "embeddings.position_embeddings.weight", [config.positions, hidden]);
    if config.types > 0 {
        table("types", "embeddings.token_type_embeddings.weight", [config.types, hidden]);
    }
    if config.family == Family::Mpnet {
        table("distances", "encoder.relative_attention_bias.weight", [BUCKETS, config.heads]);
    }
    push_pair(&mut slots, "norm", vec!["embeddings.LayerNorm".to_owned()], &[hidden]);
    let parts = Parts::of(config.family);
    for layer in 0..config.layers {
        let tensor = |part: &str| format!("{}.{layer}.{part}", parts.layers);
        let mut pair = |name: &str, tensors: Vec<String>, shape: &[usize]| {
            push_pair(&mut slots, &format!("layer.{layer}.{name}"), tensors, shape);
        };
        pair("projection", parts.projections.map(tensor).to_vec(), &[hidden, hidden]);
        pair("attention", vec![tensor(parts.attention_output)], &[hidden, hidden]);
        pair("attention.norm", vec![tensor(parts.attention_norm)], &[hidden]);
        pair("up", vec![tensor(parts.up)], &[config.inner, hidden]);
        pair("down", vec![tensor(parts.down)], &[hidden, config.inner]);
        pair("norm", vec![tensor(parts.output_norm)], &[hidden]);
    }
    slots
}

/// Adds a weight of this shape and its bias.
fn push_pair(slots: &mut Vec<Slot>, name: &str, tensors: Vec<String>, shape: &[usize]) {
    for kind in ["weight", "bias"] {
        let tensors = tensors.iter().map(|tensor| format!("{tensor}.{kind}")).collect();
        let shape = if kind == "weight" { shape } else { &shape[..1] };
        slots.push(Slot::new(format!("{name}.{kind}"), tensors, shape));
    }
}

/// What stands before every name in a file, such as `bert.`, found by the table of words.
pub(super) fn prefix(weights: &Weights) -> String {
    weights
        .names()
        .filter_map(|name| name.strip_suffix(WORDS))
        .filter(|prefix| prefix.is_empty() || prefix.ends_with('.'))
        .min_by_key(|prefix| prefix.len())
        .unwrap_or_default()
        .to_owned()
}

/// The name of a tensor as the file has it, if it has it: old files call a norm's scale and shift gamma
/// and beta.
pub(super) fn find(weights: &Weights, prefix: &str, tensor: &str) -> Option<String> {
    let name = format!("{prefix}{tensor}");
    let old = name
        .strip_suffix("LayerNorm.weight")
        .map(|start| format!("{start}LayerNorm.gamma"))
        .or_else(|| name.strip_suffix("LayerNorm.bias").map(|start| format!("{start}LayerNorm.beta")));
    [Some(name), old].into_iter().flatten().find(|name| weights.tensor(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{NewTensor, write};

    #[test]
    fn query_key_and_value_are_one_weight() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/encoders/bert");
        let slots = slots(&EncoderConfig::read(&folder).unwrap());
        let projection = slots.iter().find(|slot| slot.name == "layer.1.projection.weight").unwrap();
        assert_eq!(projection.size(), (192, 64));
        assert_eq!(projection.tensors[1], "encoder.layer.1.attention.self.key.weight");
        let bias = slots.iter().find(|slot| slot.name == "layer.1.projection.bias").unwrap();
        assert_eq!((bias.size(), bias.initial()), ((1, 192), Initial::Zero));
        let norm = slots.iter().find(|slot| slot.name == "layer.0.attention.norm.weight").unwrap();
        assert_eq!(norm.initial(), Initial::One);
        assert_eq!(slots.len(), 5 + 2 * 12);
    }

    #[test]
    fn old_names_and_prefixes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["bert.embeddings.word_embeddings.weight", "bert.embeddings.LayerNorm.gamma", "x.y"];
        let tensors = names.map(|name| NewTensor { name: name.to_owned(), shape: vec![1] });
        write(&folder.path().join("model.safetensors"), &tensors, |_| Ok(vec![0.0])).unwrap();
        let weights = Weights::open(folder.path()).unwrap();
        assert_eq!(prefix(&weights), "bert.");
        let found = find(&weights, "bert.", "embeddings.LayerNorm.weight").unwrap();
        assert_eq!(found, "bert.embeddings.LayerNorm.gamma");
        assert_eq!(find(&weights, "bert.", "embeddings.LayerNorm.bias"), None);
    }
}
