//! Memory that is kept for the next one who asks.
//!
//! A training step asks for the same sizes over and over. Asking the system each time costs a call
//! and, on the CPU, a page fault for every four kilobytes. So what is given back is kept, by size,
//! and given out again. Both devices keep their memory this way; where it comes from differs, and how
//! much [too large](Source::ROOM) a piece may be.

use std::collections::BTreeMap;

use crate::error::{Bytes, Error};

/// Where a cache has its memory from.
pub(crate) trait Source {
    /// A piece of memory.
    type Block;

    /// How much too large a piece may be for whoever asks: it takes one of up to `size + size / ROOM`. A
    /// piece much too large would be missed by its next user; where none is, new ones pile up for each
    /// size that ever came.
    const ROOM: usize;

    /// Whether a piece that is outgrown goes back for the larger one that is had instead of it. Where
    /// giving back is dear it stays.
    const REPLACES: bool;

    /// A piece of `size` units, or `None` when there is no more.
    fn take(&mut self, size: usize) -> Result<Option<Self::Block>, Error>;

    /// Takes a piece back for good.
    fn release(&mut self, block: Self::Block);

    /// What this memory is called in messages.
    fn device(&self) -> String;

    /// How many units there are in all.
    fn limit(&self) -> usize;

    /// How many bytes a unit has.
    fn unit(&self) -> usize;
}

/// The pieces that are free, and the count of those that are not.
pub(crate) struct Cache<S: Source> {
    source: S,
    free: BTreeMap<usize, Vec<S::Block>>,
    used: usize,
    kept: usize,
    peak: usize,
    limit: Option<usize>,
}

impl<S: Source> Cache<S> {
    /// A cache with nothing in it.
    pub(crate) fn new(source: S) -> Cache<S> {
        Cache { source, free: BTreeMap::new(), used: 0, kept: 0, peak: 0, limit: None }
    }

    /// Never hold more than `limit` units, whatever the source has.
    pub(crate) fn set_limit(&mut self, limit: Option<usize>) {
        self.limit = limit;
    }

    /// A piece of at least `size` units, and its true size.
    ///
    /// A free piece is taken when it is only a little too large: sizes change from batch to batch.
    pub(crate) fn take(&mut self, size: usize) -> Result<(S::Block, usize), Error> {
        let size = rounded(size);
        let fitting = self.free.range(size..=size + size / S::ROOM).next().map(|(&size, _)| size);
        if let Some(fitting) = fitting {
            let block = self.pop(fitting);
            self.count(fitting);
            return Ok((block, fitting));
        }
        if S::REPLACES {
            self.outgrow(size);
        }
        if self.limit.is_some_and(|limit| self.used + self.kept + size > limit) {
            self.trim();
        }
        let within = self.limit.is_none_or(|limit| self.used + size <= limit);
        let mut block = if within { self.source.take(size)? } else { None };
        if block.is_none() && within && self.kept > 0 {
            self.trim();
            block = self.source.take(size)?;
        }
        let Some(block) = block else { return Err(self.out_of_memory(size)) };
        self.count(size);
        Ok((block, size))
    }

    /// Takes a piece back, to be given out again.
    pub(crate) fn give_back(&mut self, block: S::Block, size: usize) {
        self.used -= size;
        self.kept += size;
        self.free.entry(size).or_default().push(block);
    }

    /// A free piece of just this size.
    fn pop(&mut self, size: usize) -> S::Block {
        let pieces = self.free.get_mut(&size).expect("the size was just seen");
        let block = pieces.pop().expect("a size without pieces is removed");
        if pieces.is_empty() {
            self.free.remove(&size);
        }
        self.kept -= size;
        block
    }

    /// Gives up the free piece that would have served had it been a little larger, if there is one.
    fn outgrow(&mut self, size: usize) {
        let outgrown = self.free.range(size / 2..size).next_back().map(|(&size, _)| size);
        if let Some(outgrown) = outgrown {
            let block = self.pop(outgrown);
            self.source.release(block);
        }
    }

    /// Gives all free pieces back to the source.
    pub(crate) fn trim(&mut self) {
        for block in std::mem::take(&mut self.free).into_values().flatten() {
            self.source.release(block);
        }
        self.kept = 0;
    }

