//! The experts: their weights, and what they make of the layers of an encoder.
//!
//! An expert that pools compares one vector of a document, or several joined, with a vector of each label. One whose
//! labels look for themselves gives each label a query over the tokens of its layer. Both end with scores of all labels;
//! a score becomes a probability, and the experts' probabilities count alike. Rows of labels are filled up to a
//! multiple of eight, which the GPU wants; what is filled up is no label: it is learned to fit nothing, and never given.
//! Where labels are in clusters, these are judged first, by the last layer's first token, and then some labels only.

use std::ops::Range;

use polytag_nn::batch::Batch;
use polytag_nn::encoder::{Encoder, Top};
use polytag_nn::error::Error;
use polytag_nn::loss::{Number, Scores};
use polytag_nn::op::{
    ChunkMemory, Comparison, LabelAttention, Pooling, RowIds, add_bias, add_chosen_bias, dropout, gather,
    label_attention, linear, pool, product_with_rows, rows, sum, weight,
};
use polytag_nn::parameters::{ParameterId, Parameters, ParametersBuilder};
use polytag_nn::tape::{Tape, Var};

use super::clusters::Clusters;
use super::config::{ATTENTION, ClassifierConfig, OUTPUT};
use super::expert::Reads;
use crate::method::training::probability;

/// The experts of a model.
pub(super) struct Network {
    /// The layers that somebody reads, in order.
    pub(super) layers: Vec<usize>,
    /// How much of the highest of them is read.
    pub(super) top: Top,
    /// Rows of labels, filled up.
    pub(super) columns: usize,
    pub(super) experts: Vec<Judge>,
    pub(super) recall: Option<Recall>,
    dropout: f32,
    pub(super) memory: ChunkMemory,
}

/// An expert's weights.
pub(super) enum Judge {
    /// A vector for all labels, out of several layers: which of the network's, and a row a label for each.
    Pooled { pooling: Pooling, parts: Vec<(usize, ParameterId)>, bias: ParameterId },
    /// A query for each label, and what it expects to find.
    Looking { state: usize, queries: ParameterId, vectors: ParameterId, bias: ParameterId },
}

/// Who judges clusters of labels.
pub(super) struct Recall {
    pub(super) clusters: Clusters,
    /// Rows of clusters, filled up.
    pub(super) columns: usize,
    /// How many clusters of a document have their labels judged.
    pub(super) beam: usize,
    state: usize,
    vectors: ParameterId,
    bias: ParameterId,
}

/// What an expert has read of a batch.
pub(super) enum Read {
    /// A row a sequence, for each of its layers.
    Vectors(Vec<Var>),
    /// A row a token.
    Tokens(Var),
}

/// A row a sequence; a layer of which first tokens alone are there has that already.
fn pooled(tape: &mut Tape<'_>, (state, batch): (&Var, &Batch), pooling: Pooling) -> Result<Var, Error> {
    match state.tensor().rows() == batch.tokens() {
        true => pool(tape, state, batch, pooling),
        false => Ok(state.clone()),
    }
}

impl Network {
    /// Whether nobody looks at words: first tokens hold what the encoder makes of all of them.
    pub(super) fn reads_first_tokens_alone(&self) -> bool {
        let is_first = |judge: &Judge| matches!(judge, Judge::Pooled { pooling: Pooling::Cls, .. });
        self.experts.iter().all(is_first)
    }

