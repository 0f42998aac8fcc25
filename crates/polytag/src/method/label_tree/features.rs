//! What a label tree sees of a document: its words by TF-IDF, the vector that an encoder makes of it, or both.
//!
//! Each part is of length one, times its weight. Words come first, the commonest with the smallest columns, and the
//! numbers of the vector behind them.

use polytag_nn::tokenizer::Text;

use super::LabelTreeConfig;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{Dataset, Document, Passage};
use crate::encoder::TextEncoder;
use crate::ids::DocId;
use crate::method::TrainContext;
use crate::method::embedding::ENCODER;
use crate::method::error::MethodError;
use crate::method::label_text::text_of;
use crate::progress::{Event, Stage};
use crate::sparse::{Entry, Room, RowStore, Tfidf, TfidfConfig, Vocabulary, Weighing};

/// The words.
const WORDS: &str = "words.txt";

/// How rare they are, in a file of its own.
const RARITY: (&str, &str) = ("weights.safetensors", "idf");

/// Documents that are made into rows at once.
const WAVE: usize = 4096;

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
            true => Some(count(&config.tfidf(), dataset, context)?),
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
        let stage = Stage::start(context.progress, "weighing words", Some(documents.len() as u64));
        let mut rows = RowStore::new(self.columns(), room);
        for part in documents.chunks(WAVE) {
            if context.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            let read: Vec<Document> =
                part.iter().map(|&id| dataset.document(DocId(id))).collect::<Result<_, _>>()?;
            let passages: Vec<Passage<'_>> = read.iter().map(Document::passage).collect();
            let weighed = self.weigh(&passages)?;
            let lengths: Vec<usize> = weighed.iter().map(Vec::len).collect();
            rows.extend(&weighed.concat(), &lengths)?;
            stage.advance(part.len() as u64);
        }
        stage.finish();
        Ok(rows)
    }

    /// The rows of passages.
    pub(super) fn weigh(&self, passages: &[Passage<'_>]) -> Result<Vec<Vec<Entry>>, polytag_nn::Error> {
        use rayon::prelude::*;
        let mut rows: Vec<Vec<Entry>> = match &self.words {
            None => vec![Vec::new(); passages.len()],
            Some(words) => passages
                .par_iter()
                .with_min_len(16)
                .map_init(Weighing::default, |weighing, passage| row(words, passage, weighing))
                .collect(),
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
            model.file(WORDS, words.vocabulary().to_lines().as_bytes())?;
            model.tensors(RARITY.0, &TensorsBuilder::default().f64(RARITY.1, words.idf()))?;
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
            true => {
                let lines = folder.read_text(WORDS)?;
                let words = Vocabulary::from_lines(&lines).map_err(|error| folder.damaged(WORDS, error))?;
                let idf = folder.tensors(RARITY.0)?.f64(RARITY.1)?;
                if words.len() != idf.len() || !idf.iter().all(|idf| (1.0..=1e3).contains(idf)) {
                    return Err(folder.damaged(RARITY.0, "its weights are not those of the words").into());
                }
                Some(Tfidf::from_parts(&config.tfidf(), words, idf).map_err(MethodError::from)?)
            }
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

/// A passage's words by TF-IDF.
fn row(words: &Tfidf, passage: &Passage<'_>, weighing: &mut Weighing) -> Vec<Entry> {
    let weighed = words.weigh(&passage.whole(), weighing);
    weighed.into_iter().map(|(column, value)| Entry { column, value }).collect()
}

fn count(
    config: &TfidfConfig,
    dataset: &dyn Dataset,
    context: &TrainContext<'_>,
) -> Result<Tfidf, MethodError> {
    let stage = Stage::start(context.progress, "counting words", Some(dataset.len() as u64));
    let counted = Tfidf::fit::<MethodError>(config, dataset.len(), |index| {
        if context.stop.is_asked() {
            return Err(MethodError::Stopped);
        }
        stage.step();
        Ok(dataset.document(DocId(index as u32))?.passage().whole().into_owned().into())
    })?;
    stage.finish();
    if counted.forgotten() > 0 {
        let message = format!(
            "{} rare terms did not fit in the table and are not used; raise table_limit to keep them",
            counted.forgotten()
        );
        context.progress.report(Event::Warned(&message));
    }
    Ok(counted.commonest_first())
}
