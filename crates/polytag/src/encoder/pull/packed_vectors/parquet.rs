//! A Parquet file of one column of texts, without gaps.

use bytes::Bytes;

use crate::columns::{Texts, memory_batches};

/// Calls `each` with the texts of the only column, in order, until it has an objection.
pub(super) fn each_string(
    file: &[u8],
    mut each: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    for batch in memory_batches(Bytes::copy_from_slice(file))? {
        let batch = batch?;
        let [column] = batch.columns() else { return Err("it has other than one column".to_owned()) };
        let texts = Texts::of(batch.schema_ref().field(0).name(), column.as_ref())
            .map_err(|error| error.to_string())?;
        for row in 0..batch.num_rows() {
            each(texts.get(row).ok_or("a text is missing")?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use proptest::prelude::*;

    fn strings(file: &[u8]) -> Result<Vec<String>, String> {
        let mut strings = Vec::new();
        each_string(file, |text| {
            strings.push(text.to_owned());
            Ok(())
        })?;
        Ok(strings)
    }

    #[test]
    fn texts_come_out_in_order_whichever_way_they_are_written() {
        let first = ["the", "tea", "trade", "Größe", "日", "bee", "honey", "rail"].map(str::to_owned);
        let expected: Vec<String> =
            first.into_iter().chain((0..292).map(|number| format!("word{number}"))).collect();
        assert_eq!(strings(sample::WORDS).unwrap(), expected);
        assert_eq!(strings(sample::PLAIN).unwrap(), expected);
    }

    #[test]
    fn gaps_objections_and_other_files_are_errors() {
        assert_eq!(strings(sample::BAD).unwrap_err(), "a text is missing");
        assert_eq!(each_string(sample::PLAIN, |_| Err("no".to_owned())).unwrap_err(), "no");
        for file in [sample::ROWS, b"PAR1", b"PAR1\xff\xff\xff\xffPAR1", b""] {
            assert!(strings(file).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_damage_makes_a_panic(
            place in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(), whole: bool,
        ) {
            for file in [sample::WORDS, sample::PLAIN, sample::BAD] {
                let mut bytes = file.to_vec();
                bytes[place.index(file.len())] = value;
                if !whole {
                    bytes.drain(cut.index(file.len())..);
                    bytes.extend_from_slice(&file[file.len() - 8..]);
                }
                drop(strings(&bytes));
            }
        }
    }
}
