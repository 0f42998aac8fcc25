//! From kernel text to machine code, and the cache of that on disk.

use std::collections::hash_map::Entry;
use std::ffi::{CString, c_char};
use std::fs;
use std::io::Write as _;
use std::path::Path;

use cudarc::driver::{result as driver, sys};
use cudarc::nvrtc::{result as nvrtc, sys as nvrtc_sys};
use sha2::{Digest as _, Sha256};

use super::{Cuda, Function, FunctionKey, Module, ModuleKey};
use crate::error::Error;

/// What every kernel may use.
const PRELUDE: &str = concat!(include_str!("../random.cu"), include_str!("prelude.cu"));

impl Cuda {
    /// A kernel by module and name, compiled and loaded when it is first asked for, that may use so many bytes of
    /// shared memory.
    pub(super) fn function(
        &self,
        source: &KernelSource,
        name: &'static str,
        shared: u32,
    ) -> Result<Function, Error> {
        let key: FunctionKey = ((source.module, source.define), name);
        let mut functions = self.inner.functions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = match functions.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let module = self.module(source)?;
                let symbol = CString::new(name).expect("kernel names have no zero byte");
                // SAFETY: the module is loaded and stays so.
                let function =
                    unsafe { driver::module::get_function(module.0, symbol) }.map_err(|problem| {
                        let action = format!("looking for the kernel {name}");
                        Error::Cuda { action, problem: format!("{problem:?}") }
                    })?;
                place.insert((Function(function), 0))
            }
        };
        if shared > known.1 {
            self.bind()?;
            prepare_shared_memory(known.0, shared)?;
            known.1 = shared;
        }
        Ok(known.0)
    }

    fn module(&self, source: &KernelSource) -> Result<Module, Error> {
        let key: ModuleKey = (source.module, source.define);
        let mut modules = self.inner.modules.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(&module) = modules.get(&key) {
            return Ok(module);
        }
        self.bind()?;
        let code = self.machine_code(source)?;
        // SAFETY: the code is a whole image made by NVRTC, by this call or an earlier one whose digest
        // was checked.
        let module = unsafe { driver::module::load_data(code.as_ptr().cast()) }
            .map_err(Error::cuda("loading compiled kernels"))?;
        modules.insert(key, Module(module));
        Ok(Module(module))
    }

    fn machine_code(&self, source: &KernelSource) -> Result<Vec<u8>, Error> {
        let text = format!("{PRELUDE}\n{}", source.text);
        let (major, minor) = self.inner.architecture;
        // With what no later architecture has.
        let own = if self.is_hopper() { "a" } else { "" };
        let mut options =
            vec![format!("--gpu-architecture=sm_{major}{minor}{own}"), "--std=c++17".to_owned()];
        options.extend(source.define.split_whitespace().map(|define| format!("-D{define}")));
        let Some(folder) = &self.inner.kernel_cache else { return compile(source.module, &text, &options) };
        let file = folder.join(format!("{}-{}.cubin", source.module, digest(&text, &options)));
        if let Some(code) = read_cached(&file) {
            return Ok(code);
        }
        let code = compile(source.module, &text, &options)?;
        write_cached(folder, &file, &code);
        Ok(code)
    }
}

/// The text of a module's kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelSource {
    /// What it is called in messages and in the cache.
    pub(crate) module: &'static str,
    /// The text.
    pub(crate) text: &'static str,
    /// Definitions that the text is compiled under, such as `HEAD_DIM=64`, with spaces between them.
    pub(crate) define: &'static str,
}

/// The name of code in the cache: everything that it is a function of.
fn digest(text: &str, options: &[String]) -> String {
    let mut hash = Sha256::new();
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library was found when the device was opened; this only asks for its version.
    unsafe { nvrtc_sys::nvrtcVersion(&mut major, &mut minor) };
    hash.update(format!("{major}.{minor}\0{}\0{text}", options.join("\0")));
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Code from the cache, if it is there and whole: its last 32 bytes are the digest of the rest.
fn read_cached(file: &Path) -> Option<Vec<u8>> {
    let mut code = fs::read(file).ok()?;
    let split = code.len().checked_sub(32)?;
    let sound = Sha256::digest(&code[..split])[..] == code[split..];
    code.truncate(split);
    sound.then_some(code)
}

/// Keeps code for the next run. A cache that cannot be written costs time, never a result.
fn write_cached(folder: &Path, file: &Path, code: &[u8]) {
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut staged = tempfile::NamedTempFile::new_in(folder)?;
        staged.write_all(code)?;
        staged.write_all(&Sha256::digest(code))?;
        staged.persist(file).map_err(|error| error.error)?;
        Ok(())
    };
    write().ok();
}

fn compile(module: &'static str, text: &str, options: &[String]) -> Result<Vec<u8>, Error> {
    let source = CString::new(text).expect("kernel texts have no zero byte");
    let program = nvrtc::create_program(&source, None).map_err(Error::cuda("starting NVRTC"))?;
    // SAFETY: the program was just made and is destroyed at the end, used by nobody else.
    unsafe {
        let compiled = nvrtc::compile_program(program, options);
        let code = match compiled {
            Ok(()) => machine_code_of(program),
            Err(_) => {
                let log: Vec<c_char> = nvrtc::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
                Err(Error::Kernel { module, log: String::from_utf8_lossy(&log).trim().to_owned() })
            }
        };
        nvrtc::destroy_program(program).ok();
        code
    }
}

/// # Safety
/// The program must be compiled.
unsafe fn machine_code_of(program: nvrtc_sys::nvrtcProgram) -> Result<Vec<u8>, Error> {
    let mut size = 0;
    // SAFETY: the program is compiled, and the buffer has the size it was said to need.
    unsafe {
        nvrtc_sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(Error::cuda("sizing kernels"))?;
        let mut code = vec![0u8; size];
        nvrtc_sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast())
            .result()
            .map_err(Error::cuda("fetching compiled kernels"))?;
        Ok(code)
    }
}

/// From how much shared memory a block has on a kernel gets all that a multiprocessor has: the rest is a cache, of
/// which such kernels have no use.
const MUCH_SHARED: u32 = 16 << 10;

/// Lets a kernel use so much shared memory.
fn prepare_shared_memory(function: Function, bytes: u32) -> Result<(), Error> {
    use sys::CUfunction_attribute as Attribute;
    let set = |attribute, value| {
        // SAFETY: the function is of a loaded module.
        unsafe { driver::function::set_function_attribute(function.0, attribute, value) }
            .map_err(Error::cuda("asking for shared memory"))
    };
    if bytes >= MUCH_SHARED {
        set(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)?;
    }
    set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_code_comes_back_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kernels/a.cubin");
        write_cached(&folder.path().join("kernels"), &file, b"machine code");
        assert_eq!(read_cached(&file).unwrap(), b"machine code");
        let mut bytes = fs::read(&file).unwrap();
        bytes[3] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(read_cached(&file), None);
        fs::write(&file, b"short").unwrap();
        assert_eq!(read_cached(&file), None);
    }
}
