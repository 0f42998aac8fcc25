//! One stage after the other.

use std::cell::OnceCell;
use std::time::Instant;

use polytag_nn::device::Precision;
use polytag_nn::encoder::Encoder;
use polytag_nn::random::Key;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::train::{Ahead, Order, Point};
use sha2::{Digest as _, Sha256};

use super::clusters::Schedule;
use super::config::{MaclrConfig, PairLoss};
use super::labels::Labels;
use super::matched::{Matched, Matches};
use super::pairs::{TextPairs, is_bare};
use super::pseudo::{GUESSED, Guess};
use super::siamese::{DevMeasures, Siamese};
use super::stage::{Left, StageRun};
use super::stage_one::{StageOne, State};
use crate::data::{DataError, Dataset};
use crate::ids::{DocId, LabelId};
use crate::method::TrainContext;
use crate::method::beside;
use crate::method::error::MethodError;
use crate::method::lexical::{Lexical, LexicalConfig, LexicalModel};
use crate::method::training::{Dev, Documents, Reading, Texts};
use crate::progress::{Event, Stage};

/// What training leaves for a model.
pub(super) struct Trained {
    pub(super) left: Left,
    /// The words of the documents, where they are to count.
    pub(super) words: Option<LexicalModel>,
    /// What labels gain by being guessed, by position, where they are to.
    pub(super) gains: Option<Vec<f32>>,
}

/// Trains an encoder on a task's own texts.
pub(super) fn train(
    method: &'static str,
    config: &MaclrConfig,
    dataset: &dyn Dataset,
    context: &TrainContext<'_>,
) -> Result<Trained, MethodError> {
    let space = dataset.label_space();
    if config.few_shot_epochs > 0.0 && space.iter().all(|(label, _)| !space.is_seen(label)) {
        return Err(MethodError::NoPairs { method });
    }
    if dataset.len() < 2 {
        return Err(MethodError::NoDocuments { method, documents: dataset.len() });
    }
    let folder = context.encoders.locate(&config.encoder)?;
    // Cosines: whatever the folder says, vectors are made one long.
    let overrides = Overrides { normalise: Some(true), ..Overrides::default() };
    let base = SentenceEncoder::load(&folder, context.device, &overrides)?;
    let longest = base.encoder().config().longest();
    let base = base.cut_to(config.max_tokens.min(longest))?;
    let run = Run {
        method,
        config,
        dataset,
        context,
        labels: Labels::read(space, config, &base)?,
        measures: measures(config, dataset, &base, context)?,
        itself: itself(config, dataset, dataset, 0..dataset.len())?,
        lexical: OnceCell::new(),
        by_words: OnceCell::new(),
    };
    run.tell_of_labels();
    let left = run.stages(base)?;
    let gains = if config.label_prior > 0.0 { Some(run.gains()?) } else { None };
    if config.words > 0.0 {
        run.lexical()?;
    }
    let words = run.lexical.into_inner().filter(|_| config.words > 0.0);
    Ok(Trained { left, words, gains })
}

/// For each document of `of` the label that it is itself, where documents are labels.
fn itself(
    config: &MaclrConfig,
    dataset: &dyn Dataset,
    of: &dyn Dataset,
    places: impl ExactSizeIterator<Item = usize>,
) -> Result<Vec<Option<LabelId>>, DataError> {
    if !config.item_to_item {
        return Ok(vec![None; places.len()]);
    }
    let space = dataset.label_space();
    places.map(|place| Ok(space.find(&of.document(DocId(place as u32))?.id))).collect()
}

