//! Dense vectors by position, in 32 or 16 bits a number.

use std::collections::TryReserveError;

use half::f16;
use serde::{Deserialize, Serialize};

/// How exactly an index keeps the numbers of its vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// Rounded to eleven significant bits, in half the memory. Scores are still summed in 32 bits:
    /// for vectors of length one they are off by 0.0005 at most.
    F16,
}

/// The vectors of labels, end to end by position; those of positions without a label are zero.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// In 32 bits a number.
    F32(Vec<f32>),
    /// In 16 bits a number.
    F16(Vec<f16>),
}

impl Rows {
    /// No vectors.
    pub fn empty(precision: Precision) -> Rows {
        match precision {
            Precision::F32 => Rows::F32(Vec::new()),
            Precision::F16 => Rows::F16(Vec::new()),
        }
    }

    /// How the numbers are kept.
    pub fn precision(&self) -> Precision {
        match self {
            Rows::F32(_) => Precision::F32,
            Rows::F16(_) => Precision::F16,
        }
    }

    /// How many numbers there are, over all vectors.
    pub fn len(&self) -> usize {
        match self {
            Rows::F32(numbers) => numbers.len(),
            Rows::F16(numbers) => numbers.len(),
        }
    }

    /// The numbers, in full precision.
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            Rows::F32(numbers) => numbers.clone(),
            Rows::F16(numbers) => numbers.iter().map(|number| number.to_f32()).collect(),
        }
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for `len` numbers in all and no more, if there is memory for them.
    pub(super) fn reserve(&mut self, len: usize) -> Result<(), TryReserveError> {
        let more = len.saturating_sub(self.len());
        match self {
            Rows::F32(numbers) => numbers.try_reserve_exact(more),
            Rows::F16(numbers) => numbers.try_reserve_exact(more),
        }
    }

    /// Adds zeros until there are at least `len` numbers, if there is memory for them.
    pub(super) fn grow(&mut self, len: usize) -> Result<(), TryReserveError> {
        let more = len.saturating_sub(self.len());
        match self {
            Rows::F32(numbers) => {
                numbers.try_reserve(more)?;
                numbers.resize(numbers.len() + more, 0.0);
            }
            Rows::F16(numbers) => {
                numbers.try_reserve(more)?;
                numbers.resize(numbers.len() + more, f16::ZERO);
            }
        }
        Ok(())
    }

    /// The first number that is not finite: where it is, and what.
    pub(super) fn first_not_finite(&self) -> Option<(usize, f32)> {
        match self {
            Rows::F32(numbers) => {
                let place = numbers.iter().position(|value| !value.is_finite())?;
                Some((place, numbers[place]))
            }
            Rows::F16(numbers) => {
                let place = numbers.iter().position(|value| !value.is_finite())?;
                Some((place, numbers[place].to_f32()))
            }
        }
    }

    /// Puts `vector` at `start`. The numbers must fit the precision.
    pub(super) fn write(&mut self, start: usize, vector: &[f32]) {
        match self {
            Rows::F32(numbers) => numbers[start..start + vector.len()].copy_from_slice(vector),
            Rows::F16(numbers) => {
                for (slot, &value) in numbers[start..].iter_mut().zip(vector) {
                    *slot = f16::from_f32(value);
                }
            }
        }
    }
}
