//! One safetensors file: the header is read and checked when it is opened, values when asked for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};

use super::header::{self, LENGTH_BYTES, LONGEST_HEADER, TensorInfo};
use crate::error::Error;

/// How many bytes are turned into numbers at a time.
const CHUNK: usize = 1 << 20;

/// A safetensors file whose header has been checked.
pub struct WeightFile {
    path: PathBuf,
    file: Mutex<File>,
    data_start: u64,
    tensors: BTreeMap<String, TensorInfo>,
}

impl WeightFile {
    /// Opens a file and checks its header against its length.
    pub fn open(path: &Path) -> Result<WeightFile, Error> {
        let mut file = File::open(path).map_err(Error::io(path, "open"))?;
        let length = file.metadata().map_err(Error::io(path, "read"))?.len();
        let mut prefix = [0; LENGTH_BYTES as usize];
        if length < LENGTH_BYTES {
            return Err(Error::file(path, format!("is cut short: {length} bytes are no safetensors file")));
        }
        file.read_exact(&mut prefix).map_err(Error::io(path, "read"))?;
        let header_length = u64::from_le_bytes(prefix);
        if header_length > length - LENGTH_BYTES {
            return Err(Error::file(
                path,
                format!(
                    "says that its header has {header_length} bytes, but the file has only {length}; it is cut \
                     short or not a safetensors file"
                ),
            ));
        }
        if header_length > LONGEST_HEADER {
            let problem = format!("has a header of {header_length} bytes; at most {LONGEST_HEADER} are read");
            return Err(Error::file(path, problem));
        }
        let mut json = vec![0; header_length as usize];
        file.read_exact(&mut json).map_err(Error::io(path, "read"))?;
        let data_start = LENGTH_BYTES + header_length;
        let tensors =
            header::parse(&json, length - data_start).map_err(|problem| Error::file(path, problem))?;
        Ok(WeightFile { path: path.to_owned(), file: Mutex::new(file), data_start, tensors })
    }

    /// The tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The values of a tensor of floating-point numbers.
    pub fn read(&self, name: &str) -> Result<Vec<f32>, Error> {
        let problem = |text: String| Error::file(&self.path, format!("tensor {name} {text}"));
        let info = self.tensors.get(name).ok_or_else(|| problem("is not there".to_owned()))?;
        let decode: fn(&[u8], &mut Vec<f32>) = match info.dtype.as_str() {
            "F32" => |bytes, values| {
                values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
            },
            "F16" => |bytes, values| {
                values.extend(bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()))
            },
            "BF16" => |bytes, values| {
                values.extend(bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()))
            },
            other => return Err(problem(format!("is made of {other}; only F32, F16 and BF16 can be read"))),
        };
        let (begin, end) = info.bytes;
        let mut values = Vec::with_capacity(info.len());
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.data_start + begin)).map_err(Error::io(&self.path, "read"))?;
        let mut left = (end - begin) as usize;
        let mut chunk = vec![0; left.min(CHUNK)];
        while left > 0 {
            let part = &mut chunk[..left.min(CHUNK)];
            file.read_exact(part).map_err(Error::io(&self.path, "read"))?;
            decode(part, &mut values);
            left -= part.len();
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(place) => Err(problem(format!("holds {} at place {place}", values[place]))),
            None => Ok(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use proptest::prelude::*;
    use safetensors::tensor::{Dtype, TensorView, serialize};

    /// A file with this header and data.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn open(bytes: &[u8]) -> (tempfile::TempDir, Result<WeightFile, Error>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hostile.safetensors");
        fs::write(&path, bytes).unwrap();
        let opened = WeightFile::open(&path);
        (folder, opened)
    }

    fn problem(bytes: &[u8]) -> String {
        let text = open(bytes).1.err().unwrap().to_string();
        assert!(text.contains("hostile.safetensors"), "{text}");
        text
    }

    #[test]
    fn every_float_type_is_read_as_the_reference_writes_it() {
        let values = [1.5_f32, -2.0, 0.25];
        let f32s: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let f16s: Vec<u8> = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
        let bf16s: Vec<u8> = values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
        let view = |dtype, bytes| TensorView::new(dtype, vec![3], bytes).unwrap();
        let tensors = [
            ("f32", view(Dtype::F32, &f32s)),
            ("f16", view(Dtype::F16, &f16s)),
            ("bf16", view(Dtype::BF16, &bf16s)),
            ("i32", view(Dtype::I32, &f32s)),
        ];
        let (_folder, opened) = open(&serialize(tensors, None).unwrap());
        let weights = opened.unwrap();
        for name in ["f32", "f16", "bf16"] {
            assert_eq!(weights.read(name).unwrap(), values);
        }
        let error = weights.read("i32").unwrap_err().to_string();
        assert!(error.contains("i32") && error.contains("I32"), "{error}");
    }

    #[test]
    fn header_bombs_and_stumps_are_refused() {
        assert!(problem(b"").contains("cut short"));
        assert!(problem(&[1, 0, 0]).contains("cut short"));
        assert!(problem(&u64::MAX.to_le_bytes()).contains("18446744073709551615"));
        assert!(problem(&file("{}", b"")[..9]).contains("has 2 bytes"));
        let bomb = " ".repeat(LONGEST_HEADER as usize + 1);
        assert!(problem(&file(&bomb, b"")).contains("at most"));
        let header = r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#;
        assert!(problem(&file(header, &[0; 7])).contains("tensor a ends at byte 8, but there are only 7"));
        assert!(problem(&file(header, &[0; 9])).contains("belong to none"));
        assert!(problem(b"\x80\x02}q\x00(X\x0e\x00\x00\x00embeddings").contains("not a safetensors file"));
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        let header = r#"{"bad.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#;
        for bad in [f32::NAN, f32::INFINITY] {
            let data: Vec<u8> = [1.0, bad].iter().flat_map(|v| v.to_le_bytes()).collect();
            let (_folder, opened) = open(&file(header, &data));
            let error = opened.unwrap().read("bad.weight").unwrap_err().to_string();
            assert!(error.contains("bad.weight") && error.contains("place 1"), "{error}");
        }
    }

    proptest! {
        /// Whatever is in the file, opening it gives a file or an error; where the reference refuses, so do we.
        #[test]
        fn damaged_files_never_panic(place in 0_usize..160, value in any::<u8>(), length in 0_usize..200) {
            let header = r#"{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}}"#;
            let mut bytes = file(header, &[0; 24]);
            let place = place % bytes.len();
            bytes[place] = value;
            bytes.truncate(length);
            let (_folder, opened) = open(&bytes);
            if let Ok(weights) = opened {
                for name in weights.tensors().keys() {
                    weights.read(name).ok();
                }
                let known = weights.tensors().values().all(|info| ["F32", "BF16"].contains(&info.dtype.as_str()));
                prop_assert!(!known || safetensors::SafeTensors::deserialize(&bytes).is_ok());
            }
        }
    }
}
