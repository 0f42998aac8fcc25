//! Arrays of numbers by name, in the safetensors format.

use std::borrow::Cow;
use std::path::PathBuf;

use half::f16;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors, TensorInfo, TensorView};

use super::array::{Number, to_file};
use super::error::ArtifactError;
use crate::index::Rows;

/// Arrays to be written. They stay where they are: nothing is copied on the way to the disk.
#[derive(Debug, Default)]
pub struct TensorsBuilder<'a> {
    arrays: Vec<Array<'a>>,
    /// Whether the first array begins at a cache line.
    aligned: bool,
}

#[derive(Debug)]
struct Array<'a> {
    name: &'a str,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl<'a> TensorsBuilder<'a> {
    /// The same, where the first array, of those of the widest numbers, begins at a whole multiple of 64 bytes.
    pub fn aligned(self) -> TensorsBuilder<'a> {
        TensorsBuilder { aligned: true, ..self }
    }

    /// Adds an array of 32-bit floats.
    pub fn f32(self, name: &'a str, values: &'a [f32]) -> TensorsBuilder<'a> {
        self.array(name, Dtype::F32, vec![values.len()], little_endian(values, |value| value.to_le_bytes()))
    }

    /// Adds an array of 64-bit floats.
    pub fn f64(self, name: &'a str, values: &'a [f64]) -> TensorsBuilder<'a> {
        self.array(name, Dtype::F64, vec![values.len()], little_endian(values, |value| value.to_le_bytes()))
    }

    /// Adds an array of numbers of any kind.
    pub fn numbers<T: Number>(self, name: &'a str, values: &'a [T]) -> TensorsBuilder<'a> {
        self.array(name, T::DTYPE, vec![values.len()], to_file(values))
    }

    /// Adds vectors of `dim` numbers each, as they are kept.
    ///
    /// # Panics
    /// When they are not whole vectors.
    pub fn rows(self, name: &'a str, dim: usize, rows: &'a Rows) -> TensorsBuilder<'a> {
        assert!(dim > 0 && rows.len().is_multiple_of(dim), "whole vectors");
        let (dtype, bytes) = match rows {
            Rows::F32(values) => (Dtype::F32, little_endian(values, |value| value.to_le_bytes())),
            Rows::F16(values) => (Dtype::F16, little_endian(values, |value: f16| value.to_le_bytes())),
        };
        self.array(name, dtype, vec![rows.len() / dim, dim], bytes)
    }

    fn array(mut self, name: &'a str, dtype: Dtype, shape: Vec<usize>, bytes: Cow<'a, [u8]>) -> Self {
        self.arrays.push(Array { name, dtype, shape, bytes });
        self
    }

    /// The content of the file, in the parts that it is put together from.
    pub(super) fn parts(&self) -> Result<Vec<Cow<'_, [u8]>>, SafeTensorError> {
        let mut arrays: Vec<&Array<'_>> = self.arrays.iter().collect();
        // The widest first, so that each array is aligned.
        arrays.sort_by(|a, b| b.dtype.cmp(&a.dtype).then(a.name.cmp(b.name)));
        let mut end = 0;
        let infos = arrays.iter().map(|array| {
            let start = end;
            end += array.bytes.len();
            let shape = array.shape.clone();
            (array.name.to_owned(), TensorInfo { dtype: array.dtype, shape, data_offsets: (start, end) })
        });
        let mut header = serde_json::to_vec(&Metadata::new(None, infos.collect())?)?;
        let before = size_of::<u64>();
        let end = (before + header.len()).next_multiple_of(if self.aligned { 64 } else { before });
        header.resize(end - before, b' ');
        let length = (header.len() as u64).to_le_bytes();
        let head = [&length[..], &header].concat();
        let data = arrays.iter().map(|array| Cow::Borrowed(&*array.bytes));
        Ok(std::iter::once(Cow::Owned(head)).chain(data).collect())
    }
}

/// Numbers as the bytes of a file: where they lie, if this machine writes them the same way.
fn little_endian<T: bytemuck::Pod, const N: usize>(values: &[T], write: fn(T) -> [u8; N]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(values))
    } else {
        Cow::Owned(values.iter().flat_map(|value| write(*value)).collect())
    }
}

/// Arrays that were read, their shapes checked and their values finite.
#[derive(Debug)]
pub struct Tensors {
    bytes: Vec<u8>,
    path: PathBuf,
}

impl Tensors {
    /// Reads the content of a file; `path` is its name in errors.
    pub fn from_bytes(bytes: Vec<u8>, path: PathBuf) -> Result<Tensors, ArtifactError> {
        SafeTensors::deserialize(&bytes)
            .map_err(|error| ArtifactError::Damaged { path: path.clone(), problem: error.to_string() })?;
        Ok(Tensors { bytes, path })
    }

