//! The model: an encoder and the vectors of all labels.

use polytag_nn::device::Device;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::tokenizer::Text;

use super::FrozenConfig;
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{Label, LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::{Allowed, Exact, LabelIndex};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::predict::{Ask, Explanation, Field, PredictError, Predictor, Reason};
use crate::progress::Stage;
use crate::ranking::Ranking;

/// Labels that are encoded between two looks at whether to stop.
const CHUNK: usize = 256;

/// Where the encoder lies in a model folder: a folder that sentence-transformers reads, too.
const ENCODER: &str = "encoder";

/// The file of label vectors, and their name in it.
const VECTORS: (&str, &str) = ("label_vectors.safetensors", "label_vectors");

/// A fitted `frozen`.
pub struct FrozenModel {
    config: FrozenConfig,
    encoder: SentenceEncoder,
    space: LabelSpace,
    index: Exact,
}

impl FrozenModel {
    pub(super) fn new(
        config: FrozenConfig,
        encoder: SentenceEncoder,
        space: LabelSpace,
        context: &TrainContext<'_>,
    ) -> Result<FrozenModel, MethodError> {
        let mut index = Exact::new(encoder.dimension(), config.precision)?;
        index.reserve(space.positions())?;
        let mut model = FrozenModel { config, encoder, space, index };
        let labels: Vec<LabelId> = model.space.iter().map(|(id, _)| id).collect();
        let stage = Stage::start(context.progress, "encoding labels", Some(labels.len() as u64));
        for chunk in labels.chunks(CHUNK) {
            if context.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            model.index_labels(chunk)?;
            stage.advance(chunk.len() as u64);
        }
        stage.finish();
        Ok(model)
    }

    /// Reads a model that [`save`](Predictor::save) wrote, its encoder onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<FrozenModel, crate::Error> {
        let config: FrozenConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        let overrides = Overrides { max_tokens: config.max_tokens, ..Overrides::default() };
        let encoder =
            SentenceEncoder::load(&folder.folder(ENCODER)?, device, &overrides).map_err(MethodError::from)?;
        let space = folder.labels()?;
        let (dim, rows) = folder.tensors(VECTORS.0)?.rows(VECTORS.1)?;
        let fits = dim == encoder.dimension() && rows.len() == dim * space.positions();
        if !fits {
            return Err(folder.damaged(VECTORS.0, "its vectors are not those of the labels").into());
        }
        let active: Allowed = space.iter().map(|(id, _)| id).collect();
        let index = Exact::from_rows(dim, rows, active).map_err(|error| folder.damaged(VECTORS.0, error))?;
        Ok(FrozenModel { config, encoder, space, index })
    }

    /// The encoder.
    pub fn encoder(&self) -> &SentenceEncoder {
        &self.encoder
    }

    /// The vectors of labels, end to end.
    fn encode_labels<'a>(&self, labels: impl Iterator<Item = &'a Label>) -> Result<Vec<f32>, PredictError> {
        let texts: Vec<(String, String)> = labels.map(|label| self.config.label_text.of(label)).collect();
        let texts: Vec<Text<'_>> =
            texts.iter().map(|(title, text)| Text { title: Some(title), text }).collect();
        Ok(self.encoder.encode(&texts)?)
    }

    fn index_labels(&mut self, labels: &[LabelId]) -> Result<(), PredictError> {
        let vectors = self.encode_labels(labels.iter().map(|&id| self.space.label(id)))?;
        for (&label, vector) in labels.iter().zip(vectors.chunks_exact(self.encoder.dimension())) {
            self.index.set(label, vector)?;
        }
        Ok(())
    }
}

fn text_of<'a>(passage: &Passage<'a>) -> Text<'a> {
    Text { title: passage.title, text: passage.text }
}

impl Predictor for FrozenModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let texts: Vec<Text<'_>> = passages.iter().map(text_of).collect();
        let vectors = self.encoder.encode(&texts)?;
        Ok(self.index.search(&vectors, ask.k, ask.allowed)?)
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        // Encoded first: after an error nothing has changed.
        let vectors = self.encode_labels(changed.written.iter().map(|&label| space.label(label)))?;
        self.space = space;
        changed.removed.into_iter().for_each(|label| self.index.remove(label));
        for (label, vector) in changed.written.into_iter().zip(vectors.chunks_exact(self.encoder.dimension())) {
            self.index.set(label, vector)?;
        }
        Ok(())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let label = self.space.label(label);
        let vector = self.encode_labels([label].into_iter())?;
        let text = text_of(&passage);
        let shares = self.encoder.shares(text, &vector)?;
        let title = passage.title.filter(|title| !title.is_empty()).unwrap_or_default();
        let joined =
            if title.is_empty() { passage.text.to_owned() } else { format!("{title}\n{}", passage.text) };
        let mut reasons: Vec<Reason> = Vec::new();
        let (mut score, mut rest, mut last) = (0.0, 0.0, 0);
        for (range, share) in shares {
            score += share;
            if range.is_empty() {
                rest += share;
                continue;
            }
            let piece = joined.get(range.clone()).unwrap_or_default();
            // Pieces that touch are parts of a word.
            match reasons.last_mut().filter(|_| range.start == last && last > 0) {
                Some(word) => {
                    word.words.push_str(piece);
                    word.weight += share;
                }
                None => {
                    let field = if range.end <= title.len() { Field::Title } else { Field::Text };
                    reasons.push(Reason { words: piece.to_owned(), field, weight: share });
                }
            }
            last = range.end;
        }
        reasons.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.words.cmp(&b.words)));
        if rest != 0.0 {
            reasons.push(Reason {
                words: "(the text as a whole)".to_owned(),
                field: Field::Text,
                weight: rest,
            });
        }
        Ok(Explanation { score, matched: Some(label.name.clone()), reasons })
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        model.folder(ENCODER, |path| {
            self.encoder.export(path).map_err(|error| ArtifactError::Encoder(Box::new(error)))
        })?;
        let vectors = TensorsBuilder::default().rows(VECTORS.1, self.encoder.dimension(), self.index.rows());
        model.tensors(VECTORS.0, &vectors)
    }
}
