//! A dataset over another one, with labels of its own, so that a method can be rehearsed without knowing.

use crate::data::{DataError, Dataset, Document, LabelSpace};
use crate::ids::{DocId, LabelId};

/// Some documents of a dataset, with labels of their own.
pub(super) struct View<'a> {
    dataset: &'a dyn Dataset,
    pub(super) documents: Vec<DocId>,
    labels: Vec<Vec<LabelId>>,
    space: LabelSpace,
}

impl<'a> View<'a> {
    /// None of the documents so far.
    pub(super) fn of(dataset: &'a dyn Dataset) -> View<'a> {
        View { dataset, documents: Vec::new(), labels: Vec::new(), space: dataset.label_space().clone() }
    }

    /// One more of them, with these labels. One that nobody labelled stays so, whatever they are.
    pub(super) fn push(&mut self, id: DocId, labels: Vec<LabelId>) {
        self.documents.push(id);
        self.labels.push(labels);
    }

    /// Says how many of so many documents carry each label.
    pub(super) fn set_train_counts(&mut self, counts: Vec<u32>, documents: u64) {
        self.space.set_train_counts(counts, documents);
    }
}

impl Dataset for View<'_> {
    fn len(&self) -> usize {
        self.documents.len()
    }

    fn document(&self, id: DocId) -> Result<Document, DataError> {
        let document = self.dataset.document(self.documents[id.index()])?;
        let labels = document.labels.as_ref().map(|_| self.labels[id.index()].clone());
        Ok(Document { labels, ..document })
    }

    fn labels_of(&self, id: DocId) -> &[LabelId] {
        &self.labels[id.index()]
    }

    fn label_space(&self) -> &LabelSpace {
        &self.space
    }
}
