//! Which labels a document carries, for all documents of a batch.

use std::sync::Arc;

use crate::cuda::Buffer;
use crate::device::Device;
use crate::error::Error;

/// The labels that documents carry, and those that are to be left out; put on the device once.
///
/// Everything else is a negative. Clones share their memory.
#[derive(Clone)]
pub struct Positives {
    inner: Arc<Inner>,
}

struct Inner {
    labels: usize,
    with_positives: usize,
    offsets: Vec<u32>,
    entries: Vec<u32>,
    weights: Vec<f32>,
    on_gpu: Option<Buffer>,
}

/// Where the GPU has the parts.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) offsets: u64,
    pub(super) entries: u64,
    pub(super) weights: u64,
}

impl Positives {
    /// The labels that each document carries, out of `labels` many, in any order.
    ///
    /// # Errors
    /// If there is no such label.
    pub fn new<'a>(
        device: &Device,
        labels: usize,
        documents: impl IntoIterator<Item = &'a [u32]>,
    ) -> Result<Positives, Error> {
        Positives::leaving_out(device, labels, documents.into_iter().map(|positives| (positives, &[][..])))
    }

    /// The same, with labels that shall count neither as a positive nor as a negative of a document. A
    /// label in both lists is left out.
    ///
    /// # Errors
    /// If there is no such label.
    pub fn leaving_out<'a>(
        device: &Device,
        labels: usize,
        documents: impl IntoIterator<Item = (&'a [u32], &'a [u32])>,
    ) -> Result<Positives, Error> {
        let (mut offsets, mut entries, mut weights) = (vec![0], Vec::new(), Vec::new());
        let mut with_positives = 0;
        let mut row: Vec<(u32, bool)> = Vec::new();
        for (positives, left_out) in documents {
            row.clear();
            row.extend(left_out.iter().map(|&label| (label, false)));
            row.extend(positives.iter().map(|&label| (label, true)));
            // What is left out comes first among its like, and stays.
            row.sort_unstable();
            row.dedup_by_key(|&mut (label, _)| label);
            if let Some(&(label, _)) = row.last().filter(|&&(label, _)| label as usize >= labels) {
                return Err(Error::Unfit(format!(
                    "there is no label {label}: there are {labels}, from zero"
                )));
            }
            let count = row.iter().filter(|&&(_, positive)| positive).count();
            with_positives += usize::from(count > 0);
            entries.extend(row.iter().map(|&(label, _)| label));
            weights.extend(row.iter().map(|&(_, positive)| if positive { 1.0 / count as f32 } else { 0.0 }));
            offsets.push(
                u32::try_from(entries.len()).map_err(|_| {
                    Error::Unfit("a batch has 2^32 labels or more; lower the batch".to_owned())
                })?,
            );
        }
        let on_gpu = match device {
            Device::Cpu(_) => None,
            Device::Cuda(cuda) => {
                let bits = weights.iter().map(|weight| weight.to_bits());
                let all: Vec<u32> = offsets.iter().chain(&entries).copied().chain(bits).collect();
                Some(Buffer::upload(cuda, &all)?)
            }
        };
        let inner = Inner { labels, with_positives, offsets, entries, weights, on_gpu };
        Ok(Positives { inner: Arc::new(inner) })
    }

    /// Row `i` belongs to row `i`, and to no other.
    pub fn diagonal(device: &Device, rows: usize) -> Result<Positives, Error> {
        let own: Vec<u32> = (0..rows as u32).collect();
        Positives::new(device, rows, own.chunks(1))
    }

    /// How many documents.
    pub fn documents(&self) -> usize {
        self.inner.offsets.len() - 1
    }

    /// How many labels there are.
    pub fn labels(&self) -> usize {
        self.inner.labels
    }

    /// How many documents carry a label at all.
    pub fn with_positives(&self) -> usize {
        self.inner.with_positives
    }

    /// How many labels stand here, of all documents together.
    pub(super) fn len(&self) -> usize {
        self.inner.entries.len()
    }

    /// The places of a document's labels among all that stand here.
    pub(super) fn places(&self, document: usize) -> std::ops::Range<usize> {
        self.inner.offsets[document] as usize..self.inner.offsets[document + 1] as usize
    }

    /// The same for labels of a range only: a document's labels are in order.
    pub(super) fn places_within(
        &self,
        document: usize,
        labels: &std::ops::Range<usize>,
    ) -> std::ops::Range<usize> {
        let all = self.places(document);
        let own = &self.inner.entries[all.clone()];
        let before = |end: usize| all.start + own.partition_point(|&label| (label as usize) < end);
        before(labels.start)..before(labels.end)
    }

    /// The label at a place.
    pub(super) fn label(&self, place: usize) -> usize {
        self.inner.entries[place] as usize
    }

    /// One over the number of the document's positives; zero for a label that is left out.
    pub(super) fn weight(&self, place: usize) -> f32 {
        self.inner.weights[place]
    }

    /// Where the GPU has them.
    pub(super) fn addresses(&self) -> Addresses {
        let memory = self.inner.on_gpu.as_ref().expect("positives made for a GPU are asked for their memory");
        let offsets = memory.pointer();
        let entries = offsets + 4 * self.inner.offsets.len() as u64;
        Addresses { offsets, entries, weights: entries + 4 * self.inner.entries.len() as u64 }
    }
}

impl std::fmt::Debug for Positives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Positives {} x {} ({})", self.documents(), self.labels(), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_counted_once_and_weighed() {
        let device = Device::cpu();
        let documents = [(&[7, 2, 7][..], &[3][..]), (&[][..], &[][..]), (&[1, 4][..], &[4][..])];
        let positives = Positives::leaving_out(&device, 8, documents).unwrap();
        assert_eq!((positives.documents(), positives.with_positives(), positives.len()), (3, 2, 5));
        let row = |document| -> Vec<(usize, f32)> {
            positives.places(document).map(|at| (positives.label(at), positives.weight(at))).collect()
        };
        assert_eq!(row(0), [(2, 0.5), (3, 0.0), (7, 0.5)]);
        assert!(row(1).is_empty());
        assert_eq!(row(2), [(1, 1.0), (4, 0.0)]);
        assert_eq!(positives.places_within(0, &(3..8)), 1..3);
        assert_eq!(positives.places_within(0, &(4..7)), 2..2);
    }

    #[test]
    fn a_label_that_is_not_there_is_refused() {
        let error = Positives::new(&Device::cpu(), 3, [&[3][..]]).unwrap_err().to_string();
        assert!(error.contains("no label 3"), "{error}");
    }
}
