//! What turns texts into vectors, whichever kind it is.
//!
//! A folder enters, then texts; vectors leave. There are two kinds, networks and word vectors, and a method that only
//! compares vectors need not know which it has. The set is closed, as each kind is a folder format of ours, so that
//! this is an enum and not a trait.

use std::ops::Range;
use std::path::Path;

use polytag_nn::Error;
use polytag_nn::device::Device;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::tokenizer::Text;

use super::word_vectors::WordVectors;

/// What turns texts into vectors.
pub enum TextEncoder {
    /// A neural network over tokens.
    Network(Box<SentenceEncoder>),
    /// The mean of the vectors of words.
    Words(WordVectors),
}

impl From<SentenceEncoder> for TextEncoder {
    fn from(encoder: SentenceEncoder) -> TextEncoder {
        TextEncoder::Network(Box::new(encoder))
    }
}

impl TextEncoder {
    /// Loads a folder of either kind, a network onto a device. Of `overrides`, word vectors follow `max_tokens`, by
    /// which they count words: they are pooled in one way only, and always made one long.
    ///
    /// # Errors
    /// If a file is missing, cannot be believed, or does not fit the others.
    pub fn load(folder: &Path, device: &Device, overrides: &Overrides) -> Result<TextEncoder, Error> {
        if WordVectors::are_in(folder) {
            return Ok(TextEncoder::Words(WordVectors::load(folder, overrides.max_tokens)?));
        }
        SentenceEncoder::load(folder, device, overrides).map(TextEncoder::from)
    }

    /// Loads a folder that [`TextEncoder::export`] wrote. A network's says itself where texts are cut; of word vectors,
    /// `max_words` of a text are read.
    ///
    /// # Errors
    /// As [`TextEncoder::load`].
    pub fn load_exported(
        folder: &Path,
        device: &Device,
        max_words: Option<usize>,
    ) -> Result<TextEncoder, Error> {
        let is_network = !WordVectors::are_in(folder);
        let max_tokens = max_words.filter(|_| !is_network);
        let overrides = Overrides { max_tokens, normalise: Some(true), ..Overrides::default() };
        TextEncoder::load(folder, device, &overrides)
    }

    /// How many numbers a vector has.
    pub fn dimension(&self) -> usize {
        match self {
            TextEncoder::Network(encoder) => encoder.dimension(),
            TextEncoder::Words(vectors) => vectors.dimension(),
        }
    }

    /// The vectors of texts, one behind the other, in their order.
    ///
    /// # Errors
    /// If a network's device is out of memory, or a vector is not finite.
    pub fn encode(&self, texts: &[Text<'_>]) -> Result<Vec<f32>, Error> {
        match self {
            TextEncoder::Network(encoder) => encoder.encode(texts),
            TextEncoder::Words(vectors) => Ok(vectors.encode(texts)),
        }
    }

    /// The same, with at most so many tokens of each text. Word vectors have no tokens, and read texts as they always do.
    ///
    /// # Errors
    /// As [`TextEncoder::encode`], and if so few tokens leave no room for a text.
    pub fn encode_cut(&self, texts: &[Text<'_>], most: Option<usize>) -> Result<Vec<f32>, Error> {
        match (self, most) {
            (TextEncoder::Network(encoder), Some(most)) => {
                let most = most.min(encoder.settings().max_tokens);
                encoder.encode_tokens(&encoder.tokenizer().encode(texts, most)?)
            }
            _ => self.encode(texts),
        }
    }

    /// How much each piece of a text has to do with the inner product of the text's vector and another one: its bytes
    /// in title and text, joined by a line end, and the share. The shares add up to the inner product.
    ///
    /// # Errors
    /// As [`TextEncoder::encode`].
    pub fn shares(&self, text: Text<'_>, other: &[f32]) -> Result<Vec<(Range<usize>, f32)>, Error> {
        match self {
            TextEncoder::Network(encoder) => encoder.shares(text, other),
            TextEncoder::Words(vectors) => Ok(vectors.shares(text, other)),
        }
    }

    /// Writes a new folder for [`TextEncoder::load`].
    ///
    /// # Errors
    /// If there is something at `folder` already, or it cannot be written.
    pub fn export(&self, folder: &Path) -> Result<(), Error> {
        match self {
            TextEncoder::Network(encoder) => encoder.export(folder),
            TextEncoder::Words(vectors) => vectors.export(folder),
        }
    }
}
