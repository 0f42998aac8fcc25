//! Dense vectors by position, in 32 or 16 bits a number, in memory or in a file.

use std::collections::TryReserveError;

use half::f16;
use serde::{Deserialize, Serialize};

use crate::storage::Array;

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
    /// Looked through in 8 bits a number, with a scale a vector; what comes close to the best is then scored in 16 bits,
    /// which are kept beside. Scores are those of [`Precision::F16`].
    I8,
}

/// The vectors of labels, end to end by position; those of positions without a label are zero.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// In 32 bits a number.
    F32(Array<f32>),
    /// In 16 bits a number.
    F16(Array<f16>),
}

impl Rows {
    /// No vectors.
    pub fn empty(precision: Precision) -> Rows {
        match precision {
            Precision::F32 => Rows::F32(Array::default()),
            Precision::F16 | Precision::I8 => Rows::F16(Array::default()),
        }
    }

    /// How many numbers there are, over all vectors.
    pub fn len(&self) -> usize {
        match self {
            Rows::F32(numbers) => numbers.len(),
            Rows::F16(numbers) => numbers.len(),
        }
    }

    /// How many bytes a number takes.
    pub fn bytes_a_number(&self) -> usize {
        match self {
            Rows::F32(_) => 4,
            Rows::F16(_) => 2,
        }
    }

    /// The numbers, in full precision.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut all = Vec::with_capacity(self.len());
        self.extend_with(0..self.len(), &mut all);
        all
    }

    /// Appends some of the numbers, in full precision.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn extend_with(&self, range: std::ops::Range<usize>, to: &mut Vec<f32>) {
        match self {
            Rows::F32(numbers) => to.extend_from_slice(&numbers[range]),
            Rows::F16(numbers) => to.extend(numbers[range].iter().map(|number| number.to_f32())),
        }
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they lie in a file, so that they cannot be changed.
    pub fn is_mapped(&self) -> bool {
        match self {
            Rows::F32(numbers) => numbers.is_mapped(),
            Rows::F16(numbers) => numbers.is_mapped(),
        }
    }

    /// Makes room for `len` numbers in all and no more, if there is memory for them.
    pub(super) fn reserve(&mut self, len: usize) -> Result<(), TryReserveError> {
        let more = len.saturating_sub(self.len());
        match self {
            Rows::F32(numbers) => {
                numbers.held_mut().map_or(Ok(()), |numbers| numbers.try_reserve_exact(more))
            }
            Rows::F16(numbers) => {
                numbers.held_mut().map_or(Ok(()), |numbers| numbers.try_reserve_exact(more))
            }
        }
    }

    /// Adds zeros until there are at least `len` numbers, if there is memory for them.
    pub(super) fn grow(&mut self, len: usize) -> Result<(), TryReserveError> {
        fn grow<T: Copy + Default>(numbers: Option<&mut Vec<T>>, len: usize) -> Result<(), TryReserveError> {
            let numbers = numbers.expect("what lies in a file is not grown");
            let more = len.saturating_sub(numbers.len());
            numbers.try_reserve(more)?;
            numbers.resize(numbers.len() + more, T::default());
            Ok(())
        }
        match self {
            Rows::F32(numbers) => grow(numbers.held_mut(), len),
            Rows::F16(numbers) => grow(numbers.held_mut(), len),
        }
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

    /// Puts `vector` at `start`, in memory. The numbers must fit the precision.
    pub(super) fn write(&mut self, start: usize, vector: &[f32]) {
        const HELD: &str = "what lies in a file is not written to";
        match self {
            Rows::F32(numbers) => {
                let numbers = numbers.held_mut().expect(HELD);
                numbers[start..start + vector.len()].copy_from_slice(vector);
            }
            Rows::F16(numbers) => {
                let numbers = numbers.held_mut().expect(HELD);
                for (slot, &value) in numbers[start..].iter_mut().zip(vector) {
                    *slot = f16::from_f32(value);
                }
            }
        }
    }
}
