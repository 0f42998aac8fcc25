//! An encoder for documents and labels alike, and the vectors of all labels: the model of every method that
//! leaves such an encoder, whether it trained it or not. A label scores as the cosine of its vector and the
//! document's, with what the model has beside them; a label that is added scores exactly as one that was always
//! there, but for how often it would have been guessed.

use polytag_nn::device::Device;
use polytag_nn::sentence::Overrides;
use polytag_nn::tokenizer::Text;
use polytag_nn::train::CURVE;
use serde::Deserialize;

use super::TrainContext;
use super::beside::Words;
use super::error::MethodError;
use super::label_text::{LabelText, text_of};
use super::label_vectors::{IndexKind, LabelVectors, measured_documents};
use super::lexical::LexicalModel;
use super::words::{Piece, reasons};
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter};
use crate::data::{Dataset, Document, LabelChange, LabelSpace, Passage};
use crate::encoder::TextEncoder;
use crate::ids::LabelId;
use crate::index::{Allowed, Exact, LabelIndex, Precision};
use crate::predict::{Ask, Embeddings, Explanation, Field, PredictError, Predictor, Reason};
use crate::progress::Stage;
use crate::ranking::Ranking;

/// Labels that are encoded between two looks at whether to stop.
const CHUNK: usize = 256;

/// Where the encoder lies in a model folder. A network is a folder that sentence-transformers reads, too.
pub(super) const ENCODER: &str = "encoder";

/// How such a model reads and keeps texts: the part of a method's settings that it needs after fitting.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct EmbeddingSettings {
    /// How many tokens of a text are read, or of word vectors how many words; none reads as many as the encoder was
    /// made for.
    pub(super) max_tokens: Option<usize>,
    /// How many tokens of a label are read, if not as many as of a document.
    #[serde(default)]
    pub(super) label_tokens: Option<usize>,
    /// What of a label is made into its vector.
    pub(super) label_text: LabelText,
    /// What label vectors are kept in.
    pub(super) precision: Precision,
    /// How they are searched.
    #[serde(default)]
    pub(super) index: IndexKind,
    /// How much of `lexical`'s score a label has beside its cosine; 0 for none.
    #[serde(default)]
    pub(super) words: f32,
    /// Whether documents are labels themselves.
    #[serde(default)]
    pub(super) item_to_item: bool,
    /// Whether a document that is a label has the label's names among its words; models of before do not.
    #[serde(default)]
    pub(super) own_names: bool,
}

impl EmbeddingSettings {
    /// Words of a model beside its vectors.
    fn beside(&self, words: Words) -> Words {
        words.with_own_names(self.item_to_item && self.own_names)
    }

    /// How an encoder is loaded for this: its vectors are made one long whatever its folder says, for cosines.
    pub(super) fn overrides(&self) -> Overrides {
        Overrides { max_tokens: self.max_tokens, normalise: Some(true), ..Overrides::default() }
    }
}

/// A model that compares vectors of one encoder.
pub struct EmbeddingModel {
    settings: EmbeddingSettings,
    encoder: TextEncoder,
    space: LabelSpace,
    index: LabelVectors,
    words: Option<Words>,
    /// The course of the training, a point a line, where there was one.
    course: Option<String>,
}

