//! From a plan to what was learned.

use polytag_nn::device::Device;
use polytag_nn::error::Error;
use polytag_nn::op::{ChunkMemory, Pooling};
use polytag_nn::parameters::ParametersBuilder;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::train::{Ahead, Objective, Point};
use polytag_nn::world::World;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::config::TrainingConfig;
use super::course::{Course, MEASURES};
use super::head::Head;
use super::label_maker::{LabelMaker, LabelVectors};
use super::label_rows::LabelRows;
use super::label_side::LabelSide;
use super::objective::{LabelTexts, Orders, Pairs};
use super::texts::{Documents, Reading};
use super::together::Training;
use super::told::Told;
use crate::data::Dataset;
use crate::ids::LabelId;
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::progress::Event;

/// Where the vectors of labels come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelTower {
    /// An encoder that stays as it is (OF-DE, OF-LAN).
    Frozen,
    /// An encoder of their own that is trained (DPR).
    Separate,
    /// The encoder of documents (DEXML).
    Shared,
    /// Numbers of each label's own (OVA, LAN).
    Free,
}

/// How documents and labels meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::method) enum HeadKind {
    /// A vector a document.
    Pooled,
    /// Labels attend to the tokens of a document.
    Attended,
}

/// What is to be trained.
pub(in crate::method) struct Plan<'a> {
    pub(in crate::method) method: &'static str,
    pub(in crate::method) config: &'a TrainingConfig,
    pub(in crate::method) head: HeadKind,
    pub(in crate::method) tower: LabelTower,
    /// The encoder of labels, if it is to be another one.
    pub(in crate::method) label_encoder: Option<&'a str>,
    /// How tokens become a vector, if otherwise than the encoder's folder says.
    pub(in crate::method) pooling: Option<Pooling>,
    /// Whether embeddings that stay as they are go through a learned matrix.
    pub(in crate::method) projects: bool,
}

/// What was learned.
pub(in crate::method) struct Trained {
    /// The encoder of documents.
    pub(in crate::method) encoder: SentenceEncoder,
    /// Makes the vectors of labels.
    pub(in crate::method) labels: LabelMaker,
    /// The vectors of the labels that have one, in the order of `order`.
    pub(in crate::method) vectors: LabelVectors,
    /// Whose they are.
    pub(in crate::method) order: Vec<LabelId>,
    /// What a comparison is multiplied by.
    pub(in crate::method) scale: f32,
    /// What is added then, for each of `order`.
    pub(in crate::method) biases: Vec<f32>,
    /// The course of the training.
    pub(in crate::method) points: Vec<Point>,
}

