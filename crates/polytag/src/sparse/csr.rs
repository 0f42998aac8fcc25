//! Sparse matrices, row by row.

use rayon::prelude::*;

/// A matrix that keeps, for each row, the columns that are not zero.
///
/// Invariants: columns ascend within a row and lie below [`columns`](Csr::columns); values are
/// finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Csr {
    columns: usize,
    starts: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f32>,
}

/// One row: columns in ascending order, and a value for each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// The columns.
    pub indices: &'a [u32],
    /// The values.
    pub values: &'a [f32],
}

/// Parts that do not make a matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// The row starts are not a rising list from zero to the number of entries.
    #[error("the row starts do not fit the entries")]
    Starts,
    /// A row's columns do not ascend, or one is out of range.
    #[error("row {row}: its columns are out of order or out of range")]
    Columns {
        /// The row.
        row: usize,
    },
    /// A value is not a finite number.
    #[error("row {row}: a value is not a finite number")]
    NotFinite {
        /// The row.
        row: usize,
    },
}

impl Csr {
    /// A matrix with no rows.
    pub fn empty(columns: usize) -> Csr {
        Csr { columns, starts: vec![0], indices: Vec::new(), values: Vec::new() }
    }

    /// A matrix from its parts, checked.
    pub fn from_parts(
        columns: usize,
        starts: Vec<usize>,
        indices: Vec<u32>,
        values: Vec<f32>,
    ) -> Result<Csr, CsrError> {
        let rising = starts.windows(2).all(|pair| pair[0] <= pair[1]);
        let fits = starts.first() == Some(&0) && starts.last() == Some(&indices.len());
        if !rising || !fits || indices.len() != values.len() {
            return Err(CsrError::Starts);
        }
        let matrix = Csr { columns, starts, indices, values };
        for row in 0..matrix.rows() {
            let Row { indices, values } = matrix.row(row);
            let ascending = indices.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascending || indices.last().is_some_and(|&last| last as usize >= columns) {
                return Err(CsrError::Columns { row });
            }
            if !values.iter().all(|value| value.is_finite()) {
                return Err(CsrError::NotFinite { row });
            }
        }
        Ok(matrix)
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many entries are kept.
    pub fn entries(&self) -> usize {
        self.indices.len()
    }

    /// A row.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> Row<'_> {
        let range = self.starts[row]..self.starts[row + 1];
        Row { indices: &self.indices[range.clone()], values: &self.values[range] }
    }

    /// All rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        (0..self.rows()).map(|row| self.row(row))
    }

    /// The row starts, columns and values, as [`from_parts`](Csr::from_parts) takes them.
    pub fn parts(&self) -> (&[usize], &[u32], &[f32]) {
        (&self.starts, &self.indices, &self.values)
    }

    /// Adds a row. Columns must ascend; values must be finite.
    ///
    /// # Panics
    /// In debug builds, when they do not.
    pub fn push(&mut self, entries: impl IntoIterator<Item = (u32, f32)>) {
        let start = self.indices.len();
        for (index, value) in entries {
            debug_assert!((index as usize) < self.columns && value.is_finite());
            self.indices.push(index);
            self.values.push(value);
        }
        debug_assert!(self.indices[start..].windows(2).all(|pair| pair[0] < pair[1]));
        self.starts.push(self.indices.len());
    }

    /// The rows of all `parts`, in order. A part is freed as soon as it has been taken over.
    ///
    /// # Panics
    /// When a part has another width.
    pub fn stacked(columns: usize, parts: Vec<Csr>) -> Csr {
        let mut matrix = Csr::empty(columns);
        matrix.starts.reserve_exact(parts.iter().map(Csr::rows).sum());
        let entries = parts.iter().map(Csr::entries).sum();
        matrix.indices.reserve_exact(entries);
        matrix.values.reserve_exact(entries);
        parts.into_iter().for_each(|part| matrix.append(&part));
        matrix
    }

    /// Adds the rows of `other` below. Both must have the same columns.
    ///
    /// # Panics
    /// When they have not.
    pub fn append(&mut self, other: &Csr) {
        assert_eq!(self.columns, other.columns, "matrices of the same width");
        let base = self.indices.len();
        self.starts.extend(other.starts[1..].iter().map(|start| base + start));
        self.indices.extend_from_slice(&other.indices);
        self.values.extend_from_slice(&other.values);
    }

    /// Rows become columns. Cost: one pass to count, one to place.
    pub fn transpose(&self) -> Csr {
        let mut starts = vec![0usize; self.columns + 1];
        for &index in &self.indices {
            starts[index as usize + 1] += 1;
        }
        for column in 0..self.columns {
            starts[column + 1] += starts[column];
        }
        let mut next = starts.clone();
        let mut indices = vec![0; self.entries()];
        let mut values = vec![0.0; self.entries()];
        for (row, entries) in self.iter().enumerate() {
            for (&column, &value) in entries.indices.iter().zip(entries.values) {
                let at = &mut next[column as usize];
                indices[*at] = row as u32;
                values[*at] = value;
                *at += 1;
            }
        }
        Csr { columns: self.rows(), starts, indices, values }
    }

    /// Scales every row to length one; rows of zeros stay.
    pub fn normalize_rows(&mut self) {
        let mut rest = &mut self.values[..];
        let mut rows = Vec::with_capacity(self.starts.len() - 1);
        for pair in self.starts.windows(2) {
            let (row, tail) = rest.split_at_mut(pair[1] - pair[0]);
            rows.push(row);
            rest = tail;
        }
        rows.into_par_iter().for_each(normalize);
    }
}

