//! A CUDA device, found when the program runs.
//!
//! Nothing here is needed to build or to run on a CPU: the driver, NVRTC and cuBLASLt are looked for
//! when a device is opened, and what is missing is said. Kernels are text in this crate, compiled at
//! first use. All work goes through one stream in the order it was asked for, so that
//! memory can be given out again as soon as its last user was launched, and no kernel adds floating-point
//! numbers in an order that varies: the same work gives the same bytes.
#![allow(unsafe_code)]

mod buffer; // memory on the device
mod compiler; // from kernel text to machine code, and the cache of that on disk
mod launch; // kernels with their arguments
pub(crate) mod nccl; // sums over several devices
mod product; // matrix products by cuBLASLt
mod staging; // copies to the device that the host does not wait for
mod version; // whether driver and compiler are new enough

pub(crate) use buffer::Buffer;
pub(crate) use compiler::KernelSource;
pub(crate) use launch::Launch;
pub(crate) use product::{Operand, Product, Repeat};

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::{result as lt, sys as lt_sys};
use cudarc::driver::{CudaContext, CudaStream, result as driver, sys};

use crate::error::{Bytes, Error};
use crate::memory::Cache;
use buffer::DeviceMemory;
use staging::Staging;

/// What cuBLASLt may use for itself.
const WORKSPACE: usize = 64 << 20;

/// How a CUDA device is opened.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// Which device, from zero.
    pub ordinal: usize,
    /// Where compiled kernels are kept between runs; nowhere, if there is no such folder.
    pub kernel_cache: Option<PathBuf>,
    /// The most memory to take, in bytes; all there is, if not said.
    pub memory_limit: Option<u64>,
}

/// A CUDA device with its one stream. Clones are the same device.
#[derive(Clone)]
pub struct Cuda {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    architecture: (i32, i32),
    multiprocessors: usize,
    kernel_cache: Option<PathBuf>,
    /// Kernels, and the bytes of shared memory that each may use.
    functions: Mutex<HashMap<FunctionKey, (Function, u32)>>,
    modules: Mutex<HashMap<ModuleKey, Module>>,
    plans: Mutex<product::Plans>,
    blas: Blas,
    workspace: sys::CUdeviceptr,
    memory: Mutex<Cache<DeviceMemory>>,
    staging: Staging,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

type ModuleKey = (&'static str, &'static str);
type FunctionKey = (ModuleKey, &'static str);

/// A loaded module; it stays loaded as long as the context.
#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

/// A kernel of a loaded module.
#[derive(Clone, Copy)]
struct Function(sys::CUfunction);

struct Blas(lt_sys::cublasLtHandle_t);

// SAFETY: these are handles that the CUDA libraries allow to be used from any thread; changes of the
// tables they stand in go through a mutex.
unsafe impl Send for Module {}
unsafe impl Send for Function {}
unsafe impl Send for Blas {}
unsafe impl Sync for Blas {}

impl Cuda {
    /// Opens a device, or says why that is not possible.
    pub fn open(options: &CudaOptions) -> Result<Cuda, Error> {
        version::check()?;
        let no_gpu = |problem: driver::DriverError| Error::NoGpu { why: version::explain(&problem) };
        let context = CudaContext::new(options.ordinal).map_err(no_gpu)?;
        // SAFETY: all work goes through one stream, so that cudarc need not track it.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(Error::cuda("making a stream"))?;
        let name = context.name().map_err(Error::cuda("asking for the device's name"))?;
        let architecture =
            context.compute_capability().map_err(Error::cuda("asking for the architecture"))?;
        if architecture.0 < 8 {
            let (major, minor) = architecture;
            return Err(Error::NoGpu {
                why: format!("{name} has compute capability {major}.{minor}; bf16 needs 8.0 or newer"),
            });
        }
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors =
            context.attribute(count).map_err(Error::cuda("counting multiprocessors"))? as usize;
        let blas = Blas(lt::create_handle().map_err(Error::cuda("starting cuBLASLt"))?);
        // SAFETY: the context was bound to this thread when it was made.
        let workspace = unsafe { driver::malloc_sync(WORKSPACE) }
            .map_err(Error::cuda("reserving cuBLASLt's workspace"))?;
        let total = context.total_mem().map_err(Error::cuda("asking for the device's memory"))?;
        let mut memory = Cache::new(DeviceMemory::new(context.clone(), name.clone(), total));
        memory.set_limit(options.memory_limit.map(|limit| limit as usize));
        Ok(Cuda {
            inner: Arc::new(Inner {
                name,
                architecture,
                multiprocessors,
                kernel_cache: options.kernel_cache.clone(),
                functions: Mutex::default(),
                modules: Mutex::default(),
                plans: Mutex::default(),
                blas,
                workspace,
                memory: Mutex::new(memory),
                staging: Staging::default(),
                stream,
                context,
            }),
        })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Which device of the machine it is, from zero.
    pub(crate) fn ordinal(&self) -> usize {
        self.inner.context.ordinal()
    }

    /// Whether it has what only GPUs of compute capability 9.0 have: the kernels for those do not run elsewhere.
    pub(crate) fn is_hopper(&self) -> bool {
        self.inner.architecture == (9, 0)
    }

    /// How many multiprocessors the device has.
    pub(crate) fn multiprocessors(&self) -> usize {
        self.inner.multiprocessors
    }

    /// Waits until all work asked for is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.inner.stream.synchronize().map_err(Error::cuda("finishing the work asked for"))
    }

    /// How much memory of the device can be had: what no program has, and what was given back here.
    pub(crate) fn free_memory(&self) -> Result<Bytes, Error> {
        self.bind()?;
        let (free, _) = driver::mem_get_info().map_err(Error::cuda("asking for the free memory"))?;
        Ok(Bytes(free as u64 + self.memory().kept().0))
    }

    /// The most memory that was in use at once, besides what the libraries hold.
    pub fn peak_memory(&self) -> Bytes {
        Bytes(self.memory().peak().0 + WORKSPACE as u64)
    }

    /// Begins to measure the peak of memory anew.
    pub fn reset_peak_memory(&self) {
        self.memory().reset_peak();
    }

    /// Makes this thread one that may speak to the device.
    fn bind(&self) -> Result<(), Error> {
        self.inner.context.bind_to_thread().map_err(Error::cuda("binding the device to a thread"))
    }

    fn memory(&self) -> MutexGuard<'_, Cache<DeviceMemory>> {
        self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raw_stream(&self) -> sys::CUstream {
        self.inner.stream.cu_stream()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.context.bind_to_thread().ok();
        // SAFETY: nobody holds the device any more, so that nothing uses the workspace or the handle;
        // freeing waits for work in flight.
        unsafe {
            driver::free_sync(self.workspace).ok();
            lt::destroy_handle(self.blas.0).ok();
        }
    }
}

impl PartialEq for Cuda {
    fn eq(&self, other: &Cuda) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cuda").field(&self.inner.name).finish()
    }
}
