//! How labels are found: one file or folder a method.
//!
//! A [`Method`] takes a [`Dataset`] and gives a [`Predictor`]. Its name on the command line is a
//! preset: a complete configuration, of which parts can be overridden. [`fit`] runs a method over a
//! task and writes the model folder; [`load`] reads one back, with the labels added since.

mod error; // why a method could not be fitted
mod label_text; // what of a label an encoder reads
mod seen_labels; // labels that have weights, and no others
mod label_vectors; // vectors of labels, and the index that searches them
mod words; // from pieces of words to words, for explanations
mod word_rows; // documents as rows of words
mod lexical; // words of the document against words of the label
mod beside; // words and guesses beside vectors
mod embedding; // one encoder for documents and labels, and the vectors of all labels: a model
mod frozen; // an encoder as it is, document against label
mod training; // an encoder trained on documents and their labels: what such methods share
mod dual_encoder; // a document and a label as vectors, compared
mod label_attention; // labels that attend to a document
mod classifier; // an encoder with a classifier: experts and guides
mod maclr; // an encoder trained on texts alone, then on few pairs
mod label_tree; // linear classifiers on words, in a tree
mod zest; // words that call for features of labels
mod recorded; // rankings that another program made
mod parts; // models made of models
mod view; // documents with labels of their own, for rehearsals
mod fusion; // unseen labels on top of any classifier
mod blend; // one ranking out of several methods'
mod config; // methods by name
mod kept; // what a training keeps while it runs
mod auto; // which method suits a task
mod run; // from a task to a model folder and back

pub use auto::{Choice, Means};
pub use blend::{Blend, BlendConfig, BlendModel, OwnStem, SourceStem};
pub use classifier::{Classifier, ClassifierConfig, ClassifierModel, Expert, Guide, Layers, Reads, Together};
pub use config::{METHODS, MethodConfig};
pub use dual_encoder::{DualEncoder, DualEncoderConfig, DualEncoderModel, Pooling};
pub use embedding::EmbeddingModel;
pub use error::MethodError;
pub use frozen::{Frozen, FrozenConfig};
pub use fusion::{
    Combination, Combine, EXACT, Effort, Fusion, FusionConfig, FusionModel, LabelVectorKind, MOST, Predicted,
};
pub use kept::TrainingFolder;
pub use label_attention::{LabelAttention, LabelAttentionConfig, LabelAttentionModel};
pub use label_text::LabelText;
pub use label_tree::{LabelTree, LabelTreeConfig, LabelTreeModel};
pub use label_vectors::{AUTO_FROM, IndexKind, fitted_vectors, label_vector_bytes};
pub use lexical::{Lexical, LexicalConfig, LexicalModel};
pub use maclr::{Maclr, MaclrConfig, PairKind, PairLoss};
pub use recorded::{Recorded, RecordedConfig, RecordedModel};
pub use run::{Fitted, LiveModel, change_labels, fit, load, load_labels, uses_network};
pub use training::{LabelTower, Loss, Steps, TrainingConfig, Unseen};
pub use zest::{Zest, ZestConfig, ZestModel};

use std::path::Path;

use polytag_nn::device::Device;
use polytag_nn::world::World;

use crate::data::{Dataset, Task};
use crate::encoder::EncoderCache;
use crate::predict::Predictor;
use crate::progress::{Progress, Stop};

/// What a method may use besides the documents.
#[derive(Clone, Copy)]
pub struct TrainContext<'a> {
    /// What makes one run differ from another.
    pub seed: u64,
    /// Where an encoder works.
    pub device: &'a Device,
    /// The devices that train together, the first of which is `device`; none where that one trains alone.
    pub world: Option<&'a World>,
    /// The encoders on hand.
    pub encoders: &'a EncoderCache,
    /// Whether to end early.
    pub stop: &'a Stop,
    /// Where to report.
    pub progress: &'a dyn Progress,
    /// Documents to measure on while training; [`fit`] takes the dev split.
    pub dev: Option<&'a dyn Dataset>,
    /// The task that the documents are of; [`fit`] has one.
    pub task: Option<&'a Task>,
    /// Where a training is kept while it runs, to go on from if it is broken off.
    pub folder: Option<&'a Path>,
    /// Bytes that documents may take while they are learned from, for methods that can put them on the disk; none for
    /// as many as they take. What does not fit goes where the task has its temporary files.
    pub memory_limit: Option<u64>,
}

impl<'a> TrainContext<'a> {
    /// A context without dev documents and without a folder.
    pub fn new(
        (device, encoders): (&'a Device, &'a EncoderCache),
        (stop, progress): (&'a Stop, &'a dyn Progress),
    ) -> TrainContext<'a> {
        TrainContext {
            seed: 0,
            device,
            world: None,
            encoders,
            stop,
            progress,
            dev: None,
            task: None,
            folder: None,
            memory_limit: None,
        }
    }
}

/// A way to learn to tag.
///
/// It takes text, not features, so that methods that train an encoder end to end fit as well as
/// those that count words.
///
/// ```
/// use polytag::method::{Lexical, LexicalConfig, Method, TrainContext};
/// use polytag::encoder::EncoderCache;
/// use polytag::progress::{Silent, Stop};
/// use polytag_nn::device::Device;
/// # use polytag::data::{DataError, Dataset, Document, Label, LabelSpace};
/// # use polytag::ids::{DocId, LabelId};
/// # struct Tiny(LabelSpace);
/// # impl Dataset for Tiny {
/// #     fn len(&self) -> usize { 1 }
/// #     fn document(&self, _: DocId) -> Result<Document, DataError> {
/// #         Ok(Document { id: "d".into(), title: None, text: "green tea".into(), labels: None })
/// #     }
/// #     fn labels_of(&self, _: DocId) -> &[LabelId] { &[] }
/// #     fn label_space(&self) -> &LabelSpace { &self.0 }
/// # }
/// # let mut space = LabelSpace::default();
/// # space.add(Label::new("t", "tea")).unwrap();
/// # let dataset = Tiny(space);
/// let method = Lexical::try_from(LexicalConfig::default())?;
/// let (device, encoders) = (Device::cpu(), EncoderCache::new("encoders"));
/// let stop = Stop::default();
/// let context = TrainContext::new((&device, &encoders), (&stop, &Silent));
/// let predictor = method.train(&dataset, &context)?;
/// assert_eq!(predictor.label_space().len(), 1);
/// # Ok::<(), polytag::method::MethodError>(())
/// ```
pub trait Method: Send + Sync {
    /// Learns from `dataset`.
    fn train(
        &self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Box<dyn Predictor>, MethodError>;
}