/// What is measured on the dev split, if there is one.
fn measures(
    config: &MaclrConfig,
    dataset: &dyn Dataset,
    base: &SentenceEncoder,
    context: &TrainContext<'_>,
) -> Result<Option<DevMeasures>, MethodError> {
    let Some(dev) = context.dev.filter(|_| config.evaluations > 0) else { return Ok(None) };
    let stage = Stage::start(context.progress, "tokenising dev documents", None);
    let documents =
        Documents::read(dev, reading(base, context), stage, |document| !document.gold().is_empty())?;
    let itself = itself(config, dataset, dev, documents.numbers.iter().map(|&number| number as usize))?;
    if documents.len() == 0 {
        return Ok(None);
    }
    let dev = Dev::new(documents, dataset.label_space(), (&[1, 5], &[10, 100]));
    Ok(Some(DevMeasures { dev, itself }))
}

fn reading<'a>(base: &'a SentenceEncoder, context: &TrainContext<'a>) -> Reading<'a> {
    Reading { tokenizer: base.tokenizer(), max_tokens: base.settings().max_tokens, stop: context.stop }
}

/// What is trained on what.
struct Run<'a> {
    method: &'static str,
    config: &'a MaclrConfig,
    dataset: &'a dyn Dataset,
    context: &'a TrainContext<'a>,
    labels: Labels,
    measures: Option<DevMeasures>,
    /// For each document the label that it is itself, if any.
    itself: Vec<Option<LabelId>>,
    /// `lexical` on the same task, once it was needed.
    lexical: OnceCell<LexicalModel>,
    /// What it guesses for each document, once that was needed.
    by_words: OnceCell<Vec<Vec<u32>>>,
}

