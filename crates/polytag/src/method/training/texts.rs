//! Documents as token ids, with their labels.

use polytag_nn::tokenizer::{Text, Tokenizer};
use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::data::{DataError, Dataset, Document};
use crate::ids::{DocId, LabelId};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::label_text::text_of;
use crate::progress::{Stage, Stop};

/// Documents read and made into tokens between two looks at whether to stop.
const CHUNK: usize = 2048;

/// Texts as token ids, end to end: four bytes a token.
#[derive(Debug, Default)]
pub(in crate::method) struct Texts {
    ids: Vec<u32>,
    ends: Vec<usize>,
}

impl Texts {
    /// Adds texts.
    pub(in crate::method) fn extend(&mut self, texts: impl IntoIterator<Item = Vec<u32>>) {
        for text in texts {
            self.ids.extend_from_slice(&text);
            self.ends.push(self.ids.len());
        }
    }

    /// How many texts.
    pub(in crate::method) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The tokens of a text.
    pub(in crate::method) fn get(&self, text: usize) -> &[u32] {
        let start = text.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ids[start..self.ends[text]]
    }

    /// Adds the texts to a checksum, each with an end.
    pub(in crate::method) fn add_to(&self, hash: &mut Sha256) {
        for text in self.iter() {
            text.iter().for_each(|id| hash.update(id.to_le_bytes()));
            hash.update(u32::MAX.to_le_bytes());
        }
    }

    /// All texts.
    pub(in crate::method) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|text| self.get(text))
    }
}

/// Documents and the labels they carry.
#[derive(Debug, Default)]
pub(in crate::method) struct Documents {
    pub(in crate::method) texts: Texts,
    /// Each document's place in its split.
    pub(in crate::method) numbers: Vec<u64>,
    labels: Vec<LabelId>,
    label_ends: Vec<usize>,
}

/// How documents become tokens.
#[derive(Clone, Copy)]
pub(in crate::method) struct Reading<'a> {
    pub(in crate::method) tokenizer: &'a Tokenizer,
    pub(in crate::method) max_tokens: usize,
    pub(in crate::method) stop: &'a Stop,
}

impl Documents {
    /// The labelled documents of the train split, and those of the dev split to measure on, if there are any and they are
    /// wanted.
    pub(in crate::method) fn of_splits(
        dataset: &dyn Dataset,
        reading: Reading<'_>,
        context: &TrainContext<'_>,
        wants_dev: bool,
    ) -> Result<(Documents, Option<Documents>), MethodError> {
        let stage = |name| Stage::start(context.progress, name, None);
        let labelled = stage("tokenising documents");
        let train = Documents::read(dataset, reading, labelled, |document| document.labels.is_some())?;
        let Some(dev) = context.dev.filter(|_| wants_dev) else { return Ok((train, None)) };
        let labelled = stage("tokenising dev documents");
        let dev = Documents::read(dev, reading, labelled, |document| !document.gold().is_empty())?;
        Ok((train, Some(dev).filter(|dev| dev.len() > 0)))
    }

    /// Reads the documents of `dataset` that `keep` wants.
    pub(in crate::method) fn read(
        dataset: &dyn Dataset,
        reading: Reading<'_>,
        stage: Stage<'_>,
        keep: impl Fn(&Document) -> bool,
    ) -> Result<Documents, MethodError> {
        let mut read = Documents::default();
        for first in (0..dataset.len()).step_by(CHUNK) {
            if reading.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            let chunk = first..dataset.len().min(first + CHUNK);
            let documents: Vec<Document> = chunk
                .clone()
                .into_par_iter()
                .map(|place| dataset.document(DocId(place as u32)))
                .collect::<Result<_, DataError>>()?;
            let kept: Vec<(u64, &Document)> =
                (chunk.start as u64..).zip(&documents).filter(|(_, document)| keep(document)).collect();
            let texts: Vec<Text<'_>> =
                kept.iter().map(|(_, document)| text_of(&document.passage())).collect();
            read.texts.extend(reading.tokenizer.encode(&texts, reading.max_tokens)?);
            for (number, document) in kept {
                read.numbers.push(number);
                read.labels.extend_from_slice(document.gold());
                read.label_ends.push(read.labels.len());
            }
            stage.advance(chunk.len() as u64);
        }
        stage.finish();
        Ok(read)
    }

    /// How many documents.
    pub(in crate::method) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The labels of a document.
    pub(in crate::method) fn labels(&self, document: usize) -> &[LabelId] {
        let start = document.checked_sub(1).map_or(0, |before| self.label_ends[before]);
        &self.labels[start..self.label_ends[document]]
    }
}
