//! The label side of a model: begun from its plan, and what it has become after training.

use polytag_nn::element::Element;
use polytag_nn::encoder::Encoder;
use polytag_nn::loss::Number;
use polytag_nn::op::Comparison;
use polytag_nn::parameters::{Parameters, ParametersBuilder};
use polytag_nn::random::Key;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::tape::Tape;
use polytag_nn::tensor::Tensor;

use super::config::{HEADS, Unseen};
use super::label_maker::{LabelMaker, LabelVectors, Reader};
use super::label_rows::LabelRows;
use super::run::{HeadKind, LabelTower, Plan};
use super::tower::{Learned, Residual, Source, Tower, free, number};
use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::index::{Exact, LabelIndex, Precision};
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::progress::Stage;

/// Labels that are encoded between two looks at whether to stop.
const CHUNK: usize = 4096;

/// The label side in training.
pub(super) struct LabelSide<'a> {
    pub(super) tower: Tower,
    plan: &'a Plan<'a>,
    /// The encoder that stays as it is, and what it made of the labels.
    frozen: Option<(SentenceEncoder, Vec<f32>)>,
}

/// What has become of it, and the encoder of documents.
pub(super) struct Learnt {
    pub(super) documents: SentenceEncoder,
    pub(super) maker: LabelMaker,
    pub(super) vectors: LabelVectors,
    pub(super) order: Vec<LabelId>,
    pub(super) scale: f32,
    pub(super) biases: Vec<f32>,
}

