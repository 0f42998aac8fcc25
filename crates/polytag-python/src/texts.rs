//! Strings in, from whatever holds them: lists, NumPy arrays, pandas and polars columns, Arrow arrays. None is copied.

use arrow_array::ArrayRef;
use polytag::columns::Texts;
use pyo3::exceptions::{PyException, PyUnicodeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyMapping, PyString};

use crate::{capsule, errors};

/// Strings that live elsewhere, kept alive.
pub(crate) enum Strings {
    /// Objects of Python.
    Python(Vec<Option<PyBackedStr>>),
    /// Arrays of strings, each with what it is called in errors.
    Arrow(Vec<ArrayRef>),
}

impl Strings {
    /// The strings of `object`; `what` is what errors call them: "texts".
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Strings> {
        refuse(object, what)?;
        match capsule::import(object) {
            Ok(Some(arrays)) => Strings::arrow(arrays, what),
            Ok(None) => Strings::python(object, what),
            // A column that Arrow has no type for, or no pyarrow to make one with: it can be walked through all the same.
            Err(error) if error.is_instance_of::<PyException>(object.py()) => Strings::python(object, what),
            Err(error) => Err(error),
        }
    }

    fn arrow(arrays: capsule::Arrays, what: &str) -> PyResult<Strings> {
        let kind = arrays.field().data_type().clone();
        if !Texts::are_in(&kind) {
            let remedy = if kind.is_nested() {
                "for a table use tag_arrow, or give one of its columns"
            } else {
                "cast it to a string"
            };
            return Err(errors::wrong_type(format!(
                "{what} are of type {kind}, where strings are expected; {remedy}"
            )));
        }
        let mut kept = Vec::new();
        for array in arrays {
            let array = array.and_then(|array| capsule::check(&array).map(|()| array));
            kept.push(array.map_err(|error| errors::input(format!("{what} cannot be read: {error}")))?);
        }
        Ok(Strings::Arrow(kept))
    }

    fn python(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Strings> {
        let items = object.try_iter().map_err(|_| {
            errors::wrong_type(format!("{what} are {}, where a list of strings is expected", class(object)))
        })?;
        let mut strings = Vec::with_capacity(object.len().unwrap_or(0));
        for (place, item) in items.enumerate() {
            let item = item?;
            if item.is_none() {
                strings.push(None);
                continue;
            }
            let text = item.cast_into::<PyString>().map_err(|error| {
                let found = class(&error.into_inner());
                errors::wrong_type(format!("{what}[{place}] is {found}, where a string is expected"))
            })?;
            let py = text.py();
            strings.push(Some(PyBackedStr::try_from(text).map_err(|error| {
                match error.is_instance_of::<PyUnicodeError>(py) {
                    true => errors::input(format!("{what}[{place}] is no text: {error}")),
                    false => error,
                }
            })?));
        }
        Ok(Strings::Python(strings))
    }

    /// The strings in order; none where one is missing.
    pub(crate) fn views(&self) -> PyResult<Vec<Option<&str>>> {
        match self {
            Strings::Python(strings) => Ok(strings.iter().map(Option::as_deref).collect()),
            Strings::Arrow(arrays) => {
                let mut views = Vec::with_capacity(arrays.iter().map(|array| array.len()).sum());
                for array in arrays {
                    let texts = Texts::of("texts", array.as_ref())
                        .map_err(|error| errors::input(error.to_string()))?;
                    views.extend((0..array.len()).map(|row| texts.get(row)));
                }
                Ok(views)
            }
        }
    }
}

/// Things that can be walked through, but not for the strings that are meant.
fn refuse(object: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        let found = class(object);
        return Err(errors::wrong_type(format!(
            "{what} are {found}, where a list of strings is expected; put it in a list"
        )));
    }
    // Walking through a table gives the names of its columns.
    if object.cast::<PyMapping>().is_ok() || object.hasattr("columns")? {
        let found = class(object);
        return Err(errors::wrong_type(format!(
            "{what} are {found}, where a list of strings is expected; give one of its columns, or use tag_arrow"
        )));
    }
    Ok(())
}

/// The class of an object, for a person.
fn class(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "something else".to_owned(), |name| format!("of type {name}"))
}