impl Row<'_> {
    /// The inner product with another row of the same width.
    pub fn dot(&self, other: Row<'_>) -> f32 {
        let (mut a, mut b, mut sum) = (0, 0, 0.0);
        while a < self.indices.len() && b < other.indices.len() {
            match self.indices[a].cmp(&other.indices[b]) {
                std::cmp::Ordering::Less => a += 1,
                std::cmp::Ordering::Greater => b += 1,
                std::cmp::Ordering::Equal => {
                    sum += self.values[a] * other.values[b];
                    a += 1;
                    b += 1;
                }
            }
        }
        sum
    }
}

/// Scales `values` to length one, summing in double precision.
pub(super) fn normalize(values: &mut [f32]) {
    let length = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        values.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn from_dense(rows: &[Vec<f32>], columns: usize) -> Csr {
        let mut matrix = Csr::empty(columns);
        for row in rows {
            matrix.push(row.iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(i, v)| (i as u32, *v)));
        }
        matrix
    }

    fn dense() -> impl Strategy<Value = (Vec<Vec<f32>>, usize)> {
        (1usize..8).prop_flat_map(|columns| {
            let value = prop_oneof![Just(0.0f32), -2.0f32..2.0];
            (prop::collection::vec(prop::collection::vec(value, columns), 0..8), Just(columns))
        })
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let make = |starts: &[usize], indices: &[u32], values: &[f32]| {
            Csr::from_parts(3, starts.to_vec(), indices.to_vec(), values.to_vec())
        };
        assert!(make(&[0, 2], &[0, 2], &[1.0, 2.0]).is_ok());
        assert_eq!(make(&[], &[], &[]), Err(CsrError::Starts));
        assert_eq!(make(&[0, 3], &[0, 2], &[1.0, 2.0]), Err(CsrError::Starts));
        assert_eq!(make(&[0, 2, 1, 2], &[0, 2], &[1.0, 2.0]), Err(CsrError::Starts));
        assert_eq!(make(&[0, 2], &[0, 2], &[1.0]), Err(CsrError::Starts));
        assert_eq!(make(&[0, 2], &[2, 0], &[1.0, 2.0]), Err(CsrError::Columns { row: 0 }));
        assert_eq!(make(&[0, 1], &[3], &[1.0]), Err(CsrError::Columns { row: 0 }));
        assert_eq!(make(&[0, 1], &[1], &[f32::NAN]), Err(CsrError::NotFinite { row: 0 }));
    }

    proptest! {
        #[test]
        fn transposing_twice_changes_nothing((rows, columns) in dense()) {
            let matrix = from_dense(&rows, columns);
            let flipped = matrix.transpose();
            for (r, row) in rows.iter().enumerate() {
                for (c, &value) in row.iter().enumerate() {
                    let at = flipped.row(c);
                    let found = at.indices.iter().position(|&i| i as usize == r).map_or(0.0, |p| at.values[p]);
                    prop_assert_eq!(found, value);
                }
            }
            prop_assert_eq!(flipped.transpose(), matrix);
        }

        #[test]
        fn dot_and_length_agree_with_dense((rows, columns) in dense()) {
            let mut matrix = from_dense(&rows, columns);
            for (a, row) in rows.iter().enumerate() {
                for (b, other) in rows.iter().enumerate() {
                    let expected: f32 = row.iter().zip(other).map(|(x, y)| x * y).sum();
                    prop_assert!((matrix.row(a).dot(matrix.row(b)) - expected).abs() < 1e-4);
                }
            }
            matrix.normalize_rows();
            for row in matrix.iter().filter(|row| !row.indices.is_empty()) {
                prop_assert!((row.dot(row) - 1.0).abs() < 1e-5);
            }
        }

        #[test]
        fn appending_is_stacking((rows, columns) in dense(), cut in 0usize..8) {
            let cut = cut.min(rows.len());
            let mut top = from_dense(&rows[..cut], columns);
            top.append(&from_dense(&rows[cut..], columns));
            let (starts, indices, values) = top.parts();
            let again = Csr::from_parts(columns, starts.to_vec(), indices.to_vec(), values.to_vec());
            prop_assert_eq!(again.as_ref(), Ok(&top));
            prop_assert_eq!(top, from_dense(&rows, columns));
        }
    }
}
