//! What every trained model has in common, and how it is written to and read from a model folder: the
//! encoders, what makes label vectors, how a comparison becomes a score, the course of the training.

use polytag_nn::device::Device;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::train::CURVE;

use super::config::{TrainingConfig, Unseen};
use super::label_maker::{LabelMaker, Reader};
use super::projection::Projection;
use super::record;
use super::run::{LabelTower, Trained};
use super::scoring::Scoring;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::index::{Allowed, Exact, LabelIndex as _};
use crate::method::error::MethodError;

/// Where the encoder of documents lies: a folder that sentence-transformers reads, too.
const ENCODER: &str = "encoder";

/// Where the encoder of labels lies, if it is another one.
const LABEL_ENCODER: &str = "label_encoder";

/// The file of projections and numbers.
const HEAD: &str = "head.safetensors";

/// The file of label vectors.
pub(in crate::method) const VECTORS: &str = "label_vectors.safetensors";

/// The file of what labels learned for themselves, and its name there.
const RESIDUALS: (&str, &str) = ("label_residuals.safetensors", "label_residuals");

/// The same for people, with a map of the labels.
const PAGE: &str = "training.html";

/// What every trained model has.
pub(in crate::method) struct Core {
    /// The encoder of documents.
    pub(in crate::method) encoder: SentenceEncoder,
    /// Makes the vectors of labels.
    pub(in crate::method) maker: LabelMaker,
    /// How a comparison becomes a score.
    pub(in crate::method) scoring: Scoring,
    /// The course of the training: as JSON lines, and as a page.
    pub(in crate::method) record: [String; 2],
}

impl Core {
    /// Writes everything but the label vectors.
    pub(in crate::method) fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let engine = |error| ArtifactError::Encoder(Box::new(error));
        model.folder(ENCODER, |path| self.encoder.export(path).map_err(engine))?;
        if let Reader::Own(encoder) = &self.maker.reader {
            model.folder(LABEL_ENCODER, |path| encoder.export(path).map_err(engine))?;
        }
        let numbers = [self.scoring.scale, self.scoring.bias];
        let values =
            |projection: &Option<Projection>| projection.as_ref().map(Projection::values).transpose();
        let outputs = values(&self.maker.outputs).map_err(engine)?;
        let queries = values(&self.maker.queries).map_err(engine)?;
        let mut tensors = TensorsBuilder::default().f32("scale_and_bias", &numbers);
        if let Some([weight, bias]) = &outputs {
            tensors = tensors.f32("output_weight", weight).f32("output_bias", bias);
        }
        if let Some([weight, bias]) = &queries {
            tensors = tensors.f32("query_weight", weight).f32("query_bias", bias);
        }
        model.tensors(HEAD, &tensors)?;
        if let Some(residuals) = &self.maker.residuals {
            let rows = residuals.rows();
            let rows = TensorsBuilder::default().rows(RESIDUALS.1, residuals.dim(), &rows);
            model.tensors(RESIDUALS.0, &rows)?;
        }
        model.file(CURVE, self.record[0].as_bytes())?;
        model.file(PAGE, self.record[1].as_bytes())
    }

    /// Reads what [`Core::save`] wrote.
    pub(in crate::method) fn load(
        folder: &ModelFolder,
        device: &Device,
        (config, tower, attends): (&TrainingConfig, LabelTower, bool),
    ) -> Result<Core, crate::Error> {
        let load = |name: &str| -> Result<SentenceEncoder, crate::Error> {
            let path = folder.folder(name)?;
            Ok(SentenceEncoder::load(&path, device, &Overrides::default()).map_err(MethodError::from)?)
        };
        let encoder = load(ENCODER)?;
        let reader = match tower {
            LabelTower::Frozen | LabelTower::Separate => Reader::Own(Box::new(load(LABEL_ENCODER)?)),
            LabelTower::Shared => Reader::Documents,
            LabelTower::Free => Reader::Nobody,
        };
        let tensors = folder.tensors(HEAD)?;
        let numbers = tensors.f32("scale_and_bias")?;
        let &[scale, bias] = &numbers[..] else {
            return Err(folder.damaged(HEAD, "a scale and a bias are not two numbers").into());
        };
        let from = match &reader {
            Reader::Own(encoder) => encoder.dimension(),
            _ => encoder.dimension(),
        };
        let projection = |name: &str| -> Result<Option<Projection>, crate::Error> {
            let (weight, bias) = (format!("{name}_weight"), format!("{name}_bias"));
            if !tensors.has(&weight) {
                return Ok(None);
            }
            let (weight, bias) = (tensors.f32(&weight)?, tensors.f32(&bias)?);
            if bias.len() != encoder.dimension() || weight.len() != from * bias.len() {
                return Err(folder.damaged(HEAD, format!("{name}: it does not fit the encoders")).into());
            }
            Ok(Some(Projection::new(&weight, &bias).map_err(MethodError::from)?))
        };
        let (outputs, queries) = (projection("output")?, projection("query")?);
        let fits = (queries.is_some() == attends || tower == LabelTower::Free)
            && (outputs.is_some() || from == encoder.dimension());
        if !fits {
            return Err(folder.damaged(HEAD, "a projection is missing").into());
        }
        let (label_text, label_tokens) = (config.label_text, config.label_tokens);
        let residuals = match config.residual.filter(|_| tower == LabelTower::Frozen) {
            None => None,
            Some(_) => {
                let space = folder.labels()?;
                let seen =
                    space.iter().map(|(label, _)| label).filter(|&label| space.is_seen(label)).collect();
                Some(read_vectors(folder, RESIDUALS, encoder.dimension(), (&space, &seen))?)
            }
        };
        let maker = LabelMaker { reader, label_text, label_tokens, outputs, queries, residuals };
        let scoring = Scoring::new(scale, bias, config.loss);
        let record = [folder.read_text(CURVE)?, folder.read_text(PAGE)?];
        Ok(Core { encoder, maker, scoring, record })
    }
}

