//! Vectors in 8 bits a number, with a scale a vector.
//!
//! A number is `scale · (code − 128)`, the scale such that the largest is 127. Queries are rounded the same way, with
//! a sign. Sums of their products are integers, so that no instruction set and no order changes them. Vectors are
//! filled up with nothing to a whole number of cache lines.
//!
//! Memory: a byte a number, filled up to 64, and 4 bytes a vector.

use std::collections::TryReserveError;

use super::rows::Rows;
use crate::storage::Array;

/// What stands for nothing.
pub(super) const ZERO: u8 = 128;

/// Bytes of a cache line: vectors are whole ones.
const LINE: usize = 64;

/// Longest vectors: sums of their products stay within 32 bits.
pub(super) const MOST_NUMBERS: usize = 1 << 16;

const HELD: &str = "what lies in a file is not written to";

/// How many bytes a vector of `dim` numbers takes.
pub(super) fn stride(dim: usize) -> usize {
    dim.next_multiple_of(LINE)
}

/// Vectors in 8 bits, by position.
#[derive(Clone, Debug)]
pub struct Codes {
    stride: usize,
    /// The numbers, end to end.
    numbers: Array<u8>,
    /// A scale a vector.
    scales: Array<f32>,
}

impl Codes {
    /// No vectors, of `dim` numbers each.
    pub(super) fn empty(dim: usize) -> Codes {
        Codes { stride: stride(dim), numbers: Array::default(), scales: Array::default() }
    }

    /// The vectors that were kept, if they are as many of each kind and their scales are numbers.
    pub(super) fn from_parts(dim: usize, numbers: Array<u8>, scales: Array<f32>) -> Result<Codes, String> {
        let stride = stride(dim);
        if numbers.len() != scales.len().saturating_mul(stride) {
            let (bytes, scales) = (numbers.len(), scales.len());
            return Err(format!("{bytes} bytes are not {scales} vectors of {stride}"));
        }
        if let Some(place) = scales.iter().position(|scale| !scale.is_finite() || *scale < 0.0) {
            return Err(format!("vector {place}: {} is no scale", scales[place]));
        }
        Ok(Codes { stride, numbers, scales })
    }

    /// Those of `rows` of `dim` numbers.
    pub(super) fn of(rows: &Rows, dim: usize) -> Result<Codes, TryReserveError> {
        let mut codes = Codes::empty(dim);
        let positions = rows.len() / dim;
        codes.grow(positions)?;
        let mut vector = Vec::with_capacity(dim);
        for position in 0..positions {
            vector.clear();
            rows.extend_with(position * dim..(position + 1) * dim, &mut vector);
            codes.write(position, &vector);
        }
        Ok(codes)
    }

    /// How many vectors there are.
    pub(super) fn len(&self) -> usize {
        self.scales.len()
    }

    /// Whether some of them lie in a file, so that they cannot be changed.
    pub(super) fn is_mapped(&self) -> bool {
        self.numbers.is_mapped() || self.scales.is_mapped()
    }

    /// The numbers, each vector filled up to whole cache lines, and the scales: what is to be saved.
    pub fn parts(&self) -> (&[u8], &[f32]) {
        (&self.numbers, &self.scales)
    }

    /// The numbers at a position, filled up.
    #[inline]
    pub(super) fn row(&self, position: usize) -> &[u8] {
        &self.numbers[position * self.stride..(position + 1) * self.stride]
    }

    /// The scale at a position.
    #[inline]
    pub(super) fn scale(&self, position: usize) -> f32 {
        self.scales[position]
    }

    /// Adds vectors of nothing until there are `positions`, if there is memory for them.
    pub(super) fn grow(&mut self, positions: usize) -> Result<(), TryReserveError> {
        let stride = self.stride;
        let numbers = self.numbers.held_mut().expect(HELD);
        let scales = self.scales.held_mut().expect(HELD);
        let more = positions.saturating_sub(scales.len());
        scales.try_reserve(more)?;
        numbers.try_reserve(more.saturating_mul(stride))?;
        scales.resize(scales.len() + more, 0.0);
        numbers.resize(numbers.len() + more * stride, ZERO);
        Ok(())
    }

