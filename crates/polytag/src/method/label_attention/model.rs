//! The model: an encoder of documents, and the queries and output vectors of all labels.

use std::sync::Arc;

use polytag_nn::device::Device;
use polytag_nn::error::Error;
use polytag_nn::op::{ChunkMemory, Comparison, Pooling, label_attention_weights, normalise, pool};
use polytag_nn::tape::{Tape, Var};
use polytag_nn::tokenizer::Text;
use rayon::prelude::*;

use super::LabelAttentionConfig;
use super::table::Table;
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::{Exact, LabelIndex};
use crate::method::error::MethodError;
use crate::method::label_text::text_of;
use crate::method::training::{Core, LabelTower, Trained, VECTORS, labels_with_vectors, read_vectors};
use crate::method::words::{Piece, reasons};
use crate::predict::{Ask, Embeddings, Explanation, PredictError, Predictor};
use crate::ranking::{NotFinite, Ranking, Scored, TopK};

/// What the output vectors are called in their file.
const OUTPUTS: &str = "label_vectors";

/// What the queries are called.
const QUERIES: &str = "label_queries";

/// What biases of each label's own are called, by position.
const BIASES: &str = "label_biases";

/// Passages that are made into tokens at once.
const WINDOW: usize = 2048;

/// What labels attend with, by position.
pub(super) struct Vectors {
    /// What a label looks for.
    pub(super) queries: Exact,
    /// What it expects to find.
    pub(super) outputs: Exact,
    /// What is added to its score; empty where there is nothing.
    pub(super) biases: Vec<f32>,
}

impl Vectors {
    /// What is added to a label's score.
    pub(super) fn bias(&self, label: LabelId) -> f32 {
        self.biases.get(label.index()).copied().unwrap_or(0.0)
    }
}

/// A trained model whose labels attend.
pub struct LabelAttentionModel {
    config: LabelAttentionConfig,
    core: Core,
    space: LabelSpace,
    vectors: Vectors,
    /// All labels on the device, made again when they change.
    table: Arc<Table>,
    memory: ChunkMemory,
}

impl LabelAttentionModel {
    pub(super) fn new(
        method: &'static str,
        config: LabelAttentionConfig,
        space: LabelSpace,
        trained: Trained,
    ) -> Result<LabelAttentionModel, MethodError> {
        let dimension = trained.encoder.dimension();
        let collect = |rows: &[f32]| -> Result<Exact, MethodError> {
            let mut index = Exact::new(dimension, config.training.precision)?;
            index.reserve(space.positions())?;
            for (&label, row) in trained.order.iter().zip(rows.chunks_exact(dimension)) {
                index.set(label, row)?;
            }
            Ok(index)
        };
        let outputs = collect(&trained.vectors.outputs)?;
        let queries = collect(&trained.vectors.queries)?;
        let mut biases = Vec::new();
        if config.labels == LabelTower::Free {
            biases = vec![0.0; space.positions()];
            trained.order.iter().zip(&trained.biases).for_each(|(label, &bias)| biases[label.index()] = bias);
        }
        let core = trained.into_core(method, &config.training, &space)?;
        Ok(LabelAttentionModel::assemble(config, core, space, Vectors { queries, outputs, biases })?)
    }

