//! Files of columns: what they say of themselves.
//!
//! The content decides what a file is, not its name. What a file says is held against its length before it is believed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};

use super::arrow::{self, ArrowFile};
use super::error::{Complaint, TableError, guarded};
use super::form::{Form, PARQUET_MAGIC, not_a_table};
use crate::storage::{StorageError, read_exact_at};

/// Magic number, a footer's length, magic number.
const PARQUET_LEAST: u64 = 12;

/// A file of columns whose description has been read.
pub struct Table {
    pub(super) path: PathBuf,
    schema: SchemaRef,
    pub(super) source: Source,
}

/// The open file, and where its parts are.
pub(super) enum Source {
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
        (0..self.groups()).try_fold(0, |sum: u64, group| Ok(sum.saturating_add(self.rows_of(group)?)))
    }

    /// How many row groups, or batches of an Arrow file, it has.
    pub(super) fn groups(&self) -> usize {
        match &self.source {
            Source::Parquet(_, metadata) => metadata.metadata().num_row_groups(),
            Source::Arrow(arrow) => arrow.batches(),
        }
    }

    /// How many rows one of them has, by its own account.
    pub(super) fn rows_of(&self, group: usize) -> Result<u64, TableError> {
        let rows = match &self.source {
            Source::Parquet(_, metadata) => u64::try_from(metadata.metadata().row_group(group).num_rows())
                .map_err(|_| Complaint::Content("it has less than no rows".to_owned())),
            Source::Arrow(arrow) => arrow.rows(group),
        };
        rows.map_err(|complaint| self.damaged(complaint, group))
    }

    /// What is wrong with one of them.
    pub(super) fn damaged(&self, complaint: Complaint, group: usize) -> TableError {
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
}