/// Trains what the plan says.
pub(in crate::method) fn train(
    plan: &Plan<'_>,
    dataset: &dyn Dataset,
    context: &TrainContext<'_>,
) -> Result<Trained, MethodError> {
    let devices = context.world.map_or(1, World::size);
    let config = &plan.config.shared_by(plan.method, devices)?;
    let plan = &Plan { config, ..*plan };
    let space = dataset.label_space();
    let rows = LabelRows::new(space);
    if rows.seen() == 0 {
        return Err(MethodError::NoPairs { method: plan.method });
    }
    let base = plan.load(&config.encoder, config.max_tokens, context)?;
    let reading =
        Reading { tokenizer: base.tokenizer(), max_tokens: base.settings().max_tokens, stop: context.stop };
    let (documents, dev) = Documents::of_splits(dataset, reading, context, config.steps.evaluations > 0)?;
    let course = dev.map(|dev| Course::new(dev, space, config.zero_shot_share));
    if documents.len() == 0 {
        return Err(MethodError::NoPairs { method: plan.method });
    }
    let label_texts = match plan.tower {
        LabelTower::Free => None,
        _ if config.auxiliary == 0.0 => None,
        _ => Some(LabelTexts::read(config, reading, space, &rows)?),
    };
    if let Some(twins) = label_texts.as_ref().and_then(|texts| texts.twins(space, &rows)) {
        context.progress.report(Event::Warned(&twins));
    }
    let mut builder = ParametersBuilder::default();
    let mut encoder = base.encoder().copy(base.parameters(), &mut builder)?;
    if let Some(rate) = config.steps.dropout {
        encoder.set_dropout(rate)?;
    }
    let side = LabelSide::begin(plan, (&base, &encoder), (space, &rows), &mut builder, context)?;
    let head = match plan.head {
        HeadKind::Pooled => {
            let dropout = encoder.config().hidden_dropout;
            Head::Pooled { pooling: base.settings().pooling, dropout }
        }
        HeadKind::Attended => Head::Attended(ChunkMemory::new(config.steps.chunk_mib << 20)),
    };
    let loop_config = config.steps.loop_config(documents.len(), context.seed, course.is_some());
    let about = plan.fingerprint((&documents, course.as_ref()), label_texts.as_ref(), side.embeddings());
    let labels = label_texts.as_ref().map_or(0, |labels| labels.texts.len());
    let pairs = |device: &Device| -> Result<Box<dyn Objective + '_>, Error> {
        Ok(Box::new(Pairs {
            config,
            encoder: &encoder,
            head: &head,
            tower: side.tower.on(device)?,
            rows: &rows,
            orders: Orders::new(documents.len(), labels, context.seed),
            documents: &documents,
            label_texts: label_texts.as_ref(),
            course: course.as_ref(),
            prepared: Ahead::default(),
            device: device.clone(),
        }))
    };
    let mut told = Told::begin(context.progress, "training", &MEASURES, &loop_config);
    if let Head::Attended(memory) = &head {
        told = told.of_chunks(memory);
    }
    let groups = config.groups(encoder.config().hidden);
    let training = Training { config: loop_config, groups, builder, about };
    let (parameters, points) = training.finish(&pairs, told, context)?;
    side.finish(base, encoder, &parameters, (space, &rows)).map(|side| Trained {
        encoder: side.documents,
        labels: side.maker,
        vectors: side.vectors,
        order: side.order,
        scale: side.scale,
        biases: side.biases,
        points,
    })
}

impl Plan<'_> {
    /// A checksum of all that a training is a function of besides the weights that it begins with: settings,
    /// documents of both splits, label texts, and the embeddings that stay as they are.
    fn fingerprint(
        &self,
        (documents, course): (&Documents, Option<&Course>),
        label_texts: Option<&LabelTexts>,
        embeddings: &[f32],
    ) -> String {
        let mut hash = Sha256::new();
        let towers = (self.tower, self.projects, self.label_encoder, &self.config);
        hash.update(serde_json::to_string(&towers).expect("settings are plain"));
        hash.update(format!("{:?} {:?}", self.head, self.pooling));
        add_documents(&mut hash, documents);
        if let Some(course) = course {
            add_documents(&mut hash, course.documents());
        }
        label_texts.iter().for_each(|labels| labels.texts.add_to(&mut hash));
        embeddings.iter().for_each(|number| hash.update(number.to_le_bytes()));
        crate::storage::hex(&hash.finalize())
    }

    /// Loads an encoder as it is, onto the CPU: its weights are copied from there.
    fn load(
        &self,
        name: &str,
        max_tokens: usize,
        context: &TrainContext<'_>,
    ) -> Result<SentenceEncoder, MethodError> {
        let folder = context.encoders.locate(name)?;
        let as_it_is = Overrides {
            pooling: self.pooling,
            // A classifier's products are of vectors as they are; all others are cosines.
            normalise: Some(self.tower != LabelTower::Free),
            ..Overrides::default()
        };
        let encoder = SentenceEncoder::load(&folder, &Device::cpu(), &as_it_is)?;
        let longest = encoder.encoder().config().longest();
        Ok(encoder.cut_to(max_tokens.min(longest))?)
    }
}

/// Adds texts and labels to a checksum, each list with an end.
pub(in crate::method) fn add_documents(hash: &mut Sha256, documents: &Documents) {
    let mut add = |number: u32| hash.update(number.to_le_bytes());
    for document in 0..documents.len() {
        documents.texts.get(document).iter().for_each(|&id| add(id));
        add(u32::MAX);
        documents.labels(document).iter().for_each(|label| add(label.0));
        add(u32::MAX);
    }
}
