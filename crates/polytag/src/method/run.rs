//! Fitting a task into a model folder, loading one, and changing its labels, once or while it is asked.

use std::fs::File;
use std::path::{Path, PathBuf};

use polytag_nn::device::Device;

use super::TrainContext;
use super::blend::{self, BlendModel};
use super::classifier::ClassifierModel;
use super::config::{Kind, METHODS, MethodConfig};
use super::dual_encoder::DualEncoderModel;
use super::embedding::{ENCODER, EmbeddingModel};
use super::error::MethodError;
use super::fusion::{self, FusionModel};
use super::label_attention::LabelAttentionModel;
use super::label_tree::LabelTreeModel;
use super::lexical::LexicalModel;
use super::parts::part_dir;
use super::recorded::RecordedModel;
use super::zest::ZestModel;
use crate::Error;
use crate::artifact::{
    ArtifactError, LABEL_LOG, LabelLog, MANIFEST, Manifest, ModelFolder, ModelWriter, Provenance,
};
use crate::data::{Dataset, LabelChange, LabelSpace, LabelsOnly, SpaceError, Split, Task};
use crate::encoder::WordVectors;
use crate::index::LabelIndex;
use crate::predict::{Embeddings, Predictor};

/// A method fitted and written.
pub struct Fitted {
    /// The model.
    pub predictor: Box<dyn Predictor>,
    /// What its folder holds.
    pub manifest: Manifest,
}

/// Fits a method to the train split of `task` and writes the model folder `target`.
///
/// A task without a train split is fitted on its labels alone; a method that needs documents says that the file is missing.
pub fn fit(
    task: &Task,
    config: MethodConfig,
    target: &Path,
    context: &TrainContext<'_>,
) -> Result<Fitted, Error> {
    let name = config.name();
    if let Some(world) = context.world.filter(|_| !config.trains_together()) {
        return Err(MethodError::Alone { method: name, devices: world.size() }.into());
    }
    let train = task.file(Split::Train)?;
    let dev = if config.measures() { task.file(Split::Dev)? } else { None };
    let inputs: Vec<PathBuf> = config.inputs();
    let read = inputs.iter().filter(|path| path.is_file()).cloned();
    let sources =
        task.labels_file()?.into_iter().chain(train.clone()).chain(dev.clone()).chain(read).collect();
    let inputs: Vec<&Path> = [task.dir()].into_iter().chain(inputs.iter().map(PathBuf::as_path)).collect();
    let provenance = Provenance { config: config.to_value(), seed: context.seed, sources };
    // The target is checked before the work, not after it.
    let writer = ModelWriter::create(target, name, &provenance, &inputs)?;
    let has_train = train.is_some();
    let dataset: Box<dyn Dataset> = match train {
        Some(_) => Box::new(task.dataset(Split::Train, context.progress, context.stop)?),
        None => Box::new(LabelsOnly::new(task.labels().clone())),
    };
    let dev = match dev {
        Some(_) if context.dev.is_none() => Some(task.dataset(Split::Dev, context.progress, context.stop)?),
        _ => None,
    };
    let dev = dev.as_ref().map(|dev| -> &dyn Dataset { dev });
    let context = TrainContext { dev: context.dev.or(dev), task: context.task.or(Some(task)), ..*context };
    fit_into(writer, config, dataset.as_ref(), &context).map_err(|error| match error {
        Error::Method(error) if !has_train && error.is_for_want_of_documents() => {
            MethodError::NoTrain { method: name, dir: task.dir().to_owned() }.into()
        }
        error => error,
    })
}

/// Fits a method to documents and writes its model.
pub(super) fn fit_into(
    mut writer: ModelWriter,
    config: MethodConfig,
    dataset: &dyn Dataset,
    context: &TrainContext<'_>,
) -> Result<Fitted, Error> {
    let predictor = config.method()?.train(dataset, context)?;
    writer.labels(predictor.label_space())?;
    predictor.save(&mut writer)?;
    let manifest = writer.finish()?;
    Ok(Fitted { predictor, manifest })
}

