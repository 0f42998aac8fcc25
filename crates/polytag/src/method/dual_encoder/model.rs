//! The model: an encoder of documents, and the vectors of all labels in an index.

use polytag_nn::device::Device;
use polytag_nn::tokenizer::Text;

use super::DualEncoderConfig;
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter};
use crate::data::{Changed, Dataset, Document, LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::{Exact, LabelIndex};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::label_text::text_of;
use crate::method::label_vectors::{LabelVectors, measured_documents};
use crate::method::training::{Core, LabelTower, Trained, labels_with_vectors};
use crate::method::words::{Piece, reasons};
use crate::predict::{Ask, Embeddings, Explanation, PredictError, Predictor};
use crate::ranking::Ranking;

/// A trained dual encoder.
pub struct DualEncoderModel {
    config: DualEncoderConfig,
    core: Core,
    space: LabelSpace,
    index: LabelVectors,
}

impl DualEncoderModel {
    pub(super) fn new(
        method: &'static str,
        config: DualEncoderConfig,
        space: LabelSpace,
        trained: Trained,
    ) -> Result<DualEncoderModel, MethodError> {
        let dimension = trained.encoder.dimension();
        let mut index = Exact::new(index_dimension(&config, dimension), config.training.precision)?;
        index.reserve(space.positions())?;
        let vectors = trained.vectors.outputs.chunks_exact(dimension);
        for ((&label, vector), &bias) in trained.order.iter().zip(vectors).zip(&trained.biases) {
            index.set(label, &with_bias(&config, vector, bias))?;
        }
        let core = trained.into_core(method, &config.training, &space)?;
        Ok(DualEncoderModel { config, core, space, index: index.into() })
    }

    /// The same, its labels in the index that the settings ask for, measured with documents where there are any.
    pub(super) fn indexed(
        self,
        method: &'static str,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<DualEncoderModel, MethodError> {
        let DualEncoderModel { config, core, space, index } = self;
        let own = config.labels == LabelTower::Free;
        let obstacle =
            own.then_some("labels have biases of their own, which a graph in 8 bits does not hold");
        let sample = || {
            let documents = measured_documents(dataset)?;
            let passages: Vec<Passage<'_>> = documents.iter().map(Document::passage).collect();
            let texts: Vec<Text<'_>> = passages.iter().map(text_of).collect();
            Ok(if texts.is_empty() || own { Vec::new() } else { core.encoder.encode(&texts)? })
        };
        let index = index.indexed((method, config.index), obstacle, sample, context)?;
        Ok(DualEncoderModel { config, core, space, index })
    }

    /// Reads a model that [`save`](Predictor::save) wrote, its encoders onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<DualEncoderModel, crate::Error> {
        let config: DualEncoderConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        let core = Core::load(folder, device, (&config.training, config.labels, false))?;
        let space = folder.labels()?;
        let labels = labels_with_vectors(&space, config.labels, config.training.unseen);
        let dimension = index_dimension(&config, core.encoder.dimension());
        let index = LabelVectors::load(folder, dimension, (&space, labels))?;
        Ok(DualEncoderModel { config, core, space, index })
    }

    /// The vectors of texts, end to end, as the index takes them.
    fn encode(&self, texts: &[Text<'_>]) -> Result<Vec<f32>, PredictError> {
        let vectors = self.core.encoder.encode(texts)?;
        if self.config.labels != LabelTower::Free {
            return Ok(vectors);
        }
        let dimension = self.core.encoder.dimension();
        Ok(vectors.chunks_exact(dimension).flat_map(|vector| [vector, &[1.0]].concat()).collect())
    }

    /// The labels that want other vectors after a change.
    fn rewritten(&self, space: &LabelSpace, changed: &Changed) -> Result<Vec<LabelId>, PredictError> {
        self.core.maker.rewritten(space, changed, |label| self.index.index().labels().contains(label))
    }

    /// The vectors of labels, made of their texts.
    fn made(&self, space: &LabelSpace, labels: &[LabelId]) -> Result<Embeddings, PredictError> {
        if labels.is_empty() {
            return Ok(Embeddings::default());
        }
        let made = self.core.maker.make(&self.core.encoder, space, labels)?;
        Ok(Embeddings::of_all(self.index.index().dim(), labels, made.outputs))
    }

    /// The vector of a label, if it has one, and its own bias.
    fn vector(&self, label: LabelId) -> Result<Option<(Vec<f32>, f32)>, PredictError> {
        let Some(mut vector) = self.index.index().vector(label)? else { return Ok(None) };
        let bias = match self.config.labels {
            LabelTower::Free => vector.pop().unwrap_or_default(),
            _ => 0.0,
        };
        Ok(Some((vector, bias)))
    }
}

/// How many numbers a vector of the index has: a label's own bias is one more.
fn index_dimension(config: &DualEncoderConfig, dimension: usize) -> usize {
    dimension + usize::from(config.labels == LabelTower::Free)
}

fn with_bias(config: &DualEncoderConfig, vector: &[f32], bias: f32) -> Vec<f32> {
    match config.labels {
        LabelTower::Free => [vector, &[bias]].concat(),
        _ => vector.to_vec(),
    }
}

impl Predictor for DualEncoderModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let texts: Vec<Text<'_>> = passages.iter().map(text_of).collect();
        let rankings = self.index.search(&self.encode(&texts)?, ask.k, ask.allowed)?;
        let score = |comparison| self.core.scoring.score(comparison);
        rankings.into_iter().map(|ranking| Ok(ranking.rescored(score)?)).collect()
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        self.apply_prepared(changes, &Embeddings::default())
    }

    fn prepare(&self, changes: &[LabelChange]) -> Result<Embeddings, PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        self.made(&space, &self.rewritten(&space, &changed)?)
    }

    fn apply_prepared(&mut self, changes: &[LabelChange], vectors: &Embeddings) -> Result<(), PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        let mut written = self.rewritten(&space, &changed)?;
        written.retain(|&label| vectors.of(label).is_none());
        // Made first: after an error nothing has changed.
        let made = self.made(&space, &written)?;
        self.index.change([&made, vectors], changed.removed)?;
        self.space = space;
        Ok(())
    }

    fn label_dimension(&self) -> Option<usize> {
        self.takes_new_labels().then(|| self.index.index().dim())
    }

    fn label_vectors(&self, labels: &[LabelId]) -> Result<Embeddings, PredictError> {
        self.index.of(labels)
    }

    fn search_only_here(&self) -> Option<&'static str> {
        (self.config.labels == LabelTower::Free).then_some("labels have biases of their own")
    }

    fn search_elsewhere(&mut self, index: Box<dyn LabelIndex>) -> Result<(), PredictError> {
        match self.search_only_here() {
            Some(why) => Err(PredictError::OnlyHere { why }),
            None => self.index.leave_to(index),
        }
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let Some((vector, own_bias)) = self.vector(label)? else {
            return Ok(Explanation { score: 0.0, matched: None, reasons: Vec::new(), marks: Vec::new() });
        };
        let (scale, bias) = self.core.scoring.shares();
        let shares = self.core.encoder.shares(text_of(&passage), &vector)?;
        let comparison = shares.iter().map(|(_, share)| share).sum::<f32>() + own_bias;
        let pieces = shares.into_iter().map(|(range, share)| (range, share * scale));
        let pieces = pieces.chain([(0..0, own_bias * scale + bias)]);
        let pieces = pieces.map(|(range, weight)| Piece { range, weight, attention: None });
        let matched = Some(self.space.label(label).name.clone());
        let score = self.core.scoring.score(comparison);
        let (reasons, marks) = reasons(&passage, pieces);
        Ok(Explanation { score, matched, reasons, marks })
    }

    fn place(&mut self, device: &Device) {
        self.index.place(device);
    }

    fn notice(&self) -> Option<String> {
        self.index.notice()
    }

    fn gives_probabilities(&self) -> bool {
        self.core.scoring.probability
    }

    fn reads(&self) -> Option<usize> {
        Some(self.core.encoder.settings().max_tokens)
    }

    fn takes_new_labels(&self) -> bool {
        self.core.maker.takes_new_labels()
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        self.core.save(model)?;
        self.index.save(model)
    }
}