    /// Reads a model that [`save`](Predictor::save) wrote, its encoders onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<LabelAttentionModel, crate::Error> {
        let config: LabelAttentionConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        let core = Core::load(folder, device, (&config.training, config.labels, true))?;
        let space = folder.labels()?;
        let labels = labels_with_vectors(&space, config.labels, config.training.unseen);
        let dimension = core.encoder.dimension();
        let outputs = read_vectors(folder, (VECTORS, OUTPUTS), dimension, (&space, &labels))?;
        let queries = read_vectors(folder, (VECTORS, QUERIES), dimension, (&space, &labels))?;
        let mut biases = Vec::new();
        if config.labels == LabelTower::Free {
            biases = folder.tensors(VECTORS)?.f32(BIASES)?;
            if biases.len() != space.positions() {
                return Err(folder.damaged(VECTORS, "its biases are not those of the labels").into());
            }
        }
        let vectors = Vectors { queries, outputs, biases };
        Ok(LabelAttentionModel::assemble(config, core, space, vectors).map_err(MethodError::from)?)
    }

    fn assemble(
        config: LabelAttentionConfig,
        core: Core,
        space: LabelSpace,
        vectors: Vectors,
    ) -> Result<LabelAttentionModel, Error> {
        let labels = vectors.outputs.labels().iter().collect();
        let table = Arc::new(Table::new(&vectors, labels, core.encoder.parameters().device())?);
        let memory = ChunkMemory::new(config.training.steps.chunk_mib << 20);
        Ok(LabelAttentionModel { config, core, space, vectors, table, memory })
    }

    fn device(&self) -> &Device {
        self.core.encoder.parameters().device()
    }

    fn comparison(&self) -> Comparison {
        match self.config.labels {
            LabelTower::Free => Comparison::Product,
            _ => Comparison::Cosine,
        }
    }

    /// How many labels attend to a document, if not all of them do.
    fn candidates(&self) -> Option<usize> {
        let on_cpu = matches!(self.device(), Device::Cpu(_));
        self.config.candidates.filter(|&count| on_cpu && count < self.table.labels().len())
    }

    /// The best labels of documents that are token ids.
    fn rank(&self, texts: &[&[u32]], ask: &Ask<'_>) -> Result<Vec<Result<Ranking, NotFinite>>, Error> {
        let attention = (&self.memory, self.comparison());
        if let Some(count) = self.candidates() {
            return self.core.encoder.each(texts, |tape, states, batch| {
                let means = pool(tape, states, batch, Pooling::Mean)?;
                let means = normalise(tape, &means)?;
                let near =
                    self.vectors.outputs.search(means.tensor().values(), count.max(ask.k), ask.allowed);
                let near = near.map_err(|error| Error::Unfit(error.to_string()))?;
                let rank = |(sequence, near): (usize, &Ranking)| {
                    let mut tape = Tape::inference(self.core.encoder.parameters());
                    let table = Table::new(&self.vectors, near.labels().collect(), self.device())?;
                    let range = sequence..sequence + 1;
                    let scores = table.attend(&mut tape, (states, batch), range, attention)?;
                    Ok(self.best(&scores, &table, ask.k))
                };
                near.iter().enumerate().map(rank).collect()
            });
        }
        let table = match ask.allowed {
            None => Arc::clone(&self.table),
            Some(allowed) => {
                let may = |label: &LabelId| allowed.contains(*label);
                let labels = self.table.labels().iter().copied().filter(may).collect();
                Arc::new(Table::new(&self.vectors, labels, self.device())?)
            }
        };
        if table.labels().is_empty() {
            return Ok(texts.iter().map(|_| Ok(Ranking::default())).collect());
        }
        self.core.encoder.each(texts, |tape, states, batch| {
            let mut rankings = Vec::with_capacity(batch.len());
            for range in self.memory.in_parts(batch.len(), 4 * table.labels().len()) {
                let scores = table.attend(tape, (states, batch), range, attention)?;
                let rows = scores.par_chunks_exact(table.labels().len());
                rankings.par_extend(rows.map(|row| self.best(row, &table, ask.k)));
            }
            Ok(rankings)
        })
    }

    fn best(&self, scores: &[f32], table: &Table, k: usize) -> Result<Ranking, NotFinite> {
        let mut top = TopK::new(k);
        for (&label, &found) in table.labels().iter().zip(scores) {
            top.push(Scored { label, score: found })?;
        }
        top.into_ranking().rescored(|found| self.core.scoring.score(found))
    }
}