/// Reads the model folder `dir`, with the changes to its labels since it was fitted. If it has an
/// encoder, that works on `device`, and what is searched faster there lies there, too.
pub fn load(dir: &Path, device: &Device) -> Result<Box<dyn Predictor>, Error> {
    let mut predictor = load_part(dir, device)?;
    predictor.place(device);
    Ok(predictor)
}

/// The same for a part of another model, which says when it is [placed](Predictor::place).
pub(super) fn load_part(dir: &Path, device: &Device) -> Result<Box<dyn Predictor>, Error> {
    let mut predictor = load_fitted(dir, device)?;
    replay(dir, predictor.as_mut(), &LabelLog::read(dir)?)?;
    Ok(predictor)
}

/// Whether the model in the folder `dir` runs a neural network, so that it matters on what device.
pub fn uses_network(dir: &Path) -> Result<bool, Error> {
    let folder = ModelFolder::open(dir)?;
    Ok(match kind(&folder)? {
        Kind::Lexical | Kind::Zest | Kind::Recorded => false,
        kind @ (Kind::Fusion | Kind::Blend) => {
            let names = if kind == Kind::Fusion { &fusion::PARTS[..] } else { &blend::NAMES[..] };
            let parts = names.iter().map(|name| part_dir(dir, name)).take_while(|part| part.is_dir());
            parts.map(|part| uses_network(&part)).collect::<Result<Vec<bool>, Error>>()?.contains(&true)
        }
        Kind::LabelTree if !dir.join(ENCODER).is_dir() => false,
        _ => !WordVectors::are_in(&dir.join(ENCODER)),
    })
}

/// The labels of the model folder `dir`, with the changes since it was fitted, without the model.
pub fn load_labels(dir: &Path) -> Result<LabelSpace, Error> {
    let mut space = ModelFolder::open(dir)?.labels()?;
    for (place, change) in LabelLog::read(dir)?.iter().enumerate() {
        space.apply(change).map_err(|source| unfit(dir, place, source))?;
    }
    Ok(space)
}

/// Makes changes to the labels of the model folder `dir`, all or none. When this returns they are on
/// the disk, and in the predictor that comes back.
pub fn change_labels(
    dir: &Path,
    changes: &[LabelChange],
    device: &Device,
) -> Result<Box<dyn Predictor>, Error> {
    let mut model = LiveModel::open(dir, device)?;
    model.change(changes)?;
    Ok(model.predictor)
}

/// A model whose labels change while it is asked. Nobody else can change them meanwhile.
pub struct LiveModel {
    dir: PathBuf,
    device: Device,
    manifest: Manifest,
    predictor: Box<dyn Predictor>,
    record: Record,
    /// Whether the predictor may know of changes that the log does not.
    is_ahead: bool,
    /// Whether what is searched faster on the device lies there.
    is_placed: bool,
}

/// Where changes of labels are kept.
enum Record {
    /// In the model folder, by us.
    Log(LabelLog),
    /// Elsewhere, by whoever tells us of them. The folder is held meanwhile.
    Elsewhere { _held: File, changes: usize },
}

impl LiveModel {
    /// Opens the model folder `dir`. If it has an encoder, that works on `device`.
    ///
    /// # Errors
    /// If it is no model or a damaged one, or if another program holds it open.
    pub fn open(dir: &Path, device: &Device) -> Result<LiveModel, Error> {
        ModelFolder::open(dir)?;
        let log = LabelLog::lock(dir)?;
        // Nobody replaces the model any more.
        let manifest = ModelFolder::open(dir)?.manifest().clone();
        let mut predictor = load_fitted(dir, device)?;
        replay(dir, predictor.as_mut(), log.changes())?;
        let (dir, device) = (dir.to_owned(), device.clone());
        let record = Record::Log(log);
        Ok(LiveModel { dir, device, manifest, predictor, record, is_ahead: false, is_placed: false })
    }

