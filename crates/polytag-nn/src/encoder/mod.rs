//! BERT-family encoders.
//!
//! A Hugging Face folder enters; token ids enter a forward pass, and the hidden states of any layers
//! leave it. The families differ in names, in where positions begin, and in MPNet's bias by distance;
//! everything else is one piece of code.

mod config; // the shape, from config.json
mod names; // how each family names its tensors

use std::fs;
use std::path::Path;

use crate::batch::Batch;
use crate::device::Device;
use crate::error::Error;
use crate::op::{AddNorm, Attention, FeedForward, Pooling, Products, Tables};
use crate::op::{add_norm, attention, dropout, embedding, pool, relative_bias};
use crate::parameters::{ParameterId, Parameters, ParametersBuilder};
use crate::random::Key;
use crate::tape::{Tape, Var};
use crate::weights::{self, NewTensor, Weights};
pub use config::{EncoderConfig, Family};
use names::{Initial, Slot};

/// The standard deviation of random weights, as BERT has it.
const INITIAL_DEVIATION: f32 = 0.02;

/// An encoder: its shape, and which weights are its own.
///
/// The values are in the [`Parameters`] that the builder becomes.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: EncoderConfig,
    words: ParameterId,
    positions: ParameterId,
    types: Option<ParameterId>,
    distances: Option<ParameterId>,
    norm: Pair,
    layers: Vec<Layer>,
    /// All of them, in the order of [`names::slots`].
    all: Vec<ParameterId>,
}

/// A weight and its bias, or a norm's scale and shift.
#[derive(Clone, Copy, Debug)]
struct Pair {
    weight: ParameterId,
    bias: ParameterId,
}

#[derive(Clone, Copy, Debug)]
struct Layer {
    projection: Pair,
    attention: Pair,
    attention_norm: Pair,
    up: Pair,
    down: Pair,
    norm: Pair,
}

/// How much of the highest layer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// Every token.
    Tokens,
    /// The first token of each sequence, which saves the others' part of the layer after attention.
    First,
}

/// What layers share in a pass, and how much of one is wanted.
#[derive(Clone, Copy)]
struct Around<'a> {
    batch: &'a Batch,
    distances: Option<&'a Var>,
    top: Top,
}

impl Encoder {
    /// Reads an encoder's shape and weights from a Hugging Face folder. Tensors that it does not need, such
    /// as a pooler or a head, are passed over.
    ///
    /// # Errors
    /// If the encoder is not known, or the weights do not fit the shape: missing tensors are all named,
    /// and so is one of another shape.
    pub fn load(folder: &Path, builder: &mut ParametersBuilder) -> Result<Encoder, Error> {
        let config = EncoderConfig::read(folder)?;
        let weights = Weights::open(folder)?;
        let slots = names::slots(&config);
        let found = find(&weights, &slots)?;
        let mut all = Vec::with_capacity(slots.len());
        for (slot, tensors) in slots.iter().zip(found) {
            let mut values = Vec::new();
            for tensor in tensors {
                let read = weights.read(&tensor)?;
                // Most weights are one tensor, which need not be copied.
                if values.is_empty() { values = read } else { values.extend_from_slice(&read) }
            }
            all.push(builder.add(&slot.name, slot.size(), &values));
        }
        Ok(Encoder::new(config, all))
    }

    /// An encoder with random weights, as before any training.
    ///
    /// # Errors
    /// If there can be no encoder of that shape.
    pub fn random(
        config: EncoderConfig,
        key: Key,
        builder: &mut ParametersBuilder,
    ) -> Result<Encoder, Error> {
        config.check().map_err(Error::Unfit)?;
        let mut all = Vec::new();
        for (index, slot) in names::slots(&config).iter().enumerate() {
            let (rows, columns) = slot.size();
            let key = key.part(index as u64);
            let values: Vec<f32> = match slot.initial() {
                Initial::Zero => vec![0.0; rows * columns],
                Initial::One => vec![1.0; rows * columns],
                Initial::Normal => (0..rows as u32)
                    .flat_map(|row| (0..columns as u32).map(move |column| (row, column)))
                    .map(|(row, column)| INITIAL_DEVIATION * key.normal(row, column))
                    .collect(),
            };
            all.push(builder.add(&slot.name, (rows, columns), &values));
        }
        Ok(Encoder::new(config, all))
    }

