//! Arrow data in and out through capsules, as Python's Arrow PyCapsule interface has it: nothing is copied.
//!
//! The one place of the crate with `unsafe`: a capsule holds a struct of Arrow's C interface, and its name says which. What came
//! in is checked where it is read, for the producer may be wrong: offsets, and that texts are UTF-8.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{
    Array, ArrayIterator, ArrayReader, ArrayRef, RecordBatch, RecordBatchReader, StructArray, make_array,
};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::errors;

const ARRAY: &CStr = c"arrow_array";
const SCHEMA: &CStr = c"arrow_schema";
const STREAM: &CStr = c"arrow_array_stream";

/// Arrays one after the other, all of one type.
pub(crate) type Arrays = Box<dyn ArrayReader + Send>;

/// The arrays that an object offers, if it offers any: a stream of them, or one.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Option<Arrays>> {
    if let Some(capsule) = call(object, "__arrow_c_stream__")? {
        return import_stream(&capsule).map(Some);
    }
    match call(object, "__arrow_c_array__")? {
        Some(pair) => import_array(&pair).map(Some),
        None => Ok(None),
    }
}

/// What a method without arguments gives, if there is such a method. A class has the methods of its objects, too, and is
/// none of them.
fn call<'py>(object: &Bound<'py, PyAny>, method: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    if object.is_instance_of::<pyo3::types::PyType>() {
        return Ok(None);
    }
    match object.getattr(method) {
        Ok(method) => method.call0().map(Some),
        Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn import_stream(capsule: &Bound<'_, PyAny>) -> PyResult<Arrays> {
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| no_capsule("__arrow_c_stream__"))?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: by its name the capsule holds a stream of the C interface. It is moved out, which marks what is left behind
    // as released, and no Python code runs between the two.
    let reader = unsafe { ArrayStreamReader::from_raw(stream.as_ptr()) };
    let reader =
        reader.map_err(|error| errors::input(format!("the Arrow stream cannot be read: {error}")))?;
    Ok(Box::new(reader))
}

fn import_array(pair: &Bound<'_, PyAny>) -> PyResult<Arrays> {
    let pair = pair.cast::<PyTuple>().map_err(|_| no_capsule("__arrow_c_array__"))?;
    let (schema, array) = pair.extract::<(Bound<'_, PyCapsule>, Bound<'_, PyCapsule>)>()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: by their names the capsules hold a schema and an array of the C interface, and both capsules live until the end
    // of this function. The array is moved out, which marks what is left behind as released.
    let (field, data) = unsafe {
        let schema = schema.as_ref();
        (arrow_schema::Field::try_from(schema), from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema))
    };
    let wrong = |error: ArrowError| errors::input(format!("the Arrow array cannot be read: {error}"));
    let (field, data) = (field.map_err(wrong)?, data.map_err(wrong)?);
    Ok(Box::new(ArrayIterator::new(std::iter::once(Ok(make_array(data))), Arc::new(field))))
}

fn no_capsule(method: &str) -> PyErr {
    errors::wrong_type(format!("{method} gave no capsule; it is not as Arrow's interface for Python has it"))
}

/// Whether an array is sound: offsets in bounds, texts UTF-8. Who reads values out of an array that came in asks first.
pub(crate) fn check(array: &dyn Array) -> Result<(), ArrowError> {
    array.to_data().validate_full()
}

/// A struct array as a table's batch; a row that is null as a whole has null in each column.
pub(crate) fn batch(array: ArrayRef, schema: &Arc<Schema>) -> Result<RecordBatch, ArrowError> {
    let Some(table) = array.as_any().downcast_ref::<StructArray>() else {
        return Err(ArrowError::SchemaError(format!("{} is no table", array.data_type())));
    };
    if table.null_count() > 0 {
        return Err(ArrowError::SchemaError("a row of the table is null as a whole".to_owned()));
    }
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(table.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), table.columns().to_vec(), &options)
}

/// The schema of a table that comes as arrays of this type.
pub(crate) fn table_schema(field: &FieldRef) -> Option<Arc<Schema>> {
    match field.data_type() {
        DataType::Struct(fields) => {
            Some(Arc::new(Schema::new_with_metadata(fields.clone(), field.metadata().clone())))
        }
        _ => None,
    }
}

/// A schema as a capsule.
pub(crate) fn export_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(errors::ours)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// A batch as a pair of capsules.
pub(crate) fn export_batch<'py>(py: Python<'py>, batch: RecordBatch) -> PyResult<Bound<'py, PyTuple>> {
    let schema = export_schema(py, batch.schema_ref())?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch).to_data());
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}

/// Batches as a capsule that is read once.
pub(crate) fn export_stream<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}
