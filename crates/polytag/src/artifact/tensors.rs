//! Arrays of numbers by name, in the safetensors format.

use std::path::PathBuf;

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

use super::error::ArtifactError;

/// Arrays to be written.
#[derive(Debug, Default)]
pub struct TensorsBuilder<'a> {
    arrays: Vec<(&'a str, Dtype, usize, Vec<u8>)>,
}

impl<'a> TensorsBuilder<'a> {
    /// Adds an array of 32-bit floats.
    pub fn f32(mut self, name: &'a str, values: &[f32]) -> TensorsBuilder<'a> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.arrays.push((name, Dtype::F32, values.len(), bytes));
        self
    }

    /// Adds an array of 64-bit floats.
    pub fn f64(mut self, name: &'a str, values: &[f64]) -> TensorsBuilder<'a> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.arrays.push((name, Dtype::F64, values.len(), bytes));
        self
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, SafeTensorError> {
        let views = self
            .arrays
            .iter()
            .map(|(name, dtype, len, bytes)| Ok((*name, TensorView::new(*dtype, vec![*len], bytes)?)))
            .collect::<Result<Vec<_>, SafeTensorError>>()?;
        safetensors::serialize(views, None)
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

    fn array<const N: usize, T>(
        &self,
        name: &str,
        dtype: Dtype,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, ArtifactError> {
        let damaged = |problem: String| ArtifactError::Damaged {
            path: self.path.clone(),
            problem: format!("{name}: {problem}"),
        };
        let file = SafeTensors::deserialize(&self.bytes).map_err(|error| damaged(error.to_string()))?;
        let view = file.tensor(name).map_err(|error| damaged(error.to_string()))?;
        if view.dtype() != dtype {
            return Err(damaged(format!("holds {:?} instead of {dtype:?}", view.dtype())));
        }
        Ok(view.data().as_chunks::<N>().0.iter().map(|chunk| read(*chunk)).collect())
    }

    fn finite(&self, name: &str, finite: bool) -> Result<(), ArtifactError> {
        if finite {
            return Ok(());
        }
        let problem = format!("{name}: a value is not a finite number");
        Err(ArtifactError::Damaged { path: self.path.clone(), problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: Vec<u8>) -> Result<Tensors, ArtifactError> {
        Tensors::from_bytes(bytes, PathBuf::from("w.safetensors"))
    }

    #[test]
    fn arrays_come_back() {
        let bytes = TensorsBuilder::default().f32("a", &[1.5, -2.0]).f64("b", &[0.1]).to_bytes().unwrap();
        let tensors = read(bytes).unwrap();
        assert_eq!(tensors.f32("a").unwrap(), [1.5, -2.0]);
        assert_eq!(tensors.f64("b").unwrap(), [0.1]);
    }

    #[test]
    fn wrong_types_missing_names_and_nan_are_errors() {
        let bytes = TensorsBuilder::default().f32("a", &[f32::NAN]).to_bytes().unwrap();
        let tensors = read(bytes.clone()).unwrap();
        assert!(tensors.f32("a").unwrap_err().to_string().contains("not a finite number"));
        assert!(tensors.f64("a").is_err());
        assert!(tensors.f32("b").is_err());
        assert!(read(bytes[..bytes.len() - 1].to_vec()).is_err());
    }
}
