//! A matrix of 32-bit numbers as NumPy writes it (NEP 1): a magic number, a header that is a Python literal, the
//! values, row by row or column by column.

/// A matrix, its rows end to end.
pub(super) struct Matrix {
    pub(super) columns: usize,
    pub(super) values: Vec<f32>,
}

/// Reads the content of an `.npy` file. Memory: the values once more.
pub(super) fn read(bytes: &[u8]) -> Result<Matrix, String> {
    let short = || "it is cut short".to_owned();
    let rest = bytes.strip_prefix(b"\x93NUMPY\x01\x00").ok_or("it is not a NumPy file of version 1")?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (header, data) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or_else(short)?;
    let header = std::str::from_utf8(header).map_err(|error| error.to_string())?;
    let unknown = || format!("its header is not understood: {}", header.trim_end());
    if field(header, "descr") != Some("'<f4'") {
        return Err(unknown());
    }
    let by_column = match field(header, "fortran_order") {
        Some("True") => true,
        Some("False") => false,
        _ => return Err(unknown()),
    };
    let (rows, columns) = header
        .split_once("'shape': (")
        .and_then(|(_, rest)| rest.split_once(')')?.0.split_once(", "))
        .and_then(|(rows, columns)| Some((rows.parse::<usize>().ok()?, columns.parse::<usize>().ok()?)))
        .ok_or_else(unknown)?;
    let (numbers, odd) = data.as_chunks::<4>();
    if !odd.is_empty() || rows.checked_mul(columns) != Some(numbers.len()) {
        return Err(format!("{} bytes are not {rows} x {columns} numbers", data.len()));
    }
    let number = |place: usize| f32::from_le_bytes(numbers[place]);
    let values = match by_column {
        true => {
            (0..rows).flat_map(|row| (0..columns).map(move |column| number(column * rows + row))).collect()
        }
        false => (0..numbers.len()).map(number).collect(),
    };
    Ok(Matrix { columns, values })
}

/// What stands behind a name in the header, up to the next comma.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{name}': "))?;
    Some(rest.split_once(',')?.0)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_come_out_however_they_lay() {
        let (by_column, by_row) = (read(sample::COLUMNS).unwrap(), read(sample::ROWS).unwrap());
        assert_eq!((by_column.columns, by_row.columns), (3, 3));
        assert!((0..900).all(|place| by_column.values[place] == place as f32 / 8.0));
        assert_eq!(by_row.values, by_column.values[..12]);
    }

    #[test]
    fn what_is_not_understood_is_told() {
        let with = |from: &str, to: &str| {
            let at = sample::ROWS.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            let mut bytes = sample::ROWS.to_vec();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            read(&bytes).err().unwrap()
        };
        assert!(with("<f4", "<f8").contains("not understood"));
        assert!(with("False", "Maybe").contains("not understood"));
        assert!(with("(4, 3)", "(4, 4)").contains("not 4 x 4 numbers"));
        assert!(with("(4, 3)", "(4,3,)").contains("not understood"));
        assert!(read(&sample::ROWS[..sample::ROWS.len() - 1]).err().unwrap().contains("not 4 x 3 numbers"));
        assert!(read(&sample::ROWS[..50]).err().unwrap().contains("cut short"));
        assert!(read(b"PAR1").err().unwrap().contains("not a NumPy file"));
    }

    proptest! {
        #[test]
        fn no_damage_makes_a_panic(place in 0..sample::ROWS.len(), value in any::<u8>(), length in 0_usize..200) {
            let mut bytes = sample::ROWS.to_vec();
            bytes[place] = value;
            bytes.truncate(length);
            drop(read(&bytes));
        }
    }
}
