//! Texts and ids of a column, whatever type it has.
//!
//! Texts are read where they lie; only whole numbers that serve as ids are written out.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, LargeStringArray, StringArray, StringViewArray};
use arrow_schema::{DataType, Schema};

use super::error::ColumnError;

/// The position of the column of this name; none where there is none.
///
/// # Errors
/// If two columns have the name.
pub fn find_column(schema: &Schema, name: &str) -> Result<Option<usize>, ColumnError> {
    let mut found = schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
    let first = found.next().map(|(position, _)| position);
    match found.next() {
        Some(_) => Err(ColumnError::Twice { column: name.to_owned() }),
        None => Ok(first),
    }
}

/// The position of the column of this name.
///
/// # Errors
/// If no column has the name, or two have it.
pub fn column(schema: &Schema, name: &str) -> Result<usize, ColumnError> {
    find_column(schema, name)?.ok_or_else(|| ColumnError::Missing {
        column: name.to_owned(),
        there: schema.fields().iter().map(|field| field.name().clone()).collect(),
    })
}

/// The texts of a column, read where they lie: `Utf8`, `LargeUtf8`, `Utf8View`, or a dictionary of one of them.
///
/// ```
/// use arrow_array::StringArray;
/// use polytag::columns::Texts;
/// let column = StringArray::from(vec![Some("tea"), None]);
/// let texts = Texts::of("text", &column)?;
/// assert_eq!((texts.get(0), texts.get(1)), (Some("tea"), None));
/// # Ok::<(), polytag::columns::ColumnError>(())
/// ```
pub struct Texts<'a> {
    cells: Cells<'a>,
    /// Where the cells are values of a dictionary: which of them a row has.
    keys: Option<Vec<Option<usize>>>,
}

