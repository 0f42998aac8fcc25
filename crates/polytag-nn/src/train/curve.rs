//! The course of a training as a file of JSON lines.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How things stood after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// How many steps were done.
    pub step: u64,
    /// The mean loss of the steps since the last point.
    pub loss: f64,
    /// The factor that the schedule put on the learning rates.
    pub rate: f64,
    /// The norm of the last step's gradient, before clipping.
    pub gradient_norm: f64,
    /// The score of the evaluation, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// What else it measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, f64>,
}

/// A file of [`Point`]s, one a line, each on the disk's way before the next step.
pub(super) struct Curve {
    path: PathBuf,
    file: File,
}

impl Curve {
    /// Opens the file to go on after `step`: points after that are of a run that was broken off, and
    /// so is a line that was cut short.
    /// The points before that come back.
    pub(super) fn resume(path: &Path, step: u64) -> Result<(Curve, Vec<Point>), Error> {
        let (mut kept, mut points) = (String::new(), Vec::new());
        match File::open(path) {
            Ok(file) => {
                for line in BufReader::new(file).lines() {
                    let line = line.map_err(Error::io(path, "read"))?;
                    let point: Option<Point> = serde_json::from_str(&line).ok();
                    if let Some(point) = point.filter(|point| point.step <= step) {
                        kept.push_str(&line);
                        kept.push('\n');
                        points.push(point);
                    }
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(path, "read")(error)),
        }
        // Beside and then in its place, so that a kill in between loses nothing.
        let folder = path.parent().unwrap_or(Path::new("."));
        let staged = tempfile::NamedTempFile::new_in(folder).map_err(Error::io(path, "write beside"))?;
        fs::write(staged.path(), kept).map_err(Error::io(path, "write"))?;
        staged.persist(path).map_err(|error| Error::io(path, "replace")(error.error))?;
        let file = OpenOptions::new().append(true).open(path).map_err(Error::io(path, "open"))?;
        Ok((Curve { path: path.to_owned(), file }, points))
    }

    /// Adds a point.
    pub(super) fn push(&mut self, point: &Point) -> Result<(), Error> {
        let line = serde_json::to_string(point).expect("points are plain numbers");
        writeln!(self.file, "{line}").map_err(Error::io(&self.path, "write"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_curve_forgets_what_was_undone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("curve.jsonl");
        let measures = BTreeMap::from([("nDCG@5".to_owned(), 0.5)]);
        let (loss, rate, gradient_norm) = (0.5, 1.0, 2.0);
        let point = |step| match step {
            2 => Point { step, loss, rate, gradient_norm, measured: Some(0.5), measures: measures.clone() },
            _ => Point { step, loss, rate, gradient_norm, measured: None, measures: BTreeMap::new() },
        };
        let (mut curve, none) = Curve::resume(&path, 0).unwrap();
        assert!(none.is_empty());
        for step in [1, 2, 3] {
            curve.push(&point(step)).unwrap();
        }
        drop(curve);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 5);
        fs::write(&path, bytes).unwrap();
        let (mut curve, kept) = Curve::resume(&path, 2).unwrap();
        assert_eq!(kept.len(), 2);
        curve.push(&point(3)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let points: Vec<Point> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(points, [point(1), point(2), point(3)]);
        let said: Vec<bool> = text.lines().map(|line| line.contains("measure")).collect();
        assert_eq!(said, [false, true, false], "what was not measured is not written: {text}");
    }
}
