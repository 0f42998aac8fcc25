//! polytag from Python: the native half of the wheel.
//!
//! The modules stand in the order they rest on each other. What Python calls is a `Model` and
//! `fit`; the package in `python/polytag` wraps both in the words of Python and documents them. Work runs without the
//! interpreter's lock, on threads of our own, while the thread that called listens for Ctrl-C (`work`). Nothing
//! panics through the border: failures become the exceptions of `errors`.

mod errors; // failures as exceptions
mod work; // threads, Ctrl-C, what long work reports
mod device; // where a model works
mod capsule; // Arrow data in and out
mod texts; // strings in, from whatever holds them
mod table; // tables in, tagged tables out
mod model; // a model folder, loaded
mod fit; // from a task to a model

use pyo3::prelude::*;

/// The native half of `polytag`.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::fit::fit;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::table::{Tagged, TaggedStream};
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("METHODS", polytag::method::METHODS.to_vec())
    }
}
