//! The model: an encoder, its experts, and the labels that they know.

use std::collections::HashMap;

use polytag_nn::device::Device;
use polytag_nn::encoder::Encoder;
use polytag_nn::error::Error;
use polytag_nn::op::{Pooling, label_attention_weights};
use polytag_nn::parameters::{Parameters, ParametersBuilder};
use polytag_nn::sentence::{Overrides, SentenceEncoder, Settings};
use polytag_nn::tape::Tape;
use polytag_nn::tokenizer::{Text, Tokenizer};
use polytag_nn::train::CURVE;

use super::clusters::Clusters;
use super::config::ClassifierConfig;
use super::measured::rank;
use super::missed::what_is_missed;
use super::network::{Judge, Network};
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::method::error::MethodError;
use crate::method::label_text::text_of;
use crate::method::seen_labels::{changed_among_seen, seen_labels};
use crate::method::training::probability;
use crate::method::words::{Piece, reasons};
use crate::predict::{Ask, Embeddings, Explanation, PredictError, Predictor};
use crate::ranking::Ranking;

/// Where the encoder lies: a folder that sentence-transformers reads, too.
const ENCODER: &str = "encoder";

/// The file of the experts' weights.
const EXPERTS: &str = "experts.safetensors";

/// Which cluster each label is in, among the experts' weights, where labels are in clusters.
const CLUSTERS: &str = "clusters.of_labels";

/// The course of the training for people.
const PAGE: &str = "training.html";

/// Passages that are made into tokens at once.
const WINDOW: usize = 2048;

/// How many labels that are asked for are judged whatever their clusters are.
const MOST_NAMED: usize = 8192;

/// A trained classifier.
pub struct ClassifierModel {
    encoder: Encoder,
    network: Network,
    /// Of the encoder and of the experts.
    parameters: Parameters,
    tokenizer: Tokenizer,
    settings: Settings,
    space: LabelSpace,
    /// The labels that experts know, row by row, in rising order.
    labels: Vec<LabelId>,
    record: [String; 2],
}

impl ClassifierModel {
    /// What a training left: an encoder and its experts, whose weights are among others.
    pub(super) fn trained(
        config: ClassifierConfig,
        base: &SentenceEncoder,
        (encoder, network, parameters): (Encoder, Network, &Parameters),
        space: LabelSpace,
        record: [String; 2],
    ) -> Result<ClassifierModel, Error> {
        let mut builder = ParametersBuilder::default();
        let encoder = encoder.copy(parameters, &mut builder)?;
        let labels = seen_labels(&space);
        // Every weight is asked for once, by its name.
        let mut known: HashMap<String, Vec<f32>> = network.values(parameters)?.into_iter().collect();
        let take = |name: &str, _| known.remove(name).ok_or_else(|| format!("{name} is missing"));
        let clusters = network.recall.as_ref().map(|recall| recall.clusters.clone());
        let rows = (labels.len(), clusters);
        let network = Network::new(&config, &encoder, rows, &mut builder, take).map_err(Error::Unfit)?;
        Ok(ClassifierModel {
            encoder,
            network,
            parameters: builder.build(parameters.device())?,
            tokenizer: base.tokenizer().clone(),
            settings: *base.settings(),
            space,
            labels,
            record,
        })
    }

