//! One stage after the other.

use polytag_nn::random::Key;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::train::Order;
use sha2::{Digest as _, Sha256};

use super::clusters::Schedule;
use super::config::MaclrConfig;
use super::matched::{Matched, Matches};
use super::pairs::Pairs;
use super::pseudo::Guess;
use super::siamese::{Course, Siamese};
use super::stage::Stage;
use super::stage_one::{StageOne, State};
use crate::data::{DataError, Dataset};
use crate::ids::{DocId, LabelId};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::training::{Dev, Documents, Reading, Texts};
use crate::progress::{self, Event};

/// Trains an encoder on a task's own texts.
pub(super) fn train(
    method: &'static str,
    config: &MaclrConfig,
    dataset: &dyn Dataset,
    context: &TrainContext<'_>,
) -> Result<SentenceEncoder, MethodError> {
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
    let run = Run { method, config, dataset, context };
    let labels = run.labels(&base)?;
    let course = run.course(&base, &labels)?;
    let task = Task { labels, course };
    let mut about = run.fingerprint(&folder, &task);
    let mut encoder = base;
    if config.has_stage_one() {
        encoder = run.stage_one(&encoder, &task, &mut about)?;
    }
    if config.has_stage_two() || config.few_shot_epochs > 0.0 {
        encoder = run.later_stages(encoder, &task, &mut about)?;
    }
    Ok(encoder)
}

/// What is trained on what.
struct Run<'a> {
    method: &'static str,
    config: &'a MaclrConfig,
    dataset: &'a dyn Dataset,
    context: &'a TrainContext<'a>,
}

/// What all stages need.
struct Task {
    labels: Labels,
    course: Option<Course>,
}

/// The texts of labels, and whose they are.
struct Labels {
    texts: Texts,
    ids: Vec<LabelId>,
}

impl<'a> Run<'a> {
    fn reading<'r>(&'r self, base: &'r SentenceEncoder) -> Reading<'r> {
        Reading {
            tokenizer: base.tokenizer(),
            max_tokens: base.settings().max_tokens,
            stop: self.context.stop,
        }
    }

