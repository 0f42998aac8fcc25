//! Rows of a sparse matrix that may lie on the disk.
//!
//! Rows are written one after the other and read in runs. Up to a limit they are kept in memory; past it, in a nameless
//! temporary file, which the system takes back when the store is dropped. Who reads does not see the difference, so
//! that what is computed from them is the same.
//!
//! Memory: 8 bytes a row, and 8 an entry up to the limit.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use rayon::prelude::*;

use super::csr::Csr;
use crate::storage::{StorageError, read_exact_at, write_all_at};

/// Of the entries of a row, by rising column, keeps the `most` greatest.
pub(crate) fn keep_greatest(entries: &mut Vec<(u32, f32)>, most: usize) {
    if entries.len() > most {
        entries.select_nth_unstable_by(most.saturating_sub(1), |a, b| {
            b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0))
        });
        entries.truncate(most);
        entries.sort_unstable_by_key(|(column, _)| *column);
    }
}

/// Bytes of an entry.
const ENTRY: usize = size_of::<Entry>();

/// A column and its value, laid out so that runs of them are bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    /// The column.
    pub column: u32,
    /// The value.
    pub value: f32,
}

/// How much of a store may lie in memory, and where the rest goes.
#[derive(Clone, Debug)]
pub struct Room {
    /// Bytes of entries; none for as many as there are.
    pub memory: Option<usize>,
    /// The folder of temporary files.
    pub spool: PathBuf,
}

impl Room {
    /// Room for everything in memory.
    pub fn unlimited() -> Room {
        Room { memory: None, spool: PathBuf::new() }
    }
}

/// Rows in memory or on the disk.
#[derive(Debug)]
pub struct RowStore {
    columns: usize,
    /// The first entry of each row, and how many entries there are.
    starts: Vec<u64>,
    place: Place,
    room: Room,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<Entry>),
    Disk(File),
}

impl RowStore {
    /// A store without rows.
    pub fn new(columns: usize, room: &Room) -> RowStore {
        RowStore { columns, starts: vec![0], place: Place::Memory(Vec::new()), room: room.clone() }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        self.starts[self.rows()]
    }

    /// Whether it has outgrown the memory it was given.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.place, Place::Disk(_))
    }

    /// The entries of a row, by their places among all.
    pub fn range(&self, row: usize) -> Range<u64> {
        self.starts[row]..self.starts[row + 1]
    }

    /// Adds rows: all their entries, and how many each has.
    ///
    /// # Errors
    /// If they do not fit in memory and cannot be written.
    pub fn extend(&mut self, entries: &[Entry], lengths: &[usize]) -> Result<(), StorageError> {
        debug_assert_eq!(entries.len(), lengths.iter().sum::<usize>());
        debug_assert!(entries.iter().all(|entry| (entry.column as usize) < self.columns));
        let end = self.entries();
        if let Place::Memory(held) = &mut self.place {
            if self.room.memory.is_none_or(|most| (held.len() + entries.len()) * ENTRY <= most) {
                held.extend_from_slice(entries);
            } else {
                let file = temporary(&self.room.spool)?;
                write(&file, &self.room.spool, held, 0)?;
                self.place = Place::Disk(file);
            }
        }
        if let Place::Disk(file) = &self.place {
            write(file, &self.room.spool, entries, end)?;
        }
        let mut at = end;
        self.starts.extend(lengths.iter().map(|&length| {
            at += length as u64;
            at
        }));
        Ok(())
    }

    /// The sum of the rows of each group, of which the `most` greatest entries are kept.
    ///
    /// # Errors
    /// If rows lie on the disk and cannot be read.
    pub fn sums(&self, groups: &[Vec<u32>], most: usize) -> Result<Csr, StorageError> {
        let sum = |(sums, used, buffer): &mut (Vec<f32>, Vec<u32>, Vec<Entry>), group: &Vec<u32>| {
            sums.resize(self.columns, 0.0);
            for &row in group {
                for entry in self.read(row as usize..row as usize + 1, buffer)? {
                    let sum = &mut sums[entry.column as usize];
                    if *sum == 0.0 {
                        used.push(entry.column);
                    }
                    *sum += entry.value;
                }
            }
            used.sort_unstable();
            used.dedup();
            let mut sum: Vec<(u32, f32)> =
                used.drain(..).map(|column| (column, std::mem::take(&mut sums[column as usize]))).collect();
            keep_greatest(&mut sum, most);
            Ok(sum)
        };
        let sums: Vec<Vec<(u32, f32)>> =
            groups.par_iter().map_init(Default::default, sum).collect::<Result<_, StorageError>>()?;
        let mut matrix = Csr::empty(self.columns);
        sums.into_iter().for_each(|sum| matrix.push(sum));
        Ok(matrix)
    }

    /// The entries of a run of rows, end to end: where they lie, or read into `buffer`.
    ///
    /// # Errors
    /// If they lie on the disk and cannot be read.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn read<'a>(
        &'a self,
        rows: Range<usize>,
        buffer: &'a mut Vec<Entry>,
    ) -> Result<&'a [Entry], StorageError> {
        let (start, end) = (self.starts[rows.start], self.starts[rows.end]);
        match &self.place {
            Place::Memory(held) => Ok(&held[start as usize..end as usize]),
            Place::Disk(file) => {
                buffer.resize((end - start) as usize, Entry::default());
                read_exact_at(file, cast_slice_mut(buffer), start * ENTRY as u64)
                    .map_err(StorageError::io(&self.room.spool, "read a temporary file in"))?;
                Ok(buffer)
            }
        }
    }
}

fn temporary(spool: &Path) -> Result<File, StorageError> {
    tempfile::tempfile_in(spool).map_err(StorageError::io(spool, "create a temporary file in"))
}

fn write(file: &File, spool: &Path, entries: &[Entry], place: u64) -> Result<(), StorageError> {
    write_all_at(file, cast_slice(entries), place * ENTRY as u64)
        .map_err(StorageError::io(spool, "write a temporary file in"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn memory_and_disk_read_alike(
            rows in prop::collection::vec(prop::collection::vec(-2.0f32..2.0, 0..9), 0..40),
            limit in prop::option::of(0usize..600),
            cut in 0usize..40,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let room = Room { memory: limit, spool: dir.path().to_owned() };
            let (mut limited, mut free) = (RowStore::new(9, &room), RowStore::new(9, &Room::unlimited()));
            for part in rows.chunks(7) {
                let entry = |(column, &value): (usize, &f32)| Entry { column: column as u32, value };
                let entries: Vec<Entry> =
                    part.iter().flat_map(|row| row.iter().enumerate().map(entry)).collect();
                let lengths: Vec<usize> = part.iter().map(Vec::len).collect();
                limited.extend(&entries, &lengths).unwrap();
                free.extend(&entries, &lengths).unwrap();
            }
            let bytes = free.entries() as usize * ENTRY;
            prop_assert_eq!(limited.is_on_disk(), limit.is_some_and(|limit| bytes > limit));
            prop_assert!(!free.is_on_disk());
            let cut = cut.min(rows.len());
            let (mut one, mut two) = (Vec::new(), Vec::new());
            for range in [0..cut, cut..rows.len()] {
                let read = limited.read(range.clone(), &mut one).unwrap();
                prop_assert_eq!(read, free.read(range.clone(), &mut two).unwrap());
                prop_assert_eq!(read.len(), rows[range].iter().map(Vec::len).sum::<usize>());
            }
        }
    }
}
