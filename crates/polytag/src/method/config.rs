//! Methods by name, with their settings.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Method;
use super::blend::{Blend, BlendConfig};
use super::classifier::{Classifier, ClassifierConfig};
use super::dual_encoder::{DualEncoder, DualEncoderConfig};
use super::error::MethodError;
use super::frozen::{Frozen, FrozenConfig};
use super::fusion::{Fusion, FusionConfig};
use super::label_attention::{LabelAttention, LabelAttentionConfig};
use super::label_tree::{LabelTree, LabelTreeConfig};
use super::lexical::{Lexical, LexicalConfig};
use super::maclr::{Maclr, MaclrConfig};
use super::recorded::{Recorded, RecordedConfig};
use super::run;
use super::zest::{Zest, ZestConfig};
use crate::encoder::EncoderCache;

/// The names that [`MethodConfig::named`] knows.
pub const METHODS: &[&str] = &[
    "auto",
    "lexical",
    "frozen",
    "maclr",
    "maclr-few-shot",
    "few-shot",
    "ict",
    "simcse",
    "rts",
    "of-de",
    "dpr",
    "dexml",
    "ova",
    "of-lan",
    "lan",
    "classifier",
    "gudn",
    "me-xml",
    "guided-experts",
    "label-tree",
    "xr-linear",
    "parabel",
    "bonsai",
    "zest",
    "recorded",
    "conse",
    "xml0",
    "blend",
    "blend-neural",
];

