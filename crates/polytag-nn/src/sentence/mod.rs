//! Texts to vectors: tokenizer, encoder, pooling.
//!
//! A folder of sentence-transformers, or a bare Hugging Face folder, enters; texts enter and vectors
//! leave, in the order of the texts and whatever else was in the call. The folder can be written again for
//! Python.

mod layout; // what a folder says
mod batches; // texts in batches of like length
mod export; // writing a folder for Python

use std::ops::Range;
use std::path::Path;

use crate::batch::Batch;
use crate::device::Device;
use crate::encoder::Encoder;
use crate::error::Error;
use crate::op::{Pooling, normalise, pool};
use crate::parameters::{Parameters, ParametersBuilder};
use crate::tape::{Tape, Var};
use crate::tokenizer::{Text, Tokenizer};
pub use batches::{in_batches, layers_in_batches};
use layout::Layout;

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
        let mut builder = ParametersBuilder::default();
        let (encoder, tokenizer, settings) = SentenceEncoder::load_among(folder, &mut builder, overrides)?;
        SentenceEncoder::new(encoder, builder.build(device)?, tokenizer, settings)
    }

    /// The same with its weights among others: for a model of which the encoder is a part.
    ///
    /// # Errors
    /// As [`SentenceEncoder::load`].
    pub fn load_among(
        folder: &Path,
        builder: &mut ParametersBuilder,
        overrides: &Overrides,
    ) -> Result<(Encoder, Tokenizer, Settings), Error> {
        let layout = Layout::read(folder)?;
        let tokenizer = Tokenizer::read(&layout.encoder)?;
        let encoder = Encoder::load(&layout.encoder, builder)?;
        let longest = encoder.config().longest();
        let settings = Settings {
            max_tokens: overrides.max_tokens.unwrap_or(layout.max_tokens.unwrap_or(longest).min(longest)),
            pooling: overrides.pooling.unwrap_or(layout.pooling),
            normalise: overrides.normalise.unwrap_or(layout.normalise),
        };
        fits(&encoder, &tokenizer, &settings)?;
        Ok((encoder, tokenizer, settings))
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
        fits(&encoder, &tokenizer, &settings)?;
        Ok(SentenceEncoder { encoder, parameters, tokenizer, settings })
    }

    /// The same, but with texts cut to so many tokens.
    ///
    /// # Errors
    /// If texts are to be longer than the encoder takes.
    pub fn cut_to(self, max_tokens: usize) -> Result<SentenceEncoder, Error> {
        let settings = Settings { max_tokens, ..self.settings };
        SentenceEncoder::new(self.encoder, self.parameters, self.tokenizer, settings)
    }

    /// The same with other weights, such as those that it was trained to.
    ///
    /// # Errors
    /// If the encoder is another one.
    pub fn again(&self, encoder: Encoder, parameters: Parameters) -> Result<SentenceEncoder, Error> {
        SentenceEncoder::new(encoder, parameters, self.tokenizer.clone(), self.settings)
    }

    /// An encoder whose weights lie between this one's and another's, so far on the way to the other's.
    ///
    /// Where one was trained from the other, most of what either of them knows is left.
    ///
    /// # Errors
    /// If the two are not of one shape, or a device fails.
    pub fn between(&self, other: &SentenceEncoder, share: f32) -> Result<SentenceEncoder, Error> {
        let (of_this, of_other) = (self.encoder.parameters(), other.encoder.parameters());
        let shape = |all: &SentenceEncoder, id| {
            let info = all.parameters.info(id);
            (info.rows, info.columns)
        };
        let alike = of_this.len() == of_other.len()
            && of_this.iter().zip(of_other).all(|(&this, &that)| shape(self, this) == shape(other, that));
        if !alike {
            return Err(Error::Unfit("there is nothing between encoders of two shapes".to_owned()));
        }
        let mut builder = ParametersBuilder::default();
        let encoder = self.encoder.copy(&self.parameters, &mut builder)?;
        let mut parameters = builder.build(self.parameters.device())?;
        for ((&id, &this), &that) in encoder.parameters().iter().zip(of_this).zip(of_other) {
            let mut values = self.parameters.to_vec(this)?;
            let others = other.parameters.to_vec(that)?;
            values
                .iter_mut()
                .zip(others)
                .for_each(|(value, other)| *value = (1.0 - share) * *value + share * other);
            parameters.set(id, &values)?;
        }
        self.again(encoder, parameters)
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
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let Settings { pooling, normalise: unit, .. } = self.settings;
        let vectors = self.each(&texts, |tape, states, batch| {
            let mut vectors = pool(tape, states, batch, pooling)?;
            if unit {
                vectors = normalise(tape, &vectors)?;
            }
            let vectors = vectors.tensor().to_vec()?;
            Ok(vectors.chunks_exact(self.dimension()).map(<[f32]>::to_vec).collect())
        })?;
        for (text, (place, vector)) in out.chunks_exact_mut(self.dimension()).zip(vectors).enumerate() {
            if !vector.iter().all(|value| value.is_finite()) {
                let what = format!("the vector of text {text}");
                return Err(Error::NotFinite { what, place: String::new() });
            }
            place.copy_from_slice(&vector);
        }
        Ok(())
    }

    /// Runs texts, given as token ids, through the encoder in batches and what `head` makes of each batch's
    /// last hidden states: a result a text, in the order of the texts. See [`in_batches`].
    ///
    /// # Errors
    /// As [`SentenceEncoder::encode_tokens`], and those of `head`.
    pub fn each<R: Send>(
        &self,
        texts: &[&[u32]],
        head: impl Fn(&mut Tape<'_>, &Var, &Batch) -> Result<Vec<R>, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        in_batches(&self.encoder, &self.parameters, texts, head)
    }
}

/// Whether an encoder, a tokenizer and settings go together.
fn fits(encoder: &Encoder, tokenizer: &Tokenizer, settings: &Settings) -> Result<(), Error> {
    tokenizer.check(encoder.config())?;
    let (asked, longest) = (settings.max_tokens, encoder.config().longest());
    match asked > longest {
        true => Err(Error::Unfit(format!(
            "max_tokens is {asked}, but this encoder takes at most {longest} tokens"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests; // against what Python's sentence-transformers computed
