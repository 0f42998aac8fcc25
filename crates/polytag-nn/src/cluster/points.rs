//! The rows, checked: whole, finite, and short enough that no product of them overflows.

use rayon::prelude::*;

use crate::error::Error;

/// How many rows are summed up before sums are added: a constant, so that threads change no byte.
const SUMMED_ROWS: usize = 1024;

/// The most that the squared length of a row or a centre may be. A score is at most six times that: twice for
/// the product of a row and a centre about the mean, four times for the centre's own part.
const LONGEST_SQUARED: f64 = f32::MAX as f64 / 8.0;

/// Rows to be clustered.
pub(super) struct Points<'a> {
    values: &'a [f32],
    dimension: usize,
    mean: Vec<f64>,
    variance: f64,
}

impl<'a> Points<'a> {
    /// Checks the rows.
    pub(super) fn new(values: &'a [f32], dimension: usize) -> Result<Points<'a>, Error> {
        if dimension == 0 || values.is_empty() {
            let (numbers, problem) = (values.len(), "there are no rows to cluster");
            return Err(Error::Unfit(format!("{problem}: {numbers} numbers in rows of {dimension}")));
        }
        check_rows(values, dimension, "row")?;
        let count = values.len() / dimension;
        // Kernels count in 32 bits, of which one is the sign.
        if count.max(dimension) > i32::MAX as usize {
            let most = i32::MAX;
            return Err(Error::Unfit(format!(
                "{count} rows of {dimension} are too many; {most} is the most"
            )));
        }
        let mean = mean(values, dimension);
        let variance = variance(values, &mean);
        Ok(Points { values, dimension, mean, variance })
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> usize {
        self.values.len() / self.dimension
    }

    /// How many numbers a row has.
    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    /// All rows, end to end.
    pub(super) fn values(&self) -> &'a [f32] {
        self.values
    }

    /// A row.
    pub(super) fn row(&self, index: usize) -> &'a [f32] {
        &self.values[index * self.dimension..(index + 1) * self.dimension]
    }

    /// The mean of the rows.
    pub(super) fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The mean of the variances of the columns.
    pub(super) fn variance(&self) -> f64 {
        self.variance
    }

    /// How far each row is from its centre. Not out of scores, in which what is near is lost by cancelling.
    pub(super) fn squared_distances(&self, centres: &[f32], assignment: &[u32]) -> Vec<f64> {
        let centre = |cluster: u32| &centres[cluster as usize * self.dimension..][..self.dimension];
        let rows = self.values.par_chunks(self.dimension).zip(assignment);
        rows.map(|(row, &cluster)| squared_distance(row, centre(cluster))).collect()
    }
}

/// Whether `values` is whole rows of finite numbers that are not too long; `what` is what one is called.
pub(super) fn check_rows(values: &[f32], dimension: usize, what: &str) -> Result<(), Error> {
    if !values.len().is_multiple_of(dimension) {
        let numbers = values.len();
        return Err(Error::Unfit(format!("{numbers} numbers are not whole {what}s of {dimension}")));
    }
    let squared = |row: &[f32]| row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let good = |row: &[f32]| squared(row) <= LONGEST_SQUARED;
    let Some(bad) = values.par_chunks(dimension).position_first(|row| !good(row)) else { return Ok(()) };
    let row = &values[bad * dimension..(bad + 1) * dimension];
    match row.iter().position(|x| !x.is_finite()) {
        Some(column) => Err(Error::NotFinite {
            what: format!("number {column} of {what} {bad} to be clustered"),
            place: String::new(),
        }),
        None => {
            let (length, most) = (squared(row).sqrt(), LONGEST_SQUARED.sqrt());
            let problem = format!("{what} {bad} to be clustered has length {length:.1e}");
            Err(Error::Unfit(format!("{problem}, {most:.1e} is the most; scale the numbers down")))
        }
    }
}

/// The squared distance of two vectors: zero only if they are the same.
pub(super) fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    // Eight plain sums: the compiler makes vectors of them.
    let mut sums = [0.0_f64; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (sum, (&a, &b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            let difference = f64::from(a) - f64::from(b);
            *sum += difference * difference;
        }
    }
    sums.iter().sum()
}

fn mean(values: &[f32], dimension: usize) -> Vec<f64> {
    let partial = values.par_chunks(SUMMED_ROWS * dimension).map(|rows| {
        let mut sums = vec![0.0; dimension];
        for row in rows.chunks(dimension) {
            for (sum, &x) in sums.iter_mut().zip(row) {
                *sum += f64::from(x);
            }
        }
        sums
    });
    let mut mean = vec![0.0; dimension];
    for sums in partial.collect::<Vec<Vec<f64>>>() {
        for (mean, sum) in mean.iter_mut().zip(sums) {
            *mean += sum;
        }
    }
    let count = (values.len() / dimension) as f64;
    mean.iter_mut().for_each(|mean| *mean /= count);
    mean
}

fn variance(values: &[f32], mean: &[f64]) -> f64 {
    let squares = values.par_chunks(SUMMED_ROWS * mean.len()).map(|rows| {
        let of_row =
            |row: &[f32]| row.iter().zip(mean).map(|(&x, m)| (f64::from(x) - m).powi(2)).sum::<f64>();
        rows.chunks(mean.len()).map(of_row).sum::<f64>()
    });
    squares.collect::<Vec<f64>>().iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_those_of_columns() {
        let points = Points::new(&[1.0, 10.0, 3.0, 10.0], 2).unwrap();
        assert_eq!((points.mean(), points.variance()), (&[2.0, 10.0][..], 0.5));
        assert_eq!(points.squared_distances(&[0.0, 10.0], &[0, 0]), [1.0, 9.0]);
    }

    #[test]
    fn rows_that_cannot_be_clustered_are_told_with_their_place() {
        let problem = |values: &[f32], dimension| Points::new(values, dimension).err().unwrap().to_string();
        assert!(problem(&[], 2).contains("no rows") && problem(&[1.0], 0).contains("no rows"));
        assert_eq!(problem(&[1.0; 5], 2), "5 numbers are not whole rows of 2");
        let text = problem(&[0.0, 1.0, 2.0, f32::NAN], 2);
        assert_eq!(text, "number 1 of row 1 to be clustered is not a finite number");
        assert!(problem(&[f32::INFINITY, 0.0], 2).contains("number 0 of row 0"));
        let text = problem(&[1.0, 1e19], 1);
        assert!(text.contains("row 1") && text.contains("scale the numbers down"), "{text}");
        assert!(Points::new(&[6e18], 1).is_ok());
    }
}
