//! The rows of a file of columns, batch by batch.
//!
//! Only the columns that are asked for are decoded. Memory: of a Parquet file a page a column and a batch of some
//! [`BATCH_BYTES`]; of an Arrow file one of its batches, as its writer made them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileDecoder;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;

use super::error::{Complaint, TableError, guarded};
use super::table::{Source, Table};

/// Rows of a batch at most.
const BATCH_ROWS: usize = 2048;
/// Bytes of a batch, as far as a file says how large its rows are.
const BATCH_BYTES: u64 = 16 << 20;

/// The rows of a table, some at a time. Batches never reach over the end of a row group; where they end does not depend on
/// the row that reading began at.
pub struct Batches {
    table: Table,
    schema: SchemaRef,
    positions: Vec<usize>,
    /// The group that is read, or comes next.
    group: usize,
    /// Rows of that group that are not wanted.
    skip: usize,
    /// Rows of that group that were read, or passed over.
    passed: u64,
    open: Option<Open>,
}

enum Open {
    Parquet(ParquetRecordBatchReader),
    Arrow(Box<FileDecoder>),
    /// What is left of an Arrow batch.
    Rest(Box<FileDecoder>, RecordBatch),
}

impl Table {
    /// The rows from `first` on (from zero), with the columns at these positions only, in the order of the file.
    ///
    /// # Errors
    /// If the file is shorter than that, or does not say how long its parts are.
    pub fn batches(self, columns: &[usize], first: u64) -> Result<Batches, TableError> {
        let (mut group, mut skip) = (0, first);
        while group < self.groups() {
            let rows = self.rows_of(group)?;
            if skip < rows {
                break;
            }
            (group, skip) = (group + 1, skip - rows);
        }
        if group == self.groups() && skip > 0 {
            let short = Complaint::Content(format!("it has {} rows, not {first}", first - skip));
            return Err(short.reading(&self.path, || "its last row group".to_owned()));
        }
        let mut positions = columns.to_vec();
        positions.sort_unstable();
        positions.dedup();
        let schema = self.schema().project(&positions).map_err(Complaint::from);
        let schema =
            schema.map_err(|complaint| complaint.reading(&self.path, || "its columns".to_owned()))?;
        let (schema, skip) = (Arc::new(schema), skip as usize);
        Ok(Batches { table: self, schema, positions, group, skip, passed: 0, open: None })
    }
}

impl Batches {
    /// The columns that are read, in the order of the file.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.table.path
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, TableError> {
        while self.group < self.table.groups() {
            match self.read_group().and_then(|batch| self.as_told(batch)) {
                Ok(Some(batch)) if batch.num_rows() == 0 => {}
                Ok(Some(batch)) => return Ok(Some(batch)),
                Ok(None) => self.end_group()?,
                Err(complaint) => return Err(self.table.damaged(complaint, self.group)),
            }
        }
        Ok(None)
    }

    /// Goes on to the next group, if this one had the rows it was said to have: a column that ends too early would be rows that
    /// nobody misses.
    fn end_group(&mut self) -> Result<(), TableError> {
        let told = self.table.rows_of(self.group)?;
        if self.passed != told {
            let short = format!("it has {} rows, where the file says {told}", self.passed);
            return Err(self.table.damaged(Complaint::Content(short), self.group));
        }
        (self.group, self.passed) = (self.group + 1, 0);
        Ok(())
    }

    /// The batch, if its columns are of the types that the file told when it was opened: whoever reads it relies on that, and
    /// a damaged description can say one thing and lead to another.
    fn as_told(&self, batch: Option<RecordBatch>) -> Result<Option<RecordBatch>, Complaint> {
        let Some(batch) = batch else { return Ok(None) };
        let told = self.schema.fields().iter().map(|field| field.data_type());
        match told.eq(batch.columns().iter().map(|column| column.data_type())) {
            true => Ok(Some(batch)),
            false => Err(Complaint::Content("a column is of another type than the file says".to_owned())),
        }
    }

