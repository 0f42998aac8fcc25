//! Rows as lines of JSON.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, OffsetSizeTrait, RecordBatch, StructArray};
use arrow_schema::{DataType, Schema};
use serde::Serialize;

use super::cells::Texts;
use super::error::ColumnError;

/// Writes the cell of a row.
type Cell<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

/// The rows of a batch as objects: texts, whole numbers, numbers with a point, flags, and lists and objects of them.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Int64Array, RecordBatch, StringArray};
/// use polytag::columns::JsonRows;
/// let batch = RecordBatch::try_from_iter([
///     ("id", Arc::new(Int64Array::from(vec![7])) as _),
///     ("text", Arc::new(StringArray::from(vec![None::<&str>])) as _),
/// ]).unwrap();
/// let mut line = Vec::new();
/// JsonRows::of(&batch)?.write(0, &mut line);
/// assert_eq!(line, br#"{"id":7,"text":null}"#);
/// # Ok::<(), polytag::columns::ColumnError>(())
/// ```
pub struct JsonRows<'a> {
    columns: Vec<(Vec<u8>, Cell<'a>)>,
}

impl<'a> JsonRows<'a> {
    /// An error if a column of the schema cannot be written as JSON.
    pub fn check(schema: &Schema) -> Result<(), ColumnError> {
        match schema.fields().iter().find(|field| !is_plain(field.data_type())) {
            None => Ok(()),
            Some(field) => Err(ColumnError::Kind {
                column: field.name().clone(),
                found: Box::new(field.data_type().clone()),
                expected: "something that JSON has (text, numbers, true and false, and lists and objects of them)",
                remedy: "leave it out, cast it to a string, or write Parquet",
            }),
        }
    }

    /// The rows of a batch.
    ///
    /// # Errors
    /// If a column cannot be written as JSON.
    pub fn of(batch: &'a RecordBatch) -> Result<JsonRows<'a>, ColumnError> {
        JsonRows::check(batch.schema_ref())?;
        let fields = batch.schema_ref().fields().iter().zip(batch.columns());
        let columns = fields.map(|(field, array)| (key(field.name()), cell(array.as_ref())));
        Ok(JsonRows { columns: columns.collect() })
    }

    /// Writes a row as an object, without a line break.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        object(&self.columns, row, out);
    }
}

fn is_plain(kind: &DataType) -> bool {
    match kind {
        DataType::Boolean | DataType::Float32 | DataType::Float64 => true,
        DataType::List(item) | DataType::LargeList(item) => is_plain(item.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_plain(field.data_type())),
        kind => kind.is_integer() || Texts::are_in(kind),
    }
}

/// A name, with the colon behind it.
fn key(name: &str) -> Vec<u8> {
    let mut key = Vec::new();
    push(&mut key, name);
    key.push(b':');
    key
}

fn object(columns: &[(Vec<u8>, Cell<'_>)], row: usize, out: &mut Vec<u8>) {
    for (position, (key, cell)) in columns.iter().enumerate() {
        out.push(if position == 0 { b'{' } else { b',' });
        out.extend_from_slice(key);
        cell(row, out);
    }
    out.extend_from_slice(if columns.is_empty() { b"{}" } else { b"}" });
}

fn push(out: &mut Vec<u8>, value: impl Serialize) {
    serde_json::to_writer(out, &value).expect("texts and numbers always make JSON");
}

/// The cells of an array of a type that was checked.
fn cell<'a>(array: &'a dyn Array) -> Cell<'a> {
    match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |row, out| push(out, array.is_valid(row).then(|| array.value(row))))
        }
        DataType::Int8 => numbers::<Int8Type>(array),
        DataType::Int16 => numbers::<Int16Type>(array),
        DataType::Int32 => numbers::<Int32Type>(array),
        DataType::Int64 => numbers::<Int64Type>(array),
        DataType::UInt8 => numbers::<UInt8Type>(array),
        DataType::UInt16 => numbers::<UInt16Type>(array),
        DataType::UInt32 => numbers::<UInt32Type>(array),
        DataType::UInt64 => numbers::<UInt64Type>(array),
        // What is no number becomes null, as JSON has no word for it.
        DataType::Float32 => numbers::<Float32Type>(array),
        DataType::Float64 => numbers::<Float64Type>(array),
        DataType::List(_) => list::<i32>(array),
        DataType::LargeList(_) => list::<i64>(array),
        DataType::Struct(_) => structure(array.as_struct()),
        _ => {
            let texts = Texts::of("", array).expect("the type was checked");
            Box::new(move |row, out| push(out, texts.get(row)))
        }
    }
}