impl EmbeddingModel {
    pub(super) fn new(
        settings: EmbeddingSettings,
        encoder: impl Into<TextEncoder>,
        space: LabelSpace,
        context: &TrainContext<'_>,
    ) -> Result<EmbeddingModel, MethodError> {
        let encoder = encoder.into();
        let mut index = Exact::new(encoder.dimension(), settings.precision)?;
        index.reserve(space.positions())?;
        let index = LabelVectors::from(index);
        let mut model = EmbeddingModel { settings, encoder, space, index, words: None, course: None };
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

    /// The same, with the course of the training that led to it.
    pub(super) fn with_course(self, course: String) -> EmbeddingModel {
        EmbeddingModel { course: Some(course), ..self }
    }

    /// The same, with the words that documents and labels share.
    pub(super) fn with_words(self, words: LexicalModel) -> EmbeddingModel {
        let words = Some(self.settings.beside(Words::new(words, self.settings.words)));
        EmbeddingModel { words, ..self }
    }

    /// The same, with what labels gain beside their cosines, by position.
    pub(super) fn with_gains(self, gains: Vec<f32>) -> Result<EmbeddingModel, MethodError> {
        let index = self.index.with_gains(gains)?;
        Ok(EmbeddingModel { index, ..self })
    }

    /// The same, its labels in the index that the settings ask for, measured with documents where there are any.
    pub(super) fn indexed(
        self,
        method: &'static str,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<EmbeddingModel, MethodError> {
        let obstacle = self
            .index
            .has_gains()
            .then_some("labels gain something beside their cosines, which a graph does not know");
        let EmbeddingModel { settings, encoder, space, index, words, course } = self;
        let sample = || {
            let documents = measured_documents(dataset)?;
            let passages: Vec<Passage<'_>> = documents.iter().map(Document::passage).collect();
            let texts: Vec<Text<'_>> = passages.iter().map(text_of).collect();
            Ok(if texts.is_empty() { Vec::new() } else { encoder.encode(&texts)? })
        };
        let index = index.indexed((method, settings.index), obstacle, sample, context)?;
        Ok(EmbeddingModel { settings, encoder, space, index, words, course })
    }

    /// Reads a model that [`save`](Predictor::save) wrote, its encoder onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<EmbeddingModel, crate::Error> {
        let settings: EmbeddingSettings = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        let encoder = TextEncoder::load_exported(&folder.folder(ENCODER)?, device, settings.max_tokens)
            .map_err(MethodError::from)?;
        let space = folder.labels()?;
        let active: Allowed = space.iter().map(|(id, _)| id).collect();
        let index = LabelVectors::load(folder, encoder.dimension(), (&space, active))?;
        let words = if settings.words > 0.0 {
            Some(settings.beside(Words::load(folder, settings.words, &space)?))
        } else {
            None
        };
        let has_course = folder.manifest().files.iter().any(|file| file.name == CURVE);
        let course = if has_course { Some(folder.read_text(CURVE)?) } else { None };
        Ok(EmbeddingModel { settings, encoder, space, index, words, course })
    }

    /// The encoder.
    pub fn encoder(&self) -> &TextEncoder {
        &self.encoder
    }

    /// How many numbers a vector has.
    pub(super) fn dimension(&self) -> usize {
        self.encoder.dimension()
    }