    /// The next batch of the group; none at its end.
    fn read_group(&mut self) -> Result<Option<RecordBatch>, Complaint> {
        match &self.table.source {
            Source::Parquet(file, metadata) => {
                let mut reader = match self.open.take() {
                    Some(Open::Parquet(reader)) => reader,
                    _ => {
                        let (reader, before) = self.open_group(file, metadata)?;
                        self.skip -= before;
                        self.passed += before as u64;
                        reader
                    }
                };
                let read = guarded(|| reader.next().transpose())?;
                let Some(batch) = read else { return Ok(None) };
                self.open = Some(Open::Parquet(reader));
                self.passed += batch.num_rows() as u64;
                // Reading began at the batch that holds the first row that is wanted.
                let unwanted = self.skip.min(batch.num_rows());
                self.skip -= unwanted;
                Ok(Some(batch.slice(unwanted, batch.num_rows() - unwanted)))
            }
            Source::Arrow(arrow) => {
                let (decoder, batch) = match self.open.take() {
                    Some(Open::Rest(decoder, rest)) => (decoder, rest),
                    Some(Open::Arrow(decoder)) => {
                        let batch = arrow.batch(&decoder, self.group)?;
                        (decoder, batch)
                    }
                    _ => {
                        let decoder = Box::new(arrow.decoder(&self.positions)?);
                        let batch = arrow.batch(&decoder, self.group)?;
                        (decoder, batch)
                    }
                };
                if batch.num_rows() == 0 {
                    self.open = Some(Open::Arrow(decoder));
                    return Ok(None);
                }
                let now = batch.num_rows().min(BATCH_ROWS);
                let rest = batch.slice(now, batch.num_rows() - now);
                self.open = Some(Open::Rest(decoder, rest));
                self.passed += now as u64;
                let unwanted = self.skip.min(now);
                self.skip -= unwanted;
                Ok(Some(batch.slice(unwanted, now - unwanted)))
            }
        }
    }

    /// A reader of the group, from the batch on that holds the first row that is wanted, and how many rows lie before it.
    fn open_group(
        &self,
        file: &File,
        metadata: &ArrowReaderMetadata,
    ) -> Result<(ParquetRecordBatchReader, usize), Complaint> {
        let file = file.try_clone().map_err(Complaint::from)?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), self.positions.iter().copied());
        let batch = batch_rows(metadata.metadata().row_group(self.group), &mask);
        let before = self.skip - self.skip % batch;
        let reader = guarded(|| {
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
                .with_row_groups(vec![self.group])
                .with_projection(mask)
                .with_batch_size(batch)
                .with_offset(before)
                .build()
        })?;
        Ok((reader, before))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            // Nothing behind a damaged part is given out.
            self.group = self.table.groups();
        }
        read.transpose()
    }
}

/// So many rows of the group that a batch of these columns is neither large nor small.
fn batch_rows(group: &RowGroupMetaData, mask: &ProjectionMask) -> usize {
    let columns = group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
    let bytes: u64 = columns
        .map(|(_, column)| {
            let unfolded = column.unencoded_byte_array_data_bytes().unwrap_or(0);
            u64::try_from(column.uncompressed_size().max(unfolded)).unwrap_or(0)
        })
        .fold(0, u64::saturating_add);
    let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
    let row = (bytes / rows).max(1);
    usize::try_from(BATCH_BYTES / row).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS)
}