    /// The same encoder among other weights, with the values it has in `parameters`: what is left of a training
    /// when gradients, heads and other encoders are not wanted any more.
    pub fn copy(&self, parameters: &Parameters, builder: &mut ParametersBuilder) -> Result<Encoder, Error> {
        let copy = |&id: &ParameterId| {
            let info = parameters.info(id);
            Ok(builder.add(&info.name, (info.rows, info.columns), &parameters.to_vec(id)?))
        };
        let all = self.all.iter().map(copy).collect::<Result<_, Error>>()?;
        Ok(Encoder::new(self.config.clone(), all))
    }

    /// Sets both rates of dropout.
    ///
    /// # Errors
    /// If it is no rate.
    pub fn set_dropout(&mut self, rate: f32) -> Result<(), Error> {
        let config = EncoderConfig { hidden_dropout: rate, attention_dropout: rate, ..self.config.clone() };
        config.check().map_err(Error::Unfit)?;
        self.config = config;
        Ok(())
    }

    /// An encoder whose weights are these, in the order of [`names::slots`].
    fn new(config: EncoderConfig, all: Vec<ParameterId>) -> Encoder {
        let mut ids = all.iter().copied();
        let mut next = || ids.next().expect("there is a weight for every slot");
        let (words, positions) = (next(), next());
        let types = (config.types > 0).then(&mut next);
        let distances = (config.family == Family::Mpnet).then(&mut next);
        let mut pair = || Pair { weight: next(), bias: next() };
        let norm = pair();
        let layers = (0..config.layers)
            .map(|_| Layer {
                projection: pair(),
                attention: pair(),
                attention_norm: pair(),
                up: pair(),
                down: pair(),
                norm: pair(),
            })
            .collect();
        Encoder { config, words, positions, types, distances, norm, layers, all }
    }

    /// Its shape.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// The number of the last layer's hidden states.
    pub fn last(&self) -> usize {
        self.config.layers
    }

    /// Its weights, from the embeddings up.
    pub fn parameters(&self) -> &[ParameterId] {
        &self.all
    }

