//! Labels that have weights from training, and no others ever: what models that learn each label by itself share.

use crate::data::{LabelChange, LabelSpace};
use crate::ids::LabelId;
use crate::predict::PredictError;

/// The labels that training documents carry, in rising order.
pub(super) fn seen_labels(space: &LabelSpace) -> Vec<LabelId> {
    space.iter().map(|(id, _)| id).filter(|&id| space.is_seen(id)).collect()
}

/// The labels after changes, where only `known` ones, in rising order, have weights. They can be renamed, removed and put
/// back; another one is refused.
pub(super) fn changed_among(
    known: &[LabelId],
    space: &LabelSpace,
    changes: &[LabelChange],
) -> Result<LabelSpace, PredictError> {
    let (after, changed) = space.changed(changes).map_err(|(_, error)| error)?;
    let is_new = |&&label: &&LabelId| space.find(&after.label(label).id).is_none();
    let has_weights = |label: &LabelId| known.binary_search(label).is_ok();
    match changed.written.iter().filter(is_new).all(has_weights) {
        true => Ok(after),
        false => Err(PredictError::OnlyTrained),
    }
}
