//! NCCL, which adds numbers up over several GPUs, found when it is first asked for.
//!
//! Its library is looked for under the name that packages give it, `libnccl.so.2`, and not only under that of its
//! development files. Six functions of its C interface are used, which are the same in all of NCCL 2.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;

use super::{Buffer, Cuda};
use crate::error::Error;

/// Names of the library, in the order they are tried.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclFloat32` and `ncclSum`.
const FLOAT32: c_int = 7;
const SUM: c_int = 0;

type Handle = *mut c_void;

/// The functions that are used.
struct Api {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    begin: unsafe extern "C" fn(*mut Handle, c_int, *const c_int) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, sys::CUstream) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    abort: unsafe extern "C" fn(Handle) -> c_int,
}

impl Api {
    fn load() -> Result<Api, String> {
        let mut problems = Vec::new();
        for name in NAMES {
            // SAFETY: loading NCCL runs nothing but its own initialisers, which only set up its tables.
            match unsafe { libloading::Library::new(name) } {
                Ok(library) => return Api::of(library).map_err(|error| format!("{name}: {error}")),
                Err(error) => problems.push(error.to_string()),
            }
        }
        Err(problems.swap_remove(0))
    }

    fn of(library: libloading::Library) -> Result<Api, libloading::Error> {
        // The functions are used until the program ends, and so is the library.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the types are those of NCCL's header, where enumerations are C integers.
        unsafe {
            Ok(Api {
                version: *library.get(b"ncclGetVersion\0")?,
                error_text: *library.get(b"ncclGetErrorString\0")?,
                begin: *library.get(b"ncclCommInitAll\0")?,
                all_reduce: *library.get(b"ncclAllReduce\0")?,
                destroy: *library.get(b"ncclCommDestroy\0")?,
                abort: *library.get(b"ncclCommAbort\0")?,
            })
        }
    }

    fn check(&self, action: &str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL gives a constant text for any number.
        let text = unsafe { CStr::from_ptr((self.error_text)(code)) };
        Err(Error::Cuda { action: action.to_owned(), problem: format!("NCCL: {}", text.to_string_lossy()) })
    }
}

fn api() -> Result<&'static Api, Error> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(Api::load).as_ref().map_err(|problem| Error::NoNccl { problem: problem.clone() })
}

/// The version of NCCL that is here, as `10000 * major + 100 * minor + patch`.
///
/// # Errors
/// If it is not here.
pub(crate) fn version() -> Result<i32, Error> {
    let api = api()?;
    let mut version = 0;
    // SAFETY: it writes one number.
    api.check("asking NCCL for its version", unsafe { (api.version)(&mut version) })?;
    Ok(version)
}

/// A GPU's place among several that add up together.
pub(crate) struct Communicator {
    handle: Handle,
    device: Cuda,
    is_done: AtomicBool,
}

// SAFETY: NCCL allows a communicator to be used from any thread, one at a time; it has one owner, who is in one thread.
unsafe impl Send for Communicator {}
// SAFETY: as above; a member is shared by clones within its thread only, and sums are asked for by its trainer alone.
unsafe impl Sync for Communicator {}

impl Communicator {
    /// One for each device, which must be different GPUs of this machine. The first sum connects them.
    pub(crate) fn all(devices: &[&Cuda]) -> Result<Vec<Communicator>, Error> {
        let api = api()?;
        let ordinals: Vec<c_int> = devices.iter().map(|device| device.ordinal() as c_int).collect();
        let mut handles: Vec<Handle> = vec![std::ptr::null_mut(); devices.len()];
        // SAFETY: both lists are as long as said.
        let code = unsafe { (api.begin)(handles.as_mut_ptr(), devices.len() as c_int, ordinals.as_ptr()) };
        api.check("bringing the GPUs together", code)?;
        let one = |(handle, device): (Handle, &&Cuda)| Communicator {
            handle,
            device: (*device).clone(),
            is_done: AtomicBool::new(false),
        };
        Ok(handles.into_iter().zip(devices).map(one).collect())
    }

    /// Replaces the first `count` floats by their sums over all devices, when the device has done what was asked for
    /// before. All must ask for it, with the same count.
    pub(crate) fn sum(&self, values: &mut Buffer, count: usize) -> Result<(), Error> {
        let api = api()?;
        values.holds(4 * count);
        self.device.bind()?;
        let place = values.pointer() as *mut c_void;
        let stream = self.device.raw_stream();
        // SAFETY: the buffer holds as many floats and nobody else writes to it; what comes after in the stream sees the
        // sums.
        let code = unsafe { (api.all_reduce)(place, place, count, FLOAT32, SUM, self.handle, stream) };
        api.check("adding up over the GPUs", code)
    }

    /// Called when all devices are done with all sums: it is taken apart in peace.
    pub(crate) fn done(&self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let Ok(api) = api() else { return };
        self.device.bind().ok();
        let end = if self.is_done.load(Ordering::Relaxed) { api.destroy } else { api.abort };
        // SAFETY: nobody uses it any more. Aborting ends sums that wait for a device that will never come.
        unsafe { end(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_tells_its_version_or_what_is_missing_and_the_remedy() {
        match version() {
            Ok(version) => assert!((20_000..30_000).contains(&version), "{version}"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("libnccl.so.2") && error.contains("name one GPU"), "{error}");
            }
        }
    }
}