fn numbers<T: ArrowPrimitiveType>(array: &dyn Array) -> Cell<'_>
where
    T::Native: Serialize,
{
    let array = array.as_primitive::<T>();
    Box::new(move |row, out| push(out, array.is_valid(row).then(|| array.value(row))))
}

fn list<O: OffsetSizeTrait>(array: &dyn Array) -> Cell<'_> {
    let array = array.as_list::<O>();
    let item = cell(array.values().as_ref());
    Box::new(move |row, out| {
        if array.is_null(row) {
            return push(out, ());
        }
        let ends = array.value_offsets();
        out.push(b'[');
        for (place, at) in (ends[row].as_usize()..ends[row + 1].as_usize()).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            item(at, out);
        }
        out.push(b']');
    })
}

fn structure(array: &StructArray) -> Cell<'_> {
    let fields = array.fields().iter().zip(array.columns());
    let columns: Vec<_> = fields.map(|(field, array)| (key(field.name()), cell(array.as_ref()))).collect();
    Box::new(move |row, out| match array.is_null(row) {
        true => push(out, ()),
        false => object(&columns, row, out),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{ListBuilder, StringBuilder};
    use arrow_array::{
        ArrayRef, BooleanArray, DictionaryArray, Float32Array, Float64Array, TimestampSecondArray, UInt8Array,
    };
    use std::sync::Arc;

    #[test]
    fn rows_are_objects_of_what_json_has() {
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("a\"\n"), None]);
        lists.append_null();
        lists.append_value([None::<&str>; 0]);
        let words: DictionaryArray<Int8Type> = [Some("x"), None, Some("é")].into_iter().collect();
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
        let inner = StructArray::try_from(vec![("f", flags)]).unwrap();
        let batch = RecordBatch::try_from_iter([
            ("l", Arc::new(lists.finish()) as ArrayRef),
            ("w", Arc::new(words)),
            ("n", Arc::new(UInt8Array::from(vec![Some(255), None, Some(0)]))),
            ("s", Arc::new(Float32Array::from(vec![0.1, f32::NAN, -1.0]))),
            ("d", Arc::new(Float64Array::from(vec![0.1, 1e300, 2.0]))),
            ("o", Arc::new(inner)),
        ])
        .unwrap();
        let line = |batch: &RecordBatch, row: usize| {
            let mut line = Vec::new();
            JsonRows::of(batch).unwrap().write(row, &mut line);
            String::from_utf8(line).unwrap()
        };
        assert_eq!(line(&batch, 0), r#"{"l":["a\"\n",null],"w":"x","n":255,"s":0.1,"d":0.1,"o":{"f":true}}"#);
        assert_eq!(line(&batch, 1), r#"{"l":null,"w":null,"n":null,"s":null,"d":1e+300,"o":{"f":null}}"#);
        assert_eq!(line(&batch.slice(2, 1), 0), r#"{"l":[],"w":"é","n":0,"s":-1.0,"d":2.0,"o":{"f":false}}"#);
    }

    #[test]
    fn what_json_does_not_have_is_refused() {
        let when: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0]));
        let batch = RecordBatch::try_from_iter([("when", when)]).unwrap();
        let complaint = JsonRows::of(&batch).err().unwrap().to_string();
        assert!(complaint.starts_with("the column \"when\" is of type Timestamp(s), where"), "{complaint}");
    }
}
