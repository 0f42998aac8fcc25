//! Copies to the device that the host does not wait for.
//!
//! Memory of the program enters; a copy asked for in the stream leaves, and the program may change its
//! memory at once. Left alone, the driver does that only for small copies. For larger ones from ordinary
//! memory it waits until the device has done everything asked for before, so that the host cannot prepare
//! a step while the device works on the last one. From memory that is pinned (that the system never moves)
//! the device reads by itself when it gets there. So the values go into one of a few pinned pieces, taken in
//! turn, and the host waits only when it is ahead by as many copies as there are pieces.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result as driver, sys};

use crate::error::Error;

/// How many copies may be under way at once.
const SLOTS: usize = 4;

/// Up to this size the driver takes the values along with the command, wherever they are, and does not wait
/// (CUDA's programming guide says so). Such copies are many; they shall not use up the turns of large ones.
const TAKEN_ALONG: usize = 64 << 10;

/// A slot has no less than this, so that it need not grow with every batch that is longer than the last.
const LEAST: usize = 1 << 20;

/// Nor more than this. Only whole models are larger, and nobody runs ahead of those.
const MOST: usize = 16 << 20;

/// The way of values to the device. Any thread may use it.
#[derive(Default)]
pub(super) struct Staging {
    ring: Mutex<Ring>,
}

impl Staging {
    /// Asks for a copy of `values` to the address `to`. They are read before this returns.
    ///
    /// # Safety
    /// The device of the stream must have memory for them there that is not freed, or used outside of the
    /// stream, before the copy is done.
    pub(super) unsafe fn upload<T: Copy>(
        &self,
        stream: &CudaStream,
        to: sys::CUdeviceptr,
        values: &[T],
    ) -> Result<(), Error> {
        let failed = || Error::cuda("copying to the device");
        let bytes = size_of_val(values);
        if (TAKEN_ALONG + 1..=MOST).contains(&bytes) {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(pinned) = ring.next(stream.context(), bytes) {
                // SAFETY: the caller vouches for the address.
                return unsafe { pinned.upload(stream, to, values) }.map_err(failed());
            }
        }
        stream.context().bind_to_thread().map_err(failed())?;
        // SAFETY: the caller vouches for the address. Copies from memory that is not pinned return once the
        // values were read.
        unsafe { driver::memcpy_htod_async(to, values, stream.cu_stream()) }.map_err(failed())
    }
}

/// The pinned memory, and whose turn it is.
#[derive(Default)]
struct Ring {
    turns: Turns,
    slots: [Option<Pinned>; SLOTS],
}

impl Ring {
    /// The slot whose turn it is, with room for `bytes` bytes; `None` if there is no memory to be had for it.
    fn next(&mut self, context: &Arc<CudaContext>, bytes: usize) -> Option<&mut Pinned> {
        let Turn { slot, grow_to } = self.turns.take(bytes);
        if let Some(size) = grow_to {
            let Some(larger) = self.turns.may_grow().then(|| Pinned::take(context, size)).flatten() else {
                self.turns.refused();
                return None;
            };
            // What was there waits for its copy before it goes.
            self.slots[slot] = Some(larger);
            self.turns.grew(slot, size);
        }
        self.slots[slot].as_mut()
    }
}

/// Whose turn it is, and how much room each slot has.
#[derive(Debug, Default)]
struct Turns {
    sizes: [usize; SLOTS],
    next: usize,
    refused: bool,
}

/// A slot to be used, and the size that it must grow to first, if it is too small.
#[derive(Debug, PartialEq, Eq)]
struct Turn {
    slot: usize,
    grow_to: Option<usize>,
}

impl Turns {
    fn take(&mut self, bytes: usize) -> Turn {
        let slot = self.next;
        self.next = (slot + 1) % SLOTS;
        let grow_to = (bytes > self.sizes[slot]).then(|| bytes.next_power_of_two().max(LEAST));
        Turn { slot, grow_to }
    }

    fn grew(&mut self, slot: usize, size: usize) {
        self.sizes[slot] = size;
    }

    /// Notes that the system pins no more memory. Asking anew for every upload would cost more than the
    /// waiting; what the slots have serves on.
    fn refused(&mut self) {
        self.refused = true;
    }

    fn may_grow(&self) -> bool {
        !self.refused
    }
}

/// Pinned memory of the host.
struct Pinned {
    memory: NonNull<MaybeUninit<u8>>,
    size: usize,
    /// Reached when the device has read the memory; at once, if it never was to.
    read: CudaEvent,
}

