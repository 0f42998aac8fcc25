//! How much memory labels may take that are worked on at once, and what happens when there is less.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;

/// What a chunk of labels takes unless told otherwise.
const DEFAULT: usize = 512 << 20;

/// No less is ever asked for than this, or one label.
const LEAST: usize = 1 << 20;

/// How many bytes may be taken for labels that are worked on at once. Clones are the same.
///
/// It is lowered when the device has less. Whoever compares [`ChunkMemory::bytes`] before and after knows.
#[derive(Clone, Debug)]
pub struct ChunkMemory {
    bytes: Arc<AtomicUsize>,
}

impl Default for ChunkMemory {
    fn default() -> ChunkMemory {
        ChunkMemory::new(DEFAULT)
    }
}

impl ChunkMemory {
    /// So many bytes to begin with.
    pub fn new(bytes: usize) -> ChunkMemory {
        ChunkMemory { bytes: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// How many bytes they are now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Halves it, to a mebibyte at the least. False if it cannot be lowered further.
    pub fn lower(&self) -> bool {
        let halved = |bytes: usize| (bytes > LEAST).then(|| (bytes / 2).max(LEAST));
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halved).is_ok()
    }

    /// Takes memory for as many labels as may be worked on at once, for fewer if the device has less; and
    /// says how many bytes it took.
    ///
    /// # Errors
    /// If the device has not even enough for the least number of bytes, or for one label.
    pub(super) fn take<T>(
        &self,
        labels: usize,
        bytes_a_label: usize,
        take: impl Fn(usize) -> Result<T, Error>,
    ) -> Result<(T, usize), Error> {
        let wanted = || self.bytes().min(labels * bytes_a_label).max(bytes_a_label);
        loop {
            let bytes = wanted();
            match take(bytes) {
                Err(Error::OutOfMemory { .. }) if self.lower_below(bytes, wanted) => {}
                taken => return taken.map(|taken| (taken, bytes)),
            }
        }
    }

    /// `count` things of so many bytes each in parts that fit, of at least one.
    pub fn in_parts(&self, count: usize, bytes_each: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let part = (self.bytes() / bytes_each.max(1)).max(1);
        (0..count).step_by(part).map(move |first| first..count.min(first + part))
    }

    /// Lowers it until less than `bytes` is wanted. False if that cannot be.
    fn lower_below(&self, bytes: usize, wanted: impl Fn() -> usize) -> bool {
        while wanted() >= bytes {
            if !self.lower() {
                return false;
            }
        }
        true
    }
}

/// How many of `labels` labels are worked on at once when there are `bytes` for them: at least one, and
/// where there is room a multiple of eight, so that their rows begin where wide reads may. The chunks are of
/// like length, as a product of few rows takes as long as one of many.
pub(super) fn chunk_length(bytes: usize, bytes_a_label: usize, labels: usize) -> usize {
    let fitting = (bytes / bytes_a_label).max(1);
    if fitting >= labels {
        return labels;
    }
    if fitting < 8 {
        return fitting;
    }
    let fitting = fitting / 8 * 8;
    labels.div_ceil(labels.div_ceil(fitting)).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Bytes;

    #[test]
    fn parts_cover_everything_once() {
        let memory = ChunkMemory::new(8 << 20);
        assert_eq!(memory.in_parts(5, 4 << 20).collect::<Vec<_>>(), [0..2, 2..4, 4..5]);
        assert_eq!(memory.in_parts(2, 64 << 20).collect::<Vec<_>>(), [0..1, 1..2]);
        assert_eq!(memory.in_parts(0, 1).count(), 0);
    }

    #[test]
    fn it_is_halved_down_to_a_mebibyte() {
        let memory = ChunkMemory::new(3 << 20);
        let same = memory.clone();
        assert!(memory.lower() && memory.lower());
        assert_eq!(same.bytes(), 1 << 20);
        assert!(!memory.lower());
        let little = ChunkMemory::new(1000);
        assert!(!little.lower());
        assert_eq!((little.bytes(), ChunkMemory::default().bytes()), (1000, 512 << 20));
    }

    /// A device with so much memory.
    fn device(limit: usize) -> impl Fn(usize) -> Result<(), Error> {
        move |asked| {
            let bytes = |count: usize| Bytes(count as u64);
            let (device, asked_for, limit_is) = ("abacus".to_owned(), bytes(asked), bytes(limit));
            let error = Error::OutOfMemory { device, asked: asked_for, used: Bytes(0), limit: limit_is };
            if asked <= limit { Ok(()) } else { Err(error) }
        }
    }

    #[test]
    fn what_the_device_does_not_have_is_not_asked_for_again() {
        let memory = ChunkMemory::new(512 << 20);
        let ((), bytes) = memory.take(1 << 20, 1 << 10, device(100 << 20)).unwrap();
        assert_eq!((bytes, memory.bytes()), (64 << 20, 64 << 20));
        // All labels take less than the limit: it is lowered to what helps.
        let memory = ChunkMemory::new(512 << 20);
        let ((), bytes) = memory.take(100, 1 << 20, device(60 << 20)).unwrap();
        assert_eq!((bytes, memory.bytes()), (32 << 20, 32 << 20));
    }

    #[test]
    fn one_label_or_nothing() {
        let memory = ChunkMemory::new(512 << 20);
        assert!(memory.take(100, 2 << 20, device(2 << 20)).is_ok());
        assert!(memory.take(100, 2 << 20, device(1 << 20)).is_err());
        let failing = |_| Err::<(), _>(Error::Stopped);
        let before = memory.bytes();
        assert!(matches!(memory.take(100, 1, failing), Err(Error::Stopped)));
        assert_eq!(memory.bytes(), before, "other errors lower nothing");
    }

    #[test]
    fn chunks_are_of_like_length() {
        assert_eq!(chunk_length(1 << 30, 1000, 4271), 4271);
        assert_eq!(chunk_length(3_000_000, 1000, 4271), 2136);
        assert_eq!(chunk_length(7000, 1000, 4271), 7);
        assert_eq!(chunk_length(10, 1000, 4271), 1);
        for bytes in (8000..5_000_000).step_by(7777) {
            let length = chunk_length(bytes, 1000, 4271);
            assert!(
                length * 1000 <= bytes && (length.is_multiple_of(8) || length == 4271),
                "{bytes} {length}"
            );
        }
    }
}
