//! Memory on the device.

use std::sync::Arc;

use cudarc::driver::{CudaContext, result as driver, sys};

use super::{Cuda, Inner};
use crate::error::Error;
use crate::memory::Source;

/// The driver as a source of memory; a unit is a byte.
pub(super) struct DeviceMemory {
    context: Arc<CudaContext>,
    name: String,
    total: usize,
}

impl DeviceMemory {
    pub(super) fn new(context: Arc<CudaContext>, name: String, total: usize) -> DeviceMemory {
        DeviceMemory { context, name, total }
    }
}

impl Source for DeviceMemory {
    type Block = sys::CUdeviceptr;

    const ROOM: usize = 8;
    // To give memory back waits for the device.
    const REPLACES: bool = false;

    fn take(&mut self, size: usize) -> Result<Option<sys::CUdeviceptr>, Error> {
        self.context.bind_to_thread().map_err(Error::cuda("binding the device to a thread"))?;
        // SAFETY: the context is bound to this thread.
        match unsafe { driver::malloc_sync(size) } {
            Ok(pointer) => Ok(Some(pointer)),
            Err(driver::DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(error) => Err(Error::cuda("reserving memory")(error)),
        }
    }

    fn release(&mut self, block: sys::CUdeviceptr) {
        // Whoever drops last may be a thread that never spoke to the device. Errors, here and below, can
        // only mean that the device is gone.
        self.context.bind_to_thread().ok();
        // SAFETY: the block came from `take` and its last user gave it up. Freeing waits for the device,
        // so that work in flight is done with it.
        unsafe { driver::free_sync(block).ok() };
    }

    fn device(&self) -> String {
        format!("GPU ({})", self.name)
    }

    fn limit(&self) -> usize {
        self.total
    }

    fn unit(&self) -> usize {
        1
    }
}

/// A piece of the device's memory, given back when it is dropped.
///
/// All work is in one stream, so that whoever gets the piece next writes to it after its last reader.
pub(crate) struct Buffer {
    pointer: sys::CUdeviceptr,
    taken: usize,
    device: Cuda,
}

impl Buffer {
    /// A piece of `bytes` bytes with anything in it.
    pub(crate) fn take(device: &Cuda, bytes: usize) -> Result<Buffer, Error> {
        let (pointer, taken) = device.memory().take(bytes)?;
        Ok(Buffer { pointer, taken, device: device.clone() })
    }

    /// A copy of host memory.
    pub(crate) fn upload<T: Copy>(device: &Cuda, values: &[T]) -> Result<Buffer, Error> {
        let mut buffer = Buffer::take(device, size_of_val(values))?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// Copies host memory to the place `offset` bytes from the start. The device does so when it has done
    /// what was asked for before; the host's memory may be changed at once.
    pub(crate) fn write<T: Copy>(&mut self, offset: usize, values: &[T]) -> Result<(), Error> {
        assert!(offset + size_of_val(values) <= self.taken, "a write stays inside the buffer");
        let Inner { staging, stream, .. } = &*self.device.inner;
        // SAFETY: the range was checked. Memory that is given back is only given out again to later work of
        // the same stream, and freeing it waits for the device.
        unsafe { staging.upload(stream, self.pointer + offset as u64, values) }
    }

    /// Copies from the place `offset` bytes from the start to host memory, when all work is done.
    pub(crate) fn read<T: Copy>(&self, offset: usize, values: &mut [T]) -> Result<(), Error> {
        assert!(offset + size_of_val(values) <= self.taken, "a read stays inside the buffer");
        self.device.bind()?;
        let stream = self.device.raw_stream();
        // SAFETY: the range was checked, and the values are not looked at before the stream is done.
        unsafe { driver::memcpy_dtoh_async(values, self.pointer + offset as u64, stream) }
            .map_err(Error::cuda("copying from the device"))?;
        self.device.synchronize()
    }

    /// Sets `bytes` bytes to zero from the place `offset` bytes from the start.
    pub(crate) fn clear(&mut self, offset: usize, bytes: usize) -> Result<(), Error> {
        assert!(offset + bytes <= self.taken, "a range stays inside the buffer");
        self.device.bind()?;
        // SAFETY: the range was checked.
        unsafe { driver::memset_d8_async(self.pointer + offset as u64, 0, bytes, self.device.raw_stream()) }
            .map_err(Error::cuda("clearing memory"))
    }

    /// Copies `bytes` bytes from the start of another buffer.
    pub(crate) fn copy(&mut self, from: &Buffer, bytes: usize) -> Result<(), Error> {
        assert!(bytes <= self.taken && bytes <= from.taken, "a copy stays inside both buffers");
        self.device.bind()?;
        // SAFETY: the range was checked for both.
        unsafe { driver::memcpy_dtod_async(self.pointer, from.pointer, bytes, self.device.raw_stream()) }
            .map_err(Error::cuda("copying on the device"))
    }

    /// Makes sure that it has as many bytes.
    pub(crate) fn holds(&self, bytes: usize) {
        assert!(bytes <= self.taken, "a range stays inside the buffer");
    }

    /// Where it lies on the device.
    pub(crate) fn pointer(&self) -> u64 {
        self.pointer
    }

    /// The device it lies on.
    pub(crate) fn device(&self) -> &Cuda {
        &self.device
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.memory().give_back(self.pointer, self.taken);
    }
}