// SAFETY: the driver allows pinned memory to be used and freed by any thread, and it is only reached through
// its one owner.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Memory with anything in it; `None` if there is none.
    fn take(context: &Arc<CudaContext>, size: usize) -> Option<Pinned> {
        let read = context.new_event(None).ok()?;
        // SAFETY: making the event bound the context to this thread. What is in the memory is never read
        // before it is written.
        let memory = unsafe { driver::malloc_host(size, 0) }.ok()?;
        NonNull::new(memory.cast()).map(|memory| Pinned { memory, size, read })
    }

    /// Puts the values here, when the last ones were read, and asks for their copy to the address `to`.
    ///
    /// # Safety
    /// As for [`Staging::upload`].
    unsafe fn upload<T: Copy>(
        &mut self,
        stream: &CudaStream,
        to: sys::CUdeviceptr,
        values: &[T],
    ) -> Result<(), driver::DriverError> {
        let bytes = size_of_val(values);
        assert!(bytes <= self.size, "a slot grows before it takes more than it has room for");
        self.read.synchronize()?;
        // SAFETY: there is room, as was just checked. The device has read what was there; the values lie
        // elsewhere, because nobody else is ever given this memory. Bytes between the parts of a `T` may be
        // of no value: hence `MaybeUninit`.
        let staged = unsafe {
            ptr::copy_nonoverlapping(values.as_ptr().cast(), self.memory.as_ptr(), bytes);
            slice::from_raw_parts(self.memory.as_ptr(), bytes)
        };
        // SAFETY: the caller vouches for the address. The memory is neither written nor freed before the
        // event recorded below, and waiting for that bound the context to this thread.
        unsafe { driver::memcpy_htod_async(to, staged, stream.cu_stream()) }?;
        // Without the event nobody could tell when the memory is free again, unless all is done now.
        self.read.record(stream).or_else(|_| stream.synchronize())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Whoever drops last may be a thread that never spoke to the device. Errors, here and below, can
        // only mean that the device is gone, and its copies with it.
        self.read.context().bind_to_thread().ok();
        self.read.synchronize().ok();
        // SAFETY: the memory came from `malloc_host`, and its last copy is done. The event keeps the context.
        unsafe { driver::free_host(self.memory.as_ptr().cast()).ok() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{Buffer, Cuda};
    use crate::device::Device;
    use crate::op::testing::gpu;

    #[test]
    fn slots_take_turns_and_grow_by_powers_of_two() {
        let mut turns = Turns::default();
        let mut take = |bytes| {
            let turn = turns.take(bytes);
            if let Some(size) = turn.grow_to {
                turns.grew(turn.slot, size);
            }
            (turn.slot, turn.grow_to)
        };
        let mebibytes = |count: usize| Some(count << 20);
        assert_eq!(take(100_000), (0, mebibytes(1)));
        assert_eq!(take((1 << 20) + 1), (1, mebibytes(2)));
        assert_eq!(take(3 << 20), (2, mebibytes(4)));
        assert_eq!(take(MOST), (3, Some(MOST)));
        assert_eq!(take(1 << 20), (0, None), "there is room already");
        assert_eq!(take(1 << 20), (1, None));
        assert_eq!(take((4 << 20) + 1), (2, mebibytes(8)));
        assert_eq!(take(100_000), (3, None), "what has grown stays");
        assert_eq!(take(MOST - 1), (0, Some(MOST)), "never more than the most");
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again() {
        let mut turns = Turns::default();
        turns.take(100_000);
        turns.grew(0, 1 << 20);
        assert!(turns.may_grow());
        turns.refused();
        assert!(!turns.may_grow());
        let slots: Vec<usize> = (0..SLOTS).map(|_| turns.take(100_000).slot).collect();
        assert_eq!(slots, [1, 2, 3, 0], "those that have memory still get their turn");
        assert_eq!(turns.take(100_000).grow_to, Some(1 << 20));
    }

    /// Bytes that differ from one `seed` and place to another.
    fn bytes(length: usize, seed: usize) -> Vec<u8> {
        let byte = |place: usize| ((place + 977 * seed).wrapping_mul(0x9e37_79b9) >> 16) as u8;
        (0..length).map(byte).collect()
    }

    /// Uploads, and changes the memory at once.
    fn sent(cuda: &Cuda, length: usize, seed: usize) -> Buffer {
        let mut values = bytes(length, seed);
        let buffer = Buffer::upload(cuda, &values).unwrap();
        values.fill(0);
        buffer
    }

    fn came_back(buffer: &Buffer, length: usize, seed: usize) {
        let mut values = vec![0; length];
        buffer.read(0, &mut values).unwrap();
        assert!(values == bytes(length, seed), "{length} bytes, the upload numbered {seed}");
    }

    #[test]
    fn uploads_come_back_as_they_went() {
        let Some(Device::Cuda(cuda)) = gpu("uploads of all sizes, from several threads") else { return };
        for length in [0, 1, TAKEN_ALONG, TAKEN_ALONG + 1, 100_000, 3 << 20, MOST, MOST + 1, 200_000_000] {
            came_back(&sent(&cuda, length, 1), length, 1);
        }
        // Many more than there are slots, of sizes that make the slots grow while copies are under way.
        let length = |upload: usize| [70_000, 1_500_000, 9, 300_000, 5_000_000][upload % 5];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cuda = &cuda;
                scope.spawn(move || {
                    let uploads = 40 * thread..40 * (thread + 1);
                    let kept: Vec<Buffer> =
                        uploads.clone().map(|upload| sent(cuda, length(upload), upload)).collect();
                    for (upload, buffer) in uploads.zip(&kept) {
                        came_back(buffer, length(upload), upload);
                    }
                });
            }
        });
    }

    #[test]
    fn the_host_runs_ahead_of_a_busy_device() {
        let Some(Device::Cuda(cuda)) = gpu("uploads while the device is busy") else { return };
        let uploads = || -> Vec<Buffer> { (0..SLOTS).map(|upload| sent(&cuda, 600_000, upload)).collect() };
        // Reserving memory may wait; that is over after the first time.
        let first = uploads();
        let large = 256 << 20;
        let mut busy = Buffer::take(&cuda, large).unwrap();
        // A host that is kept from its work may find the device done, but not every time.
        let ahead = (0..10).any(|_| {
            cuda.synchronize().unwrap();
            (0..200).for_each(|_| busy.clear(0, large).unwrap());
            let cleared = cuda.inner.stream.record_event(None).unwrap();
            let again = uploads();
            let ahead = !cleared.is_complete();
            (0..SLOTS).for_each(|upload| came_back(&again[upload], 600_000, upload));
            ahead
        });
        assert!(ahead, "an upload waits for the device");
        (0..SLOTS).for_each(|upload| came_back(&first[upload], 600_000, upload));
    }
}