    /// Opens the model folder `dir` as it was fitted, for labels that are kept elsewhere: [`take`](LiveModel::take) makes
    /// their changes. Others can open it in the same way at the same time. If it has an encoder, that works on `device`.
    ///
    /// # Errors
    /// If it is no model or a damaged one, or if another program holds it open to change it.
    pub fn open_shared(dir: &Path, device: &Device) -> Result<LiveModel, Error> {
        ModelFolder::open(dir)?;
        let record = Record::Elsewhere { _held: LabelLog::share(dir)?, changes: 0 };
        let manifest = ModelFolder::open(dir)?.manifest().clone();
        let predictor = load_fitted(dir, device)?;
        let (dir, device) = (dir.to_owned(), device.clone());
        Ok(LiveModel { dir, device, manifest, predictor, record, is_ahead: false, is_placed: false })
    }

    /// Whether its answers are to be believed: not after a change that the disk refused and that could not be taken back,
    /// until another change succeeds.
    pub fn is_sound(&self) -> bool {
        !self.is_ahead
    }

    /// Brings what is searched faster on its device there, from now on: for a model that will be asked, once it is known
    /// where its labels are searched.
    pub fn place(&mut self) {
        self.is_placed = true;
        self.predictor.place(&self.device);
    }

    /// Answers by another predictor. What the one before had on the device is free by then.
    fn exchange(&mut self, predictor: Box<dyn Predictor>) {
        self.predictor = predictor;
        if self.is_placed {
            self.place();
        }
    }

    /// Who answers.
    pub fn predictor(&self) -> &dyn Predictor {
        self.predictor.as_ref()
    }

    /// What its folder holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How many changes to its labels there were since it was fitted, as far as they matter still.
    pub fn changes(&self) -> usize {
        match &self.record {
            Record::Log(log) => log.changes().len(),
            Record::Elsewhere { changes, .. } => *changes,
        }
    }

    /// The model as it was fitted, once more: to begin anew from, with [`replace`](LiveModel::replace).
    pub fn fitted(&self) -> Result<Box<dyn Predictor>, Error> {
        load_fitted(&self.dir, &self.device)
    }

    /// Answers by `predictor` from now on, which knows of `changes` that are kept elsewhere.
    pub fn replace(&mut self, predictor: Box<dyn Predictor>, changes: usize) {
        self.exchange(predictor);
        self.is_ahead = false;
        if let Record::Elsewhere { changes: known, .. } = &mut self.record {
            *known = changes;
        }
    }

    /// Leaves the search among its labels to an index that holds the vectors that it was fitted with, and hears of every
    /// change.
    ///
    /// # Errors
    /// If its labels are compared by more than vectors.
    pub fn search_elsewhere(&mut self, index: Box<dyn LabelIndex>) -> Result<(), Error> {
        Ok(self.predictor.search_elsewhere(index)?)
    }

    /// Makes changes of labels that are kept elsewhere, all or none. After an error its answers are not
    /// [sound](LiveModel::is_sound): others have what it has not.
    ///
    /// # Errors
    /// If a change is not possible.
    pub fn take(&mut self, changes: &[LabelChange], vectors: &Embeddings) -> Result<(), Error> {
        // Until it is done; also if it panics.
        self.is_ahead = true;
        self.predictor.apply_prepared(changes, vectors)?;
        self.is_ahead = false;
        if let Record::Elsewhere { changes: known, .. } = &mut self.record {
            *known += changes.len();
        }
        Ok(())
    }

