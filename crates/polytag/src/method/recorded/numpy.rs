//! Rankings as a sparse matrix that SciPy saved (`scipy.sparse.save_npz`): a zip archive of NumPy arrays, of which the
//! shape, the beginnings of rows, the columns and the values of a CSR matrix are read.
//!
//! Nothing is believed: an array is read no further than the shape allows, and every number is checked before it is a place.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;

use super::rankings::{Rankings, Row};
use super::sparse_text::check_shape;
use crate::data::{DataError, Place};
use crate::storage::StorageError;

const REMEDY: &str = "save it with scipy.sparse.save_npz as a CSR matrix, or write JSON lines";

/// More than the header of a short array takes.
const HEADER: u64 = 1 << 16;

/// The numbers of an array.
enum Numbers {
    Whole(Vec<i64>),
    Real(Vec<f64>),
}

struct Archive<'a> {
    path: &'a Path,
    zip: ZipArchive<BufReader<File>>,
}

/// Reads a matrix; its rows are `documents`.
pub(super) fn read(path: &Path, documents: &[String], rankings: &mut Rankings<'_>) -> Result<(), DataError> {
    let file = File::open(path).map_err(StorageError::io(path, "open"))?;
    let zip = ZipArchive::new(BufReader::new(file)).map_err(|error| malformed(path, error.to_string()))?;
    let mut archive = Archive { path, zip };
    if !archive.bytes("format", HEADER)?.windows(3).any(|window| window == b"csr") {
        return Err(malformed(path, "the matrix is not in CSR form"));
    }
    let shape = archive.whole("shape", 2)?;
    let &[rows, columns] = &shape[..] else { return Err(malformed(path, "the shape is not two numbers")) };
    let size = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    check_shape((size(rows), size(columns)), documents.len(), rankings, Place::file(path))?;
    let ends = archive.whole("indptr", documents.len() + 1)?;
    let entries = ends.last().map_or(0, |last| size(*last));
    if ends.first() != Some(&0)
        || !ends.is_sorted()
        || entries > documents.len().saturating_mul(rankings.labels())
    {
        return Err(malformed(path, "the beginnings of its rows are out of order"));
    }
    let places = archive.whole("indices", entries)?;
    let Numbers::Real(scores) = archive.numbers("data", entries)? else {
        return Err(malformed(path, "its values are whole numbers"));
    };
    for (number, (document, ends)) in documents.iter().zip(ends.windows(2)).enumerate() {
        let mut row = Row::default();
        for at in size(ends[0])..size(ends[1]) {
            let column = size(places[at]);
            if column >= rankings.labels() {
                return Err(malformed(path, format!("row {number} has a score in column {}", places[at])));
            }
            rankings.column(&mut row, column, scores[at], Place::file(path))?;
        }
        rankings.finish(document, row, Place::file(path))?;
    }
    Ok(())
}

impl Archive<'_> {
    /// An array of so many whole numbers.
    fn whole(&mut self, name: &str, count: usize) -> Result<Vec<i64>, DataError> {
        match self.numbers(name, count)? {
            Numbers::Whole(numbers) => Ok(numbers),
            Numbers::Real(_) => Err(malformed(self.path, format!("{name}.npy does not hold whole numbers"))),
        }
    }

    fn numbers(&mut self, name: &str, count: usize) -> Result<Numbers, DataError> {
        let bytes = self.bytes(name, (count as u64).saturating_mul(8).saturating_add(HEADER))?;
        parse(&bytes, count).map_err(|problem| malformed(self.path, format!("{name}.npy: {problem}")))
    }

    /// The content of an array's file, up to a limit.
    fn bytes(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, DataError> {
        let broken = |error: &dyn std::fmt::Display| malformed(self.path, format!("{name}.npy: {error}"));
        let member = self.zip.by_name(&format!("{name}.npy")).map_err(|error| broken(&error))?;
        let mut bytes = Vec::new();
        member.take(limit).read_to_end(&mut bytes).map_err(|error| broken(&error))?;
        Ok(bytes)
    }
}

/// Reads an array of one dimension, of 32 or 64 bits a number, of which there must be `count`.
fn parse(bytes: &[u8], count: usize) -> Result<Numbers, String> {
    let short = || "it is cut short".to_owned();
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("it is no NumPy array")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (length, rest) = match version {
        [1, _] => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        _ => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(short)?;
    let header = String::from_utf8_lossy(header);
    let kind = header.split_once("'descr': '").and_then(|(_, rest)| Some(rest.split_once('\'')?.0));
    let numbers = match kind {
        Some("<i4") => Numbers::Whole(each(data, |bytes| i32::from_le_bytes(bytes).into())),
        Some("<i8") => Numbers::Whole(each(data, i64::from_le_bytes)),
        Some("<f4") => Numbers::Real(each(data, |bytes| f32::from_le_bytes(bytes).into())),
        Some("<f8") => Numbers::Real(each(data, f64::from_le_bytes)),
        _ => return Err(format!("its header is not understood: {}", header.trim_end())),
    };
    let found = match &numbers {
        Numbers::Whole(numbers) => numbers.len(),
        Numbers::Real(numbers) => numbers.len(),
    };
    if found != count {
        return Err(format!("it holds {found} numbers instead of {count}"));
    }
    Ok(numbers)
}

fn each<const N: usize, T>(data: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect()
}

fn malformed(path: &Path, problem: impl Into<String>) -> DataError {
    DataError::Malformed { place: Place::file(path), problem: problem.into(), remedy: REMEDY.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arrays_of_four_kinds_are_read() {
        let array = |kind: &str, data: &[u8]| {
            let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': (2,), }}\n");
            [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
        };
        let whole = |kind: &str, data: &[u8]| match parse(&array(kind, data), 2) {
            Ok(Numbers::Whole(numbers)) => numbers,
            other => panic!("{:?}", other.err()),
        };
        let real = |kind: &str, data: &[u8]| match parse(&array(kind, data), 2) {
            Ok(Numbers::Real(numbers)) => numbers,
            other => panic!("{:?}", other.err()),
        };
        assert_eq!(whole("<i4", &[1, 0, 0, 0, 255, 255, 255, 255]), [1, -1]);
        assert_eq!(whole("<i8", &[7i64.to_le_bytes(), (-7i64).to_le_bytes()].concat()), [7, -7]);
        assert_eq!(real("<f4", &[0.5f32.to_le_bytes(), 2f32.to_le_bytes()].concat()), [0.5, 2.0]);
        assert_eq!(real("<f8", &[0.5f64.to_le_bytes(), 2f64.to_le_bytes()].concat()), [0.5, 2.0]);
        assert!(parse(&array("<i4", &[1, 0, 0, 0]), 2).err().unwrap().contains("1 numbers instead of 2"));
        assert!(parse(&array(">i4", &[0; 8]), 2).err().unwrap().contains("not understood"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), with_magic: bool) {
            let bytes = if with_magic { [b"\x93NUMPY\x01\x00", &bytes[..]].concat() } else { bytes };
            let _ = parse(&bytes, 3);
        }
    }
}
