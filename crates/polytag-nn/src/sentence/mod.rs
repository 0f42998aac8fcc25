//! Texts to vectors: tokenizer, encoder, pooling.
//!
//! A folder of sentence-transformers, or a bare Hugging Face folder, enters; texts enter and vectors
//! leave, in the order of the texts and whatever else was in the call. The folder can be written again for
//! Python.

mod layout; // what a folder says
mod export; // writing a folder for Python

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::device::Device;
use crate::encoder::Encoder;
use crate::error::Error;
use crate::op::{Pooling, normalise, pool};
use crate::parameters::{Parameters, ParametersBuilder};
use crate::tape::Tape;
use crate::tokenizer::{Text, Tokenizer};
use layout::Layout;

/// How many tokens run together on the CPU: enough rows to keep a product busy, few enough that the
/// activations stay in the cache and every thread has a batch of its own.
const CPU_TOKENS: usize = 768;

/// How many tokens run together on a GPU.
const GPU_TOKENS: usize = 32_768;

/// How many texts are made into tokens while those before them are encoded.
const WINDOW: usize = 8_192;

/// How texts become vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many tokens a text is cut to, special tokens included.
    pub max_tokens: usize,
    /// How tokens become a vector.
    pub pooling: Pooling,
    /// Whether vectors are made one long.
    pub normalise: bool,
}

/// What is to be otherwise than the folder says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// How many tokens a text is cut to, special tokens included.
    pub max_tokens: Option<usize>,
    /// How tokens become a vector.
    pub pooling: Option<Pooling>,
    /// Whether vectors are made one long.
    pub normalise: Option<bool>,
}

/// An encoder of whole texts.
pub struct SentenceEncoder {
    encoder: Encoder,
    parameters: Parameters,
    tokenizer: Tokenizer,
    settings: Settings,
}

impl SentenceEncoder {
    /// Loads a folder onto a device.
    ///
    /// A folder in the layout of sentence-transformers says how texts become vectors. A bare Hugging Face
    /// folder does not: the mean of all tokens is taken and made one long. Texts are cut where the folder
    /// says, or else at the encoder's longest input.
    ///
    /// # Errors
    /// If a file is missing, cannot be believed, or does not fit the others.
    pub fn load(folder: &Path, device: &Device, overrides: &Overrides) -> Result<SentenceEncoder, Error> {
        let layout = Layout::read(folder)?;
        let mut builder = ParametersBuilder::default();
        let tokenizer = Tokenizer::read(&layout.encoder)?;
        let encoder = Encoder::load(&layout.encoder, &mut builder)?;
        let longest = encoder.config().longest();
        let settings = Settings {
            max_tokens: overrides.max_tokens.unwrap_or(layout.max_tokens.unwrap_or(longest).min(longest)),
            pooling: overrides.pooling.unwrap_or(layout.pooling),
            normalise: overrides.normalise.unwrap_or(layout.normalise),
        };
        SentenceEncoder::new(encoder, builder.build(device)?, tokenizer, settings)
    }

    /// Puts an encoder together, for instance one that was trained.
    ///
    /// # Errors
    /// If the tokenizer does not fit, or texts are to be longer than the encoder takes.
    pub fn new(
        encoder: Encoder,
        parameters: Parameters,
        tokenizer: Tokenizer,
        settings: Settings,
    ) -> Result<SentenceEncoder, Error> {
        tokenizer.check(encoder.config())?;
        let longest = encoder.config().longest();
        if settings.max_tokens > longest {
            let asked = settings.max_tokens;
            return Err(Error::Unfit(format!(
                "max_tokens is {asked}, but this encoder takes at most {longest} tokens"
            )));
        }
        Ok(SentenceEncoder { encoder, parameters, tokenizer, settings })
    }

    /// How many numbers a vector has.
    pub fn dimension(&self) -> usize {
        self.encoder.config().hidden
    }