    /// Whether there is an array called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.view(name).is_ok()
    }

    /// The array of 32-bit floats called `name`.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, ArtifactError> {
        let values: Vec<f32> = self.array(name, Dtype::F32, f32::from_le_bytes)?;
        self.finite(name, values.iter().all(|value| value.is_finite()))?;
        Ok(values)
    }

    /// The array of 64-bit floats called `name`.
    pub fn f64(&self, name: &str) -> Result<Vec<f64>, ArtifactError> {
        let values: Vec<f64> = self.array(name, Dtype::F64, f64::from_le_bytes)?;
        self.finite(name, values.iter().all(|value| value.is_finite()))?;
        Ok(values)
    }

    /// The vectors called `name`, and how many numbers each has. They may hold any number.
    pub fn rows(&self, name: &str) -> Result<(usize, Rows), ArtifactError> {
        let view = self.view(name)?;
        let &[_, dim @ (1..)] = view.shape() else {
            return Err(self.damaged(name, format!("has the shape {:?}, which is not vectors", view.shape())));
        };
        let rows = match view.dtype() {
            Dtype::F32 => Rows::F32(numbers(&view, f32::from_le_bytes).into()),
            Dtype::F16 => Rows::F16(numbers(&view, f16::from_le_bytes).into()),
            other => return Err(self.damaged(name, format!("holds {other:?} instead of F32 or F16"))),
        };
        Ok((dim, rows))
    }

    fn array<const N: usize, T>(
        &self,
        name: &str,
        dtype: Dtype,
        read: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, ArtifactError> {
        let view = self.view(name)?;
        if view.dtype() != dtype {
            return Err(self.damaged(name, format!("holds {:?} instead of {dtype:?}", view.dtype())));
        }
        Ok(numbers(&view, read))
    }

    fn view(&self, name: &str) -> Result<TensorView<'_>, ArtifactError> {
        let file = SafeTensors::deserialize(&self.bytes).map_err(|error| self.damaged(name, error))?;
        file.tensor(name).map_err(|error| self.damaged(name, error))
    }

    fn finite(&self, name: &str, finite: bool) -> Result<(), ArtifactError> {
        if finite { Ok(()) } else { Err(self.damaged(name, "a value is not a finite number")) }
    }

    fn damaged(&self, name: &str, problem: impl std::fmt::Display) -> ArtifactError {
        ArtifactError::Damaged { path: self.path.clone(), problem: format!("{name}: {problem}") }
    }
}

fn numbers<const N: usize, T>(view: &TensorView<'_>, read: fn([u8; N]) -> T) -> Vec<T> {
    view.data().as_chunks::<N>().0.iter().map(|chunk| read(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(builder: &TensorsBuilder<'_>) -> Vec<u8> {
        builder.parts().unwrap().concat()
    }

    fn read(bytes: Vec<u8>) -> Result<Tensors, ArtifactError> {
        Tensors::from_bytes(bytes, PathBuf::from("w.safetensors"))
    }

    #[test]
    fn arrays_come_back() {
        let bytes = bytes(&TensorsBuilder::default().f32("a", &[1.5, -2.0]).f64("b", &[0.1]));
        let tensors = read(bytes).unwrap();
        assert_eq!(tensors.f32("a").unwrap(), [1.5, -2.0]);
        assert_eq!(tensors.f64("b").unwrap(), [0.1]);
    }

    #[test]
    fn wrong_types_missing_names_and_nan_are_errors() {
        let bytes = bytes(&TensorsBuilder::default().f32("a", &[f32::NAN]));
        let tensors = read(bytes.clone()).unwrap();
        assert!(tensors.f32("a").unwrap_err().to_string().contains("not a finite number"));
        assert!(tensors.f64("a").is_err());
        assert!(tensors.f32("b").is_err());
        assert!(read(bytes[..bytes.len() - 1].to_vec()).is_err());
    }

    #[test]
    fn vectors_come_back_as_they_were_kept() {
        let wide = Rows::F32(vec![1.5, -2.0, 0.1, 4.0, 5.0, 6.0].into());
        let narrow = Rows::F16([0.1, 65504.0, -1e-7, 0.0].map(f16::from_f32).to_vec().into());
        let none = Rows::F16(Vec::new().into());
        let builder = TensorsBuilder::default().rows("n", 2, &narrow).rows("w", 3, &wide).rows("o", 7, &none);
        let tensors = read(bytes(&builder.f64("b", &[0.1]))).unwrap();
        assert_eq!(tensors.rows("w").unwrap(), (3, wide));
        assert_eq!(tensors.rows("n").unwrap(), (2, narrow));
        assert_eq!(tensors.rows("o").unwrap(), (7, none));
        assert!(tensors.rows("b").unwrap_err().to_string().contains("which is not vectors"));
        assert!(tensors.rows("x").is_err());
    }

    #[test]
    fn files_are_those_that_the_safetensors_crate_writes() {
        let narrow = Rows::F16([0.5, 1.0, 2.0].map(f16::from_f32).to_vec().into());
        let ours = TensorsBuilder::default()
            .rows("h", 3, &narrow)
            .f32("b", &[2.0])
            .f32("a", &[1.0])
            .f64("z", &[0.1]);
        let views = ours.arrays.iter().map(|array| {
            (array.name, TensorView::new(array.dtype, array.shape.clone(), &array.bytes).unwrap())
        });
        assert_eq!(bytes(&ours), safetensors::serialize(views, None).unwrap());
    }
}
