//! Vectors that lie end to end: whole and finite.

use rayon::prelude::*;

use super::PictureError;

/// Vectors summed by one thread: fixed, so that sums do not depend on how many threads there are.
pub(super) const CHUNK: usize = 2048;

/// Numbers that were checked to be whole vectors, all finite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors<'a> {
    numbers: &'a [f32],
    dimension: usize,
}

impl<'a> Vectors<'a> {
    pub(super) fn new(numbers: &'a [f32], dimension: usize) -> Result<Vectors<'a>, PictureError> {
        if !numbers.len().is_multiple_of(dimension) {
            return Err(PictureError::Shape { found: numbers.len(), dimension });
        }
        // The first one, whatever thread comes upon it.
        match numbers.par_iter().position_first(|number| !number.is_finite()) {
            None => Ok(Vectors { numbers, dimension }),
            Some(at) => Err(PictureError::NotFinite {
                vector: at / dimension,
                place: at % dimension,
                value: numbers[at],
            }),
        }
    }

    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len().checked_div(self.dimension).unwrap_or(0)
    }

    pub(super) fn row(&self, at: usize) -> &'a [f32] {
        &self.numbers[at * self.dimension..][..self.dimension]
    }

    /// The sum over some vectors of what `add` makes of each: `dimension` numbers, summed chunk by chunk.
    pub(super) fn sum(&self, rows: &[usize], add: impl Fn(usize, &mut [f64]) + Sync) -> Vec<f64> {
        let chunks: Vec<Vec<f64>> = rows
            .par_chunks(CHUNK)
            .map(|rows| {
                let mut sum = vec![0.0; self.dimension];
                rows.iter().for_each(|&row| add(row, &mut sum));
                sum
            })
            .collect();
        let mut total = vec![0.0; self.dimension];
        for chunk in chunks {
            total.iter_mut().zip(chunk).for_each(|(total, sum)| *total += sum);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_vectors_is_refused() {
        assert_eq!(
            Vectors::new(&[1.0; 5], 2).unwrap_err(),
            PictureError::Shape { found: 5, dimension: 2 },
            "half a vector"
        );
        assert!(Vectors::new(&[1.0], 0).is_err(), "vectors of nothing");
        assert_eq!(Vectors::new(&[], 0).unwrap().len(), 0);
        assert_eq!(
            Vectors::new(&[1.0, 2.0, 3.0, f32::INFINITY, f32::INFINITY, 0.0], 2).unwrap_err(),
            PictureError::NotFinite { vector: 1, place: 1, value: f32::INFINITY }
        );
    }
}
