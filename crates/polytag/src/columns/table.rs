//! Files of columns, batch by batch.
//!
//! The content decides what a file is, not its name. Only the columns that are asked for are decoded. Memory: of a Parquet
//! file a page a column and a batch of some [`BATCH_BYTES`]; of an Arrow file one of its batches, as its writer made them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileDecoder;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;

use super::arrow::{self, ArrowFile};
use super::error::{Complaint, TableError, guarded};
use crate::storage::{StorageError, read_exact_at};

/// Rows of a batch at most.
const BATCH_ROWS: usize = 2048;
/// Bytes of a batch, as far as a file says how large its rows are.
const BATCH_BYTES: u64 = 16 << 20;

const PARQUET_MAGIC: &[u8] = b"PAR1";
/// Magic number, a footer's length, magic number.
const PARQUET_LEAST: u64 = 12;

/// What kind of file columns lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Parquet, `.parquet`.
    Parquet,
    /// Arrow's own format for files, `.arrow` or `.feather`.
    Arrow,
}

impl Form {
    /// What the name of a file promises.
    pub fn from_name(path: &Path) -> Option<Form> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "parquet" | "pq" => Some(Form::Parquet),
            "arrow" | "feather" | "ipc" => Some(Form::Arrow),
            _ => None,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Form::Parquet => "Parquet",
            Form::Arrow => "Arrow",
        }
    }
}

/// A file of columns whose description has been read.
pub struct Table {
    path: PathBuf,
    schema: SchemaRef,
    source: Source,
}

enum Source {
    Parquet(File, ArrowReaderMetadata),
    Arrow(ArrowFile),
}

impl Table {
    /// Opens the file at `path` and reads what it says of itself.
    ///
    /// # Errors
    /// If it is not there, is something else, is cut short, or makes no sense.
    pub fn open(path: &Path) -> Result<Table, TableError> {
        let file = File::open(path).map_err(StorageError::io(path, "open"))?;
        let about = file.metadata().map_err(StorageError::io(path, "read"))?;
        if about.is_dir() {
            return Err(StorageError::io(path, "read")(std::io::ErrorKind::IsADirectory.into()).into());
        }
        let length = about.len();
        let read = |at: u64, most: u64| {
            let mut bytes = vec![0; most.min(length) as usize];
            read_exact_at(&file, &mut bytes, at).map_err(StorageError::io(path, "read"))?;
            Ok::<_, TableError>(bytes)
        };
        let (head, tail) = (read(0, 8)?, read(length.saturating_sub(6), 6)?);
        let cut = |form: Form| StorageError::Truncated { path: path.to_owned(), format: form.name() };
        let description =
            |complaint: Complaint| complaint.reading(path, || "what it says of itself".to_owned());
        if head.starts_with(PARQUET_MAGIC) {
            if length < PARQUET_LEAST || !tail.ends_with(PARQUET_MAGIC) {
                return Err(cut(Form::Parquet).into());
            }
            let metadata = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))
                .map_err(description)?;
            let schema = metadata.schema().clone();
            return Ok(Table { path: path.to_owned(), schema, source: Source::Parquet(file, metadata) });
        }
        if head.starts_with(arrow::MAGIC) {
            if !ArrowFile::is_whole(&tail, length) {
                return Err(cut(Form::Arrow).into());
            }
            let arrow = ArrowFile::open(file, length).map_err(description)?;
            let schema = arrow.schema.clone();
            return Ok(Table { path: path.to_owned(), schema, source: Source::Arrow(arrow) });
        }
        Err(not_a_table(path, &head))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What kind of file it is.
    pub fn form(&self) -> Form {
        match self.source {
            Source::Parquet(..) => Form::Parquet,
            Source::Arrow(_) => Form::Arrow,
        }
    }

    /// How many rows it has, by its own account.
    ///
    /// # Errors
    /// If the parts of an Arrow file do not say.
    pub fn rows(&self) -> Result<u64, TableError> {
        (0..self.groups()).map(|group| self.rows_of(group)).sum()
    }

    /// How many row groups, or batches of an Arrow file, it has.
    fn groups(&self) -> usize {
        match &self.source {
            Source::Parquet(_, metadata) => metadata.metadata().num_row_groups(),
            Source::Arrow(arrow) => arrow.batches(),
        }
    }

    fn rows_of(&self, group: usize) -> Result<u64, TableError> {
        let rows = match &self.source {
            Source::Parquet(_, metadata) => u64::try_from(metadata.metadata().row_group(group).num_rows())
                .map_err(|_| Complaint::Content("it has less than no rows".to_owned())),
            Source::Arrow(arrow) => arrow.rows(group),
        };
        rows.map_err(|complaint| self.damaged(complaint, group))
    }

    fn damaged(&self, complaint: Complaint, group: usize) -> TableError {
        complaint.reading(&self.path, || match self.form() {
            Form::Parquet => format!("row group {}", group + 1),
            Form::Arrow => format!("batch {}", group + 1),
        })
    }

    /// Has the texts of these columns read where they lie on the file's pages, as views: a column of many equal texts is not
    /// unfolded. Only for columns that are not passed on, as their type changes.
    ///
    /// # Errors
    /// If the file's description makes no sense with that.
    pub fn view_texts(&mut self, columns: &[usize]) -> Result<(), TableError> {
        let Source::Parquet(_, metadata) = &mut self.source else { return Ok(()) };
        if columns.is_empty() {
            return Ok(());
        }
        let viewed = |(position, field): (usize, &Arc<Field>)| {
            let is_text = matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8);
            match is_text && columns.contains(&position) {
                true => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
                false => field.clone(),
            }
        };
        let fields: Vec<Arc<Field>> = self.schema.fields().iter().enumerate().map(viewed).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        let options = ArrowReaderOptions::new().with_schema(schema.clone());
        let again = guarded(|| ArrowReaderMetadata::try_new(metadata.metadata().clone(), options));
        *metadata = again
            .map_err(|complaint| complaint.reading(&self.path, || "what it says of itself".to_owned()))?;
        self.schema = schema;
        Ok(())
    }

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
        let schema = self.schema.project(&positions).map_err(Complaint::from);
        let schema =
            schema.map_err(|complaint| complaint.reading(&self.path, || "its columns".to_owned()))?;
        Ok(Batches {
            table: self,
            schema: Arc::new(schema),
            positions,
            group,
            skip: skip as usize,
            open: None,
        })
    }
}

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
    open: Option<Open>,
}

