//! Files of columns, row group by row group.
//!
//! Parquet is packed with zstd, Arrow with lz4, as their own writers do by default. Memory: a row group as it will be
//! written; whoever writes says where one ends.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use arrow_select::take::take;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::error::{Complaint, TableError, guarded};
use super::form::Form;
use crate::storage::StorageError;

/// A file of columns being written.
pub struct TableWriter<W: Write + Send> {
    path: PathBuf,
    out: Out<W>,
}

enum Out<W: Write + Send> {
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<FileWriter<W>>, SchemaRef),
}

impl<W: Write + Send> TableWriter<W> {
    /// Starts a file of this form and schema; `path` is what errors call it.
    ///
    /// # Errors
    /// If the disk refuses, or the format has no place for a column.
    pub fn new(out: W, path: &Path, form: Form, schema: SchemaRef) -> Result<TableWriter<W>, TableError> {
        let failed = |complaint: Complaint| complaint.writing(path, form.name());
        let out = match form {
            Form::Parquet => {
                let writer = ArrowWriter::try_new(out, schema, Some(properties()));
                Out::Parquet(Box::new(writer.map_err(|error| failed(error.into()))?))
            }
            Form::Arrow => {
                let schema = Arc::new(unfolded(&schema));
                let options =
                    IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
                let writer =
                    options.and_then(|options| FileWriter::try_new_with_options(out, &schema, options));
                Out::Arrow(Box::new(writer.map_err(|error| failed(error.into()))?), schema)
            }
        };
        Ok(TableWriter { path: path.to_owned(), out })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), TableError> {
        let written = match &mut self.out {
            Out::Parquet(writer) => writer.write(batch).map_err(Complaint::from),
            Out::Arrow(writer, schema) => {
                unfold(batch, schema).and_then(|batch| writer.write(&batch)).map_err(Complaint::from)
            }
        };
        written.map_err(|complaint| complaint.writing(&self.path, self.name()))
    }

    /// Ends a row group, where the format has them.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn end_group(&mut self) -> Result<(), TableError> {
        let ended = match &mut self.out {
            Out::Parquet(writer) => writer.flush(),
            Out::Arrow(..) => Ok(()),
        };
        ended.map_err(|error| Complaint::from(error).writing(&self.path, self.name()))
    }

    /// Writes what is left and what the file says of itself.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn finish(mut self) -> Result<(), TableError> {
        let finished = match &mut self.out {
            Out::Parquet(writer) => writer.finish().map(drop).map_err(Complaint::from),
            Out::Arrow(writer, _) => {
                let finished = writer.finish();
                finished.and_then(|()| Ok(writer.get_mut().flush()?)).map_err(Complaint::from)
            }
        };
        finished.map_err(|complaint| complaint.writing(&self.path, self.name()))
    }

    fn name(&self) -> &'static str {
        match self.out {
            Out::Parquet(_) => Form::Parquet.name(),
            Out::Arrow(..) => Form::Arrow.name(),
        }
    }
}

/// The schema with the values of dictionaries in their place: an Arrow file has room for one dictionary a column, and rows of
/// several files, or row groups, bring one each.
fn unfolded(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Dictionary(_, values) => {
            Arc::new(field.as_ref().clone().with_data_type(values.as_ref().clone()))
        }
        _ => field.clone(),
    });
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

fn unfold(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(|column| match column.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values().as_ref(), dictionary.keys(), None),
        None => Ok(column.clone()),
    });
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<Vec<_>, _>>()?)
}

fn properties() -> WriterProperties {
    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build()
}

/// Puts Parquet files of one schema together, one behind the other. Row groups are copied as they are, without being
/// decoded. `path` is what errors call the target; there must be a part.
///
/// # Errors
/// If a part cannot be read, or the disk refuses.
pub fn join_parquet(parts: &[PathBuf], out: impl Write + Send, path: &Path) -> Result<(), TableError> {
    let mut out = Some(out);
    let mut writer = None;
    for part in parts {
        let file = File::open(part).map_err(StorageError::io(part, "open"))?;
        let about = guarded(|| {
            ParquetMetaDataReader::new()
                .with_page_index_policy(PageIndexPolicy::Optional)
                .parse_and_finish(&file)
        });
        let about =
            about.map_err(|complaint| complaint.reading(part, || "what it says of itself".to_owned()))?;
        let written = (|| {
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(begin(out.take().expect("there is one writer"), &about)?),
            };
            append(writer, &file, &about)
        })();
        written.map_err(|error: ParquetError| Complaint::from(error).writing(path, Form::Parquet.name()))?;
    }
    let writer = writer.expect("there is a part");
    let closed = writer.into_inner().and_then(|mut out| out.flush().map_err(ParquetError::from));
    closed.map_err(|error| Complaint::from(error).writing(path, Form::Parquet.name()))
}

/// A writer of what the first part says of itself.
fn begin<W: Write + Send>(out: W, about: &ParquetMetaData) -> Result<SerializedFileWriter<W>, ParquetError> {
    let description = about.file_metadata();
    let notes = description.key_value_metadata().cloned();
    let properties = WriterProperties::builder().set_key_value_metadata(notes).build();
    SerializedFileWriter::new(out, description.schema_descr().root_schema_ptr(), Arc::new(properties))
}

fn append<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    file: &File,
    about: &ParquetMetaData,
) -> Result<(), ParquetError> {
    let pages = about.page_index();
    for (number, group) in about.row_groups().iter().enumerate() {
        let mut joined = writer.next_row_group()?;
        for (leaf, column) in group.columns().iter().enumerate() {
            let copied = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: pages.and_then(|pages| pages.column_index(number, leaf)).cloned(),
                offset_index: pages.and_then(|pages| pages.offset_index(number, leaf)).cloned(),
            };
            joined.append_column(file, copied)?;
        }
        joined.close()?;
    }
    Ok(())
}
