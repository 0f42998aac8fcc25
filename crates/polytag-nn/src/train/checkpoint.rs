//! A training broken off at any step goes on as if it had not been.
//!
//! A checkpoint is one safetensors file, replaced whole: weights, both moments of the optimizer, the
//! best weights so far, and in the header the state of the loop. Examples and dropout masks are
//! functions of the seed and the step, so nothing else is needed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use super::patience::Patience;
use crate::error::Error;

/// The header's key under which the state stands.
const STATE: &str = "polytag_training";

/// How far a training is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    /// How many steps were done.
    pub(super) step: u64,
    /// The best measurement.
    pub(super) patience: Patience,
    /// The losses since the last point of the curve: their sum and number.
    pub(super) losses: (f64, u64),
    /// What the training is of: seed, schedule, weights. Another one cannot go on from here.
    pub(super) fingerprint: String,
}

/// Everything that goes into the file. All of one length but `best`, which may be empty.
#[derive(Clone)]
pub(super) struct Contents {
    pub(super) state: State,
    pub(super) masters: Vec<f32>,
    pub(super) first_moments: Vec<f32>,
    pub(super) second_moments: Vec<f32>,
    pub(super) best: Vec<f32>,
}

/// Writes a checkpoint in the place of the last one.
pub(super) fn write(path: &Path, contents: &Contents) -> Result<(), Error> {
    let io = |action| Error::io(path, action);
    let folder = path.parent().unwrap_or(Path::new("."));
    let state = serde_json::to_string(&contents.state).expect("a state is plain numbers and strings");
    let metadata = HashMap::from([(STATE.to_owned(), state)]);
    let views = parts(contents).map(|(name, values)| {
        let bytes = bytes_of(values);
        let view =
            TensorView::new(Dtype::F32, vec![values.len()], bytes).expect("as many bytes as the shape says");
        (name, view)
    });
    let bytes = safetensors::serialize(views, Some(metadata))
        .map_err(|error| Error::file(path, format!("cannot be written: {error}")))?;
    let staged = tempfile::NamedTempFile::new_in(folder).map_err(io("write beside"))?;
    let mut writer = BufWriter::new(staged);
    writer.write_all(&bytes).map_err(io("write"))?;
    let staged = writer.into_inner().map_err(|error| io("write")(error.into_error()))?;
    staged.as_file().sync_all().map_err(io("sync"))?;
    staged.persist(path).map_err(|error| io("replace")(error.error))?;
    if let Ok(folder) = File::open(folder) {
        // The name itself, where the system can sync folders.
        folder.sync_all().ok();
    }
    Ok(())
}

/// Reads a checkpoint; `None` if there is none. It must be of the training that `fingerprint` names.
pub(super) fn read(path: &Path, fingerprint: &str, length: usize) -> Result<Option<Contents>, Error> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(path, "read")(error)),
    };
    let damaged = |problem: String| {
        Error::file(path, format!("the checkpoint is damaged ({problem}); remove it to start anew"))
    };
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
    let state = header.metadata().as_ref().and_then(|metadata| metadata.get(STATE));
    let state = state.ok_or_else(|| damaged("it has no state".to_owned()))?;
    let state: State = serde_json::from_str(state).map_err(|error| damaged(error.to_string()))?;
    if state.fingerprint != fingerprint {
        let problem = "the checkpoint is of another training (other data, settings, seed, precision or encoder); remove \
                       it to start anew, or go back to what it was made with";
        return Err(Error::file(path, problem));
    }
    let values = |name: &str| -> Result<Vec<f32>, Error> {
        let view = tensors.tensor(name).map_err(|error| damaged(error.to_string()))?;
        let values: Vec<f32> = view
            .data()
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let fits =
            view.dtype() == Dtype::F32 && (values.len() == length || name == "best" && values.is_empty());
        if fits { Ok(values) } else { Err(damaged(format!("{name} does not fit"))) }
    };
    Ok(Some(Contents {
        masters: values("masters")?,
        first_moments: values("first_moments")?,
        second_moments: values("second_moments")?,
        best: values("best")?,
        state,
    }))
}

fn parts(contents: &Contents) -> [(&'static str, &[f32]); 4] {
    [
        ("masters", &contents.masters),
        ("first_moments", &contents.first_moments),
        ("second_moments", &contents.second_moments),
        ("best", &contents.best),
    ]
}

/// The values as little-endian bytes.
fn bytes_of(values: &[f32]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "files are little-endian, and so are the machines") };
    bytemuck::cast_slice(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        Contents {
            state: State { step: 7, fingerprint: "a".to_owned(), ..State::default() },
            masters: vec![1.0, -0.0, f32::MIN_POSITIVE],
            first_moments: vec![0.0; 3],
            second_moments: vec![2.0; 3],
            best: Vec::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.safetensors");
        assert!(read(&path, "a", 3).unwrap().is_none());
        write(&path, &contents()).unwrap();
        let back = read(&path, "a", 3).unwrap().unwrap();
        assert_eq!(back.state, contents().state);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back.masters), bits(&contents().masters));
        assert!(back.best.is_empty());
    }

    #[test]
    fn a_checkpoint_of_another_training_or_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.safetensors");
        write(&path, &contents()).unwrap();
        let error = read(&path, "b", 3).err().unwrap().to_string();
        assert!(error.contains("another training"), "{error}");
        assert!(read(&path, "a", 4).is_err());
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 5, 20, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let error = read(&path, "a", 3).err().unwrap().to_string();
            assert!(error.contains("damaged"), "{error}");
        }
    }
}