enum Open {
    Parquet(ParquetRecordBatchReader),
    Arrow(Box<FileDecoder>),
    /// What is left of an Arrow batch.
    Rest(Box<FileDecoder>, RecordBatch),
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
                Ok(None) => self.group += 1,
                Err(complaint) => return Err(self.table.damaged(complaint, self.group)),
            }
        }
        Ok(None)
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
                        reader
                    }
                };
                let read = guarded(|| reader.next().transpose())?;
                let Some(batch) = read else { return Ok(None) };
                self.open = Some(Open::Parquet(reader));
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
        .sum();
    let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
    let row = (bytes / rows).max(1);
    usize::try_from(BATCH_BYTES / row).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS)
}

/// What a file is that is neither Parquet nor Arrow.
fn not_a_table(path: &Path, head: &[u8]) -> TableError {
    let expected = Form::from_name(path).map_or("Parquet or Arrow", Form::name);
    let (found, remedy) = if head.is_empty() {
        ("it is empty", "write it again")
    } else if PARQUET_MAGIC.starts_with(head) || arrow::MAGIC.starts_with(head) {
        return StorageError::Truncated { path: path.to_owned(), format: expected }.into();
    } else if head.starts_with(b"PARE") {
        ("it is Parquet with an encrypted footer", "decrypt it first")
    } else if head.starts_with(&[0xff; 4]) {
        ("it looks like an Arrow stream", "write it in Arrow's format for files, or as Parquet")
    } else if head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        ("it is compressed as a whole", "unpack it; such files are packed column by column")
    } else {
        ("it does not start like one", "check what it is, and name it so")
    };
    TableError::NotATable { path: path.to_owned(), expected, found, remedy }
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
    use crate::columns::{JsonRows, TableWriter, join_parquet};
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int64Array, StringArray};
    use proptest::prelude::*;
    use std::fs;

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
