//! Writing a safetensors file, one tensor at a time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::json;

use super::header::LENGTH_BYTES;
use crate::error::Error;

/// A tensor to be written, as `F32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTensor {
    /// Its name.
    pub name: String,
    /// Its size in each direction.
    pub shape: Vec<usize>,
}

impl NewTensor {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Writes tensors in the order they are named; `values` gives those of the tensor at an index and is
/// asked once for each, in order. The file is on the disk when this returns.
///
/// The header says `{"format": "pt"}`, without which Python's transformers refuse a file.
///
/// # Panics
/// If there are not as many values as the shape says, or two tensors have one name.
pub fn write(
    path: &Path,
    tensors: &[NewTensor],
    mut values: impl FnMut(usize) -> Result<Vec<f32>, Error>,
) -> Result<(), Error> {
    let mut names: Vec<_> = tensors.iter().map(|tensor| &tensor.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "every tensor has a name of its own");
    let mut header = serde_json::to_vec(&Header(tensors)).expect("names and numbers can be written as JSON");
    // Values begin at a multiple of eight bytes, so that readers may map the file.
    header.resize(header.len().next_multiple_of(LENGTH_BYTES as usize), b' ');
    let file = File::create(path).map_err(Error::io(path, "create"))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut put = |bytes: &[u8]| out.write_all(bytes).map_err(Error::io(path, "write"));
    put(&(header.len() as u64).to_le_bytes())?;
    put(&header)?;
    for (index, tensor) in tensors.iter().enumerate() {
        let values = values(index)?;
        assert_eq!(values.len(), tensor.len(), "{} has as many values as places", tensor.name);
        for chunk in values.chunks(1 << 16) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.to_le_bytes()).collect();
            put(&bytes)?;
        }
    }
    let file = out.into_inner().map_err(|failed| Error::io(path, "write")(failed.into_error()))?;
    file.sync_all().map_err(Error::io(path, "write"))
}

/// The header's object, in the order the tensors lie.
struct Header<'a>(&'a [NewTensor]);

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len() + 1))?;
        map.serialize_entry("__metadata__", &json!({"format": "pt"}))?;
        let mut begin = 0;
        for tensor in self.0 {
            let end = begin + 4 * tensor.len();
            map.serialize_entry(
                &tensor.name,
                &json!({"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end]}),
            )?;
            begin = end;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::WeightFile;

    #[test]
    fn the_reference_reads_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let tensors = [
            NewTensor { name: "z".to_owned(), shape: vec![2, 3] },
            NewTensor { name: "a \"quoted\"".to_owned(), shape: vec![1] },
        ];
        let values = [vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![-0.5]];
        write(&path, &tensors, |index| Ok(values[index].clone())).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let reference = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(reference.tensor("z").unwrap().shape(), [2, 3]);
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
        let ours = WeightFile::open(&path).unwrap();
        assert_eq!(ours.read("z").unwrap(), values[0]);
        assert_eq!(ours.read("a \"quoted\"").unwrap(), values[1]);
    }
}