    /// The most bytes that were in use at once since the last call of [`Cache::reset_peak`].
    pub(crate) fn peak(&self) -> Bytes {
        self.bytes(self.peak)
    }

    /// How many bytes were given back and are kept.
    pub(crate) fn kept(&self) -> Bytes {
        self.bytes(self.kept)
    }

    /// Begins to measure the peak anew.
    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.used;
    }

    fn count(&mut self, size: usize) {
        self.used += size;
        self.peak = self.peak.max(self.used);
    }

    fn bytes(&self, units: usize) -> Bytes {
        Bytes(units as u64 * self.source.unit() as u64)
    }

    fn out_of_memory(&self, size: usize) -> Error {
        let limit = self.limit.unwrap_or(usize::MAX).min(self.source.limit());
        Error::OutOfMemory {
            device: self.source.device(),
            asked: self.bytes(size),
            used: self.bytes(self.used),
            limit: self.bytes(limit),
        }
    }
}

impl<S: Source> Drop for Cache<S> {
    fn drop(&mut self) {
        self.trim();
    }
}

/// Sizes are rounded so that batches of nearly the same length share pieces.
fn rounded(size: usize) -> usize {
    let step = match size {
        0..4096 => 64,
        4096..1_048_576 => 1024,
        _ => 65_536,
    };
    size.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted {
        left: usize,
        released: usize,
    }

    impl Source for Counted {
        type Block = usize;

        const ROOM: usize = 1;
        const REPLACES: bool = true;

        fn take(&mut self, size: usize) -> Result<Option<usize>, Error> {
            let fits = size <= self.left;
            self.left -= if fits { size } else { 0 };
            Ok(fits.then_some(size))
        }

        fn release(&mut self, block: usize) {
            self.left += block;
            self.released += 1;
        }

        fn device(&self) -> String {
            "abacus".to_owned()
        }

        fn limit(&self) -> usize {
            10_240
        }

        fn unit(&self) -> usize {
            4
        }
    }

    fn cache() -> Cache<Counted> {
        Cache::new(Counted { left: 10_240, released: 0 })
    }

    #[test]
    fn what_is_given_back_is_given_out_again() {
        let mut cache = cache();
        let (block, size) = cache.take(1000).unwrap();
        cache.give_back(block, size);
        assert_eq!(cache.kept(), Bytes(4 * size as u64));
        let (_, again) = cache.take(950).unwrap();
        assert_eq!(size, again, "a piece slightly too large serves");
        assert_eq!(cache.source.left, 10_240 - size);
        let (_, small) = cache.take(64).unwrap();
        assert_eq!(small, 64);
        assert_eq!(cache.peak(), Bytes(4 * (size as u64 + 64)));
    }

    #[test]
    fn free_pieces_are_given_up_before_memory_runs_out() {
        let mut cache = cache();
        let (block, size) = cache.take(6000).unwrap();
        cache.give_back(block, size);
        cache.take(8000).unwrap();
        assert_eq!(cache.source.released, 1);
        let error = cache.take(4000).unwrap_err().to_string();
        assert!(error.contains("abacus is out of memory") && error.contains("15.8 KiB"), "{error}");
    }

    #[test]
    fn sizes_that_wander_do_not_pile_up() {
        let mut cache = cache();
        // Each a size that never came before, two at a time, growing and shrinking within an octave.
        for step in (0..1000).chain((0..1000).rev()) {
            let pieces = [1024 + step, 1020 + step].map(|size| cache.take(size).unwrap());
            for (block, size) in pieces {
                cache.give_back(block, size);
            }
            let held = 10_240 - cache.source.left;
            assert!(held <= 2 * 2048, "{held} at {step}");
        }
        assert_eq!(10_240 - cache.source.left, cache.kept);
    }

    #[test]
    fn a_limit_holds() {
        let mut cache = cache();
        cache.set_limit(Some(2000));
        assert!(cache.take(3000).is_err());
        let (block, size) = cache.take(1500).unwrap();
        cache.give_back(block, size);
        cache.take(1900).unwrap();
        assert_eq!(cache.source.released, 1);
    }
}