/// The vectors in a file of a model folder, by a name in it: `dim` numbers each, one for every label of `labels`.
pub(in crate::method) fn read_vectors(
    folder: &ModelFolder,
    (file, name): (&str, &str),
    dim: usize,
    (space, labels): (&LabelSpace, &Allowed),
) -> Result<Exact, ArtifactError> {
    let (found, rows) = folder.tensors(file)?.rows(name)?;
    // The last positions may be of labels without a vector.
    if found != dim || rows.len() > dim * space.positions() {
        return Err(folder.damaged(file, format!("{name}: they are not those of the labels")));
    }
    Exact::from_rows(dim, rows, labels.clone()).map_err(|error| folder.damaged(file, error))
}

/// The labels that have vectors: all, or where they are numbers of each label's own those that were trained.
pub(in crate::method) fn labels_with_vectors(
    space: &LabelSpace,
    tower: LabelTower,
    unseen: Unseen,
) -> Allowed {
    let trained = |label: LabelId| tower != LabelTower::Free || unseen == Unseen::In || space.is_seen(label);
    space.iter().map(|(label, _)| label).filter(|&label| trained(label)).collect()
}

impl Trained {
    /// What every trained model has, out of what was learned.
    pub(in crate::method) fn into_core(
        self,
        method: &str,
        config: &TrainingConfig,
        space: &LabelSpace,
    ) -> Result<Core, MethodError> {
        let record = record::of(method, &self, space)?;
        // A bias of each label's own is kept with the label.
        let own = matches!(self.labels.reader, Reader::Nobody);
        let bias = if own { 0.0 } else { self.biases.first().copied().unwrap_or(0.0) };
        let scoring = Scoring::new(self.scale, bias, config.loss);
        Ok(Core { encoder: self.encoder, maker: self.labels, scoring, record })
    }
}
