//! Settings of a blend.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::rehearsal::Hidden;
use crate::method::config::MethodConfig;
use crate::method::error::MethodError;
use crate::text::Language;

/// Sources at most: each has a name of its own in the model folder.
pub(super) const MOST_SOURCES: usize = NAMES.len();

/// The names of sources as parts of a model.
pub(in crate::method) const NAMES: [&str; 8] =
    ["source0", "source1", "source2", "source3", "source4", "source5", "source6", "source7"];

/// Documents that are held out at least, as long as that is not more than half.
const HELD_OUT_LEAST: f64 = 200.0;

/// The share of labels that are hidden where fewer are unseen.
const HIDDEN_LEAST: f64 = 0.05;

/// What stands for words in sources that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "it is a language, such as german, null for words as they are, or own")]
pub enum SourceStem {
    /// The stems of a language, or words as they are.
    Said(Option<Language>),
    /// What each source has.
    Own(OwnStem),
}

/// The word for what each source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnStem {
    /// `own`
    Own,
}

impl Default for SourceStem {
    fn default() -> SourceStem {
        SourceStem::Own(OwnStem::Own)
    }
}

/// Settings of `blend`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlendConfig {
    /// The methods whose rankings are blended: names, or tables of a `method` and its settings.
    pub sources: Vec<Value>,
    /// The encoder of sources that need one and are not told which; null leaves each its own.
    pub encoder: Option<String>,
    /// The language whose stems stand for words, or null for words as they are, in sources that have such a setting and are
    /// not told; own leaves each its own.
    pub stem: SourceStem,
    /// The share of the train documents that sources are rehearsed on. null takes a tenth, or two hundred documents where
    /// that is more, and at most half.
    pub held_out: Option<f64>,
    /// The share of the labels that are hidden from them there, to stand for those that nobody has seen. null hides a
    /// twentieth, or where more labels than that are unseen those that only held-out documents carry; where these are too
    /// few, as large a share as is unseen, up to half.
    pub hidden: Option<f64>,
    /// How many labels of a source are looked at.
    pub depth: usize,
    /// What is added to the log-odds of unseen labels. null chooses as much as `give` allows, and nothing where fewer
    /// than 200 documents are held out, which cannot say.
    pub unseen: Option<f32>,
    /// How many points of nDCG@5 may be given up in the rehearsal so that more unseen labels are found.
    pub give: f64,
    /// How much rare labels gain: this times the logarithm of their inverse propensity is added to log-odds.
    pub tail: f32,
    /// Labels that are less likely than this are not given.
    pub least: f32,
}

impl Default for BlendConfig {
    fn default() -> BlendConfig {
        BlendConfig {
            sources: ["label-tree", "lexical"].map(Value::from).to_vec(),
            encoder: None,
            stem: SourceStem::default(),
            held_out: None,
            hidden: None,
            depth: 100,
            unseen: None,
            give: 0.1,
            tail: 0.0,
            least: 0.0,
        }
    }
}

impl BlendConfig {
    /// With encoders, for a GPU: one that finds unseen labels, and one that is best at the others. Unseen labels lie deep
    /// in what they rank.
    pub fn neural() -> BlendConfig {
        let sources = ["of-lan", "guided-experts", "label-tree", "lexical"].map(Value::from).to_vec();
        BlendConfig { sources, depth: 300, ..BlendConfig::default() }
    }

    /// The methods of its sources.
    pub(in crate::method) fn methods(&self) -> Result<Vec<MethodConfig>, MethodError> {
        self.sources.iter().map(|value| source(value, (self.encoder.as_deref(), self.stem))).collect()
    }

    /// The same of settings that were checked; what cannot be read is refused when it is fitted.
    pub(in crate::method) fn checked_methods(&self) -> Vec<MethodConfig> {
        self.methods().unwrap_or_default()
    }

    /// The share of documents that are held out and the labels that are hidden, for so many documents with labels and
    /// such a share of labels that none of them carries.
    pub(super) fn shares(&self, labelled: usize, unseen: f64) -> (f64, Hidden) {
        let held_out = (HELD_OUT_LEAST / labelled.max(1) as f64).clamp(0.1, 0.5);
        let hidden = match self.hidden {
            Some(share) => Hidden::Share(share),
            None if unseen <= HIDDEN_LEAST => Hidden::Share(HIDDEN_LEAST),
            None => Hidden::ByNature(unseen.min(0.5)),
        };
        (self.held_out.unwrap_or(held_out), hidden)
    }