    /// How texts become vectors.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The encoder.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// The encoder's weights.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The vectors of texts, one behind the other, in their order.
    ///
    /// A text's vector depends on the others in the call only in the last bits, if at all.
    ///
    /// # Errors
    /// If the device is out of memory, or a vector is not finite.
    pub fn encode(&self, texts: &[Text<'_>]) -> Result<Vec<f32>, Error> {
        let mut vectors = vec![0.0; texts.len() * self.dimension()];
        let max_tokens = self.settings.max_tokens;
        let mut windows = texts.chunks(WINDOW);
        let mut tokens = self.tokenizer.encode(windows.next().unwrap_or_default(), max_tokens)?;
        for out in vectors.chunks_mut(WINDOW * self.dimension()) {
            let next = windows.next().unwrap_or_default();
            let (done, following) = rayon::join(
                || self.encode_tokens_into(&tokens, out),
                || self.tokenizer.encode(next, max_tokens),
            );
            done?;
            tokens = following?;
        }
        Ok(vectors)
    }

    /// The vectors of texts that are token ids already, special tokens included.
    ///
    /// # Errors
    /// If a text is empty, too long, or has a token that the encoder does not know; else as
    /// [`SentenceEncoder::encode`].
    pub fn encode_tokens(&self, texts: &[Vec<u32>]) -> Result<Vec<f32>, Error> {
        let mut vectors = vec![0.0; texts.len() * self.dimension()];
        self.encode_tokens_into(texts, &mut vectors)?;
        Ok(vectors)
    }

    /// How much each piece of a text has to do with the inner product of the text's vector and another
    /// one: the bytes of title and text, joined by a line end, and the share, which may be negative. The
    /// shares add up to the inner product. Special tokens, and the first token where it alone is the
    /// vector, stand for no bytes.
    ///
    /// # Errors
    /// As [`SentenceEncoder::encode`].
    pub fn shares(&self, text: Text<'_>, other: &[f32]) -> Result<Vec<(Range<usize>, f32)>, Error> {
        let (ids, ranges) = self.tokenizer.pieces(text, self.settings.max_tokens)?;
        let batch = self.encoder.batch(self.parameters.device(), [&ids[..]])?;
        let mut tape = Tape::inference(&self.parameters);
        let states = self.encoder.forward(&mut tape, &batch, &[self.encoder.last()])?;
        let states = states[0].tensor().to_vec()?;
        let rows: Vec<&[f32]> = states.chunks_exact(self.dimension()).collect();
        let used = match self.settings.pooling {
            Pooling::Mean => &rows[..],
            Pooling::Cls => &rows[..1],
        };
        let mut length = 1.0;
        if self.settings.normalise {
            let mean = |column: usize| used.iter().map(|row| f64::from(row[column])).sum::<f64>();
            let squares = (0..self.dimension()).map(|column| (mean(column) / used.len() as f64).powi(2));
            length = squares.sum::<f64>().sqrt().max(1e-12);
        }
        let share = |row: &[f32]| {
            let product: f64 = row.iter().zip(other).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            (product / (length * used.len() as f64)) as f32
        };
        Ok(used.iter().zip(ranges).map(|(row, range)| (range, share(row))).collect())
    }

    fn encode_tokens_into(&self, texts: &[Vec<u32>], out: &mut [f32]) -> Result<(), Error> {
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let run = |batch: &[usize]| {
            self.run(batch.iter().map(|&text| &texts[text][..])).map(|vectors| (batch.to_vec(), vectors))
        };
        let limit = match self.parameters.device() {
            Device::Cpu(_) => CPU_TOKENS,
            Device::Cuda(_) => GPU_TOKENS,
        };
        let (order, batches) = pack(&lengths, limit);
        let done: Result<Vec<_>, Error> = match self.parameters.device() {
            // Each batch goes through the whole encoder on a thread: nobody waits for the others.
            Device::Cpu(_) => {
                batches.into_par_iter().with_max_len(1).map(|batch| run(&order[batch])).collect()
            }
            Device::Cuda(_) => batches.into_iter().map(|batch| run(&order[batch])).collect(),
        };
        let dimension = self.dimension();
        for (batch, vectors) in done? {
            for (text, vector) in batch.into_iter().zip(vectors.chunks_exact(dimension)) {
                out[text * dimension..(text + 1) * dimension].copy_from_slice(vector);
            }
        }
        match out.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(Error::NotFinite {
                what: format!("the vector of text {}", at / dimension),
                place: String::new(),
            }),
        }
    }

    /// One batch.
    fn run<'a>(&self, texts: impl IntoIterator<Item = &'a [u32]>) -> Result<Vec<f32>, Error> {
        let batch = self.encoder.batch(self.parameters.device(), texts)?;
        let mut tape = Tape::inference(&self.parameters);
        let states = self.encoder.forward(&mut tape, &batch, &[self.encoder.last()])?;
        let mut vectors = pool(&mut tape, &states[0], &batch, self.settings.pooling)?;
        if self.settings.normalise {
            vectors = normalise(&mut tape, &vectors)?;
        }
        vectors.tensor().to_vec()
    }
}

/// Texts by falling length, and ranges of them with at most `limit` tokens, or of one text. A function of the
/// lengths alone, so that the number of threads changes no vector.
fn pack(lengths: &[usize], limit: usize) -> (Vec<usize>, Vec<Range<usize>>) {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&text| (std::cmp::Reverse(lengths[text]), text));
    let (mut batches, mut start, mut tokens) = (Vec::new(), 0, 0);
    for (rank, &text) in order.iter().enumerate() {
        if rank > start && tokens + lengths[text] > limit {
            batches.push(start..rank);
            (start, tokens) = (rank, 0);
        }
        tokens += lengths[text];
    }
    if start < order.len() {
        batches.push(start..order.len());
    }
    (order, batches)
}

#[cfg(test)]
mod tests; // against what Python's sentence-transformers computed