    /// Changes its labels, all or none. When this returns, the changes are on the disk and in the next answer; after an
    /// error, nothing has changed.
    ///
    /// # Errors
    /// If a change is not possible, or the disk refuses it.
    pub fn change(&mut self, changes: &[LabelChange]) -> Result<(), Error> {
        if self.is_ahead {
            self.go_back()?;
        }
        let Record::Log(log) = &mut self.record else {
            return Err(ArtifactError::Elsewhere { path: self.dir.clone() }.into());
        };
        // Until both know of the changes; also if one panics.
        self.is_ahead = true;
        if let Err(error) = self.predictor.apply(changes) {
            self.is_ahead = false;
            return Err(error.into());
        }
        if let Err(error) = log.append(changes) {
            // What the disk did not take must not be answered with.
            self.go_back()?;
            return Err(error.into());
        }
        self.is_ahead = false;
        if log.is_long() {
            // Everything is safe in the log; it is written shorter another time.
            log.compact().ok();
        }
        Ok(())
    }

    /// Makes the predictor again from what is on the disk.
    fn go_back(&mut self) -> Result<(), Error> {
        let mut before = load_fitted(&self.dir, &self.device)?;
        if let Record::Log(log) = &self.record {
            replay(&self.dir, before.as_mut(), log.changes())?;
        }
        self.exchange(before);
        self.is_ahead = false;
        Ok(())
    }
}

fn load_fitted(dir: &Path, device: &Device) -> Result<Box<dyn Predictor>, Error> {
    let folder = ModelFolder::open(dir)?;
    Ok(match kind(&folder)? {
        Kind::Lexical => Box::new(LexicalModel::load(&folder)?),
        Kind::Embedding => Box::new(EmbeddingModel::load(&folder, device)?),
        Kind::DualEncoder => Box::new(DualEncoderModel::load(&folder, device)?),
        Kind::LabelAttention => Box::new(LabelAttentionModel::load(&folder, device)?),
        Kind::LabelTree => Box::new(LabelTreeModel::load(&folder, device)?),
        Kind::Classifier => Box::new(ClassifierModel::load(&folder, device)?),
        Kind::Zest => Box::new(ZestModel::load(&folder)?),
        Kind::Recorded => Box::new(RecordedModel::load(&folder)?),
        Kind::Fusion => Box::new(FusionModel::load(&folder, device)?),
        Kind::Blend => Box::new(BlendModel::load(&folder, device)?),
    })
}

/// Reads the model folder `dir`, which must hold an encoder for documents and labels, with the changes to its labels since.
pub(super) fn load_embedding(dir: &Path, device: &Device) -> Result<Box<EmbeddingModel>, Error> {
    let folder = ModelFolder::open(dir)?;
    if kind(&folder)? != Kind::Embedding {
        let problem = format!(
            "{}: leaves no encoder for documents and labels alike; fit `frozen` or `few-shot` for that",
            dir.display()
        );
        return Err(MethodError::Config { method: method_name(&folder), problem }.into());
    }
    let mut model = Box::new(EmbeddingModel::load(&folder, device)?);
    replay(dir, model.as_mut(), &LabelLog::read(dir)?)?;
    Ok(model)
}

/// The name of the method that a folder was fitted with.
fn method_name(folder: &ModelFolder) -> &'static str {
    let name = &folder.manifest().method;
    METHODS.iter().find(|known| *known == name).copied().unwrap_or("model")
}

/// What kind of model is in a folder.
fn kind(folder: &ModelFolder) -> Result<Kind, ArtifactError> {
    let method = &folder.manifest().method;
    Kind::named(method).ok_or_else(|| {
        let path = folder.dir().join(MANIFEST);
        ArtifactError::UnknownMethod { path, method: method.clone() }
    })
}

fn replay(dir: &Path, predictor: &mut dyn Predictor, changes: &[LabelChange]) -> Result<(), Error> {
    if !changes.is_empty() {
        predictor.label_space().changed(changes).map_err(|(place, source)| unfit(dir, place, source))?;
        predictor.apply(changes)?;
    }
    Ok(())
}

/// A logged change that does not fit the labels.
fn unfit(dir: &Path, place: usize, source: SpaceError) -> ArtifactError {
    ArtifactError::Replay { path: dir.join(LABEL_LOG), change: place + 1, source }
}
