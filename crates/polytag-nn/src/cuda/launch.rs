//! Kernels with their arguments.

use std::ffi::c_void;

use cudarc::driver::result as driver;

use super::compiler::KernelSource;
use super::{Buffer, Cuda};
use crate::error::Error;
use crate::random::{Dropout, Key, PairedDropout};

/// A kernel about to be run: its shape, then its arguments in the order the kernel takes them.
pub(crate) struct Launch<'a> {
    device: &'a Cuda,
    source: &'a KernelSource,
    name: &'static str,
    grid: (u32, u32, u32),
    block: u32,
    shared: u32,
    arguments: Vec<[u64; 2]>,
}

impl<'a> Launch<'a> {
    /// The kernel `name` of `source`, on one block of one warp until told otherwise.
    pub(crate) fn new(device: &'a Cuda, source: &'a KernelSource, name: &'static str) -> Launch<'a> {
        Launch {
            device,
            source,
            name,
            grid: (1, 1, 1),
            block: 32,
            shared: 0,
            arguments: Vec::with_capacity(16),
        }
    }

    /// How many blocks, in two directions, of how many threads.
    pub(crate) fn shape(mut self, across: usize, down: usize, threads: usize) -> Launch<'a> {
        let fits = |count: usize| u32::try_from(count).expect("grids are smaller than 2^32");
        self.grid = (fits(across), fits(down), 1);
        self.block = fits(threads);
        self
    }

    /// How many bytes of shared memory a block has.
    pub(crate) fn shared(mut self, bytes: usize) -> Launch<'a> {
        self.shared = u32::try_from(bytes).expect("shared memory is small");
        self
    }

    /// The next argument: memory of the device.
    pub(crate) fn buffer(self, buffer: &Buffer) -> Launch<'a> {
        self.address(buffer.pointer())
    }

    /// The next argument: an address on the device, or zero for none.
    pub(crate) fn address(mut self, address: u64) -> Launch<'a> {
        self.arguments.push([address, 0]);
        self
    }

    /// The next argument: an `int`.
    pub(crate) fn int(mut self, value: usize) -> Launch<'a> {
        let value = i32::try_from(value).expect("counts given to kernels are below 2^31");
        self.arguments.push([u64::from(value as u32), 0]);
        self
    }

    /// The next argument: a `long long`.
    pub(crate) fn long(mut self, value: usize) -> Launch<'a> {
        self.arguments.push([value as u64, 0]);
        self
    }

    /// The next argument: a `float`.
    pub(crate) fn float(mut self, value: f32) -> Launch<'a> {
        self.arguments.push([u64::from(value.to_bits()), 0]);
        self
    }

    /// The next argument: a `Dropout`, by value; one that drops nothing for `None`.
    pub(crate) fn dropout(self, dropout: Option<Dropout>) -> Launch<'a> {
        self.mask(dropout.map(|dropout| (dropout.key, dropout.threshold, dropout.scale)))
    }

    /// The next argument: a `PairedDropout`, by value, with its threshold in both halves of a word; one that
    /// drops nothing for `None`.
    pub(crate) fn paired_dropout(self, dropout: Option<PairedDropout>) -> Launch<'a> {
        self.mask(dropout.map(|dropout| (dropout.key, dropout.threshold * 0x0001_0001, dropout.scale)))
    }

    fn mask(mut self, mask: Option<(Key, u32, f32)>) -> Launch<'a> {
        let (low, high) = mask.map_or((0, 0), |(key, ..)| key.halves());
        let (threshold, scale) = mask.map_or((0, 1.0), |(_, threshold, scale)| (threshold, scale));
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.arguments.push([pair(low, high), pair(threshold, scale.to_bits())]);
        self
    }

    /// Asks for the kernel to be run. It runs later, after what was asked for before.
    ///
    /// An empty grid is no work and no error.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        if self.grid.0 == 0 || self.grid.1 == 0 {
            return Ok(());
        }
        let function = self.device.function(self.source, self.name, self.shared)?;
        self.device.bind()?;
        let mut pointers: Vec<*mut c_void> =
            self.arguments.iter_mut().map(|argument| argument.as_mut_ptr().cast()).collect();
        // SAFETY: the function is of a loaded module; the arguments live until the call returns, which
        // copies them, and are of the kinds the kernel declares (tested for each kernel). Buffers
        // outlive the kernel because memory is only given out again to later work of the same stream.
        unsafe {
            driver::launch_kernel(
                function.0,
                self.grid,
                (self.block, 1, 1),
                self.shared,
                self.device.raw_stream(),
                &mut pointers,
            )
        }
        .map_err(|problem| Error::Cuda {
            action: format!("launching {} of {}", self.name, self.source.module),
            problem: format!("{problem:?}"),
        })
    }
}
