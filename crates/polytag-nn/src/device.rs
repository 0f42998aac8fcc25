//! Where the work is done: the CPU, or a GPU that is found when the program runs.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cpu::Aligned;
use crate::cuda::{Cuda, CudaOptions};
use crate::element::Element;
use crate::error::{Bytes, Error};
use crate::host_memory;
use crate::memory::{Cache, Source};

/// What encoders compute in where nothing is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As they were made: `f32` on the CPU, bf16 and sums in `f32` on a GPU.
    #[default]
    Float,
    /// The products of an encoder's layers in 8-bit integers, everything else in `f32`; on the CPU only.
    EightBit,
}

/// Where the work is done. Clones are the same device.
#[derive(Clone, Debug)]
pub enum Device {
    /// This machine's processor.
    Cpu(Cpu),
    /// A GPU.
    Cuda(Cuda),
}

impl Device {
    /// The CPU, with memory of its own.
    pub fn cpu() -> Device {
        Device::Cpu(Cpu::default())
    }

    /// The CPU, with memory of its own and another precision for prediction. Trainings are in `f32` all the same.
    pub fn cpu_in(precision: Precision) -> Device {
        Device::Cpu(Cpu { precision, ..Cpu::default() })
    }

    /// A GPU.
    pub fn cuda(options: &CudaOptions) -> Result<Device, Error> {
        Cuda::open(options).map(Device::Cuda)
    }

    /// A GPU if there is one that can be used, else the CPU and why it is not a GPU.
    pub fn auto(options: &CudaOptions) -> (Device, Option<Error>) {
        match Device::cuda(options) {
            Ok(device) => (device, None),
            Err(why) => (Device::cpu(), Some(why)),
        }
    }

    /// What activations are made of here.
    pub fn activations(&self) -> Element {
        match self {
            Device::Cpu(_) => Element::F32,
            Device::Cuda(_) => Element::Bf16,
        }
    }

    /// What encoders compute in here where nothing is trained.
    pub fn precision(&self) -> Precision {
        match self {
            Device::Cpu(cpu) => cpu.precision,
            Device::Cuda(_) => Precision::Float,
        }
    }

    /// What it is called.
    pub fn name(&self) -> String {
        match self {
            Device::Cpu(cpu) if cpu.precision == Precision::EightBit => {
                format!("CPU ({}), products in 8-bit integers", crate::cpu::integer_instructions())
            }
            Device::Cpu(_) => format!("CPU ({})", crate::cpu::instructions()),
            Device::Cuda(cuda) => format!("GPU ({})", cuda.name()),
        }
    }

    /// Waits until all work asked for is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        match self {
            Device::Cpu(_) => Ok(()),
            Device::Cuda(cuda) => cuda.synchronize(),
        }
    }

    /// The most memory that matrices took at once.
    pub fn peak_memory(&self) -> Bytes {
        match self {
            Device::Cpu(cpu) => cpu.memory().peak(),
            Device::Cuda(cuda) => cuda.peak_memory(),
        }
    }

    /// Begins to measure the peak of memory anew.
    pub fn reset_peak_memory(&self) {
        match self {
            Device::Cpu(cpu) => cpu.memory().reset_peak(),
            Device::Cuda(cuda) => cuda.reset_peak_memory(),
        }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        match (self, other) {
            (Device::Cpu(a), Device::Cpu(b)) => Arc::ptr_eq(&a.memory, &b.memory),
            (Device::Cuda(a), Device::Cuda(b)) => a == b,
            _ => false,
        }
    }
}

/// The processor, with the memory that is kept for the next matrix.
#[derive(Clone)]
pub struct Cpu {
    memory: Arc<Mutex<Cache<HostMemory>>>,
    precision: Precision,
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu { memory: Arc::new(Mutex::new(Cache::new(HostMemory))), precision: Precision::Float }
    }
}

impl Cpu {
    fn memory(&self) -> std::sync::MutexGuard<'_, Cache<HostMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cpu")
    }
}

/// Numbers in a piece from which on it is asked for only where there is room.
const LARGE: usize = 4 << 20;

/// Bytes that are left for what is not asked for here.
const SPARED: u64 = 256 << 20;

/// The system as a source of memory; a unit is a number.
struct HostMemory;

impl Source for HostMemory {
    type Block = Aligned;

    const ROOM: usize = 1;
    const REPLACES: bool = true;

    fn take(&mut self, size: usize) -> Result<Option<Aligned>, Error> {
        // The system promises more than it has, and ends programs that take it at its word.
        let has_room = size < LARGE
            || host_memory::free().is_none_or(|free| (self.unit() * size) as u64 + SPARED <= free);
        Ok(if has_room { Aligned::try_zeros(size) } else { None })
    }

    fn release(&mut self, _: Aligned) {}

    fn device(&self) -> String {
        "CPU".to_owned()
    }

    fn limit(&self) -> usize {
        host_memory::all().map_or(usize::MAX >> 3, |bytes| bytes as usize / self.unit())
    }

    fn unit(&self) -> usize {
        4
    }
}

/// Numbers in the CPU's memory, given back when dropped.
pub(crate) struct HostBuffer {
    values: Aligned,
    length: usize,
    owner: Cpu,
}

impl HostBuffer {
    /// `length` numbers with anything in them.
    pub(crate) fn take(owner: &Cpu, length: usize) -> Result<HostBuffer, Error> {
        let (values, _) = owner.memory().take(length)?;
        Ok(HostBuffer { values, length, owner: owner.clone() })
    }

    /// The device they are on.
    pub(crate) fn owner(&self) -> &Cpu {
        &self.owner
    }
}

impl std::ops::Deref for HostBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[..self.length]
    }
}

impl std::ops::DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.length]
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.values);
        let size = values.len();
        self.owner.memory().give_back(values, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_the_machine_has_is_refused_in_words() {
        let Some(all) = host_memory::all() else { return };
        let cpu = Cpu::default();
        let error = HostBuffer::take(&cpu, all as usize / 4).map(|_| ()).unwrap_err();
        let Error::OutOfMemory { limit, .. } = &error else { panic!("{error}") };
        // In whole numbers.
        assert!(all - limit.0 < 4, "{all} {limit}");
        assert!(error.to_string().contains("lower the batch"), "{error}");
        if host_memory::free().is_some_and(|free| free > 4 * SPARED) {
            assert_eq!(HostBuffer::take(&cpu, LARGE).unwrap().len(), LARGE, "there is room for this");
        }
    }
}
