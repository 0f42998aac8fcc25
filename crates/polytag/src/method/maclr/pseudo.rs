//! Labels that documents are given by guessing, for stage two (paper 001, section 4.3): the best of the encoder as it
//! has become, and the best of `lexical`, which sees other things. Documents are asked a chunk at a time; nothing of
//! the size of documents times labels is ever made.

use rayon::prelude::*;

use super::config::MaclrConfig;
use super::labels::Labels;
use super::matched::Matches;
use super::pairs::is_bare;
use super::siamese::Siamese;
use crate::data::{DataError, Dataset, Document};
use crate::ids::{DocId, LabelId};
use crate::index::{Allowed, LabelIndex as _};
use crate::method::error::MethodError;
use crate::method::lexical::{Lexical, LexicalConfig};
use crate::method::training::Texts;
use crate::method::{Method as _, TrainContext};
use crate::predict::Ask;
use crate::progress::Stage;
use crate::ranking::Ranking;
use polytag_nn::parameters::Parameters;

/// Documents asked at once.
const CHUNK: usize = 4096;

/// What is guessed from.
pub(super) struct Guess<'a> {
    pub(super) config: &'a MaclrConfig,
    pub(super) dataset: &'a dyn Dataset,
    pub(super) context: &'a TrainContext<'a>,
    /// The documents of the dataset, in order.
    pub(super) documents: &'a Texts,
    pub(super) labels: &'a Labels,
    /// For each document the label that it is itself, if any.
    pub(super) itself: &'a [Option<LabelId>],
}

impl Guess<'_> {
    /// The labels of each document, as rows of the label texts.
    pub(super) fn matches(
        &self,
        siamese: &Siamese<'_>,
        parameters: &Parameters,
    ) -> Result<Matches, MethodError> {
        let mut lists = vec![Vec::new(); self.documents.len()];
        if self.config.pseudo_encoder > 0 {
            self.by_encoder(siamese, parameters, &mut lists)?;
        }
        if self.config.pseudo_lexical > 0 {
            self.by_words(&mut lists)?;
        }
        Ok(Matches::new(lists))
    }

    fn by_encoder(
        &self,
        siamese: &Siamese<'_>,
        parameters: &Parameters,
        lists: &mut [Vec<u32>],
    ) -> Result<(), MethodError> {
        let index = siamese.index(parameters, self.labels)?;
        // Labels that say nothing are no guess.
        let readable: Allowed = self.labels.readable.iter().map(|&row| LabelId(row)).collect();
        let documents: Vec<&[u32]> = self.documents.iter().collect();
        let wanted = self.config.pseudo_encoder;
        self.each_chunk("guessing labels by the encoder", |range| {
            let vectors = siamese.vectors(parameters, &documents[range.clone()])?;
            let found = index.search(&vectors, self.asked(wanted), Some(&readable))?;
            for (place, ranking) in range.zip(found).filter(|(place, _)| !is_bare(documents[*place])) {
                let itself = self.itself[place];
                let right = ranking.labels().filter(|row| Some(self.labels.ids[row.index()]) != itself);
                lists[place].extend(right.take(wanted).map(|row| row.0));
            }
            Ok(())
        })
    }

    fn by_words(&self, lists: &mut [Vec<u32>]) -> Result<(), MethodError> {
        let lexical = Lexical::try_from(LexicalConfig::default())?.train(self.dataset, self.context)?;
        let wanted = self.config.pseudo_lexical;
        self.each_chunk("guessing labels by words", |range| {
            let documents: Vec<Document> = range
                .clone()
                .into_par_iter()
                .map(|place| self.dataset.document(DocId(place as u32)))
                .collect::<Result<_, DataError>>()?;
            let passages: Vec<_> = documents.iter().map(Document::passage).collect();
            let found: Vec<Ranking> =
                lexical.predict(&passages, &Ask { k: self.asked(wanted), allowed: None })?;
            for (place, ranking) in range.zip(found) {
                let right = ranking.labels().filter(|label| Some(*label) != self.itself[place]);
                lists[place].extend(right.filter_map(|label| self.labels.row(label)).take(wanted));
            }
            Ok(())
        })
    }

    /// How many labels are asked for, to have so many without the document itself.
    fn asked(&self, wanted: usize) -> usize {
        wanted + usize::from(self.config.item_to_item)
    }

    fn each_chunk(
        &self,
        stage: &str,
        mut work: impl FnMut(std::ops::Range<usize>) -> Result<(), MethodError>,
    ) -> Result<(), MethodError> {
        let documents = self.documents.len();
        let stage = Stage::start(self.context.progress, stage, Some(documents as u64));
        for first in (0..documents).step_by(CHUNK) {
            if self.context.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            let range = first..documents.min(first + CHUNK);
            work(range.clone())?;
            stage.advance(range.len() as u64);
        }
        stage.finish();
        Ok(())
    }
}
