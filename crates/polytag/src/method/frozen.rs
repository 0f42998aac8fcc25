//! An encoder as it is: the SBERT row of papers 001 and 003, and with word vectors the GloVe row of 001.
//!
//! Document and label are made into vectors by the same encoder, and a label scores as the cosine of
//! the two. Nothing is learned, from documents or pairs, so it serves labels that no document ever
//! carried, and a label added later scores exactly as one that was always there.

use serde::{Deserialize, Serialize};

use super::embedding::{EmbeddingModel, EmbeddingSettings};
use super::error::MethodError;
use super::label_text::LabelText;
use super::label_vectors::IndexKind;
use super::{Method, TrainContext};
use crate::data::Dataset;
use crate::encoder::TextEncoder;
use crate::index::Precision;
use crate::predict::Predictor;

/// Settings of `frozen`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrozenConfig {
    /// The encoder: a known name, a name on the hub, or a folder.
    pub encoder: String,
    /// How many tokens of a document are read, or of word vectors how many words; null reads as many as the encoder
    /// was made for.
    pub max_tokens: Option<usize>,
    /// What of a label is made into its vector.
    pub label_text: LabelText,
    /// What label vectors are kept in: f32, f16 or i8.
    pub precision: Precision,
    /// How label vectors are searched: auto, exact or hnsw.
    pub index: IndexKind,
}

impl Default for FrozenConfig {
    fn default() -> FrozenConfig {
        FrozenConfig {
            encoder: "minilm".to_owned(),
            max_tokens: None,
            label_text: LabelText::default(),
            precision: Precision::F32,
            index: IndexKind::Auto,
        }
    }
}

/// The method, its settings checked.
pub struct Frozen {
    config: FrozenConfig,
}

impl TryFrom<FrozenConfig> for Frozen {
    type Error = MethodError;

    fn try_from(config: FrozenConfig) -> Result<Frozen, MethodError> {
        if let Some(tokens) = config.max_tokens.filter(|tokens| !(3..=512).contains(tokens)) {
            let problem = format!("max_tokens = {tokens} is out of range; say 3 to 512, or null");
            return Err(MethodError::Config { method: "frozen", problem });
        }
        Ok(Frozen { config })
    }
}

impl Method for Frozen {
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError> {
        let folder = context.encoders.locate_any(&self.config.encoder)?;
        let FrozenConfig { max_tokens, label_text, precision, index, .. } = self.config;
        let settings = EmbeddingSettings {
            max_tokens,
            label_tokens: None,
            label_text,
            precision,
            index,
            words: 0.0,
            item_to_item: false,
            own_names: false,
        };
        let encoder = TextEncoder::load(&folder, context.device, &settings.overrides())?;
        let space = dataset.label_space().clone();
        let model = EmbeddingModel::new(settings, encoder, space, context)?;
        Ok(Box::new(model.indexed("frozen", dataset, context)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused() {
        let config = FrozenConfig { max_tokens: Some(2), ..FrozenConfig::default() };
        assert!(Frozen::try_from(config).err().unwrap().to_string().contains("3 to 512"));
    }
}
