//! The seam between a fitted method and everyone who asks it.
//!
//! Passages enter in batches; a ranking a passage leaves. Tables of columns are tagged a batch at a time, too. Labels can be added, removed and renamed
//! at any time, and each answer can be explained.

mod explanation; // why a label was given
mod embeddings; // vectors of labels on their way
mod batch; // batches of columns tagged

pub mod tables; // files of rows tagged

pub use batch::{BatchTagger, Columns, FoundColumns, TaggedBatch};
pub use embeddings::Embeddings;
pub use explanation::{Explanation, Field, Mark, Reason};

use polytag_nn::device::Device;

use crate::Fault;
use crate::artifact::{ArtifactError, ModelWriter};
use crate::columns::ColumnError;
use crate::data::{LabelChange, LabelSpace, Passage, SpaceError};
use crate::ids::LabelId;
use crate::index::{Allowed, IndexError, LabelIndex};
use crate::ranking::{NotFinite, Ranking};

/// What is asked of a predictor besides the passages.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// How many labels are wanted at most.
    pub k: usize,
    /// Which labels may be answered with; all, if none is named.
    pub allowed: Option<&'a Allowed>,
}

/// Why a predictor gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The model made a score that is no number.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// A change of labels that is not possible.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The index of label vectors.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The encoder.
    #[error(transparent)]
    Engine(#[from] polytag_nn::Error),
    /// A table's columns.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// Labels have vectors from training only.
    #[error(
        "this model knows its labels by training alone; fit one that takes new labels at any time: `blend`, `zest` or \
             `lexical`, and with an encoder and a GPU `of-lan`"
    )]
    OnlyTrained,
    /// Rankings come from a file.
    #[error(
        "this model answers with the rankings of a file, which has none for a new label; add it to a model of unseen labels, such as `xml0`"
    )]
    OnlyRecorded,
    /// Labels cannot be searched but by the model itself.
    #[error("the labels of this model cannot be searched elsewhere: {why}")]
    OnlyHere {
        /// What stands against it.
        why: &'static str,
    },
    /// Rankings are known by the ids of documents, and a passage has none.
    #[error(
        "this model answers with the rankings of a file, by the ids of documents, and here is a text without an id; give it one"
    )]
    NoId,
    /// No ranking is known for a document.
    #[error("this model has no ranking of the document {id:?}; fit it again with a file that has one")]
    NotRecorded {
        /// The id of the document.
        id: String,
    },
}

impl PredictError {
    /// Whose move it is.
    pub fn fault(&self) -> Fault {
        match self {
            PredictError::NotFinite(_) => Fault::Ours,
            PredictError::Space(_)
            | PredictError::Column(_)
            | PredictError::OnlyTrained
            | PredictError::OnlyRecorded
            | PredictError::OnlyHere { .. }
            | PredictError::NoId
            | PredictError::NotRecorded { .. } => Fault::User,
            PredictError::Index(_) => Fault::Ours,
            PredictError::Engine(error) => engine_fault(error),
        }
    }
}

/// Whose move it is after a failure of the engine.
pub(crate) fn engine_fault(error: &polytag_nn::Error) -> Fault {
    use polytag_nn::Error;
    match error {
        Error::Cuda { .. } | Error::Kernel { .. } | Error::NotFinite { .. } => Fault::Ours,
        _ => Fault::User,
    }
}

/// A fitted method.
///
/// ```
/// use polytag::data::{Label, LabelChange, LabelSpace, Passage};
/// use polytag::method::{LexicalConfig, LexicalModel};
/// use polytag::predict::{Ask, Predictor};
///
/// let mut model = LexicalModel::without_documents(&LexicalConfig::default(), LabelSpace::default())?;
/// model.apply(&[LabelChange::Add { label: Label::new("tea", "tea trade") }])?;
/// let rankings = model.predict(&[Passage::from("Trading tea by sea")], &Ask { k: 1, allowed: None })?;
/// let best = rankings[0].entries()[0].label;
/// assert_eq!(model.label_space().label(best).id, "tea");
/// # Ok::<(), polytag::Error>(())
/// ```
pub trait Predictor: Send + Sync {
    /// The labels it answers with.
    fn label_space(&self) -> &LabelSpace;

    /// The best labels of each passage. A ranking may be shorter than was asked for: a method does
    /// not rank labels it has nothing to say about.
    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError>;

    /// Changes its labels, all at once. After an error nothing has changed.
    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError>;

    /// Whether changes are possible, and the vectors that labels get by them where the model makes such of a label's
    /// text: what is slow about a change, while others go on asking. What passes here,
    /// [`apply_prepared`](Predictor::apply_prepared) takes, here and wherever the same model has the same labels.
    fn prepare(&self, changes: &[LabelChange]) -> Result<Embeddings, PredictError> {
        self.label_space().changed(changes).map_err(|(_, error)| error)?;
        Ok(Embeddings::default())
    }

    /// Changes its labels, all at once, with vectors that were made before, perhaps elsewhere. Labels that have none
    /// there get theirs as by [`apply`](Predictor::apply). After an error nothing has changed.
    fn apply_prepared(&mut self, changes: &[LabelChange], vectors: &Embeddings) -> Result<(), PredictError> {
        let _ = vectors;
        self.apply(changes)
    }

    /// How many numbers the vector of a label has, where each label has one that is made of its text.
    fn label_dimension(&self) -> Option<usize> {
        None
    }

    /// The vectors of labels, of those that have one.
    fn label_vectors(&self, labels: &[LabelId]) -> Result<Embeddings, PredictError> {
        let _ = labels;
        Ok(Embeddings::default())
    }

    /// Why the search among its labels cannot be left to another index, if it cannot.
    fn search_only_here(&self) -> Option<&'static str> {
        Some("it does not compare vectors of labels")
    }

    /// Forgets the vectors of labels and leaves the search among them to an index that holds the same ones, such as one
    /// in a database. It hears of every change.
    fn search_elsewhere(&mut self, index: Box<dyn LabelIndex>) -> Result<(), PredictError> {
        let _ = index;
        Err(PredictError::OnlyHere { why: self.search_only_here().unwrap_or("nobody has taught it to") })
    }

    /// Why a label fits a passage, or how little.
    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError>;

    /// Whether documents are labels themselves, under their own ids: none is a label of its own then, and whoever knows
    /// a document's id leaves it out of its ranking.
    fn item_to_item(&self) -> bool {
        false
    }

    /// Brings what is searched faster on a device there, where it is worth the way; answers stay the same. Worth a call
    /// once its labels are as they should be for a while: what changes later is searched where it always was.
    fn place(&mut self, _device: &Device) {}

    /// What its user should know of how it works here, such as a GPU that could help and does not; most often nothing.
    fn notice(&self) -> Option<String> {
        None
    }

    /// Whether its scores are probabilities, each label's a question of its own.
    fn gives_probabilities(&self) -> bool {
        false
    }

    /// How many tokens of a passage it reads at most, where it does not read all of it.
    fn reads(&self) -> Option<usize> {
        None
    }

    /// Whether labels can be added to it: not where each has what training gave it.
    fn takes_new_labels(&self) -> bool {
        true
    }

    /// Writes what it learned. The label table is written by the caller.
    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError>;
}
