//! Labels that have weights from training, and no others ever: what models that learn each label by itself share.

use crate::data::{LabelChange, LabelSpace};
use crate::ids::LabelId;
use crate::predict::PredictError;

/// The labels that training documents carry, in rising order.
pub(super) fn seen_labels(space: &LabelSpace) -> Vec<LabelId> {
    space.iter().map(|(id, _)| id).filter(|&id| space.is_seen(id)).collect()
}

/// The documents that carry each of `count` labels, from the labels of each document.
pub(super) fn carriers(labels: &[Vec<u32>], count: usize) -> Vec<Vec<u32>> {
    let mut carriers: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (document, labels) in (0..).zip(labels) {
        labels.iter().for_each(|&label| carriers[label as usize].push(document));
    }
    carriers
}

/// The labels after changes, where only those that were there at training have weights. They can be renamed and removed; a
/// label that is added has a new position, even under an old id, and is refused.
pub(super) fn changed_among_seen(
    space: &LabelSpace,
    changes: &[LabelChange],
) -> Result<LabelSpace, PredictError> {
    let (after, changed) = space.changed(changes).map_err(|(_, error)| error)?;
    match changed.written.iter().all(|label| label.index() < space.positions()) {
        true => Ok(after),
        false => Err(PredictError::OnlyTrained),
    }
}