impl Predictor for LabelAttentionModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let encoder = &self.core.encoder;
        let mut rankings = Vec::with_capacity(passages.len());
        for window in passages.chunks(WINDOW) {
            let texts: Vec<Text<'_>> = window.iter().map(text_of).collect();
            let tokens = encoder.tokenizer().encode(&texts, encoder.settings().max_tokens)?;
            let tokens: Vec<&[u32]> = tokens.iter().map(Vec::as_slice).collect();
            for ranking in self.rank(&tokens, ask)? {
                rankings.push(ranking?);
            }
        }
        Ok(rankings)
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        let has_vector = |label| self.vectors.outputs.labels().contains(label);
        let written = self.core.maker.rewritten(&space, &changed, has_vector)?;
        if !written.is_empty() {
            // Made first: after an error nothing has changed.
            let made = self.core.maker.make(&self.core.encoder, &space, &written)?;
            let dimension = self.core.encoder.dimension();
            let rows = made.outputs.chunks_exact(dimension).zip(made.queries.chunks_exact(dimension));
            for (&label, (output, query)) in written.iter().zip(rows) {
                self.vectors.outputs.set(label, output)?;
                self.vectors.queries.set(label, query)?;
            }
        }
        for label in changed.removed {
            self.vectors.outputs.remove(label);
            self.vectors.queries.remove(label);
        }
        self.space = space;
        let labels = self.vectors.outputs.labels().iter().collect();
        self.table = Arc::new(Table::new(&self.vectors, labels, self.device())?);
        Ok(())
    }

    fn prepare(&self, changes: &[LabelChange]) -> Result<Embeddings, PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        let has_vector = |label| self.vectors.outputs.labels().contains(label);
        // A label has two vectors here, which each that takes the change makes for itself.
        self.core.maker.rewritten(&space, &changed, has_vector).map(|_| Embeddings::default())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let name = self.space.label(label).name.clone();
        let vector = |index: &Exact| index.kept(label);
        let (Some(query), Some(output)) = (vector(&self.vectors.queries), vector(&self.vectors.outputs))
        else {
            return Ok(Explanation { score: 0.0, matched: None, reasons: Vec::new(), marks: Vec::new() });
        };
        let encoder = &self.core.encoder;
        let (ids, ranges) = encoder.tokenizer().pieces(text_of(&passage), encoder.settings().max_tokens)?;
        let states =
            encoder.each(&[&ids], |_, states: &Var, _| Ok(vec![states.tensor().to_vec()?]))?.remove(0);
        let attention = label_attention_weights(&states, &query);
        let tokens: Vec<&[f32]> = states.chunks_exact(encoder.dimension()).collect();
        let mut length = 1.0;
        if self.comparison() == Comparison::Cosine {
            let found =
                |column: usize| -> f32 { tokens.iter().zip(&attention).map(|(t, a)| a * t[column]).sum() };
            length =
                (0..encoder.dimension()).map(|column| found(column).powi(2)).sum::<f32>().sqrt().max(1e-12);
        }
        let product = |token: &[f32]| token.iter().zip(&output).map(|(a, b)| a * b).sum::<f32>();
        let shares = tokens.iter().zip(&attention).map(|(token, weight)| weight * product(token) / length);
        let shares: Vec<f32> = shares.collect();
        let own_bias = self.vectors.bias(label);
        let (scale, bias) = self.core.scoring.shares();
        let pieces = ranges.into_iter().zip(shares.iter().zip(&attention));
        let pieces = pieces.map(|(range, (share, &attention))| Piece {
            range,
            weight: share * scale,
            attention: Some(attention),
        });
        let before = Piece { range: 0..0, weight: own_bias * scale + bias, attention: None };
        let score = self.core.scoring.score(shares.iter().sum::<f32>() + own_bias);
        let (reasons, marks) = reasons(&passage, pieces.chain([before]));
        Ok(Explanation { score, matched: Some(name), reasons, marks })
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
        let dimension = self.core.encoder.dimension();
        let (outputs, queries) = (self.vectors.outputs.rows(), self.vectors.queries.rows());
        let mut tensors =
            TensorsBuilder::default().rows(OUTPUTS, dimension, &outputs).rows(QUERIES, dimension, &queries);
        if !self.vectors.biases.is_empty() {
            tensors = tensors.f32(BIASES, &self.vectors.biases);
        }
        model.tensors(VECTORS, &tensors)
    }
}