    /// Puts a vector at a position, in memory.
    pub(super) fn write(&mut self, position: usize, vector: &[f32]) {
        let numbers = self.numbers.held_mut().expect(HELD);
        let row = &mut numbers[position * self.stride..(position + 1) * self.stride];
        let scale = encode(vector, |place, code| row[place] = (code + i16::from(ZERO)) as u8);
        row[vector.len()..].fill(ZERO);
        self.scales.held_mut().expect(HELD)[position] = scale;
    }

    /// Puts a vector that is in 8 bits already at a position, in memory.
    pub(super) fn put(&mut self, position: usize, row: &[u8], scale: f32) {
        let numbers = self.numbers.held_mut().expect(HELD);
        numbers[position * self.stride..(position + 1) * self.stride].copy_from_slice(row);
        self.scales.held_mut().expect(HELD)[position] = scale;
    }
}

/// A query in 8 bits.
#[derive(Clone, Debug, Default)]
pub(super) struct CodedQuery {
    /// Its numbers, filled up as vectors are.
    pub(super) numbers: Vec<i8>,
    /// What they are multiplied by.
    pub(super) scale: f32,
    /// What sums are too high by, as codes are by 128.
    pub(super) offset: i32,
}

impl CodedQuery {
    /// That of a vector.
    pub(super) fn of(vector: &[f32]) -> CodedQuery {
        let mut query = CodedQuery::default();
        query.set(vector);
        query
    }

    /// Becomes that of a vector.
    pub(super) fn set(&mut self, vector: &[f32]) {
        self.numbers.clear();
        self.numbers.resize(stride(vector.len()), 0);
        self.scale = encode(vector, |place, code| self.numbers[place] = code as i8);
        self.finish();
    }

    /// Becomes that of a vector in 8 bits.
    pub(super) fn set_coded(&mut self, row: &[u8], scale: f32) {
        self.numbers.clear();
        self.numbers.extend(row.iter().map(|&code| (i16::from(code) - i16::from(ZERO)) as i8));
        self.scale = scale;
        self.finish();
    }

    fn finish(&mut self) {
        self.offset = i32::from(ZERO) * self.numbers.iter().map(|&number| i32::from(number)).sum::<i32>();
    }
}

/// Rounds a vector to numbers from -127 to 127 and gives the scale.
fn encode(vector: &[f32], mut put: impl FnMut(usize, i16)) -> f32 {
    let most = vector.iter().fold(0f32, |most, value| most.max(value.abs()));
    let scale = most / 127.0;
    // A scale too small for a number stands for nothing.
    let inverse = if scale >= f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
    for (place, value) in vector.iter().enumerate() {
        put(place, (value * inverse).round().clamp(-127.0, 127.0) as i16);
    }
    if inverse == 0.0 { 0.0 } else { scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_to_half_a_step() {
        let vector: Vec<f32> = (0..70).map(|place| (place as f32 * 0.7).sin()).collect();
        let mut codes = Codes::empty(70);
        codes.grow(2).unwrap();
        codes.write(1, &vector);
        let (row, scale) = (codes.row(1), codes.scale(1));
        assert_eq!((row.len(), row[70], codes.scale(0)), (128, ZERO, 0.0));
        for (code, value) in row.iter().zip(&vector) {
            assert!((scale * (f32::from(*code) - 128.0) - value).abs() <= scale * 0.5001);
        }
        let mut query = CodedQuery::default();
        query.set_coded(row, scale);
        assert_eq!(query.numbers, CodedQuery::of(&vector).numbers);
    }

    #[test]
    fn nothing_and_nearly_nothing_are_zeros() {
        for vector in [[0.0; 3], [1e-44, -1e-44, 0.0]] {
            let query = CodedQuery::of(&vector);
            assert_eq!((query.scale, query.offset), (0.0, 0));
            assert!(query.numbers.iter().all(|&number| number == 0));
        }
        assert_eq!(CodedQuery::of(&[f32::MAX, -f32::MAX]).numbers[..2], [127, -127]);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let scales = |scales: &[f32]| Array::Held(scales.to_vec());
        assert!(Codes::from_parts(3, vec![ZERO; 128].into(), scales(&[1.0, 0.0])).is_ok());
        for (bytes, wrong) in
            [(127, vec![1.0, 1.0]), (128, vec![1.0]), (64, vec![f32::NAN]), (64, vec![-1.0])]
        {
            assert!(Codes::from_parts(3, vec![ZERO; bytes].into(), scales(&wrong)).is_err());
        }
    }
}
