//! Failures as exceptions of `polytag`, decided in one place.

use std::any::Any;

use polytag::data::DataError;
use polytag::encoder::EncoderError;
use polytag::method::MethodError;
use polytag::{Error, Fault};
use pyo3::PyErr;
use pyo3::exceptions::PyKeyboardInterrupt;

/// The exceptions that the package defines.
mod classes {
    #![allow(missing_docs, unreachable_pub)]
    pyo3::import_exception!(polytag._errors, InputError);
    pyo3::import_exception!(polytag._errors, InputTypeError);
    pyo3::import_exception!(polytag._errors, InternalError);
    pyo3::import_exception!(polytag._errors, ModelError);
}

/// What was given cannot be used.
pub(crate) fn input(message: impl Into<String>) -> PyErr {
    classes::InputError::new_err(message.into())
}

/// What was given is of another type than is needed.
pub(crate) fn wrong_type(message: impl Into<String>) -> PyErr {
    classes::InputTypeError::new_err(message.into())
}

/// A promise that we broke.
pub(crate) fn ours(message: impl std::fmt::Display) -> PyErr {
    classes::InternalError::new_err(format!("{message}; this is a fault of polytag, not of yours"))
}

/// The exception for a failure of the library.
pub(crate) fn library(error: impl Into<Error>) -> PyErr {
    let error = error.into();
    if is_stop(&error) {
        // Work stops early only when it was told to.
        return PyKeyboardInterrupt::new_err(error.to_string());
    }
    match &error {
        Error::Artifact(_) => classes::ModelError::new_err(error.to_string()),
        _ if error.fault() == Fault::User => input(error.to_string()),
        _ => ours(error),
    }
}

/// The exception for a failure of the engine.
pub(crate) fn engine(error: polytag_nn::Error) -> PyErr {
    library(polytag::predict::PredictError::from(error))
}

/// The exception for a thread that panicked.
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> PyErr {
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    ours(format!("the work broke off: {}", words.unwrap_or("for a reason without words")))
}

fn is_stop(error: &Error) -> bool {
    if let Error::Method(MethodError::Part(part)) = error {
        return is_stop(part);
    }
    matches!(
        error,
        Error::Data(DataError::Stopped)
            | Error::Encoder(EncoderError::Stopped)
            | Error::Method(
                MethodError::Stopped
                    | MethodError::Data(DataError::Stopped)
                    | MethodError::Engine(polytag_nn::Error::Stopped)
            )
    )
}