    /// Whether the settings make sense together.
    pub(super) fn check(&self, method: &'static str) -> Result<(), MethodError> {
        let share = |value: Option<f64>| value.is_none_or(|value| value > 0.0 && value <= 0.5);
        let said = |value: Option<f64>| value.unwrap_or_default();
        let problem = match self {
            _ if !(1..=MOST_SOURCES).contains(&self.sources.len()) => {
                Some(format!("there are {} sources; name 1 to {MOST_SOURCES}", self.sources.len()))
            }
            _ if !share(self.held_out) => {
                Some(format!("held_out = {} is out of range; say above 0, up to 0.5", said(self.held_out)))
            }
            _ if !share(self.hidden) => {
                Some(format!("hidden = {} is out of range; say above 0, up to 0.5", said(self.hidden)))
            }
            _ if !(5..=10_000).contains(&self.depth) => {
                Some(format!("depth = {} is out of range; say 5 to 10000", self.depth))
            }
            _ if self.unseen.is_some_and(|unseen| !(-50.0..=50.0).contains(&unseen)) => {
                Some(format!("unseen = {} is out of range; say -50 to 50", self.unseen.unwrap_or_default()))
            }
            _ if !(0.0..=100.0).contains(&self.give) => {
                Some(format!("give = {} is out of range; say 0 to 100", self.give))
            }
            _ if !(0.0..=10.0).contains(&self.tail) => {
                Some(format!("tail = {} is out of range; say 0 to 10", self.tail))
            }
            _ if !(0.0..1.0).contains(&self.least) => {
                Some(format!("least = {} is out of range; say a probability below 1", self.least))
            }
            _ => None,
        };
        let refused = |problem| Err(MethodError::Config { method, problem });
        if let Some(problem) = problem {
            return refused(problem);
        }
        let methods = self.methods()?;
        match &self.encoder {
            _ if self.stem != SourceStem::default() && !methods.iter().any(has_stem) => refused(
                "stem is for sources that read words, and none of these does; leave it out".to_owned(),
            ),
            Some(encoder) if !methods.iter().any(needs_encoder) => refused(format!(
                "encoder = {encoder} is for sources that need one, and none of these does; leave it out, or take \
                 blend-neural"
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a method has an encoder, and not only room for one.
fn needs_encoder(method: &MethodConfig) -> bool {
    method.to_value()["encoder"].is_string()
}

/// Whether a method makes stems of words.
fn has_stem(method: &MethodConfig) -> bool {
    method.to_value().get("stem").is_some()
}

/// A source from its setting; `encoder` and `stem` are for those that need them and name none.
fn source(value: &Value, (encoder, stem): (Option<&str>, SourceStem)) -> Result<MethodConfig, MethodError> {
    let refused = |problem: String| MethodError::Config { method: "blend", problem };
    let mut settings = match value {
        Value::String(_) => Map::new(),
        Value::Object(fields) => fields.clone(),
        _ => return Err(refused(format!("the source {value} is neither a name nor a table"))),
    };
    let Some(name) = value.as_str().map(str::to_owned).or_else(|| match settings.remove("method") {
        Some(Value::String(name)) => Some(name),
        _ => None,
    }) else {
        return Err(refused(format!("the source {value} names no method; add \"method\": NAME")));
    };
    let preset = MethodConfig::named(&name, &json!({}))?;
    if let Some(encoder) = encoder.filter(|_| needs_encoder(&preset)) {
        settings.entry("encoder").or_insert_with(|| encoder.into());
    }
    if let (SourceStem::Said(language), true) = (stem, has_stem(&preset)) {
        settings.entry("stem").or_insert_with(|| json!(language));
    }
    match MethodConfig::named(&name, &Value::Object(settings))? {
        MethodConfig::Blend(..) => {
            Err(refused("a blend of blends is one blend; name its sources".to_owned()))
        }
        config => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_names_or_tables() {
        let config = |sources: Value| BlendConfig {
            sources: sources.as_array().unwrap().clone(),
            ..BlendConfig::default()
        };
        let methods = config(json!(["lexical", {"method": "label-tree", "trees": 1}])).methods().unwrap();
        assert_eq!(methods[0].name(), "lexical");
        let MethodConfig::LabelTree("label-tree", tree) = &methods[1] else { panic!("{methods:?}") };
        assert_eq!(tree.trees, 1);
        for (sources, said) in [
            (json!([]), "0 sources"),
            (json!(["magic"]), "magic"),
            (json!([{"trees": 1}]), "names no method"),
            (json!([7]), "neither"),
            (json!(["blend"]), "blend of blends"),
            (json!([{"method": "lexical", "trees": 1}]), "trees"),
        ] {
            let error = config(sources).check("blend").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        for preset in [BlendConfig::default(), BlendConfig::neural()] {
            assert!(preset.check("blend").is_ok());
        }
    }

    #[test]
    fn an_encoder_is_for_those_that_need_one_and_name_none() {
        let sources = json!(["of-lan", {"method": "frozen", "encoder": "mpnet"}, "label-tree", "lexical"]);
        let sources = sources.as_array().unwrap().clone();
        let config = BlendConfig { sources, encoder: Some("folder".into()), ..BlendConfig::default() };
        let encoders: Vec<Value> =
            config.methods().unwrap().iter().map(|source| source.to_value()["encoder"].clone()).collect();
        assert_eq!(encoders, [json!("folder"), json!("mpnet"), Value::Null, Value::Null]);
    }

    #[test]
    fn a_stem_is_for_those_that_read_words_and_are_not_told() {
        let sources = json!(["label-tree", {"method": "lexical", "stem": "english"}, "lexical"]);
        let named = |stem: Value| MethodConfig::named("blend", &json!({"sources": sources, "stem": stem}));
        let config = |stem: Value| match named(stem) {
            Ok(MethodConfig::Blend("blend", config)) => config,
            other => panic!("{other:?}"),
        };
        let stems = |config: &BlendConfig| -> Vec<Value> {
            config.methods().unwrap().iter().map(|source| source.to_value()["stem"].clone()).collect()
        };
        let german = config(json!("german"));
        assert_eq!(stems(&german), [json!("german"), json!("english"), json!("german")]);
        let none = config(Value::Null);
        assert_eq!(stems(&none), [Value::Null, json!("english"), Value::Null]);
        for config in [german, none, BlendConfig::default()] {
            let kept: BlendConfig = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
            assert_eq!(kept, config);
        }
        let error = named(json!("klingon")).unwrap_err().to_string();
        assert!(error.contains("stem = \"klingon\"") && error.contains("such as german"), "{error}");
        let wordless = BlendConfig {
            sources: vec!["of-lan".into()],
            stem: SourceStem::Said(None),
            ..BlendConfig::default()
        };
        assert!(wordless.check("blend").unwrap_err().to_string().contains("stem is for sources"));
    }

    #[test]
    fn shares_follow_the_task_unless_they_are_said() {
        let config = BlendConfig::default();
        assert_eq!(config.shares(45_000, 0.04), (0.1, Hidden::Share(0.05)));
        assert_eq!(config.shares(1000, 0.25), (0.2, Hidden::ByNature(0.25)));
        assert_eq!(config.shares(500, 0.9), (0.4, Hidden::ByNature(0.5)));
        assert_eq!(config.shares(0, 0.0), (0.5, Hidden::Share(0.05)));
        let said = BlendConfig { held_out: Some(0.3), hidden: Some(0.2), ..config };
        assert_eq!(said.shares(45_000, 0.04), (0.3, Hidden::Share(0.2)));
    }

    #[test]
    fn senseless_settings_are_refused() {
        let refused = |change: fn(&mut BlendConfig)| {
            let mut config = BlendConfig::default();
            change(&mut config);
            config.check("blend").unwrap_err().to_string()
        };
        assert!(refused(|config| config.held_out = Some(0.0)).contains("held_out"));
        assert!(refused(|config| config.hidden = Some(0.9)).contains("hidden"));
        assert!(refused(|config| config.depth = 1).contains("depth"));
        assert!(refused(|config| config.encoder = Some("mpnet".into())).contains("encoder = mpnet"));
        assert!(refused(|config| config.unseen = Some(f32::NAN)).contains("unseen"));
        assert!(refused(|config| config.give = -1.0).contains("give"));
        assert!(refused(|config| config.tail = -1.0).contains("tail"));
        assert!(refused(|config| config.least = 1.0).contains("least"));
    }
}
