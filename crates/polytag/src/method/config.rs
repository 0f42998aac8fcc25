//! Methods by name, with their settings.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Method;
use super::error::MethodError;
use super::frozen::{Frozen, FrozenConfig};
use super::lexical::{Lexical, LexicalConfig};

/// The names that [`MethodConfig::named`] knows.
pub const METHODS: &[&str] = &["auto", "lexical", "frozen"];

/// The complete settings of a method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case")]
pub enum MethodConfig {
    /// Words of the document against words of the label.
    Lexical(LexicalConfig),
    /// An encoder as it is, document against label.
    Frozen(FrozenConfig),
}

impl MethodConfig {
    /// The settings that a name stands for, with `overrides` (a JSON object) laid over them.
    ///
    /// `auto` stands for the best method for the task at hand. So far that is `lexical`, which needs
    /// no encoder and beats one that was never trained for the task.
    pub fn named(name: &str, overrides: &Value) -> Result<MethodConfig, MethodError> {
        match name {
            "auto" | "lexical" => {
                let preset = LexicalConfig::default();
                Ok(MethodConfig::Lexical(overridden("lexical", &preset, overrides)?))
            }
            "frozen" => {
                let preset = FrozenConfig::default();
                Ok(MethodConfig::Frozen(overridden("frozen", &preset, overrides)?))
            }
            _ => Err(MethodError::Unknown { name: name.to_owned() }),
        }
    }

    /// The method's name.
    pub fn name(&self) -> &'static str {
        match self {
            MethodConfig::Lexical(_) => "lexical",
            MethodConfig::Frozen(_) => "frozen",
        }
    }

    /// Whether the method runs an encoder.
    pub fn uses_encoder(&self) -> bool {
        uses_encoder(self.name())
    }

    /// The settings alone, as they stand in a manifest.
    pub fn to_value(&self) -> Value {
        let value = match self {
            MethodConfig::Lexical(config) => serde_json::to_value(config),
            MethodConfig::Frozen(config) => serde_json::to_value(config),
        };
        value.expect("plain settings always make JSON")
    }

    /// The method, its settings checked.
    pub fn method(self) -> Result<Box<dyn Method>, MethodError> {
        match self {
            MethodConfig::Lexical(config) => Ok(Box::new(Lexical::try_from(config)?)),
            MethodConfig::Frozen(config) => Ok(Box::new(Frozen::try_from(config)?)),
        }
    }
}

/// Whether the method of this name runs an encoder.
pub(super) fn uses_encoder(name: &str) -> bool {
    name == "frozen"
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
    }

    #[test]
    fn unknown_names_and_settings_say_what_there_is() {
        let error = MethodConfig::named("magic", &json!({})).unwrap_err().to_string();
        assert!(error.contains("lexical"), "{error}");
        let error = MethodConfig::named("lexical", &json!({"titel": 3.0})).unwrap_err().to_string();
        assert!(error.contains("titel") && error.contains("title_weight"), "{error}");
    }
}
