//! Arrays that stay in their file: numbers that are looked at where they lie, and read when they are.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::{Pod, bytes_of, cast_slice, pod_read_unaligned, try_cast_slice};
use safetensors::tensor::{Dtype, SafeTensors};

use super::error::ArtifactError;
use crate::storage::Mapped;

/// A kind of number that a file may hold.
pub trait Number: Pod + fmt::Debug + Send + Sync {
    /// Its name in the file.
    const DTYPE: Dtype;
}

impl Number for u8 {
    const DTYPE: Dtype = Dtype::U8;
}

impl Number for u16 {
    const DTYPE: Dtype = Dtype::U16;
}

impl Number for i16 {
    const DTYPE: Dtype = Dtype::I16;
}

impl Number for u32 {
    const DTYPE: Dtype = Dtype::U32;
}

impl Number for u64 {
    const DTYPE: Dtype = Dtype::U64;
}

impl Number for f32 {
    const DTYPE: Dtype = Dtype::F32;
}

/// Numbers as the bytes of a file: where they lie, if this machine writes them the same way.
pub(super) fn to_file<T: Number>(values: &[T]) -> Cow<'_, [u8]> {
    match cfg!(target_endian = "little") {
        true => Cow::Borrowed(cast_slice(values)),
        false => Cow::Owned(values.iter().flat_map(|value| bytes_of(value).iter().rev().copied()).collect()),
    }
}

/// The numbers that bytes of a file are.
fn from_file<T: Number>(bytes: &[u8]) -> Vec<T> {
    let number = |bytes: &[u8]| match cfg!(target_endian = "little") {
        true => pod_read_unaligned(bytes),
        false => pod_read_unaligned(&bytes.iter().rev().copied().collect::<Vec<u8>>()),
    };
    bytes.chunks_exact(size_of::<T>()).map(number).collect()
}

/// Numbers, in memory or in a file.
#[derive(Debug)]
pub enum Array<T: Number> {
    /// In memory.
    Held(Vec<T>),
    /// In a file that is mapped, aligned and in this machine's byte order.
    Mapped {
        /// The file.
        file: Arc<Mapped>,
        /// The bytes.
        bytes: Range<usize>,
        /// What they are.
        kind: PhantomData<T>,
    },
}

impl<T: Number> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Array::Held(values) => values,
            Array::Mapped { file, bytes, .. } => cast_slice(&file[bytes.clone()]),
        }
    }
}

impl<T: Number> From<Vec<T>> for Array<T> {
    fn from(values: Vec<T>) -> Array<T> {
        Array::Held(values)
    }
}

/// The arrays of a file in the safetensors format, which is mapped. Values are what they are: nobody has looked at them.
#[derive(Debug)]
pub struct MappedTensors {
    file: Arc<Mapped>,
    path: PathBuf,
}

impl MappedTensors {
    /// The arrays of a file whose checksum has been found right; `path` is its name in errors.
    pub(super) fn new(file: Mapped, path: PathBuf) -> Result<MappedTensors, ArtifactError> {
        SafeTensors::deserialize(&file)
            .map_err(|error| ArtifactError::Damaged { path: path.clone(), problem: error.to_string() })?;
        Ok(MappedTensors { file: Arc::new(file), path })
    }

    /// The array called `name`.
    ///
    /// # Errors
    /// If there is none, or it holds other numbers.
    pub fn array<T: Number>(&self, name: &str) -> Result<Array<T>, ArtifactError> {
        let damaged = |problem: String| ArtifactError::Damaged {
            path: self.path.clone(),
            problem: format!("{name}: {problem}"),
        };
        let tensors = SafeTensors::deserialize(&self.file).map_err(|error| damaged(error.to_string()))?;
        let view = tensors.tensor(name).map_err(|error| damaged(error.to_string()))?;
        if view.dtype() != T::DTYPE {
            return Err(damaged(format!("holds {:?} instead of {:?}", view.dtype(), T::DTYPE)));
        }
        let data = view.data();
        if cfg!(target_endian = "big") || try_cast_slice::<u8, T>(data).is_err() {
            return Ok(from_file(data).into());
        }
        let start = data.as_ptr() as usize - self.file.as_ptr() as usize;
        let bytes = start..start + data.len();
        Ok(Array::Mapped { file: Arc::clone(&self.file), bytes, kind: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensors::TensorsBuilder;
    use super::*;

    #[test]
    fn arrays_are_read_where_they_lie() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.safetensors");
        let (bytes, shorts): (Vec<u8>, Vec<i16>) = ((0..5).collect(), vec![-300, 7, i16::MIN]);
        let (words, longs, floats) = (vec![1u32 << 31], vec![u64::MAX, 3], vec![0.1f32, f32::NAN]);
        let builder = TensorsBuilder::default()
            .numbers("b", &bytes)
            .numbers("s", &shorts)
            .numbers("w", &words)
            .numbers("l", &longs)
            .numbers("f", &floats);
        std::fs::write(&path, builder.parts().unwrap().concat()).unwrap();
        let tensors = MappedTensors::new(Mapped::open(&path).unwrap(), path.clone()).unwrap();
        assert_eq!(*tensors.array::<u8>("b").unwrap(), bytes[..]);
        assert_eq!(*tensors.array::<i16>("s").unwrap(), shorts[..]);
        assert_eq!(*tensors.array::<u32>("w").unwrap(), words[..]);
        assert_eq!(*tensors.array::<u64>("l").unwrap(), longs[..]);
        let read = tensors.array::<f32>("f").unwrap();
        assert!(matches!(read, Array::Mapped { .. }) && read[0] == 0.1 && read[1].is_nan());
        assert!(tensors.array::<u32>("f").unwrap_err().to_string().contains("F32 instead of U32"));
        assert!(tensors.array::<u32>("x").is_err());
        assert_eq!(from_file::<i16>(&to_file(&shorts)), shorts);
        std::fs::write(&path, b"no tensors").unwrap();
        assert!(MappedTensors::new(Mapped::open(&path).unwrap(), path).is_err());
    }
}
