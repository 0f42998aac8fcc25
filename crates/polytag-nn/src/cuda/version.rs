//! Whether driver and compiler are there and new enough.

use cudarc::driver::{result as driver, sys};

use crate::error::Error;

/// The oldest driver that loads what the compiler makes, as `1000 * major + 10 * minor`.
const OLDEST_DRIVER: i32 = 12_000;

/// The oldest compiler that is taken: it knows Hopper's instructions, and no older one was ever tried.
const OLDEST_COMPILER: (i32, i32) = (12, 0);

/// What is on this machine, as far as it is.
struct Found {
    driver: Option<i32>,
    compiler: Option<(i32, i32)>,
    blas: bool,
}

/// Looks for driver, NVRTC and cuBLASLt. Nothing of CUDA may be called before this said yes: a
/// missing library would be a panic.
pub(super) fn check() -> Result<(), Error> {
    judge(&find()).map_err(|why| Error::NoGpu { why })
}

fn find() -> Found {
    // SAFETY: these only try to load a library by name, and ask loaded ones for their versions.
    unsafe {
        let driver = sys::is_culib_present().then(|| {
            let mut version = 0;
            sys::cuDriverGetVersion(&mut version);
            version
        });
        let compiler = cudarc::nvrtc::sys::is_culib_present().then(|| {
            let (mut major, mut minor) = (0, 0);
            cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor);
            (major, minor)
        });
        Found { driver, compiler, blas: cudarc::cublaslt::sys::is_culib_present() }
    }
}

fn judge(found: &Found) -> Result<(), String> {
    let Some(driver) = found.driver else {
        return Err("no NVIDIA driver is installed (libcuda was not found)".to_owned());
    };
    let (driver_major, driver_minor) = (driver / 1000, driver % 1000 / 10);
    if driver < OLDEST_DRIVER {
        return Err(format!(
            "the NVIDIA driver is too old: it supports CUDA {driver_major}.{driver_minor}, and 12.0 or newer \
             is needed; update the driver"
        ));
    }
    let Some((major, minor)) = found.compiler else {
        return Err(
            "NVRTC, CUDA's run-time compiler, was not found; install the CUDA toolkit (or its nvrtc \
                    and cublas parts) and put its libraries on the library path"
                .to_owned(),
        );
    };
    if (major, minor) < OLDEST_COMPILER {
        return Err(format!(
            "NVRTC is too old: it is of CUDA {major}.{minor}, and 12.0 or newer is needed; install a newer toolkit"
        ));
    }
    if major > driver_major {
        return Err(format!(
            "NVRTC is of CUDA {major}.{minor}, but the driver only supports CUDA {driver_major}.{driver_minor}; \
             update the driver or install an older toolkit"
        ));
    }
    if !found.blas {
        return Err("cuBLASLt was not found; install CUDA's cublas and put it on the library path".to_owned());
    }
    Ok(())
}

/// What the driver's refusal of a device means.
pub(super) fn explain(problem: &driver::DriverError) -> String {
    match problem.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => "the driver is there, but it sees no GPU".to_owned(),
        sys::CUresult::CUDA_ERROR_INVALID_DEVICE => "there is no GPU of that number".to_owned(),
        sys::CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        | sys::CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "the driver's library and its kernel module are of different versions; restart the machine or \
             reinstall the driver"
                .to_owned()
        }
        _ => format!("the driver refused the device: {problem:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(driver: Option<i32>, compiler: Option<(i32, i32)>, blas: bool) -> String {
        judge(&Found { driver, compiler, blas }).unwrap_err()
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(problem(None, Some((13, 0)), true).contains("libcuda"));
        assert!(problem(Some(13_000), None, true).contains("NVRTC"));
        assert!(problem(Some(13_000), Some((13, 0)), false).contains("cuBLASLt"));
        assert!(judge(&Found { driver: Some(13_000), compiler: Some((13, 0)), blas: true }).is_ok());
    }

    #[test]
    fn an_old_driver_is_told_from_a_missing_one() {
        let old = problem(Some(11_040), Some((11, 4)), true);
        assert!(old.contains("too old") && old.contains("11.4") && old.contains("update"), "{old}");
        let behind = problem(Some(12_020), Some((13, 0)), true);
        assert!(behind.contains("13.0") && behind.contains("12.2"), "{behind}");
        let compiler = problem(Some(13_000), Some((11, 8)), true);
        assert!(compiler.contains("NVRTC is too old") && compiler.contains("11.8"), "{compiler}");
    }
}