    /// Adds the experts' weights to `builder`, for an encoder and so many labels. `values` gives what each begins with,
    /// by its name, rows and columns.
    pub(super) fn new(
        config: &ClassifierConfig,
        encoder: &Encoder,
        (labels, clusters): (usize, Option<Clusters>),
        builder: &mut ParametersBuilder,
        mut values: impl FnMut(&str, (usize, usize)) -> Result<Vec<f32>, String>,
    ) -> Result<Network, String> {
        let (hidden, columns) = (encoder.config().hidden, labels.next_multiple_of(8));
        let wanted: Vec<Vec<usize>> = config
            .experts
            .iter()
            .map(|expert| expert.layers(encoder.last()))
            .collect::<Result<_, String>>()?;
        let mut layers = wanted.concat();
        layers.extend(clusters.is_some().then_some(encoder.last()));
        layers.sort_unstable();
        layers.dedup();
        let state = |layer: usize| layers.binary_search(&layer).expect("layers that are read are there");
        let mut add = |name: String, shape: (usize, usize), group: usize| -> Result<ParameterId, String> {
            let id = builder.add(&name, shape, &values(&name, shape)?);
            builder.info_mut(id).group = group;
            Ok(id)
        };
        let mut experts = Vec::new();
        for (number, (expert, wanted)) in config.experts.iter().zip(&wanted).enumerate() {
            let name = |what: &str| format!("expert{number}.{what}");
            let bias = add(name("biases"), (1, columns), OUTPUT)?;
            experts.push(match expert.reads {
                Reads::Pooled(pooling) => {
                    let part = |&layer: &usize| {
                        let vectors = add(name(&format!("vectors.{layer}")), (columns, hidden), OUTPUT)?;
                        Ok((state(layer), vectors))
                    };
                    Judge::Pooled {
                        pooling,
                        parts: wanted.iter().map(part).collect::<Result<_, String>>()?,
                        bias,
                    }
                }
                Reads::Labels => Judge::Looking {
                    state: state(wanted[0]),
                    queries: add(name("queries"), (columns, hidden), ATTENTION)?,
                    vectors: add(name("vectors"), (columns, hidden), OUTPUT)?,
                    bias,
                },
            });
        }
        let recall = match clusters {
            None => None,
            Some(clusters) => {
                let columns = clusters.len().next_multiple_of(8);
                Some(Recall {
                    columns,
                    beam: config.cluster_beam,
                    state: state(encoder.last()),
                    vectors: add("clusters.vectors".to_owned(), (columns, hidden), OUTPUT)?,
                    bias: add("clusters.biases".to_owned(), (1, columns), OUTPUT)?,
                    clusters,
                })
            }
        };
        let memory = ChunkMemory::new(config.steps.chunk_mib << 20);
        let reads_first = |judge: &Judge| match judge {
            Judge::Pooled { pooling, parts, .. } => {
                *pooling == Pooling::Cls || parts.iter().all(|(state, _)| state + 1 < layers.len())
            }
            Judge::Looking { state, .. } => state + 1 < layers.len(),
        };
        let top = if experts.iter().all(reads_first) { Top::First } else { Top::Tokens };
        Ok(Network { layers, top, columns, experts, recall, dropout: config.feature_dropout, memory })
    }

    /// All weights.
    pub(super) fn weights(&self) -> Vec<ParameterId> {
        let of = |judge: &Judge| match judge {
            Judge::Pooled { parts, bias, .. } => parts.iter().map(|&(_, id)| id).chain([*bias]).collect(),
            Judge::Looking { queries, vectors, bias, .. } => vec![*queries, *vectors, *bias],
        };
        let recall = self.recall.iter().flat_map(|recall| [recall.vectors, recall.bias]);
        self.experts.iter().flat_map(of).chain(recall).collect()
    }

    /// The scores of all clusters for some sequences of a batch.
    pub(super) fn recall_scores(
        &self,
        tape: &mut Tape<'_>,
        recall: &Recall,
        (states, batch): (&[Var], &Batch),
        sequences: Range<usize>,
    ) -> Result<Var, Error> {
        let first = pooled(tape, (&states[recall.state], batch), Pooling::Cls)?;
        let some = Network::some(tape, &[first], sequences)?;
        let kept = dropout(tape, &some[0], self.dropout)?;
        linear(tape, &kept, recall.vectors, Some(recall.bias))
    }

    /// What each expert reads of a batch whose layers are `states`.
    pub(super) fn read(
        &self,
        tape: &mut Tape<'_>,
        states: &[Var],
        batch: &Batch,
    ) -> Result<Vec<Read>, Error> {
        let read = |judge: &Judge| match judge {
            Judge::Pooled { pooling, parts, .. } => {
                let vectors =
                    |&(state, _): &(usize, ParameterId)| pooled(tape, (&states[state], batch), *pooling);
                Ok(Read::Vectors(parts.iter().map(vectors).collect::<Result<_, Error>>()?))
            }
            Judge::Looking { state, .. } => Ok(Read::Tokens(states[*state].clone())),
        };
        self.experts.iter().map(read).collect()
    }

