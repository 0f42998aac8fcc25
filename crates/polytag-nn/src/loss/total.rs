//! The last sum of a loss on a GPU: of what its blocks found, in a fixed order.

use crate::cuda::{Cuda, KernelSource, Launch};
use crate::error::Error;

const KERNELS: KernelSource = KernelSource { module: "total", text: include_str!("total.cu"), define: "" };

/// `to (+)= factor · the sum of `count` values`.
pub(super) struct Total {
    /// Where the values lie.
    pub(super) values: u64,
    /// How many there are.
    pub(super) count: usize,
    /// What their sum is multiplied by.
    pub(super) factor: f32,
    /// Where the sum goes.
    pub(super) to: u64,
    /// Whether to add to what is there.
    pub(super) accumulate: bool,
}

impl Total {
    /// Asks for the sum.
    pub(super) fn run(self, cuda: &Cuda) -> Result<(), Error> {
        Launch::new(cuda, &KERNELS, "total")
            .shape(1, 1, 1024)
            .address(self.values)
            .address(self.to)
            .long(self.count)
            .float(self.factor)
            .int(usize::from(self.accumulate))
            .run()
    }
}