    /// The vectors of passages, end to end.
    pub(super) fn vectors_of(&self, passages: &[Passage<'_>]) -> Result<Vec<f32>, PredictError> {
        let texts: Vec<Text<'_>> = passages.iter().map(text_of).collect();
        Ok(self.encoder.encode(&texts)?)
    }

    /// Appends the vector of a label.
    ///
    /// # Panics
    /// If there is no such position.
    pub(super) fn extend_with_vector(&self, label: LabelId, to: &mut Vec<f32>) {
        self.index.extend_with(label, to);
    }

    /// The vectors of labels, end to end.
    fn encode_labels(&self, space: &LabelSpace, labels: &[LabelId]) -> Result<Vec<f32>, PredictError> {
        let EmbeddingSettings { label_text, label_tokens, .. } = self.settings;
        Ok(label_text.with_texts(space, labels, |texts| self.encoder.encode_cut(texts, label_tokens))?)
    }

    fn index_labels(&mut self, labels: &[LabelId]) -> Result<(), PredictError> {
        let vectors = self.encode_labels(&self.space, labels)?;
        for (&label, vector) in labels.iter().zip(vectors.chunks_exact(self.encoder.dimension())) {
            self.index.set(label, vector)?;
        }
        Ok(())
    }
}

impl Predictor for EmbeddingModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let vectors = self.vectors_of(passages)?;
        match &self.words {
            Some(words) => words.search((passages, &vectors), self.index.index(), ask),
            None => Ok(self.index.search(&vectors, ask.k, ask.allowed)?),
        }
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        self.apply_prepared(changes, &Embeddings::default())
    }

    fn prepare(&self, changes: &[LabelChange]) -> Result<Embeddings, PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        let written = self.settings.label_text.rewritten(&space, &changed);
        let encoded = self.encode_labels(&space, &written)?;
        Ok(Embeddings::of_all(self.encoder.dimension(), &written, encoded))
    }

    fn apply_prepared(&mut self, changes: &[LabelChange], vectors: &Embeddings) -> Result<(), PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        let mut written = self.settings.label_text.rewritten(&space, &changed);
        written.retain(|&label| vectors.of(label).is_none());
        // Encoded first: after an error nothing has changed.
        let encoded = self.encode_labels(&space, &written)?;
        let encoded = Embeddings::of_all(self.encoder.dimension(), &written, encoded);
        self.index.change([&encoded, vectors], changed.removed)?;
        self.space = space;
        self.words.as_mut().map_or(Ok(()), |words| words.apply(changes))
    }

    fn label_dimension(&self) -> Option<usize> {
        Some(self.encoder.dimension())
    }

    fn label_vectors(&self, labels: &[LabelId]) -> Result<Embeddings, PredictError> {
        self.index.of(labels)
    }

    fn search_only_here(&self) -> Option<&'static str> {
        match (&self.words, self.index.has_gains()) {
            (Some(_), _) => Some("it counts the words that texts and labels share beside their cosines"),
            (None, true) => Some("labels gain something beside their cosines"),
            (None, false) => None,
        }
    }

    fn search_elsewhere(&mut self, index: Box<dyn LabelIndex>) -> Result<(), PredictError> {
        match self.search_only_here() {
            Some(why) => Err(PredictError::OnlyHere { why }),
            None => self.index.leave_to(index),
        }
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let vector = self.encode_labels(&self.space, &[label])?;
        let name = self.space.label(label).name.clone();
        let shares = self.encoder.shares(text_of(&passage), &vector)?;
        let cosine: f32 = shares.iter().map(|(_, share)| share).sum();
        let pieces = shares.into_iter().map(|(range, weight)| Piece { range, weight, attention: None });
        let (mut reasons, marks) = reasons(&passage, pieces);
        let gain = self.index.gain(label);
        if gain != 0.0 {
            let words = "(how often the label is guessed)".to_owned();
            reasons.push(Reason { words, field: Field::Text, weight: gain, attention: None });
        }
        let (mut score, mut matched) = (cosine + gain, Some(name));
        if let Some(words) = &self.words {
            let shared = words.explain(passage, label, &mut reasons)?;
            (score, matched) = (score + shared.score, shared.matched.or(matched));
        }
        if gain != 0.0 || self.words.is_some() {
            reasons.sort_by(Reason::order);
        }
        Ok(Explanation { score, matched, reasons, marks })
    }

    fn reads(&self) -> Option<usize> {
        match &self.encoder {
            TextEncoder::Network(encoder) => Some(encoder.settings().max_tokens),
            TextEncoder::Words(_) => self.settings.max_tokens,
        }
    }

    fn item_to_item(&self) -> bool {
        self.settings.item_to_item
    }

    fn place(&mut self, device: &Device) {
        self.index.place(device);
    }

    fn notice(&self) -> Option<String> {
        self.index.notice()
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        model.folder(ENCODER, |path| {
            self.encoder.export(path).map_err(|error| ArtifactError::Encoder(Box::new(error)))
        })?;
        self.index.save(model)?;
        if let Some(words) = &self.words {
            words.save(model)?;
        }
        match &self.course {
            Some(course) => model.file(CURVE, course.as_bytes()),
            None => Ok(()),
        }
    }
}