    /// Reads a model that [`save`](Predictor::save) wrote, onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<ClassifierModel, crate::Error> {
        let config: ClassifierConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        let path = folder.folder(ENCODER)?;
        let mut builder = ParametersBuilder::default();
        let (encoder, tokenizer, settings) =
            SentenceEncoder::load_among(&path, &mut builder, &Overrides::default())
                .map_err(MethodError::from)?;
        let space = folder.labels()?;
        let labels = seen_labels(&space);
        let tensors = folder.tensors(EXPERTS)?;
        let values = |name: &str, (rows, columns): (usize, usize)| {
            let values = tensors.f32(name).map_err(|error| error.to_string())?;
            match values.len() == rows * columns {
                true => Ok(values),
                false => Err(format!("{name}: it does not fit the labels and the encoder")),
            }
        };
        let clusters = match tensors.has(CLUSTERS) {
            false => None,
            true => {
                let of_rows = tensors.f32(CLUSTERS)?;
                let fits = |&cluster: &f32| {
                    cluster >= 0.0 && cluster.fract() == 0.0 && cluster < labels.len() as f32
                };
                if of_rows.len() != labels.len() || !of_rows.iter().all(fits) {
                    return Err(folder.damaged(EXPERTS, "its clusters are not those of the labels").into());
                }
                Some(Clusters::new(of_rows.into_iter().map(|cluster| cluster as u32).collect()))
            }
        };
        let rows = (labels.len(), clusters);
        let network = Network::new(&config, &encoder, rows, &mut builder, values)
            .map_err(|problem| folder.damaged(EXPERTS, problem))?;
        Ok(ClassifierModel {
            encoder,
            network,
            parameters: builder.build(device).map_err(MethodError::from)?,
            tokenizer,
            settings,
            space,
            labels,
            record: [folder.read_text(CURVE)?, folder.read_text(PAGE)?],
        })
    }

    /// What the layers that experts read make of the tokens of a text.
    fn states(&self, ids: &[u32]) -> Result<Vec<Vec<f32>>, Error> {
        let batch = self.encoder.batch(self.parameters.device(), [ids])?;
        let mut tape = Tape::inference(&self.parameters);
        let states = self.encoder.forward(&mut tape, &batch, &self.network.layers)?;
        states.iter().map(|state| state.tensor().to_vec()).collect()
    }

    /// What experts say of the label in a row on average, before it becomes a probability.
    fn first_token_score(&self, ids: &[u32], row: usize) -> Result<f32, Error> {
        let states = self.states(ids)?;
        let mut score = 0.0;
        for judge in &self.network.experts {
            let (shares, bias) = self.shares(judge, &states, row)?;
            score += shares.iter().map(|share| share.weight).sum::<f32>() + bias;
        }
        Ok(score / self.network.experts.len() as f32)
    }

    /// What each token adds to an expert's score of the label in a row, how much the label looks at it, and what there
    /// is before any token.
    fn shares(&self, judge: &Judge, states: &[Vec<f32>], row: usize) -> Result<(Vec<Share>, f32), Error> {
        let hidden = self.encoder.config().hidden;
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let count = states[0].len() / hidden;
        let none = Share { weight: 0.0, attention: None };
        let mut shares = vec![none; count];
        let bias = match judge {
            Judge::Pooled { pooling, parts, bias } => {
                let used = if *pooling == Pooling::Cls { 1 } else { count };
                for &(state, vectors) in parts {
                    let vector = self.parameters.row_to_vec(vectors, row)?;
                    for (share, token) in shares.iter_mut().zip(states[state].chunks_exact(hidden)).take(used)
                    {
                        share.weight += product(token, &vector) / used as f32;
                    }
                }
                bias
            }
            Judge::Looking { state, queries, vectors, bias } => {
                let attention =
                    label_attention_weights(&states[*state], &self.parameters.row_to_vec(*queries, row)?);
                let vector = self.parameters.row_to_vec(*vectors, row)?;
                let tokens = states[*state].chunks_exact(hidden).zip(attention);
                for (share, (token, attention)) in shares.iter_mut().zip(tokens) {
                    *share =
                        Share { weight: attention * product(token, &vector), attention: Some(attention) };
                }
                bias
            }
        };
        Ok((shares, self.parameters.row_to_vec(*bias, 0)?[row]))
    }
}

/// What a token has to do with a score.
#[derive(Clone, Copy)]
struct Share {
    weight: f32,
    attention: Option<f32>,
}