/// The batches of a Parquet file in memory, all columns, or what is wrong with it.
pub(crate) fn memory_batches(
    file: Bytes,
) -> Result<impl Iterator<Item = Result<RecordBatch, String>>, String> {
    let detail = |complaint: Complaint| match complaint {
        Complaint::Disk(error) => error.to_string(),
        Complaint::Content(detail) => detail,
    };
    let mut reader = guarded(|| ParquetRecordBatchReaderBuilder::try_new(file)?.build()).map_err(detail)?;
    Ok(std::iter::from_fn(move || guarded(|| reader.next().transpose()).map_err(detail).transpose()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Form, JsonRows, TableWriter, join_parquet};
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int64Array, StringArray};
    use arrow_schema::DataType;
    use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
    use proptest::prelude::*;
    use std::fs;
    use std::sync::Arc;

    fn batch(rows: usize) -> RecordBatch {
        let text = |row: usize| Some(format!("text {}", row % 50)).filter(|_| row % 7 != 3);
        let kinds: DictionaryArray<Int32Type> = (0..rows).map(|row| Some(["a", "b"][row % 2])).collect();
        RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64)) as ArrayRef),
            ("text", Arc::new((0..rows).map(text).collect::<StringArray>())),
            ("kind", Arc::new(kinds)),
        ])
        .unwrap()
    }

    /// Writes rows in groups of this size.
    fn write(path: &Path, batch: &RecordBatch, group: usize) {
        let form = Form::from_name(path).unwrap();
        let mut writer = TableWriter::new(File::create(path).unwrap(), path, form, batch.schema()).unwrap();
        for start in (0..batch.num_rows()).step_by(group) {
            writer.write(&batch.slice(start, group.min(batch.num_rows() - start))).unwrap();
            writer.end_group().unwrap();
        }
        writer.finish().unwrap();
    }

    /// The rows from `first` on, as lines, and how many each batch had.
    fn read(path: &Path, columns: &[usize], first: u64) -> Result<(Vec<String>, Vec<usize>), TableError> {
        let (mut lines, mut sizes) = (Vec::new(), Vec::new());
        for batch in Table::open(path)?.batches(columns, first)? {
            let batch = batch?;
            let rows = JsonRows::of(&batch).map_err(TableError::column(path))?;
            for row in 0..batch.num_rows() {
                let mut line = Vec::new();
                rows.write(row, &mut line);
                lines.push(String::from_utf8(line).unwrap());
            }
            sizes.push(batch.num_rows());
        }
        Ok((lines, sizes))
    }

    #[test]
    fn rows_come_out_from_any_row_on_and_batches_end_where_they_did() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["t.parquet", "t.arrow"] {
            let path = dir.path().join(name);
            write(&path, &batch(7000), 3000);
            assert_eq!(Table::open(&path).unwrap().rows().unwrap(), 7000);
            let (all, sizes) = read(&path, &[0, 1, 2], 0).unwrap();
            assert_eq!((all.len(), &sizes[..]), (7000, &[2048, 952, 2048, 952, 1000][..]), "{name}");
            assert_eq!(all[10], r#"{"id":10,"text":null,"kind":"a"}"#);
            for first in [1, 2047, 2048, 2999, 3000, 3001, 6999, 7000] {
                let (rest, sizes) = read(&path, &[2, 0, 1], first).unwrap();
                assert!(rest == all[first as usize..], "{name} from {first}");
                assert!(
                    sizes.is_empty() || [2048, 952, 1000].contains(sizes.last().unwrap()) || sizes.len() == 1
                );
            }
            assert_eq!(
                read(&path, &[1], 6998).unwrap().0,
                [r#"{"text":"text 48"}"#, r#"{"text":"text 49"}"#]
            );
            assert!(read(&path, &[1], 7001).unwrap_err().to_string().contains("it has 7000 rows, not 7001"));
        }
    }

    #[test]
    fn texts_can_be_read_as_views() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        write(&path, &batch(3000), 1000);
        let plain = read(&path, &[0, 1, 2], 0).unwrap().0;
        let mut table = Table::open(&path).unwrap();
        table.view_texts(&[0, 1, 2]).unwrap();
        let batches: Vec<RecordBatch> = table.batches(&[1], 0).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(batches[0].column(0).data_type(), &DataType::Utf8View);
        let mut line = Vec::new();
        JsonRows::of(&batches[2]).unwrap().write(999, &mut line);
        assert!(plain[2999].contains(std::str::from_utf8(&line[1..line.len() - 1]).unwrap()));
    }

    #[test]
    fn files_are_joined_without_being_decoded() {
        let dir = tempfile::tempdir().unwrap();
        let all = batch(500);
        let path = |name: &str| dir.path().join(name);
        let parts = [path("1.parquet"), path("2.parquet"), path("3.parquet")];
        for (part, (start, rows)) in parts.iter().zip([(0, 200), (200, 0), (200, 300)]) {
            write(part, &all.slice(start, rows), 100);
        }
        let joined = path("joined.parquet");
        join_parquet(&parts, File::create(&joined).unwrap(), &joined).unwrap();
        write(&path("whole.parquet"), &all, 100);
        assert_eq!(
            read(&joined, &[0, 1, 2], 0).unwrap(),
            read(&path("whole.parquet"), &[0, 1, 2], 0).unwrap()
        );
        assert_eq!(Table::open(&joined).unwrap().schema(), Table::open(&parts[0]).unwrap().schema());
        join_parquet(&parts[1..2], File::create(&joined).unwrap(), &joined).unwrap();
        assert_eq!(Table::open(&joined).unwrap().rows().unwrap(), 0);
    }

    #[test]
    fn large_rows_come_in_small_batches() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let texts: StringArray = (0..64).map(|row| Some(format!("{row:04}").repeat(1 << 18))).collect();
        write(&path, &RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap(), 64);
        let sizes = read(&path, &[0], 0).unwrap().1;
        assert_eq!(sizes.iter().sum::<usize>(), 64);
        assert!(sizes.iter().all(|rows| *rows <= 16), "{sizes:?}");
    }

    /// Makes a Parquet file say that these row groups have so many rows each.
    fn say_rows(path: &Path, which: std::ops::Range<usize>, rows: i64) {
        let file = File::open(path).unwrap();
        let about = ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
        let mut bytes = fs::read(path).unwrap();
        let footer = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
        bytes.truncate(bytes.len() - 8 - footer);
        let mut about = about.into_builder();
        let mut groups = about.take_row_groups();
        for group in &mut groups[which] {
            *group = group.clone().into_builder().set_num_rows(rows).build().unwrap();
        }
        let about = about.set_row_groups(groups).build();
        ParquetMetaDataWriter::new(&mut bytes, &about).finish().unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_group_that_is_shorter_than_the_file_says_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        write(&path, &batch(300), 100);
        say_rows(&path, 1..2, 150);
        for (columns, first) in [(&[0, 1, 2][..], 0), (&[1], 0), (&[1], 120), (&[1], 220)] {
            let complaint = read(&path, columns, first).unwrap_err().to_string();
            assert!(complaint.contains("t.parquet, row group 2: "), "{complaint}");
        }
        assert_eq!(read(&path, &[1], 250).unwrap().0.len(), 100);
    }

    #[test]
    fn numbers_of_rows_that_no_file_has_are_no_panic() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        write(&path, &batch(400), 100);
        let many = i64::MAX / 4;
        say_rows(&path, 1..4, many);
        assert_eq!(Table::open(&path).unwrap().rows().unwrap(), 100 + 3 * many as u64);
        assert!(read(&path, &[1], 0).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

        #[test]
        fn damage_is_an_error_and_never_a_panic(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
            arrow: bool,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(if arrow { "t.arrow" } else { "t.parquet" });
            write(&path, &batch(300), 100);
            let mut bytes = fs::read(&path).unwrap();
            if let Some(cut) = cut {
                let at = cut.index(bytes.len());
                let tail = bytes[bytes.len() - 8..].to_vec();
                bytes.truncate(at);
                bytes.extend(tail);
            }
            for (place, value) in flips {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            fs::write(&path, bytes).unwrap();
            // Either way: what can be read is read, and what cannot is told.
            drop(read(&path, &[0, 1, 2], 0));
            drop(read(&path, &[1], 150));
        }
    }
}