impl<'a> LabelSide<'a> {
    /// `base` is the encoder of documents before training, `documents` the one that is trained.
    pub(super) fn begin(
        plan: &'a Plan<'a>,
        (base, documents): (&SentenceEncoder, &Encoder),
        (space, rows): (&LabelSpace, &LabelRows),
        builder: &mut ParametersBuilder,
        context: &TrainContext<'_>,
    ) -> Result<LabelSide<'a>, MethodError> {
        let config = plan.config;
        let key = Key::new(context.seed).part(0x0074_6f77_6572);
        let hidden = documents.config().hidden;
        let attends = plan.head == HeadKind::Attended;
        let mut frozen = None;
        let (mut outputs, mut queries) = (None, None);
        let mut project = |builder: &mut ParametersBuilder, dimension: usize, outputs_too: bool| {
            let mut begin =
                |name: &str, part: u64| Learned::begin(builder, name, (dimension, hidden), key.part(part));
            outputs = (outputs_too || dimension != hidden).then(|| begin("label", 1));
            queries = attends.then(|| begin("attention", 2));
        };
        let source = match plan.tower {
            LabelTower::Frozen => {
                let encoder = plan.label_encoder(context)?;
                let embeddings = encode(&encoder, plan, (space, rows), context)?;
                project(builder, encoder.dimension(), plan.projects);
                let shape = (rows.len(), encoder.dimension());
                let tensor = Tensor::new(context.device, shape, &embeddings, Element::F32)?;
                frozen = Some((encoder, embeddings));
                Source::Frozen(tensor)
            }
            LabelTower::Separate | LabelTower::Shared => {
                let encoder = match plan.tower {
                    LabelTower::Shared => documents.clone(),
                    _ => {
                        let mut own = base.encoder().copy(base.parameters(), builder)?;
                        config.steps.dropout.map_or(Ok(()), |rate| own.set_dropout(rate))?;
                        own
                    }
                };
                let longest = config.label_tokens.min(base.settings().max_tokens);
                let tokenizer = base.tokenizer();
                let tokens = config.label_text.tokens(space, rows.labels(), tokenizer, longest)?;
                project(builder, hidden, false);
                let texts = encoder.batch(context.device, tokens.iter().map(Vec::as_slice))?;
                Source::Encoded { encoder, texts, pooling: base.settings().pooling }
            }
            LabelTower::Free => {
                let count = if config.unseen == Unseen::In { rows.len() } else { rows.seen() };
                let shape = (count, hidden);
                let outputs = free(builder, "label vectors", shape, key.part(3));
                let queries = attends.then(|| free(builder, "label queries", shape, key.part(4)));
                Source::Free { outputs, queries }
            }
        };
        let (comparison, scale, bias) = match &source {
            Source::Free { outputs, .. } => {
                let labels = builder.info_mut(*outputs).rows;
                let id = builder.add("label biases", (1, labels), &vec![config.bias; labels]);
                builder.info_mut(id).group = HEADS;
                (Comparison::Product, Number::Constant(1.0), Number::Learned(id))
            }
            _ => {
                let scale = number(builder, "scale", config.scale);
                (Comparison::Cosine, scale, number(builder, "bias", config.bias))
            }
        };
        let residual = config.residual.filter(|_| plan.tower == LabelTower::Frozen).map(|rate| {
            let shape = (rows.seen(), hidden);
            let own = builder.add("label residuals", shape, &vec![0.0; shape.0 * shape.1]);
            builder.info_mut(own).group = HEADS;
            Residual { own, rate }
        });
        let tower = Tower { source, outputs, queries, residual, comparison, scale, bias };
        Ok(LabelSide { tower, plan, frozen })
    }

    /// The embeddings that stay as they are.
    pub(super) fn embeddings(&self) -> &[f32] {
        self.frozen.as_ref().map_or(&[], |(_, embeddings)| embeddings)
    }

    /// Takes what was learned out of the weights.
    pub(super) fn finish(
        self,
        base: SentenceEncoder,
        encoder: Encoder,
        parameters: &Parameters,
        (space, rows): (&LabelSpace, &LabelRows),
    ) -> Result<Learnt, MethodError> {
        let config = self.plan.config;
        let tower = &self.tower;
        let finish = |learned: Option<Learned>| learned.map(|learned| learned.finish(parameters)).transpose();
        let mut maker = LabelMaker {
            reader: Reader::Nobody,
            label_text: config.label_text,
            label_tokens: config.label_tokens,
            outputs: finish(tower.outputs)?,
            queries: finish(tower.queries)?,
            residuals: None,
        };
        if let Some(Residual { own, .. }) = tower.residual {
            let dimension = encoder.config().hidden;
            let mut residuals = Exact::new(dimension, Precision::F32)?;
            residuals.reserve(space.positions())?;
            for (&label, row) in rows.labels().iter().zip(parameters.to_vec(own)?.chunks_exact(dimension)) {
                residuals.set(label, row)?;
            }
            maker.residuals = Some(residuals);
        }
        let copied = |of: &Encoder| -> Result<(Encoder, Parameters), polytag_nn::Error> {
            let mut builder = ParametersBuilder::default();
            let encoder = of.copy(parameters, &mut builder)?;
            Ok((encoder, builder.build(parameters.device())?))
        };
        let (own, weights) = copied(&encoder)?;
        let label_encoder = match &tower.source {
            Source::Encoded { encoder, .. } if self.plan.tower == LabelTower::Separate => {
                let (own, weights) = copied(encoder)?;
                Some(base.again(own, weights)?)
            }
            _ => None,
        };
        let documents = base.again(own, weights)?;
        let mut order = rows.labels().to_vec();
        let vectors = match &tower.source {
            Source::Frozen(_) => {
                let (encoder, embeddings) = self.frozen.expect("a tower that is frozen has its embeddings");
                maker.reader = Reader::Own(Box::new(encoder));
                maker.project(rows.labels(), embeddings)?
            }
            Source::Encoded { .. } => {
                maker.reader = label_encoder.map_or(Reader::Documents, |own| Reader::Own(Box::new(own)));
                maker.make(&documents, space, rows.labels())?
            }
            Source::Free { .. } => {
                let mut tape = Tape::inference(parameters);
                let vectors = tower.all(&mut tape)?;
                let outputs = vectors.outputs.tensor().to_vec()?;
                let queries = vectors.queries.map_or(Ok(Vec::new()), |queries| queries.tensor().to_vec())?;
                order.truncate(vectors.outputs.tensor().rows());
                LabelVectors { outputs, queries }
            }
        };
        let (scale, biases) = (tower.scale(parameters)?, tower.biases(parameters, order.len())?);
        Ok(Learnt { documents, maker, vectors, order, scale, biases })
    }
}

impl Plan<'_> {
    /// The encoder of labels that stays as it is.
    fn label_encoder(&self, context: &TrainContext<'_>) -> Result<SentenceEncoder, MethodError> {
        let name = self.label_encoder.unwrap_or(&self.config.encoder);
        let folder = context.encoders.locate(name)?;
        Ok(SentenceEncoder::load(&folder, context.device, &Overrides::default())?)
    }
}

/// The embeddings of labels, end to end.
fn encode(
    encoder: &SentenceEncoder,
    plan: &Plan<'_>,
    (space, rows): (&LabelSpace, &LabelRows),
    context: &TrainContext<'_>,
) -> Result<Vec<f32>, MethodError> {
    let stage = Stage::start(context.progress, "encoding labels", None);
    let longest = plan.config.label_tokens.min(encoder.settings().max_tokens);
    let tokenizer = encoder.tokenizer();
    let texts = plan.config.label_text.tokens(space, rows.labels(), tokenizer, longest)?;
    let mut embeddings = Vec::with_capacity(texts.len() * encoder.dimension());
    for chunk in texts.chunks(CHUNK) {
        if context.stop.is_asked() {
            return Err(MethodError::Stopped);
        }
        embeddings.extend(encoder.encode_tokens(chunk)?);
        stage.advance(chunk.len() as u64);
    }
    stage.finish();
    Ok(embeddings)
}
