//! A matrix as someone else's numbers and two strides.

use std::ops::Range;

/// A strided view of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> View<'a> {
    /// `data` as a matrix whose rows lie end to end.
    ///
    /// # Panics
    /// If `data` has another length than `rows * columns`.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> View<'a> {
        assert_eq!(data.len(), rows * columns, "a view covers its data");
        View { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// `columns` columns from `first` on of a matrix whose rows lie `row_stride` apart.
    ///
    /// # Panics
    /// If the columns do not lie within a row, or `data` is not whole rows.
    pub fn of_columns(data: &'a [f32], row_stride: usize, first: usize, columns: usize) -> View<'a> {
        assert!(first + columns <= row_stride, "columns lie within a row");
        assert!(row_stride > 0 && data.len().is_multiple_of(row_stride), "data is whole rows");
        let rows = data.len() / row_stride;
        View { data: data.get(first..).unwrap_or_default(), rows, columns, row_stride, column_stride: 1 }
    }

    /// The same numbers with rows and columns exchanged.
    pub fn transposed(self) -> View<'a> {
        View {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Some of the rows.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn of_rows(self, rows: Range<usize>) -> View<'a> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows of the matrix");
        let data = self.data.get(rows.start * self.row_stride..).unwrap_or_default();
        View { data, rows: rows.len(), ..self }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// From one row to the next, in numbers.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// From one column to the next, in numbers.
    pub fn column_stride(&self) -> usize {
        self.column_stride
    }

    /// The number at a place.
    #[inline(always)]
    pub fn at(&self, row: usize, column: usize) -> f32 {
        self.data[row * self.row_stride + column * self.column_stride]
    }

    /// The numbers from a place on, in the order of the underlying data.
    #[inline(always)]
    pub(crate) fn from(&self, row: usize, column: usize) -> &'a [f32] {
        &self.data[row * self.row_stride + column * self.column_stride..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_view_reads_columns_as_rows() {
        let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let view = View::new(&data, 2, 3);
        assert_eq!((view.at(1, 0), view.transposed().at(0, 1)), (4.0, 4.0));
        assert_eq!((view.transposed().rows(), view.transposed().columns()), (3, 2));
        let last = View::of_columns(&data, 3, 2, 1);
        assert_eq!((last.rows(), last.at(0, 0), last.at(1, 0)), (2, 3.0, 6.0));
    }
}
