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
use crate::method::TrainContext;
use crate::method::beside::{named, own_title};
use crate::method::error::MethodError;
use crate::method::label_text::text_of;
use crate::method::lexical::LexicalModel;
use crate::method::training::Texts;
use crate::predict::{Ask, Predictor as _};
use crate::progress::Stage;
use crate::ranking::Ranking;
use polytag_nn::parameters::Parameters;
use polytag_nn::sentence::SentenceEncoder;
use polytag_nn::tokenizer::Text;

/// Documents asked at once.
const CHUNK: usize = 4096;

/// How many labels of each document by words count, where not all that training asked for do.
pub(super) const GUESSED: usize = 3;

/// Documents that an encoder and words are compared on, at most, and how far down its list a label may stand.
const AGREEING: usize = 1024;
const FIRST: usize = 10;

/// What is guessed from.
pub(super) struct Guess<'a> {
    pub(super) config: &'a MaclrConfig,
    pub(super) dataset: &'a dyn Dataset,
    pub(super) context: &'a TrainContext<'a>,
    pub(super) labels: &'a Labels,
    /// For each document the label that it is itself, if any.
    pub(super) itself: &'a [Option<LabelId>],
}

impl Guess<'_> {
    /// The labels of the documents at `places`, as rows of the label texts: the encoder's, and the first of those by
    /// words. Others have none.
    pub(super) fn matches(
        &self,
        (documents, places): (&Texts, &[usize]),
        (siamese, parameters): (&Siamese<'_>, &Parameters),
        by_words: &[Vec<u32>],
    ) -> Result<Matches, MethodError> {
        let mut lists = vec![Vec::new(); self.dataset.len()];
        if self.config.pseudo_encoder > 0 {
            self.by_encoder((documents, places), (siamese, parameters), &mut lists)?;
        }
        for &place in places {
            let guessed = by_words.get(place).into_iter().flatten();
            lists[place].extend(guessed.take(self.config.pseudo_lexical));
        }
        Ok(Matches::new(lists))
    }

    fn by_encoder(
        &self,
        (documents, places): (&Texts, &[usize]),
        (siamese, parameters): (&Siamese<'_>, &Parameters),
        lists: &mut [Vec<u32>],
    ) -> Result<(), MethodError> {
        let index = siamese.index(parameters, self.labels)?;
        // Labels that say nothing are no guess.
        let readable: Allowed = self.labels.readable.iter().map(|&row| LabelId(row)).collect();
        let wanted = self.config.pseudo_encoder;
        self.each_chunk("guessing labels by the encoder", places.len(), |range| {
            let places = &places[range];
            let texts: Vec<&[u32]> = places.iter().map(|&place| documents.get(place)).collect();
            let vectors = siamese.vectors(parameters, &texts)?;
            let found = index.search(&vectors, self.asked(wanted), Some(&readable))?;
            let said = places.iter().zip(found).filter(|(place, _)| !is_bare(documents.get(**place)));
            for (&place, ranking) in said {
                let itself = self.itself[place];
                let right = ranking.labels().filter(|row| Some(self.labels.ids[row.index()]) != itself);
                lists[place].extend(right.take(wanted).map(|row| row.0));
            }
            Ok(())
        })
    }

    /// The best labels of each document by words, as rows of the label texts, best first; with `own_names` a document
    /// that is a label has the label's names among its words.
    pub(super) fn by_words(
        &self,
        lexical: &LexicalModel,
        wanted: usize,
        own_names: bool,
    ) -> Result<Vec<Vec<u32>>, MethodError> {
        let mut lists = vec![Vec::new(); self.dataset.len()];
        self.each_chunk("guessing labels by words", self.dataset.len(), |range| {
            let documents: Vec<Document> = range
                .clone()
                .into_par_iter()
                .map(|place| self.dataset.document(DocId(place as u32)))
                .collect::<Result<_, DataError>>()?;
            let passages: Vec<_> = documents.iter().map(Document::passage).collect();
            let title = |passage| own_names.then(|| own_title(passage, self.dataset.label_space())).flatten();
            let titles: Vec<Option<String>> = passages.iter().map(title).collect();
            let passages = named(&passages, &titles);
            let found: Vec<Ranking> =
                lexical.predict(&passages, &Ask { k: self.asked(wanted), allowed: None })?;
            for (place, ranking) in range.zip(found) {
                let right = ranking.labels().filter(|label| Some(*label) != self.itself[place]);
                lists[place].extend(right.filter_map(|label| self.labels.row(label)).take(wanted));
            }
            Ok(())
        })?;
        Ok(lists)
    }

    /// The share of labels found by words, the first three of a document, that an encoder has among its own first ten;
    /// 0 where it is no more than chance. Of documents evenly spread over the task.
    pub(super) fn agreement(
        &self,
        encoder: &SentenceEncoder,
        siamese: &Siamese<'_>,
        by_words: &[Vec<u32>],
    ) -> Result<f32, MethodError> {
        let (all, labels) = (self.dataset.len(), self.labels.readable.len());
        if labels <= FIRST {
            return Ok(0.0);
        }
        let stage = Stage::start(self.context.progress, "comparing the encoder with words", None);
        let asked = all.min(AGREEING);
        let places: Vec<usize> = (0..asked).map(|i| i * all / asked).collect();
        let documents: Vec<Document> = places
            .iter()
            .map(|&place| self.dataset.document(DocId(place as u32)))
            .collect::<Result<_, DataError>>()?;
        let texts: Vec<Text<'_>> = documents.iter().map(|document| text_of(&document.passage())).collect();
        let index = siamese.index(encoder.parameters(), self.labels)?;
        let readable: Allowed = self.labels.readable.iter().map(|&row| LabelId(row)).collect();
        let found = index.search(&encoder.encode(&texts)?, self.asked(FIRST), Some(&readable))?;
        stage.finish();
        let (mut both, mut words) = (0, 0);
        for (&place, ranking) in places.iter().zip(&found) {
            let itself = self.itself[place];
            let own = ranking.labels().filter(|row| Some(self.labels.ids[row.index()]) != itself);
            let own: Vec<u32> = own.take(FIRST).map(|row| row.0).collect();
            let guessed = by_words[place].iter().take(GUESSED);
            words += guessed.len();
            both += guessed.filter(|row| own.contains(row)).count();
        }
        if words == 0 {
            return Ok(0.0);
        }
        let chance = FIRST as f32 / labels as f32;
        Ok(((both as f32 / words as f32 - chance) / (1.0 - chance)).max(0.0))
    }

    /// How many labels are asked for, to have so many without the document itself.
    fn asked(&self, wanted: usize) -> usize {
        wanted + usize::from(self.config.item_to_item)
    }

    fn each_chunk(
        &self,
        stage: &str,
        documents: usize,
        mut work: impl FnMut(std::ops::Range<usize>) -> Result<(), MethodError>,
    ) -> Result<(), MethodError> {
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