impl Predictor for ClassifierModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let may =
            |label| self.space.is_active(label) && ask.allowed.is_none_or(|allowed| allowed.contains(label));
        let named: Option<Vec<u32>> = ask.allowed.map(|_| {
            let rows = self.labels.iter().zip(0..).filter(|(label, _)| may(**label));
            rows.map(|(_, row)| row).collect()
        });
        if named.as_ref().is_some_and(Vec::is_empty) {
            return Ok(vec![Ranking::default(); passages.len()]);
        }
        // So many that clusters are the shorter way: what they find is looked through for what is allowed.
        let named = named.filter(|rows| rows.len() <= MOST_NAMED);
        let mut rankings = Vec::with_capacity(passages.len());
        for window in passages.chunks(WINDOW) {
            let texts: Vec<Text<'_>> = window.iter().map(text_of).collect();
            let tokens = self.tokenizer.encode(&texts, self.settings.max_tokens)?;
            let tokens: Vec<&[u32]> = tokens.iter().map(Vec::as_slice).collect();
            let texts = (&tokens[..], named.as_deref());
            let found = rank((&self.encoder, &self.parameters), &self.network, texts, |found| {
                found.best(&self.labels, ask.k, may)
            })?;
            for ranking in found {
                rankings.push(ranking?);
            }
        }
        Ok(rankings)
    }

    /// Labels can be renamed and removed; one that was never trained has no weights, and is refused.
    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        self.space = changed_among_seen(&self.space, changes)?;
        Ok(())
    }

    fn prepare(&self, changes: &[LabelChange]) -> Result<Embeddings, PredictError> {
        changed_among_seen(&self.space, changes).map(|_| Embeddings::default())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let Ok(row) = self.labels.binary_search(&label) else {
            return Ok(Explanation { score: 0.0, matched: None, reasons: Vec::new(), marks: Vec::new() });
        };
        let (ids, ranges) = self.tokenizer.pieces(text_of(&passage), self.settings.max_tokens)?;
        let states = self.states(&ids)?;
        let experts = self.network.experts.len() as f32;
        let looking = self.network.experts.iter().filter(|judge| matches!(judge, Judge::Looking { .. }));
        let looking = looking.count().max(1) as f32;
        let mut pieces: Vec<Piece> =
            ranges.into_iter().map(|range| Piece { range, weight: 0.0, attention: None }).collect();
        let (mut score, mut before) = (0.0, 0.0);
        for judge in &self.network.experts {
            let (shares, bias) = self.shares(judge, &states, row)?;
            let total = shares.iter().map(|share| share.weight).sum::<f32>() + bias;
            score += probability(total) / experts;
            before += bias / experts;
            for (piece, share) in pieces.iter_mut().zip(shares) {
                piece.weight += share.weight / experts;
                if let Some(attention) = share.attention {
                    *piece.attention.get_or_insert(0.0) += attention / looking;
                }
            }
        }
        if self.network.reads_first_tokens_alone() {
            // These hold the text as a whole: what a word adds is what is missing without it.
            let all = pieces.iter().map(|piece| piece.weight).sum::<f32>() + before;
            let without = |ids: &[u32]| self.first_token_score(ids, row);
            let missed = what_is_missed(&ids, pieces.iter().map(|piece| piece.range.clone()), all, without)?;
            before = all - missed.iter().sum::<f32>();
            pieces.iter_mut().zip(missed).for_each(|(piece, missed)| piece.weight = missed);
        }
        pieces.push(Piece { range: 0..0, weight: before, attention: None });
        let matched = Some(self.space.label(label).name.clone());
        let (reasons, marks) = reasons(&passage, pieces);
        Ok(Explanation { score, matched, reasons, marks })
    }

    fn gives_probabilities(&self) -> bool {
        true
    }

    fn reads(&self) -> Option<usize> {
        Some(self.settings.max_tokens)
    }

    fn takes_new_labels(&self) -> bool {
        false
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let engine = |error| ArtifactError::Encoder(Box::new(error));
        let mut builder = ParametersBuilder::default();
        let copy = self.encoder.copy(&self.parameters, &mut builder).map_err(engine)?;
        let weights = builder.build(&Device::cpu()).map_err(engine)?;
        let encoder =
            SentenceEncoder::new(copy, weights, self.tokenizer.clone(), self.settings).map_err(engine)?;
        model.folder(ENCODER, |path| encoder.export(path).map_err(engine))?;
        let values = self.network.values(&self.parameters).map_err(engine)?;
        let mut tensors = TensorsBuilder::default();
        for (name, values) in &values {
            tensors = tensors.f32(name, values);
        }
        // Whole numbers that single precision holds: there are fewer clusters than labels.
        let clusters: Option<Vec<f32>> = self
            .network
            .recall
            .as_ref()
            .map(|recall| recall.clusters.of_rows().iter().map(|&cluster| cluster as f32).collect());
        if let Some(clusters) = &clusters {
            tensors = tensors.f32(CLUSTERS, clusters);
        }
        model.tensors(EXPERTS, &tensors)?;
        model.file(CURVE, self.record[0].as_bytes())?;
        model.file(PAGE, self.record[1].as_bytes())
    }
}