/// The complete settings of a method. A name is a preset: several of one kind differ in settings only.
#[derive(Clone, Debug, PartialEq)]
pub enum MethodConfig {
    /// Words of the document against words of the label.
    Lexical(LexicalConfig),
    /// An encoder as it is, document against label.
    Frozen(FrozenConfig),
    /// An encoder trained on the task's own texts, then perhaps on pairs, by the name of a preset.
    Maclr(&'static str, MaclrConfig),
    /// A document and a label as vectors, compared, by the name of a preset.
    DualEncoder(&'static str, DualEncoderConfig),
    /// Labels that attend to a document, by the name of a preset.
    LabelAttention(&'static str, LabelAttentionConfig),
    /// An encoder with a classifier, by the name of a preset.
    Classifier(&'static str, ClassifierConfig),
    /// Linear classifiers in a tree, by the name of a preset.
    LabelTree(&'static str, LabelTreeConfig),
    /// Words that call for features of labels.
    Zest(ZestConfig),
    /// Rankings that another program made.
    Recorded(RecordedConfig),
    /// Unseen labels on top of a classifier, by the name of a preset.
    Fusion(&'static str, FusionConfig),
    /// One ranking out of several methods', by the name of a preset.
    Blend(&'static str, BlendConfig),
}

/// What kind of model a method's name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lexical,
    /// One encoder for documents and labels.
    Embedding,
    DualEncoder,
    LabelAttention,
    Classifier,
    LabelTree,
    Zest,
    Recorded,
    Fusion,
    Blend,
}

impl Kind {
    /// The kind of the method called `name`.
    pub(super) fn named(name: &str) -> Option<Kind> {
        match name {
            "lexical" => Some(Kind::Lexical),
            "frozen" | "maclr" | "maclr-few-shot" | "few-shot" | "ict" | "simcse" | "rts" => {
                Some(Kind::Embedding)
            }
            "of-de" | "dpr" | "dexml" | "ova" => Some(Kind::DualEncoder),
            "of-lan" | "lan" => Some(Kind::LabelAttention),
            "classifier" | "gudn" | "me-xml" | "guided-experts" => Some(Kind::Classifier),
            "label-tree" | "xr-linear" | "parabel" | "bonsai" => Some(Kind::LabelTree),
            "zest" => Some(Kind::Zest),
            "recorded" => Some(Kind::Recorded),
            "conse" | "xml0" => Some(Kind::Fusion),
            "blend" | "blend-neural" => Some(Kind::Blend),
            _ => None,
        }
    }
}

impl MethodConfig {
    /// The settings that a name stands for, with `overrides` (a JSON object) laid over them.
    ///
    /// `auto` stands for `lexical` here, where there is no task to choose for; [`Choice::of`](super::Choice::of) has one.
    pub fn named(name: &str, overrides: &Value) -> Result<MethodConfig, MethodError> {
        let maclr =
            |name, preset: MaclrConfig| Ok(MethodConfig::Maclr(name, overridden(name, &preset, overrides)?));
        let dual_encoder = |name, preset: DualEncoderConfig| {
            Ok(MethodConfig::DualEncoder(name, overridden(name, &preset, overrides)?))
        };
        let label_attention = |name, preset: LabelAttentionConfig| {
            Ok(MethodConfig::LabelAttention(name, overridden(name, &preset, overrides)?))
        };
        let classifier = |name, preset: ClassifierConfig| {
            Ok(MethodConfig::Classifier(name, overridden(name, &preset, overrides)?))
        };
        let label_tree = |name, preset: LabelTreeConfig| {
            Ok(MethodConfig::LabelTree(name, overridden(name, &preset, overrides)?))
        };
        let fusion = |name, preset: FusionConfig| {
            Ok(MethodConfig::Fusion(name, overridden(name, &preset, overrides)?))
        };
        let blend =
            |name, preset: BlendConfig| Ok(MethodConfig::Blend(name, overridden(name, &preset, overrides)?));
        match name {
            "auto" | "lexical" => {
                let preset = LexicalConfig::default();
                Ok(MethodConfig::Lexical(overridden("lexical", &preset, overrides)?))
            }
            "frozen" => {
                let preset = FrozenConfig::default();
                Ok(MethodConfig::Frozen(overridden("frozen", &preset, overrides)?))
            }
            "maclr" => maclr("maclr", MaclrConfig::default()),
            "maclr-few-shot" => maclr("maclr-few-shot", MaclrConfig::few_shot_after()),
            "few-shot" => maclr("few-shot", MaclrConfig::few_shot()),
            "ict" => maclr("ict", MaclrConfig::ict()),
            "simcse" => maclr("simcse", MaclrConfig::simcse()),
            "rts" => maclr("rts", MaclrConfig::rts()),
            "of-de" => dual_encoder("of-de", DualEncoderConfig::of_de()),
            "dpr" => dual_encoder("dpr", DualEncoderConfig::dpr()),
            "dexml" => dual_encoder("dexml", DualEncoderConfig::dexml()),
            "ova" => dual_encoder("ova", DualEncoderConfig::ova()),
            "of-lan" => label_attention("of-lan", LabelAttentionConfig::of_lan()),
            "lan" => label_attention("lan", LabelAttentionConfig::lan()),
            "classifier" => classifier("classifier", ClassifierConfig::default()),
            "gudn" => classifier("gudn", ClassifierConfig::gudn()),
            "me-xml" => classifier("me-xml", ClassifierConfig::me_xml()),
            "guided-experts" => classifier("guided-experts", ClassifierConfig::guided_experts()),
            "label-tree" => label_tree("label-tree", LabelTreeConfig::default()),
            "xr-linear" => label_tree("xr-linear", LabelTreeConfig::xr_linear()),
            "parabel" => label_tree("parabel", LabelTreeConfig::parabel()),
            "bonsai" => label_tree("bonsai", LabelTreeConfig::bonsai()),
            "zest" => {
                let preset = ZestConfig::default();
                Ok(MethodConfig::Zest(overridden("zest", &preset, overrides)?))
            }
            "recorded" => {
                let preset = RecordedConfig::default();
                Ok(MethodConfig::Recorded(overridden("recorded", &preset, overrides)?))
            }
            "conse" => fusion("conse", FusionConfig::conse()),
            "xml0" => fusion("xml0", FusionConfig::xml0()),
            "blend" => blend("blend", BlendConfig::default()),
            "blend-neural" => blend("blend-neural", BlendConfig::neural()),
            _ => Err(MethodError::Unknown { name: name.to_owned() }),
        }
    }

    /// The method's name.
    pub fn name(&self) -> &'static str {
        match self {
            MethodConfig::Lexical(_) => "lexical",
            MethodConfig::Frozen(_) => "frozen",
            MethodConfig::Maclr(name, _)
            | MethodConfig::DualEncoder(name, _)
            | MethodConfig::LabelAttention(name, _)
            | MethodConfig::Classifier(name, _)
            | MethodConfig::LabelTree(name, _)
            | MethodConfig::Fusion(name, _)
            | MethodConfig::Blend(name, _) => name,
            MethodConfig::Zest(_) => "zest",
            MethodConfig::Recorded(_) => "recorded",
        }
    }

    /// Whether the method runs a neural network, so that it matters on what device. Word vectors among `encoders` are
    /// averaged on the CPU in any case.
    pub fn uses_network(&self, encoders: &EncoderCache) -> bool {
        match self {
            MethodConfig::Lexical(_) | MethodConfig::Zest(_) | MethodConfig::Recorded(_) => false,
            // What cannot be read is refused when it is fitted.
            MethodConfig::Fusion(_, config) => {
                config.folders().iter().any(|folder| run::uses_network(folder).unwrap_or(false))
            }
            MethodConfig::Blend(_, config) => {
                config.checked_methods().iter().any(|source| source.uses_network(encoders))
            }
            MethodConfig::Frozen(config) => !encoders.has_word_vectors(&config.encoder),
            MethodConfig::LabelTree(_, config) => {
                config.encoder.as_ref().is_some_and(|encoder| !encoders.has_word_vectors(encoder))
            }
            _ => true,
        }
    }

    /// Whether the method trains an encoder: it takes its time and can go on where it was broken off.
    pub fn trains(&self) -> bool {
        !matches!(
            self,
            MethodConfig::Lexical(_)
                | MethodConfig::Frozen(_)
                | MethodConfig::LabelTree(..)
                | MethodConfig::Zest(_)
                | MethodConfig::Recorded(_)
                | MethodConfig::Fusion(..)
                | MethodConfig::Blend(..)
        )
    }

    /// Whether several devices can train it together. Those of a blend's sources that cannot train on the first one.
    pub fn trains_together(&self) -> bool {
        match self {
            MethodConfig::DualEncoder(..)
            | MethodConfig::LabelAttention(..)
            | MethodConfig::Classifier(..) => true,
            MethodConfig::Blend(_, config) => {
                config.checked_methods().iter().any(MethodConfig::trains_together)
            }
            _ => false,
        }
    }

    /// Whether the method measures itself on the dev split while it trains.
    pub fn measures(&self) -> bool {
        match self {
            MethodConfig::Lexical(_)
            | MethodConfig::Frozen(_)
            | MethodConfig::LabelTree(..)
            | MethodConfig::Zest(_)
            | MethodConfig::Recorded(_)
            | MethodConfig::Fusion(..) => false,
            MethodConfig::Blend(_, config) => config.checked_methods().iter().any(MethodConfig::measures),
            MethodConfig::Maclr(_, config) => config.evaluations > 0,
            MethodConfig::DualEncoder(_, config) => config.training.steps.evaluations > 0,
            MethodConfig::LabelAttention(_, config) => config.training.steps.evaluations > 0,
            MethodConfig::Classifier(_, config) => config.steps.evaluations > 0,
        }
    }

    /// What the method reads besides the task and an encoder: files of scores and folders of models.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let mut inputs = match self {
            MethodConfig::Recorded(config) => vec![PathBuf::from(&config.scores)],
            MethodConfig::Fusion(_, config) => config.folders(),
            MethodConfig::Blend(_, config) => {
                config.checked_methods().iter().flat_map(MethodConfig::inputs).collect()
            }
            _ => Vec::new(),
        };
        // What is not said is complained of when it is needed.
        inputs.retain(|path| !path.as_os_str().is_empty());
        inputs
    }

    /// The settings alone, as they stand in a manifest.
    pub fn to_value(&self) -> Value {
        let value = match self {
            MethodConfig::Lexical(config) => serde_json::to_value(config),
            MethodConfig::Frozen(config) => serde_json::to_value(config),
            MethodConfig::Maclr(_, config) => serde_json::to_value(config),
            MethodConfig::DualEncoder(_, config) => serde_json::to_value(config),
            MethodConfig::LabelAttention(_, config) => serde_json::to_value(config),
            MethodConfig::Classifier(_, config) => serde_json::to_value(config),
            MethodConfig::LabelTree(_, config) => serde_json::to_value(config),
            MethodConfig::Zest(config) => serde_json::to_value(config),
            MethodConfig::Recorded(config) => serde_json::to_value(config),
            MethodConfig::Fusion(_, config) => serde_json::to_value(config),
            MethodConfig::Blend(_, config) => serde_json::to_value(config),
        };
        let mut value = value.expect("plain settings always make JSON");
        // What was always so needs no saying: models from before they could choose stay the same bytes.
        if value.get("index") == Some(&Value::from("auto")) {
            value.as_object_mut().map(|settings| settings.remove("index"));
        }
        value
    }

    /// The method, its settings checked.
    pub fn method(self) -> Result<Box<dyn Method>, MethodError> {
        Ok(match self {
            MethodConfig::Lexical(config) => Box::new(Lexical::try_from(config)?),
            MethodConfig::Frozen(config) => Box::new(Frozen::try_from(config)?),
            MethodConfig::Maclr(name, config) => Box::new(Maclr::new(name, config)?),
            MethodConfig::DualEncoder(name, config) => Box::new(DualEncoder::new(name, config)?),
            MethodConfig::LabelAttention(name, config) => Box::new(LabelAttention::new(name, config)?),
            MethodConfig::Classifier(name, config) => Box::new(Classifier::new(name, config)?),
            MethodConfig::LabelTree(name, config) => Box::new(LabelTree::new(name, config)?),
            MethodConfig::Zest(config) => Box::new(Zest::try_from(config)?),
            MethodConfig::Recorded(config) => Box::new(Recorded::try_from(config)?),
            MethodConfig::Fusion(name, config) => Box::new(Fusion::new(name, config)?),
            MethodConfig::Blend(name, config) => Box::new(Blend::new(name, config)?),
        })
    }
}

/// `preset` with the fields of `overrides` put in their places. A field the preset does not have is
/// an error that names those it has.
fn overridden<T: Serialize + for<'de> Deserialize<'de>>(
    method: &'static str,
    preset: &T,
    overrides: &Value,
) -> Result<T, MethodError> {
    let config = |problem: String| MethodError::Config { method, problem };
    let mut value = serde_json::to_value(preset).map_err(|error| config(error.to_string()))?;
    let Value::Object(fields) = overrides else {
        return Err(config("settings must be a table of names and values".to_owned()));
    };
    for (name, setting) in fields {
        if value.get(name).is_none() {
            let known = value.as_object().map(|known| known.keys().cloned().collect::<Vec<_>>());
            let known = known.unwrap_or_default().join(", ");
            return Err(config(format!("unknown field `{name}`; there are: {known}")));
        }
        value[name] = setting.clone();
        // One at a time, so that a complaint names the setting.
        T::deserialize(&value).map_err(|error| config(format!("{name} = {setting}: {error}")))?;
    }
    T::deserialize(value).map_err(|error| config(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_is_a_preset_that_can_be_overridden() {
        let named = MethodConfig::named("lexical", &json!({"title_weight": 3.0})).unwrap();
        let MethodConfig::Lexical(config) = named else { panic!("{named:?}") };
        assert_eq!(config, LexicalConfig { title_weight: 3.0, ..LexicalConfig::default() });
        let named = MethodConfig::named("dpr", &json!({"epochs": 3, "pooling": "cls"})).unwrap();
        let MethodConfig::DualEncoder("dpr", config) = named else { panic!("{named:?}") };
        assert_eq!(config.training.steps.epochs, 3);
    }

    #[test]
    fn every_name_makes_a_method_and_its_settings_come_back() {
        for name in METHODS.iter().filter(|name| **name != "auto") {
            let config = MethodConfig::named(name, &json!({})).unwrap();
            assert_eq!(config.name(), *name);
            assert!(Kind::named(name).is_some());
            assert_eq!(MethodConfig::named(name, &config.to_value()).unwrap(), config);
            assert!(config.method().is_ok(), "{name}");
        }
    }

    #[test]
    fn unknown_names_and_settings_say_what_there_is() {
        let error = MethodConfig::named("magic", &json!({})).unwrap_err().to_string();
        assert!(error.contains("lexical"), "{error}");
        let error = MethodConfig::named("lexical", &json!({"titel": 3.0})).unwrap_err().to_string();
        assert!(error.contains("titel") && error.contains("title_weight"), "{error}");
        let error = MethodConfig::named("of-lan", &json!({"epoch": 3})).unwrap_err().to_string();
        assert!(error.contains("epochs") && error.contains("candidates"), "{error}");
        let error = MethodConfig::named("of-lan", &json!({"unseen": "hidden"})).unwrap_err().to_string();
        assert!(error.contains("masked"), "{error}");
    }
}
