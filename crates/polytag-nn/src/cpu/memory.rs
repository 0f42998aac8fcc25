//! Memory as kernels want it: aligned to cache lines, kept from one call to the next, and written by
//! several threads at once in places that do not overlap.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

const LINE: usize = 16;

/// What a cache line holds.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Numbers that begin at a cache line: a vector of them never lies across two lines.
#[derive(Clone, Default)]
pub struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

impl Aligned {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Aligned {
        Aligned { lines: vec![Line([0.0; LINE]); len.div_ceil(LINE)], len }
    }

    /// `len` zeros, or `None` where there is no memory for them.
    pub(crate) fn try_zeros(len: usize) -> Option<Aligned> {
        let mut lines = Vec::new();
        lines.try_reserve_exact(len.div_ceil(LINE)).ok()?;
        lines.resize(len.div_ceil(LINE), Line([0.0; LINE]));
        Some(Aligned { lines, len })
    }

    /// Makes it `len` long; what the numbers are is not said.
    fn resize(&mut self, len: usize) {
        let lines = len.div_ceil(LINE);
        if lines > self.lines.len() {
            // Not `resize`, which would copy numbers that nobody wants.
            self.lines = Vec::new();
            self.lines = vec![Line([0.0; LINE]); lines];
        }
        self.len = len;
    }
}

impl Deref for Aligned {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `lines` holds at least `len` numbers, one after the other, since a line has no padding.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Aligned").field("len", &self.len).finish()
    }
}

/// How many buffers, and how many numbers in each, a thread keeps for its next call.
const KEPT_BUFFERS: usize = 4;
const KEPT_NUMBERS: usize = 16 << 20;

thread_local! {
    static KEPT: Cell<Vec<Aligned>> = const { Cell::new(Vec::new()) };
}

/// A buffer of the thread's own: asking the system for fresh pages at every call costs more than many a
/// kernel does. Goes back when dropped.
pub(crate) struct Scratch(Aligned);

impl Scratch {
    /// `len` numbers of any value.
    pub(crate) fn new(len: usize) -> Scratch {
        let mut kept = KEPT.take();
        let fits = |buffer: &Aligned| buffer.lines.len() * LINE >= len;
        let best = (0..kept.len()).min_by_key(|&i| (!fits(&kept[i]), kept[i].lines.len()));
        let mut buffer = best.map(|i| kept.swap_remove(i)).unwrap_or_default();
        KEPT.set(kept);
        buffer.resize(len);
        Scratch(buffer)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        let mut kept = KEPT.take();
        if kept.len() < KEPT_BUFFERS && buffer.lines.len() * LINE <= KEPT_NUMBERS {
            kept.push(buffer);
        }
        KEPT.set(kept);
    }
}

impl Deref for Scratch {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

/// Numbers that several threads write at once, each in places of its own.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    data: *mut f32,
    len: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: whoever writes through it promises that no other thread touches the same place.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// Shares what is borrowed alone.
    pub(crate) fn new(data: &'a mut [f32]) -> Shared<'a> {
        Shared { data: data.as_mut_ptr(), len: data.len(), borrowed: PhantomData }
    }

    /// `len` numbers from `first` on.
    ///
    /// # Safety
    /// While the slice lives, nobody else touches these numbers.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, first: usize, len: usize) -> &'a mut [f32] {
        assert!(first <= self.len && len <= self.len - first, "within the shared numbers");
        // SAFETY: within the borrowed slice; alone by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(first), len) }
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the number at `index` lies.
    #[inline(always)]
    pub(crate) fn pointer(&self, index: usize) -> *mut f32 {
        debug_assert!(index <= self.len);
        self.data.wrapping_add(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_at_a_cache_line_and_scratch_is_used_again() {
        let zeros = Aligned::zeros(33);
        assert_eq!((zeros.len(), zeros.as_ptr() as usize % 64), (33, 0));
        let first = Scratch::new(1000).as_ptr();
        let second = Scratch::new(500);
        assert_eq!((second.as_ptr(), second.len()), (first, 500));
        let third = Scratch::new(400);
        assert_ne!(third.as_ptr(), first);
    }
}
