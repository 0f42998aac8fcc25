//! Arrays that stay in their file: numbers that are looked at where they lie, and read when they are.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::{Pod, bytes_of, cast_slice, pod_read_unaligned};
use half::f16;
use safetensors::tensor::{Dtype, SafeTensors};

use super::error::ArtifactError;
use crate::index::Rows;
use crate::storage::{Array, Mapped};

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

impl Number for f16 {
    const DTYPE: Dtype = Dtype::F16;
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
        Ok(self.where_it_lies(view.data()))
    }

    /// The vectors called `name`, and how many numbers each has. They may hold any number.
    ///
    /// # Errors
    /// If there are none, or they are kept as nothing that is known.
    pub fn rows(&self, name: &str) -> Result<(usize, Rows), ArtifactError> {
        let damaged = |problem: String| ArtifactError::Damaged {
            path: self.path.clone(),
            problem: format!("{name}: {problem}"),
        };
        let tensors = SafeTensors::deserialize(&self.file).map_err(|error| damaged(error.to_string()))?;
        let view = tensors.tensor(name).map_err(|error| damaged(error.to_string()))?;
        let &[_, dim @ (1..)] = view.shape() else {
            return Err(damaged(format!("has the shape {:?}, which is not vectors", view.shape())));
        };
        let rows = match view.dtype() {
            Dtype::F32 => Rows::F32(self.where_it_lies(view.data())),
            Dtype::F16 => Rows::F16(self.where_it_lies(view.data())),
            other => return Err(damaged(format!("holds {other:?} instead of F32 or F16"))),
        };
        Ok((dim, rows))
    }

    /// Whether there is an array called `name`.
    pub fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.file).is_ok_and(|tensors| tensors.tensor(name).is_ok())
    }

    fn where_it_lies<T: Number>(&self, data: &[u8]) -> Array<T> {
        let start = data.as_ptr() as usize - self.file.as_ptr() as usize;
        Array::mapped(&self.file, start..start + data.len()).unwrap_or_else(|| from_file(data).into())
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