    /// An expert's scores of some sequences of a batch: `[sequences, columns]`, or a column for each chosen row.
    pub(super) fn scores(
        &self,
        tape: &mut Tape<'_>,
        expert: usize,
        (read, batch): (&Read, &Batch),
        (sequences, chosen): (Range<usize>, Option<&RowIds>),
    ) -> Result<Var, Error> {
        match (&self.experts[expert], read) {
            (Judge::Looking { queries, vectors, bias, .. }, Read::Tokens(tokens)) => {
                let mut matrix = |id| match chosen {
                    None => weight(tape, id),
                    Some(rows) => gather(tape, id, rows, tokens.tensor().columns()),
                };
                let (queries, outputs) = (matrix(*queries)?, matrix(*vectors)?);
                let labels = LabelAttention {
                    sequences,
                    queries: &queries,
                    outputs: &outputs,
                    comparison: Comparison::Product,
                    memory: &self.memory,
                };
                let found = label_attention(tape, tokens, batch, &labels)?;
                match chosen {
                    None => add_bias(tape, &found, *bias),
                    Some(rows) => add_chosen_bias(tape, &found, *bias, rows),
                }
            }
            (Judge::Pooled { .. }, Read::Vectors(vectors)) => {
                let some = Network::some(tape, vectors, sequences)?;
                self.scores_of(tape, expert, &some, chosen)
            }
            _ => unreachable!("an expert reads as it judges"),
        }
    }

    /// The scores that an expert which pools gives for vectors, one matrix for each of its layers.
    pub(super) fn scores_of(
        &self,
        tape: &mut Tape<'_>,
        expert: usize,
        vectors: &[Var],
        chosen: Option<&RowIds>,
    ) -> Result<Var, Error> {
        let Judge::Pooled { parts, bias, .. } = &self.experts[expert] else {
            unreachable!("only experts that pool judge vectors");
        };
        let mut terms = Vec::with_capacity(parts.len());
        for (place, (vectors, &(_, rows))) in vectors.iter().zip(parts).enumerate() {
            let kept = dropout(tape, vectors, self.dropout)?;
            terms.push(match chosen {
                None => linear(tape, &kept, rows, (place == 0).then_some(*bias))?,
                Some(chosen) => product_with_rows(tape, &kept, rows, chosen)?,
            });
        }
        let total = sum(tape, &terms)?;
        match chosen {
            None => Ok(total),
            Some(chosen) => add_chosen_bias(tape, &total, *bias, chosen),
        }
    }

    /// The scores for a loss of an expert that is alone, described and not made where that is possible: so many labels
    /// need never be there at once.
    pub(super) fn scores_for_loss(
        &self,
        tape: &mut Tape<'_>,
        expert: usize,
        (read, batch): (&Read, &Batch),
        sequences: Range<usize>,
    ) -> Result<Scores, Error> {
        match (&self.experts[expert], read) {
            (Judge::Pooled { parts, bias, .. }, Read::Vectors(vectors)) if parts.len() == 1 => {
                let some = Network::some(tape, vectors, sequences)?;
                let kept = dropout(tape, &some[0], self.dropout)?;
                let scores = Scores::with_weight(&kept, parts[0].1).bias(Number::Learned(*bias));
                Ok(scores.chunk_memory(self.memory.bytes()))
            }
            _ => Ok(Scores::given(&self.scores(tape, expert, (read, batch), (sequences, None))?)),
        }
    }

    /// Some rows of each matrix.
    pub(super) fn some(
        tape: &mut Tape<'_>,
        vectors: &[Var],
        sequences: Range<usize>,
    ) -> Result<Vec<Var>, Error> {
        let all = 0..vectors[0].tensor().rows();
        if sequences == all {
            return Ok(vectors.to_vec());
        }
        vectors.iter().map(|matrix| rows(tape, matrix, sequences.clone())).collect()
    }

    /// The probabilities of all labels, or of chosen rows, for some sequences of a batch: the mean of all experts', a row a
    /// sequence.
    pub(super) fn probabilities(
        &self,
        tape: &mut Tape<'_>,
        (reads, batch): (&[Read], &Batch),
        (sequences, chosen): (Range<usize>, Option<&RowIds>),
    ) -> Result<Vec<f32>, Error> {
        let columns = chosen.map_or(self.columns, |rows| rows.ids().len());
        let mut mean = vec![0.0; sequences.len() * columns];
        let share = 1.0 / self.experts.len() as f32;
        for (expert, read) in reads.iter().enumerate() {
            let scores =
                self.scores(tape, expert, (read, batch), (sequences.clone(), chosen))?.tensor().to_vec()?;
            mean.iter_mut().zip(scores).for_each(|(mean, score)| *mean += share * probability(score));
        }
        Ok(mean)
    }

    /// Values of the weights, by their names.
    pub(super) fn values(&self, parameters: &Parameters) -> Result<Vec<(String, Vec<f32>)>, Error> {
        let value = |id: ParameterId| Ok((parameters.info(id).name.clone(), parameters.to_vec(id)?));
        self.weights().into_iter().map(value).collect()
    }
}