    /// Packs texts, given as token ids, for this encoder: positions are counted as its family does.
    ///
    /// # Errors
    /// If a text is empty or longer than attention takes.
    pub fn batch<'a>(
        &self,
        device: &Device,
        texts: impl IntoIterator<Item = &'a [u32]>,
    ) -> Result<Batch, Error> {
        if self.config.family.counts_from_padding() {
            Batch::counting_past(device, texts, self.config.padding)
        } else {
            Batch::new(device, texts, 0)
        }
    }

    /// The hidden states, tokens by hidden size, of each of `wanted`: 0 is the embeddings, n the output
    /// of layer n. Layers above the highest wanted one are not run. Dropout is the tape's to decide.
    ///
    /// # Errors
    /// If a layer or a token of the batch is not there.
    pub fn forward(&self, tape: &mut Tape<'_>, batch: &Batch, wanted: &[usize]) -> Result<Vec<Var>, Error> {
        self.states(tape, batch, (wanted, Top::Tokens))
    }

    /// The same; of the highest wanted layer perhaps the first tokens alone, a row a sequence. On a GPU it has all of
    /// them, which what reads first tokens can tell by the number of rows.
    ///
    /// # Errors
    /// As [`forward`](Encoder::forward).
    pub fn states(
        &self,
        tape: &mut Tape<'_>,
        batch: &Batch,
        (wanted, top): (&[usize], Top),
    ) -> Result<Vec<Var>, Error> {
        let highest = wanted.iter().copied().max().unwrap_or(0);
        if highest > self.last() {
            let layers = self.last();
            return Err(Error::Unfit(format!("layer {highest} was asked for, but the encoder has {layers}")));
        }
        let distances = self.distances.map(|distances| relative_bias(tape, distances)).transpose()?;
        // Only what is wanted is kept; the rest is freed as soon as the next layer has read it.
        let mut kept = vec![None; highest + 1];
        let mut state = self.embed(tape, batch)?;
        for (number, place) in kept.iter_mut().enumerate() {
            if let Some(below) = number.checked_sub(1) {
                let top = if number == highest { top } else { Top::Tokens };
                let around = Around { batch, distances: distances.as_ref(), top };
                state = self.layer(tape, &self.layers[below], &state, around)?;
            }
            *place = wanted.contains(&number).then(|| state.clone());
        }
        Ok(wanted.iter().map(|&number| kept[number].clone().expect("what is wanted was kept")).collect())
    }

    fn embed(&self, tape: &mut Tape<'_>, batch: &Batch) -> Result<Var, Error> {
        let tables = Tables { words: self.words, positions: self.positions, types: self.types };
        let sum = embedding(tape, batch, tables)?;
        let normed = add_norm(tape, &sum, self.add_norm(None, None, self.norm, 0.0))?;
        dropout(tape, &normed, self.config.hidden_dropout)
    }

    fn layer(
        &self,
        tape: &mut Tape<'_>,
        layer: &Layer,
        input: &Var,
        around: Around<'_>,
    ) -> Result<Var, Error> {
        let config = &self.config;
        // DistilBERT alone drops nothing between attention and the sum after it.
        let attention_rate = if config.family == Family::DistilBert { 0.0 } else { config.hidden_dropout };
        let products = Products::of(tape);
        let projected = products.linear(tape, input, layer.projection.weight, Some(layer.projection.bias))?;
        let mixing =
            Attention { heads: config.heads, dropout: config.attention_dropout, bias: around.distances };
        let mut mixed = attention(tape, &projected, around.batch, mixing)?;
        let mut input = input.clone();
        // After attention every token is by itself. Activations on a GPU are in fewer bits than pooled ones.
        if around.top == Top::First && matches!(mixed.tensor().device(), Device::Cpu(_)) {
            mixed = pool(tape, &mixed, around.batch, Pooling::Cls)?;
            input = pool(tape, &input, around.batch, Pooling::Cls)?;
        }
        let mixed = products.linear(tape, &mixed, layer.attention.weight, None)?;
        let join =
            self.add_norm(Some(layer.attention.bias), Some(&input), layer.attention_norm, attention_rate);
        let middle = add_norm(tape, &mixed, join)?;
        let weights = FeedForward { up: layer.up.weight, up_bias: layer.up.bias, down: layer.down.weight };
        let inner = products.feed_forward(tape, &middle, weights)?;
        let join = self.add_norm(Some(layer.down.bias), Some(&middle), layer.norm, config.hidden_dropout);
        add_norm(tape, &inner, join)
    }

    fn add_norm<'a>(
        &self,
        bias: Option<ParameterId>,
        residual: Option<&'a Var>,
        norm: Pair,
        dropout: f32,
    ) -> AddNorm<'a> {
        AddNorm { bias, residual, gamma: norm.weight, beta: norm.bias, epsilon: self.config.epsilon, dropout }
    }

    /// Writes `config.json` and `model.safetensors` into a folder, as Python's transformers write the bare
    /// encoder: f32, no prefix, query, key and value apart.
    pub fn write(&self, parameters: &Parameters, folder: &Path) -> Result<(), Error> {
        let path = folder.join("config.json");
        let text = serde_json::to_string_pretty(&self.config.to_json()).expect("a JSON value can be written");
        fs::write(&path, text + "\n").map_err(Error::io(&path, "write"))?;
        let slots = names::slots(&self.config);
        let mut tensors = Vec::new();
        let mut places = Vec::new();
        for (slot, &id) in slots.iter().zip(&self.all) {
            for (part, name) in slot.tensors.iter().enumerate() {
                tensors.push(NewTensor { name: name.clone(), shape: slot.shape.clone() });
                places.push((id, part));
            }
        }
        weights::write(&folder.join(weights::SINGLE), &tensors, |index| {
            let (id, part) = places[index];
            let length: usize = tensors[index].shape.iter().product();
            let mut values = parameters.to_vec(id)?;
            values.truncate((part + 1) * length);
            Ok(values.split_off(part * length))
        })
    }
}

/// The tensors of each weight by the names that the file has for them, their shapes checked.
fn find(weights: &Weights, slots: &[Slot]) -> Result<Vec<Vec<String>>, Error> {
    let prefix = names::prefix(weights);
    let mut missing = Vec::new();
    let mut found = Vec::with_capacity(slots.len());
    for slot in slots {
        let mut tensors = Vec::with_capacity(slot.tensors.len());
        for tensor in &slot.tensors {
            let Some(name) = names::find(weights, &prefix, tensor) else {
                missing.push(format!("{prefix}{tensor}"));
                continue;
            };
            let shape = &weights.tensor(&name).expect("the name was just found").shape;
            if *shape != slot.shape {
                let problem = format!(
                    "config.json does not fit the weights: {name} has the shape {shape:?}, but {:?} is expected",
                    slot.shape
                );
                return Err(Error::file(weights.folder(), problem));
            }
            tensors.push(name);
        }
        found.push(tensors);
    }
    if missing.is_empty() {
        return Ok(found);
    }
    let problem = format!("config.json does not fit the weights: these are missing: {}", missing.join(", "));
    Err(Error::file(weights.folder(), problem))
}

#[cfg(test)]
mod tests; // against what Python's transformers computed
