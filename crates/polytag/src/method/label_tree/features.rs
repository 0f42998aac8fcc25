//! What a label tree sees of a document: its words by TF-IDF, the vector that an encoder makes of it, or both.
//!
//! Each part is of length one, times its weight. Words come first, the commonest with the smallest columns, and the
//! numbers of the vector behind them.

use polytag_nn::tokenizer::Text;

use super::LabelTreeConfig;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter};
use crate::data::{Dataset, Passage};
use crate::encoder::TextEncoder;
use crate::method::TrainContext;
use crate::method::embedding::ENCODER;
use crate::method::error::MethodError;
use crate::method::label_text::text_of;
use crate::method::word_rows;
use crate::sparse::{Entry, Room, RowStore, Tfidf};

/// How documents are made into rows.
pub(super) struct Features {
    words: Option<Tfidf>,
    encoder: Option<TextEncoder>,
    /// What the encoder's vector weighs beside the words.
    weight: f32,
}

impl Features {
    /// Counts the words of `dataset`, and loads the encoder, where there is to be one.
    pub(super) fn fit(
        config: &LabelTreeConfig,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Features, MethodError> {
        let words = match config.words {
            false => None,
            true => Some(word_rows::count(&config.tfidf(), dataset, context)?.commonest_first()),
        };
        let encoder = match &config.encoder {
            None => None,
            Some(name) => {
                let folder = context.encoders.locate_any(name)?;
                Some(TextEncoder::load(&folder, context.device, &config.overrides())?)
            }
        };
        Ok(Features { words, encoder, weight: config.encoder_weight })
    }

    /// How many columns a row has.
    pub(super) fn columns(&self) -> usize {
        self.word_columns() + self.encoder.as_ref().map_or(0, TextEncoder::dimension)
    }

    pub(super) fn word_columns(&self) -> usize {
        self.words.as_ref().map_or(0, |words| words.vocabulary().len())
    }

    /// The rows of documents, in their order.
    pub(super) fn rows(
        &self,
        dataset: &dyn Dataset,
        documents: &[u32],
        room: &Room,
        context: &TrainContext<'_>,
    ) -> Result<RowStore, MethodError> {
        let weigh = |passages: &[Passage<'_>]| Ok(self.weigh(passages)?);
        word_rows::rows((dataset, documents), (self.columns(), room), context, weigh)
    }

    /// The rows of passages.
    pub(super) fn weigh(&self, passages: &[Passage<'_>]) -> Result<Vec<Vec<Entry>>, polytag_nn::Error> {
        let mut rows = match &self.words {
            None => vec![Vec::new(); passages.len()],
            Some(words) => word_rows::weigh(words, passages),
        };
        if let Some(encoder) = &self.encoder {
            let texts: Vec<Text<'_>> = passages.iter().map(text_of).collect();
            let vectors = encoder.encode(&texts)?;
            let first = self.word_columns() as u32;
            for (row, vector) in rows.iter_mut().zip(vectors.chunks_exact(encoder.dimension())) {
                let entry = |(column, value): (u32, &f32)| Entry { column, value: value * self.weight };
                row.extend((first..).zip(vector).map(entry));
            }
        }
        Ok(rows)
    }

    /// The words of the model, if it looks at words.
    pub(super) fn words(&self) -> Option<&Tfidf> {
        self.words.as_ref()
    }

    /// Whether it looks at an encoder's vectors.
    pub(super) fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }

    pub(super) fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        if let Some(words) = &self.words {
            word_rows::save(words, model)?;
        }
        match &self.encoder {
            None => Ok(()),
            Some(encoder) => model.folder(ENCODER, |path| {
                encoder.export(path).map_err(|error| ArtifactError::Encoder(Box::new(error)))
            }),
        }
    }

    pub(super) fn load(
        folder: &ModelFolder,
        config: &LabelTreeConfig,
        device: &polytag_nn::device::Device,
    ) -> Result<Features, crate::Error> {
        let words = match config.words {
            false => None,
            true => Some(word_rows::load(folder, &config.tfidf())?),
        };
        let encoder = match &config.encoder {
            None => None,
            Some(_) => {
                let path = folder.folder(ENCODER)?;
                let encoder = TextEncoder::load_exported(&path, device, config.max_tokens);
                Some(encoder.map_err(MethodError::from)?)
            }
        };
        Ok(Features { words, encoder, weight: config.encoder_weight })
    }
}