impl Run<'_> {
    fn stages(&self, base: SentenceEncoder) -> Result<Left, MethodError> {
        let config = self.config;
        let mut given = self.given(&base)?;
        let mut trained = None;
        if config.has_stage_one() {
            let (left, about) = self.stage_one(&base, &given)?;
            (trained, given) = (Some(left), about);
        }
        if !config.has_stage_two() && config.few_shot_epochs == 0.0 {
            return Ok(self.back_to(base, trained)?.0);
        }
        let tokenising = Stage::start(self.context.progress, "tokenising documents", None);
        let documents = Documents::read(self.dataset, reading(&base, self.context), tokenising, |_| true)?;
        let mut given = checksum(&given, |hash| documents.texts.add_to(hash));
        if config.has_stage_two() {
            // `lexical` reads all of a text; the tokens are a part of it.
            let by_words = if config.pseudo_lexical > 0 { self.by_words()? } else { &[] };
            let about = checksum(&given, |hash| {
                add_settings(hash, &config.of_stage_two());
                by_words.iter().for_each(|list| hash.update(format!("{list:?}")));
            });
            let stage = self.stage(("two", "stage two"), about, (config.stage_two_epochs, 1.0));
            let encoder = trained.as_ref().map_or(&base, |left| &left.encoder);
            let next = match stage.done(encoder)? {
                Some(next) => next,
                None => {
                    let matches = self.guessed(encoder, &documents.texts)?;
                    self.matched(&stage, encoder, (&documents.texts, &matches), PairLoss::Contrast)?
                }
            };
            given = stage.about;
            trained = Some(after(trained.map_or_else(Vec::new, |left| left.points), next));
        }
        let (left, kept) = self.back_to(base, trained)?;
        if config.few_shot_epochs == 0.0 {
            return Ok(left);
        }
        let matches = self.given_pairs(&documents);
        let about = checksum(&given, |hash| {
            add_settings(hash, &config.of_all_stages());
            hash.update(kept.to_le_bytes());
            matches.add_to(hash);
        });
        let stage =
            self.stage(("few-shot", "few-shot"), about, (config.few_shot_epochs, config.few_shot_rate));
        let next = match stage.done(&left.encoder)? {
            Some(next) => next,
            None => {
                let pairs = (&documents.texts, &matches);
                self.matched(&stage, &left.encoder, pairs, config.few_shot_loss)?
            }
        };
        Ok(after(left.points, next))
    }

    /// What stages without pairs left, gone back to the encoder before them as far as it deserves, and how far that is.
    fn back_to(&self, base: SentenceEncoder, trained: Option<Left>) -> Result<(Left, f32), MethodError> {
        let Some(left) = trained else { return Ok((Left { encoder: base, points: Vec::new() }, 1.0)) };
        let keep = match self.config.keep {
            Some(keep) => keep,
            None => {
                let siamese = self.siamese(base.encoder(), &base);
                let keep = self.guess().agreement(&base, &siamese, self.by_words()?)?;
                let name = "share of the encoder's own weights that is kept:";
                self.context.progress.report(Event::Measured { name, value: keep.into() });
                keep
            }
        };
        if keep == 0.0 {
            return Ok((left, keep));
        }
        Ok((Left { encoder: left.encoder.between(&base, keep)?, points: left.points }, keep))
    }

    /// A checksum of what all stages are a function of: the weights to begin with, the seed, the labels, which documents
    /// are labels, what is encoded in, and whether a stage is about documents that are drawn.
    fn given(&self, base: &SentenceEncoder) -> Result<String, MethodError> {
        let mut weights = Sha256::new();
        for &id in base.encoder().parameters() {
            base.parameters().to_vec(id)?.iter().for_each(|number| weights.update(number.to_le_bytes()));
        }
        let weights = crate::storage::hex(&weights.finalize());
        Ok(checksum(&weights, |hash| {
            hash.update(self.context.seed.to_le_bytes());
            if self.context.device.precision() == Precision::EightBit {
                hash.update("8-bit integers");
            }
            if self.config.max_steps.is_some() {
                hash.update("drawn documents");
            }
            self.labels.texts.add_to(hash);
            for itself in &self.itself {
                hash.update(itself.map_or(u32::MAX, |label| label.0).to_le_bytes());
            }
        }))
    }

    fn stage(
        &self,
        (name, title): (&'static str, &'static str),
        about: String,
        (epochs, rate): (f64, f64),
    ) -> StageRun<'_> {
        StageRun { name, title, config: self.config, context: self.context, about, epochs, rate }
    }

    fn siamese<'e>(&self, encoder: &'e Encoder, base: &SentenceEncoder) -> Siamese<'e> {
        let settings = base.settings();
        let (pooling, max_tokens) = (settings.pooling, settings.max_tokens);
        Siamese { encoder, pooling, max_tokens, device: self.context.device.clone() }
    }

    /// What stage one leaves, and the checksum of what that is a function of.
    fn stage_one(&self, base: &SentenceEncoder, given: &str) -> Result<(Left, String), MethodError> {
        let (config, context) = (self.config, self.context);
        let pairing = Stage::start(context.progress, "pairing texts", Some(self.dataset.len() as u64));
        let key = Key::new(context.seed).part(0x7061_6972);
        let pairs = TextPairs::read(self.dataset, config, reading(base, context), (pairing, key))?;
        self.tell_of_pairs(&pairs)?;
        let pairs = match config.drawn(pairs.len(), config.stage_one_epochs, context.seed) {
            Some(drawn) => pairs.only(&drawn),
            None => pairs,
        };
        self.tell_of_clusters(pairs.len());
        let about = checksum(given, |hash| {
            add_settings(hash, &config.of_stage_one());
            pairs.contexts.add_to(hash);
            pairs.titles.add_to(hash);
        });
        let stage = self.stage(("one", "stage one"), about, (config.stage_one_epochs, 1.0));
        if let Some(left) = stage.done(base)? {
            return Ok((left, stage.about));
        }
        let loop_config = config.loop_config(pairs.len(), stage.epochs, context.seed);
        let schedule = Schedule::new(config, pairs.len(), loop_config.steps);
        let (encoder, mut parameters) = stage.begin(base)?;
        let folder = stage.folder()?;
        let itself: Vec<Option<LabelId>> =
            pairs.places.iter().map(|&place| self.itself[place as usize]).collect();
        let mut objective = StageOne {
            config,
            siamese: self.siamese(&encoder, base),
            pairs: &pairs,
            labels: &self.labels,
            itself: &itself,
            schedule,
            measures: self.measures.as_ref(),
            folder: folder.as_deref(),
            about: stage.about.clone(),
            seed: context.seed,
            state: State::new(pairs.len(), self.labels.readable.len(), context.seed),
        };
        let started = Instant::now();
        objective.cluster(&parameters, 0)?;
        let clustering = started.elapsed().as_secs_f64();
        let clusterings = |step| schedule.map_or(0, |schedule| schedule.clusterings_from(step));
        let besides = |step| clustering * clusterings(step) as f64;
        let points = stage.train((&loop_config, &besides), (&encoder, &mut parameters), &mut objective)?;
        drop(objective);
        let left = stage.finish(base, (&encoder, &parameters), points)?;
        Ok((left, stage.about))
    }

    /// Labels that the encoder and `lexical` guess.
    fn guessed(&self, encoder: &SentenceEncoder, documents: &Texts) -> Result<Matches, MethodError> {
        let config = self.config;
        let by_words = if config.pseudo_lexical > 0 { self.by_words()? } else { &[] };
        let siamese = self.siamese(encoder.encoder(), encoder);
        // A document that nothing can be guessed for is no example: it is not drawn in the place of one that is.
        let by_encoder = |place: usize| config.pseudo_encoder > 0 && !is_bare(documents.get(place));
        let has_words = |place: usize| by_words.get(place).is_some_and(|labels| !labels.is_empty());
        let places: Vec<usize> =
            (0..documents.len()).filter(|&place| by_encoder(place) || has_words(place)).collect();
        let places = match config.drawn(places.len(), config.stage_two_epochs, self.context.seed) {
            Some(drawn) => drawn.into_iter().map(|drawn| places[drawn]).collect(),
            None => places,
        };
        self.guess().matches((documents, &places), (&siamese, encoder.parameters()), by_words)
    }

    fn guess(&self) -> Guess<'_> {
        Guess {
            config: self.config,
            dataset: self.dataset,
            context: self.context,
            labels: &self.labels,
            itself: &self.itself,
        }
    }

    /// What `lexical` guesses for each document, as rows of the label texts, best first.
    fn by_words(&self) -> Result<&[Vec<u32>], MethodError> {
        if let Some(known) = self.by_words.get() {
            return Ok(known);
        }
        let lists = self.guess().by_words(self.lexical()?, self.config.pseudo_lexical.max(GUESSED), false)?;
        Ok(self.by_words.get_or_init(|| lists))
    }

    fn lexical(&self) -> Result<&LexicalModel, MethodError> {
        if let Some(known) = self.lexical.get() {
            return Ok(known);
        }
        let config = LexicalConfig { stem: self.config.stem, ..LexicalConfig::default() };
        let model = Lexical::try_from(config)?.fit(self.dataset, self.context)?;
        Ok(self.lexical.get_or_init(|| model))
    }

    /// What labels gain by being guessed, by position.
    fn gains(&self) -> Result<Vec<f32>, MethodError> {
        let mut guessed = vec![0; self.dataset.label_space().positions()];
        let named;
        // The stages learn from what texts alone say, as the encoder reads no more.
        let lists = if self.config.item_to_item && self.config.own_names {
            named = self.guess().by_words(self.lexical()?, GUESSED, true)?;
            &named[..]
        } else {
            self.by_words()?
        };
        for &row in lists.iter().flat_map(|list| list.iter().take(GUESSED)) {
            guessed[self.labels.ids[row as usize].index()] += 1;
        }
        Ok(beside::gains(&guessed, self.labels.len(), self.config.label_prior))
    }

    /// Labels that documents carry.
    fn given_pairs(&self, documents: &Documents) -> Matches {
        let list = |document| {
            let labels = documents.labels(document).iter().filter_map(|&label| self.labels.row(label));
            if is_bare(documents.texts.get(document)) { Vec::new() } else { labels.collect() }
        };
        let most = self.config.few_shot_most.unwrap_or(usize::MAX);
        let key = Key::new(self.context.seed).part(0x7475_726e);
        Matches::in_turns((0..documents.len()).map(list).collect(), most, key)
    }

    /// A stage over documents and their labels, guessed or given.
    fn matched(
        &self,
        stage: &StageRun<'_>,
        base: &SentenceEncoder,
        (documents, matches): (&Texts, &Matches),
        loss: PairLoss,
    ) -> Result<Left, MethodError> {
        let (config, context) = (self.config, self.context);
        let loop_config = config.loop_config(matches.len(), stage.epochs, context.seed);
        let (encoder, mut parameters) = stage.begin(base)?;
        if matches.len() < 2 {
            let words = format!(
                "{}: no two pairs of a document and a label are there to learn from; the stage is left out",
                stage.title
            );
            context.progress.report(Event::Warned(&words));
            return stage.finish(base, (&encoder, &parameters), Vec::new());
        }
        let mut objective = Matched {
            config,
            loss,
            key: Key::new(context.seed).part(0x6472_6177),
            siamese: self.siamese(&encoder, base),
            documents,
            labels: &self.labels,
            matches,
            measures: self.measures.as_ref(),
            order: Order::new(matches.len(), context.seed),
            prepared: Ahead::default(),
        };
        let points = stage.train((&loop_config, &|_| 0.0), (&encoder, &mut parameters), &mut objective)?;
        drop(objective);
        stage.finish(base, (&encoder, &parameters), points)
    }

    fn warn(&self, words: &str) {
        self.context.progress.report(Event::Warned(words));
    }

    /// Says what is odd about the labels.
    fn tell_of_labels(&self) {
        let (all, readable) = (self.labels.len(), self.labels.readable.len());
        if readable < all {
            let bare = all - readable;
            self.warn(&format!(
                "the encoder can read nothing in the texts of {bare} of {all} labels: their places in rankings mean nothing"
            ));
        }
        let asked = self.config.label_regularisation;
        if self.config.has_stage_one() && asked > readable / 10 {
            self.warn(&format!(
                "label_regularisation = {asked} is too much for {all} labels, as one drawn at random may well be right: it \
                 will be {}",
                readable / 10
            ));
        }
    }

    /// Says what is odd about the pairs, and fails where there are too few.
    fn tell_of_pairs(&self, pairs: &TextPairs) -> Result<(), MethodError> {
        let count = pairs.len();
        if count < 2 {
            return Err(MethodError::NoDocuments { method: self.method, documents: count });
        }
        if pairs.empty > 0 {
            self.warn(&format!("documents without any text are left out: {} of them", pairs.empty));
        }
        if pairs.alone > 0 {
            self.warn(&format!(
                "{} of {count} documents have neither a title nor a second sentence: each is paired with itself, which \
                 teaches less",
                pairs.alone,
            ));
        }
        Ok(())
    }

    /// Says that so many documents do not make so many clusters.
    fn tell_of_clusters(&self, count: usize) {
        if let Some(asked) = self.config.clusters.filter(|&asked| asked > count / 2) {
            self.warn(&format!(
                "{asked} clusters are too many for {count} documents: there will be {}",
                count / 2
            ));
        }
    }
}

/// What a stage leaves, with the course of those before it in front of its own.
fn after(before: Vec<Point>, next: Left) -> Left {
    let done = before.last().map_or(0, |point| point.step);
    let later = next.points.into_iter().map(|point| Point { step: done + point.step, ..point });
    Left { encoder: next.encoder, points: before.into_iter().chain(later).collect() }
}

/// A checksum of one before it and more.
fn checksum(before: &str, more: impl FnOnce(&mut Sha256)) -> String {
    let mut hash = Sha256::new();
    hash.update(before);
    more(&mut hash);
    crate::storage::hex(&hash.finalize())
}

fn add_settings(hash: &mut Sha256, config: &MaclrConfig) {
    hash.update(serde_json::to_string(config).expect("settings are plain"));
}