enum Cells<'a> {
    Small(&'a StringArray),
    Large(&'a LargeStringArray),
    View(&'a StringViewArray),
    /// A column of type null, which has rows and no value.
    Null,
}

impl<'a> Texts<'a> {
    /// Whether a column of this type holds texts.
    pub fn are_in(kind: &DataType) -> bool {
        match kind {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => true,
            DataType::Dictionary(_, values) => {
                matches!(**values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
            }
            _ => false,
        }
    }

    /// An error unless a column of this type holds texts; `name` is what it calls the column.
    pub fn check(name: &str, kind: &DataType) -> Result<(), ColumnError> {
        if Texts::are_in(kind) {
            return Ok(());
        }
        Err(ColumnError::Kind {
            column: name.to_owned(),
            found: Box::new(kind.clone()),
            expected: "text (Utf8, LargeUtf8, Utf8View, or a dictionary of them)",
            remedy: "name another column, or cast it to a string",
        })
    }

    /// The texts of `array`; `name` is what an error calls the column.
    ///
    /// # Errors
    /// If the column holds something else.
    pub fn of(name: &str, array: &'a dyn Array) -> Result<Texts<'a>, ColumnError> {
        Texts::check(name, array.data_type())?;
        let Some(dictionary) = array.as_any_dictionary_opt() else {
            return Ok(Texts { cells: Cells::of(array), keys: None });
        };
        let (rows, values) = (dictionary.keys(), dictionary.values());
        let keys = if values.is_empty() {
            vec![None; rows.len()]
        } else {
            let positions = dictionary.normalized_keys().into_iter().enumerate();
            positions.map(|(row, key)| rows.is_valid(row).then_some(key)).collect()
        };
        Ok(Texts { cells: Cells::of(values.as_ref()), keys: Some(keys) })
    }

    /// The text of a row; none where it is null.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn get(&self, row: usize) -> Option<&'a str> {
        match &self.keys {
            None => self.cells.get(row),
            Some(keys) => self.cells.get(keys[row]?),
        }
    }
}

impl<'a> Cells<'a> {
    /// The cells of an array whose type was checked.
    fn of(array: &'a dyn Array) -> Cells<'a> {
        match array.data_type() {
            DataType::Utf8 => Cells::Small(array.as_string()),
            DataType::LargeUtf8 => Cells::Large(array.as_string()),
            DataType::Utf8View => Cells::View(array.as_string_view()),
            _ => Cells::Null,
        }
    }

    fn get(&self, row: usize) -> Option<&'a str> {
        match self {
            Cells::Small(array) => array.is_valid(row).then(|| array.value(row)),
            Cells::Large(array) => array.is_valid(row).then(|| array.value(row)),
            Cells::View(array) => array.is_valid(row).then(|| array.value(row)),
            Cells::Null => None,
        }
    }
}

/// The ids of a column: texts as they are, whole numbers in decimal.
pub enum Ids<'a> {
    /// Texts, where they lie.
    Texts(Texts<'a>),
    /// Numbers, written out.
    Numbers(Vec<Option<String>>),
}

impl<'a> Ids<'a> {
    /// An error unless a column of this type holds ids; `name` is what it calls the column.
    pub fn check(name: &str, kind: &DataType) -> Result<(), ColumnError> {
        if Texts::are_in(kind) || kind.is_integer() {
            return Ok(());
        }
        Err(ColumnError::Kind {
            column: name.to_owned(),
            found: Box::new(kind.clone()),
            expected: "an id (text or whole numbers)",
            remedy: "name another column, or cast it to a string",
        })
    }

    /// The ids of `array`; `name` is what an error calls the column.
    ///
    /// # Errors
    /// If the column holds something else.
    pub fn of(name: &str, array: &'a dyn Array) -> Result<Ids<'a>, ColumnError> {
        Ids::check(name, array.data_type())?;
        Ok(match array.data_type() {
            DataType::Int8 => Ids::numbers::<Int8Type>(array),
            DataType::Int16 => Ids::numbers::<Int16Type>(array),
            DataType::Int32 => Ids::numbers::<Int32Type>(array),
            DataType::Int64 => Ids::numbers::<Int64Type>(array),
            DataType::UInt8 => Ids::numbers::<UInt8Type>(array),
            DataType::UInt16 => Ids::numbers::<UInt16Type>(array),
            DataType::UInt32 => Ids::numbers::<UInt32Type>(array),
            DataType::UInt64 => Ids::numbers::<UInt64Type>(array),
            _ => Ids::Texts(Texts::of(name, array)?),
        })
    }

    fn numbers<T: ArrowPrimitiveType>(array: &dyn Array) -> Ids<'a>
    where
        T::Native: std::fmt::Display,
    {
        let numbers = array.as_primitive::<T>().iter();
        Ids::Numbers(numbers.map(|number| number.map(|number| number.to_string())).collect())
    }

    /// The id of a row; none where it is null.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn get(&self, row: usize) -> Option<&str> {
        match self {
            Ids::Texts(texts) => texts.get(row),
            Ids::Numbers(numbers) => numbers[row].as_deref(),
        }
    }
}

/// The lists of ids of a column: a list of texts or of whole numbers a row.
pub struct Lists<'a> {
    list: &'a dyn Array,
    items: Ids<'a>,
}

impl<'a> Lists<'a> {
    /// An error unless a column of this type holds such lists; `name` is what it calls the column.
    pub fn check(name: &str, kind: &DataType) -> Result<(), ColumnError> {
        match kind {
            DataType::List(item) | DataType::LargeList(item)
                if Ids::check(name, item.data_type()).is_ok() =>
            {
                Ok(())
            }
            DataType::Null => Ok(()),
            _ => Err(ColumnError::Kind {
                column: name.to_owned(),
                found: Box::new(kind.clone()),
                expected: "a list of texts or of whole numbers",
                remedy: "name another column, or make lists of it",
            }),
        }
    }

    /// The lists of `array`; `name` is what an error calls the column.
    ///
    /// # Errors
    /// If the column holds something else.
    pub fn of(name: &str, array: &'a dyn Array) -> Result<Lists<'a>, ColumnError> {
        Lists::check(name, array.data_type())?;
        let items = match array.data_type() {
            DataType::List(_) => Ids::of(name, array.as_list::<i32>().values().as_ref())?,
            DataType::LargeList(_) => Ids::of(name, array.as_list::<i64>().values().as_ref())?,
            _ => Ids::Numbers(Vec::new()),
        };
        Ok(Lists { list: array, items })
    }

    /// The list of a row, what is null in it left out; none where it is null itself.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn get(&self, row: usize) -> Option<Vec<String>> {
        if self.list.is_null(row) || self.list.data_type() == &DataType::Null {
            return None;
        }
        let range = match self.list.data_type() {
            DataType::List(_) => {
                let ends = self.list.as_list::<i32>().value_offsets();
                ends[row] as usize..ends[row + 1] as usize
            }
            _ => {
                let ends = self.list.as_list::<i64>().value_offsets();
                ends[row] as usize..ends[row + 1] as usize
            }
        };
        Some(range.filter_map(|item| self.items.get(item)).map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{Int64Builder, LargeListBuilder, ListBuilder, StringBuilder};
    use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int64Array, NullArray, UInt8Array};
    use arrow_schema::Field;
    use std::sync::Arc;

    fn all(array: &dyn Array) -> Vec<Option<&str>> {
        let texts = Texts::of("t", array).unwrap();
        (0..array.len()).map(|row| texts.get(row)).collect()
    }

    #[test]
    fn every_kind_of_text_reads_the_same_sliced_or_not() {
        let rows = [Some("tea"), None, Some(""), Some("a longer text than fits in a view"), Some("tea")];
        let dictionary: DictionaryArray<Int8Type> = rows.into_iter().collect();
        let values: ArrayRef = Arc::new(StringViewArray::from(vec![Some("tea"), None, Some("")]));
        // Null by key, and null by value.
        let nulls = DictionaryArray::new(Int64Array::from(vec![Some(0), None, Some(2), Some(1)]), values);
        let arrays: [&dyn Array; 4] = [
            &StringArray::from(rows.to_vec()),
            &LargeStringArray::from(rows.to_vec()),
            &StringViewArray::from(rows.to_vec()),
            &dictionary,
        ];
        for array in arrays {
            assert_eq!(all(array), rows, "{}", array.data_type());
            assert_eq!(all(&array.slice(1, 3)), rows[1..4], "{}", array.data_type());
        }
        assert_eq!(all(&nulls), [Some("tea"), None, Some(""), None]);
        assert_eq!(all(&NullArray::new(2)), [None, None]);
        let nothing: DictionaryArray<Int8Type> = [None::<&str>, None].into_iter().collect();
        assert_eq!(all(&nothing), [None, None]);
    }

    #[test]
    fn ids_may_be_numbers() {
        let numbers = Int64Array::from(vec![Some(-7), None]);
        let ids = Ids::of("id", &numbers).unwrap();
        assert_eq!((ids.get(0), ids.get(1)), (Some("-7"), None));
        assert_eq!(Ids::of("id", &UInt8Array::from(vec![255])).unwrap().get(0), Some("255"));
        assert_eq!(Ids::of("id", &StringArray::from(vec!["x"])).unwrap().get(0), Some("x"));
    }

    #[test]
    fn lists_are_of_texts_or_numbers() {
        let mut words = ListBuilder::new(StringBuilder::new());
        words.append_value([Some("a"), None, Some("b")]);
        words.append_null();
        words.append_value([None::<&str>; 0]);
        let words = words.finish();
        let lists = Lists::of("l", &words).unwrap();
        let all = [0, 1, 2].map(|row| lists.get(row));
        assert_eq!(all, [Some(vec!["a".to_owned(), "b".to_owned()]), None, Some(vec![])]);
        assert_eq!(Lists::of("l", &words.slice(2, 1)).unwrap().get(0), Some(vec![]));
        let mut numbers = LargeListBuilder::new(Int64Builder::new());
        numbers.append_value([Some(3), Some(4)]);
        let numbers = numbers.finish();
        assert_eq!(Lists::of("l", &numbers).unwrap().get(0).unwrap(), ["3", "4"]);
        assert_eq!(Lists::of("l", &NullArray::new(1)).unwrap().get(0), None);
        let complaint = Lists::of("l", &StringArray::from(vec!["a"])).err().unwrap().to_string();
        assert!(complaint.starts_with("the column \"l\" is of type Utf8, where a list"), "{complaint}");
    }

    #[test]
    fn complaints_name_column_type_and_remedy() {
        let complaint = Texts::of("body", &Float64Array::from(vec![1.0])).err().unwrap().to_string();
        assert!(complaint.starts_with("the column \"body\" is of type Float64, where text"), "{complaint}");
        assert!(complaint.ends_with("cast it to a string"), "{complaint}");
        assert!(Ids::of("id", &Float64Array::from(vec![1.0])).is_err());
        let field = |name: &str| Field::new(name, DataType::Utf8, true);
        let schema = Schema::new(vec![field("a"), field("b"), field("a")]);
        assert_eq!(find_column(&schema, "b"), Ok(Some(1)));
        assert_eq!(find_column(&schema, "c"), Ok(None));
        assert_eq!(column(&schema, "a"), Err(ColumnError::Twice { column: "a".to_owned() }));
        let missing = column(&schema, "text").unwrap_err().to_string();
        assert_eq!(missing, "no column is called \"text\"; there are \"a\", \"b\", \"a\"; name one of them");
    }
}
