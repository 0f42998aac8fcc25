//! Arrow files (IPC, also called Feather), block by block.
//!
//! The blocks and buffers that a file says it has are held against its length before anything of them is decoded.

use std::fs::File;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{Block, Message, convert, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, SchemaRef};

use super::error::{Complaint, guarded};
use crate::storage::read_exact_at;

/// How such a file begins, and ends.
pub(super) const MAGIC: &[u8] = b"ARROW1";

/// No buffer is larger once it is unpacked.
const LARGEST_BUFFER: i64 = 1 << 32;

/// Magic number, a footer's length, magic number.
const LEAST: u64 = 8 + 10;

/// An Arrow file whose footer has been read.
pub(super) struct ArrowFile {
    file: File,
    pub(super) schema: SchemaRef,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
    version: arrow_ipc::MetadataVersion,
}

impl ArrowFile {
    /// Whether a file with these last bytes, of this length, was written to its end.
    pub(super) fn is_whole(tail: &[u8], length: u64) -> bool {
        length >= LEAST && tail.ends_with(MAGIC)
    }

    pub(super) fn open(file: File, length: u64) -> Result<ArrowFile, Complaint> {
        guarded(|| {
            let mut tail = [0; 10];
            read_exact_at(&file, &mut tail, length - 10)?;
            let footer_length = read_footer_length(tail)?;
            let start = (length - 10)
                .checked_sub(footer_length as u64)
                .ok_or_else(|| bad("its footer is too long"))?;
            let mut bytes = vec![0; footer_length];
            read_exact_at(&file, &mut bytes, start)?;
            let footer = root_as_footer(&bytes).map_err(|error| bad(&error.to_string()))?;
            let schema = footer.schema().ok_or_else(|| bad("its footer has no schema"))?;
            if !schema.endianness().equals_to_target_endianness() {
                return Err(bad("its numbers are in the byte order of another machine"));
            }
            let schema = Arc::new(convert::try_fb_to_schema(schema)?);
            let dictionaries = footer.dictionaries().into_iter().flatten().copied().collect();
            let batches = footer.recordBatches().into_iter().flatten().copied().collect();
            let arrow = ArrowFile { schema, dictionaries, batches, version: footer.version(), file };
            for block in arrow.dictionaries.iter().chain(&arrow.batches) {
                check_block(block, start)?;
            }
            Ok::<_, ArrowError>(arrow)
        })
    }

    /// How many batches it holds.
    pub(super) fn batches(&self) -> usize {
        self.batches.len()
    }

    /// How many rows a batch has.
    pub(super) fn rows(&self, batch: usize) -> Result<u64, Complaint> {
        guarded(|| {
            let block = &self.batches[batch];
            let mut bytes = vec![0; block.metaDataLength() as usize];
            read_exact_at(&self.file, &mut bytes, block.offset() as u64)?;
            let header =
                message(&bytes)?.header_as_record_batch().ok_or_else(|| bad("it is not a batch of rows"))?;
            u64::try_from(header.length()).map_err(|_| bad("it has less than no rows"))
        })
    }

    /// A decoder of the columns at these positions; `of` is the file's schema.
    pub(super) fn decoder(&self, columns: &[usize]) -> Result<FileDecoder, Complaint> {
        guarded(|| {
            let decoder = FileDecoder::new(self.schema.clone(), self.version);
            let mut decoder = decoder.with_projection(columns.to_vec());
            for block in &self.dictionaries {
                decoder.read_dictionary(block, &self.read(block)?)?;
            }
            Ok::<_, ArrowError>(decoder)
        })
    }

    /// A batch of rows.
    pub(super) fn batch(&self, decoder: &FileDecoder, batch: usize) -> Result<RecordBatch, Complaint> {
        guarded(|| {
            let block = &self.batches[batch];
            let read = decoder.read_record_batch(block, &self.read(block)?)?;
            read.ok_or_else(|| bad("it is not a batch of rows"))
        })
    }

    fn read(&self, block: &Block) -> Result<Buffer, ArrowError> {
        let head = block.metaDataLength() as usize;
        let mut bytes = vec![0; head + block.bodyLength() as usize];
        read_exact_at(&self.file, &mut bytes, block.offset() as u64)?;
        check_buffers(&bytes[..head], &bytes[head..])?;
        Ok(Buffer::from_vec(bytes))
    }
}

/// A block lies before the footer.
fn check_block(block: &Block, end: u64) -> Result<(), ArrowError> {
    let number = |number: i64| u64::try_from(number).ok();
    let parts = [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()].map(number);
    let last = parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part?));
    match last {
        Some(last) if last <= end => Ok(()),
        _ => Err(bad("a block is out of its bounds")),
    }
}

/// The message at the head of a block.
fn message(head: &[u8]) -> Result<Message<'_>, ArrowError> {
    // A continuation marker and a length, or in files of old a length alone, stand before it.
    let start = if head.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let message = head.get(start..).ok_or_else(|| bad("a message is too short"))?;
    root_as_message(message).map_err(|error| bad(&error.to_string()))
}

/// What a message says of its buffers fits the body that follows; the decoder would believe it.
fn check_buffers(head: &[u8], body: &[u8]) -> Result<(), ArrowError> {
    let message = message(head)?;
    let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else {
        return Err(bad("it holds no columns"));
    };
    for buffer in batch.buffers().into_iter().flatten() {
        let range = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes = range.and_then(|(start, length)| body.get(start..start.checked_add(length)?));
        let bytes = bytes.ok_or_else(|| bad("a buffer is out of its bounds"))?;
        if batch.compression().is_some()
            && let Some(unpacked) = bytes.first_chunk::<8>()
            && !(-1..=LARGEST_BUFFER).contains(&i64::from_le_bytes(*unpacked))
        {
            return Err(bad("a buffer is too large"));
        }
    }
    Ok(())
}

fn bad(problem: &str) -> ArrowError {
    ArrowError::ParseError(problem.to_owned())
}