    fn siamese<'e>(&self, encoder: &'e polytag_nn::encoder::Encoder, base: &SentenceEncoder) -> Siamese<'e> {
        let settings = base.settings();
        let (pooling, max_tokens) = (settings.pooling, settings.max_tokens);
        Siamese { encoder, pooling, max_tokens, device: self.context.device.clone() }
    }

    fn labels(&self, base: &SentenceEncoder) -> Result<Labels, MethodError> {
        let space = self.dataset.label_space();
        let ids: Vec<LabelId> = space.iter().map(|(id, _)| id).collect();
        let longest = self.config.label_tokens.min(base.settings().max_tokens);
        let tokens = self.config.label_text.tokens(space, &ids, base.tokenizer(), longest)?;
        let bare = tokens.iter().filter(|text| text.len() <= 2).count();
        if bare > 0 {
            let words = format!("{bare} labels have no text that the encoder can read: it cannot find them");
            self.context.progress.report(Event::Warned(&words));
        }
        let mut texts = Texts::default();
        texts.extend(tokens);
        Ok(Labels { texts, ids })
    }

    fn course(&self, base: &SentenceEncoder, labels: &Labels) -> Result<Option<Course>, MethodError> {
        let Some(dev) = self.context.dev.filter(|_| self.config.evaluations > 0) else { return Ok(None) };
        let stage = progress::Stage::start(self.context.progress, "tokenising dev documents", None);
        let documents =
            Documents::read(dev, self.reading(base), stage, |document| !document.gold().is_empty())?;
        let itself = self.itself(dev, documents.numbers.iter().map(|&number| number as usize))?;
        if documents.len() == 0 {
            return Ok(None);
        }
        let dev = Dev::new(documents, self.dataset.label_space(), (&[1, 5], &[10, 100]));
        Ok(Some(Course { dev, labels: labels.ids.clone(), itself }))
    }

    /// For each document the label that it is itself, where documents are labels.
    fn itself(
        &self,
        dataset: &dyn Dataset,
        places: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<Option<LabelId>>, DataError> {
        if !self.config.item_to_item {
            return Ok(vec![None; places.len()]);
        }
        let space = self.dataset.label_space();
        places.map(|place| Ok(space.find(&dataset.document(DocId(place as u32))?.id))).collect()
    }

    /// A checksum of settings, of the encoder to begin with, and of the labels.
    fn fingerprint(&self, folder: &std::path::Path, task: &Task) -> String {
        let mut hash = Sha256::new();
        hash.update(serde_json::to_string(self.config).expect("settings are plain"));
        hash.update(format!("{} {} {}", folder.display(), self.context.seed, self.dataset.len()));
        add_texts(&mut hash, &task.labels.texts);
        if let Some(course) = &task.course {
            add_texts(&mut hash, &course.dev.documents().texts);
        }
        crate::storage::hex(&hash.finalize())
    }

    fn stage_one(
        &self,
        base: &SentenceEncoder,
        task: &Task,
        about: &mut String,
    ) -> Result<SentenceEncoder, MethodError> {
        let (config, context) = (self.config, self.context);
        let reading =
            progress::Stage::start(context.progress, "pairing texts", Some(self.dataset.len() as u64));
        let key = Key::new(context.seed).part(0x7061_6972);
        let pairs = Pairs::read(self.dataset, config, self.reading(base), (reading, key))?;
        self.tell_of(&pairs)?;
        let loop_config = config.loop_config(pairs.len(), config.stage_one_epochs, context.seed);
        let schedule = Schedule::new(config, pairs.len(), loop_config.steps);
        let mut hash = Sha256::new();
        hash.update(&about);
        add_texts(&mut hash, &pairs.contexts);
        add_texts(&mut hash, &pairs.titles);
        *about = crate::storage::hex(&hash.finalize());
        let stage = Stage {
            name: "one",
            title: "stage one",
            config,
            context,
            about: about.clone(),
            epochs: config.stage_one_epochs,
            rate: 1.0,
        };
        if let Some(encoder) = stage.done(base)? {
            return Ok(encoder);
        }
        let (encoder, mut parameters) = stage.begin(base)?;
        let folder = stage.folder()?;
        let mut objective = StageOne {
            config,
            siamese: self.siamese(&encoder, base),
            pairs: &pairs,
            labels: &task.labels.texts,
            schedule,
            course: task.course.as_ref(),
            folder: folder.as_deref(),
            about: about.clone(),
            seed: context.seed,
            state: State::new(pairs.len(), task.labels.texts.len(), context.seed),
        };
        stage.train(&loop_config, (&encoder, &mut parameters), &mut objective)?;
        drop(objective);
        stage.finish(base, (&encoder, &parameters))
    }

    /// Says what is odd about the pairs, and fails where there are too few.
    fn tell_of(&self, pairs: &Pairs) -> Result<(), MethodError> {
        if pairs.len() < 2 {
            return Err(MethodError::NoDocuments { method: self.method, documents: pairs.len() });
        }
        let warn = |words: String| self.context.progress.report(Event::Warned(&words));
        if pairs.empty > 0 {
            warn(format!("{} documents have no text and are left out", pairs.empty));
        }
        if pairs.alone > 0 {
            warn(format!(
                "{} of {} documents have neither a title nor a second sentence: each is paired with itself, which \
                 teaches less",
                pairs.alone,
                pairs.len()
            ));
        }
        if let Some(asked) = self.config.clusters.filter(|&asked| asked > pairs.len() / 2) {
            warn(format!(
                "{asked} clusters are too many for {} documents: there will be {}",
                pairs.len(),
                pairs.len() / 2
            ));
        }
        Ok(())
    }

    /// Stage two and given pairs, as far as they are wanted.
    fn later_stages(
        &self,
        mut encoder: SentenceEncoder,
        task: &Task,
        about: &mut String,
    ) -> Result<SentenceEncoder, MethodError> {
        let (config, context) = (self.config, self.context);
        let reading = progress::Stage::start(context.progress, "tokenising documents", None);
        let documents = Documents::read(self.dataset, self.reading(&encoder), reading, |_| true)?;
        let mut hash = Sha256::new();
        hash.update(&about);
        add_texts(&mut hash, &documents.texts);
        (0..documents.len()).for_each(|document| {
            documents.labels(document).iter().for_each(|label| hash.update(label.0.to_le_bytes()));
            hash.update(u32::MAX.to_le_bytes());
        });
        *about = crate::storage::hex(&hash.finalize());
        if config.has_stage_two() {
            let stage = Stage {
                name: "two",
                title: "stage two",
                config,
                context,
                about: format!("{about} two"),
                epochs: config.stage_two_epochs,
                rate: 1.0,
            };
            encoder = match stage.done(&encoder)? {
                Some(encoder) => encoder,
                None => {
                    let guess = Guess {
                        config,
                        dataset: self.dataset,
                        context,
                        documents: &documents.texts,
                        labels: (&task.labels.texts, &task.labels.ids),
                        itself: &self.itself(self.dataset, 0..self.dataset.len())?,
                    };
                    let siamese = self.siamese(encoder.encoder(), &encoder);
                    let matches = guess.matches(&siamese, encoder.parameters())?;
                    self.matched(&stage, encoder, (&documents.texts, &matches), task)?
                }
            };
        }
        if config.few_shot_epochs > 0.0 {
            let stage = Stage {
                name: "given",
                title: "given pairs",
                config,
                context,
                about: format!("{about} given"),
                epochs: config.few_shot_epochs,
                rate: config.few_shot_rate,
            };
            encoder = match stage.done(&encoder)? {
                Some(encoder) => encoder,
                None => {
                    let mut rows = vec![u32::MAX; self.dataset.label_space().positions()];
                    task.labels.ids.iter().zip(0..).for_each(|(label, row)| rows[label.index()] = row);
                    let list = |document| {
                        documents.labels(document).iter().map(|label| rows[label.index()]).collect()
                    };
                    let matches = Matches::new((0..documents.len()).map(list).collect());
                    self.matched(&stage, encoder, (&documents.texts, &matches), task)?
                }
            };
        }
        Ok(encoder)
    }

    /// A stage over documents and their labels, guessed or given.
    fn matched(
        &self,
        stage: &Stage<'_>,
        base: SentenceEncoder,
        (documents, matches): (&Texts, &Matches),
        task: &Task,
    ) -> Result<SentenceEncoder, MethodError> {
        let (config, context) = (self.config, self.context);
        if matches.len() < 2 {
            let words = format!("{}: there are too few pairs to learn from; it is left out", stage.title);
            context.progress.report(Event::Warned(&words));
            return Ok(base);
        }
        let loop_config = config.loop_config(matches.len(), stage.epochs, context.seed);
        let (encoder, mut parameters) = stage.begin(&base)?;
        let mut objective = Matched {
            config,
            siamese: self.siamese(&encoder, &base),
            documents,
            labels: &task.labels.texts,
            matches,
            course: task.course.as_ref(),
            order: Order::new(matches.len(), context.seed),
            prepared: None,
        };
        stage.train(&loop_config, (&encoder, &mut parameters), &mut objective)?;
        drop(objective);
        stage.finish(&base, (&encoder, &parameters))
    }
}

/// Adds texts to a checksum, each with an end.
fn add_texts(hash: &mut Sha256, texts: &Texts) {
    for text in texts.iter() {
        text.iter().for_each(|id| hash.update(id.to_le_bytes()));
        hash.update(u32::MAX.to_le_bytes());
    }
}
