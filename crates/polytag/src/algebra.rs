//! Symmetric matrices: how they stretch, and how to undo it.
//!
//! Matrices are `n` rows of `n` numbers, end to end, small enough to be held several times over. Everything is in 64 bits
//! and in one order, so that the same numbers give the same bytes.

/// The triangle `L` of a symmetric positive matrix `L·Lᵀ` (Cholesky).
pub(crate) struct Triangle {
    n: usize,
    lower: Vec<f64>,
}

impl Triangle {
    /// None, if the matrix is not positive.
    pub(crate) fn of(matrix: &[f64], n: usize) -> Option<Triangle> {
        let mut lower = vec![0.0; n * n];
        for row in 0..n {
            for column in 0..=row {
                let (a, b) = (&lower[row * n..][..column], &lower[column * n..][..column]);
                let known: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                let rest = matrix[row * n + column] - known;
                lower[row * n + column] = match row == column {
                    true if rest > 0.0 => rest.sqrt(),
                    true => return None,
                    false => rest / lower[column * n + column],
                };
            }
        }
        Some(Triangle { n, lower })
    }

    /// Makes `x` of `L·x`.
    pub(crate) fn undo(&self, vector: &mut [f64]) {
        for row in 0..self.n {
            let (before, rest) = vector.split_at_mut(row);
            let known: f64 = self.row(row)[..row].iter().zip(before).map(|(a, b)| a * *b).sum();
            rest[0] = (rest[0] - known) / self.row(row)[row];
        }
    }

    /// Makes `x` of `Lᵀ·x`.
    pub(crate) fn undo_transposed(&self, vector: &mut [f64]) {
        for row in (0..self.n).rev() {
            let value = vector[row] / self.row(row)[row];
            vector[row] = value;
            for (to, factor) in vector[..row].iter_mut().zip(self.row(row)) {
                *to -= factor * value;
            }
        }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.lower[row * self.n..][..self.n]
    }
}

/// All eigenvalues of a symmetric matrix, the largest first, and their vectors, a row each.
///
/// Reflections leave nothing but the diagonal and its neighbour (Householder), and rotations then make the neighbour vanish,
/// from its end on and with shifts (QL; Golub and Van Loan, Matrix Computations, sections 8.3.1 and 8.3.3). Some `10·n³`
/// operations along rows: 0.03 s for `n = 384`, 0.5 s for 1,024.
pub(crate) fn eigen(matrix: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let Band { mut diagonal, mut beside, mut vectors } = banded(matrix, n);
    for start in 0..n {
        // Two or three rounds a value are usual; what is left after so many is rounding.
        for _ in 0..64 {
            let is_small = |at: &usize| {
                beside[*at].abs() <= f64::EPSILON * (diagonal[*at].abs() + diagonal[at + 1].abs())
            };
            let end = (start..n - 1).find(is_small).unwrap_or(n - 1);
            if end == start {
                break;
            }
            chase((start, end), &mut diagonal, &mut beside, &mut vectors);
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]).then(a.cmp(&b)));
    let values = order.iter().map(|&at| diagonal[at]).collect();
    (values, order.iter().flat_map(|&at| vectors[at * n..][..n].to_vec()).collect())
}

/// A matrix whose numbers are on the diagonal and beside it, and what it was turned by: a row a direction.
struct Band {
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    vectors: Vec<f64>,
}

/// Reflects a symmetric matrix until only a band is left.
fn banded(mut matrix: Vec<f64>, n: usize) -> Band {
    let (mut diagonal, mut beside) = (vec![0.0; n], vec![0.0; n]);
    // What each step is reflected by, and two over the square of its length.
    let mut mirrors: Vec<(Vec<f64>, f64)> = Vec::with_capacity(n);
    for step in 0..n.saturating_sub(1) {
        diagonal[step] = matrix[step * n + step];
        let mut mirror = matrix[step * n + step + 1..(step + 1) * n].to_vec();
        let length = dot(&mirror, &mirror).sqrt();
        // Away from its first number, so that nothing cancels.
        beside[step] = -length.copysign(mirror[0]);
        mirror[0] -= beside[step];
        let square = dot(&mirror, &mirror);
        let factor = if square > 0.0 { 2.0 / square } else { 0.0 };
        let rest = |row: usize| row * n + step + 1..(row + 1) * n;
        let mut image: Vec<f64> =
            (step + 1..n).map(|row| factor * dot(&matrix[rest(row)], &mirror)).collect();
        let share = 0.5 * factor * dot(&image, &mirror);
        image.iter_mut().zip(&mirror).for_each(|(image, mirror)| *image -= share * mirror);
        for (row, (of_mirror, of_image)) in (step + 1..n).zip(mirror.iter().zip(&image)) {
            for (value, (mirror, image)) in matrix[rest(row)].iter_mut().zip(mirror.iter().zip(&image)) {
                *value -= of_mirror * image + of_image * mirror;
            }
        }
        mirrors.push((mirror, factor));
    }
    if n > 0 {
        diagonal[n - 1] = matrix[n * n - 1];
    }
    let mut vectors = matrix;
    vectors.fill(0.0);
    (0..n).for_each(|at| vectors[at * n + at] = 1.0);
    for (step, (mirror, factor)) in mirrors.iter().enumerate().rev() {
        // Rows above have nothing here yet.
        for row in step + 1..n {
            let part = &mut vectors[row * n + step + 1..(row + 1) * n];
            let share = factor * dot(part, mirror);
            part.iter_mut().zip(mirror).for_each(|(value, mirror)| *value -= share * mirror);
        }
    }
    Band { diagonal, beside, vectors }
}

/// One round over a stretch of the band: the number beside its start becomes smaller, and most often vanishes.
fn chase((start, end): (usize, usize), diagonal: &mut [f64], beside: &mut [f64], vectors: &mut [f64]) {
    let n = diagonal.len();
    let slope = (diagonal[start + 1] - diagonal[start]) / (2.0 * beside[start]);
    let shift = diagonal[start] - beside[start] / (slope + slope.hypot(1.0).copysign(slope));
    let (mut value, mut sine, mut cosine, mut carried) = (diagonal[end] - shift, 1.0, 1.0, 0.0);
    for at in (start..end).rev() {
        let (over, under) = (sine * beside[at], cosine * beside[at]);
        let length = over.hypot(value);
        beside[at + 1] = length;
        if length == 0.0 {
            // The stretch falls into two.
            diagonal[at + 1] -= carried;
            beside[end] = 0.0;
            return;
        }
        (sine, cosine) = (over / length, value / length);
        let rest = diagonal[at + 1] - carried;
        let turned = (diagonal[at] - rest) * sine + 2.0 * cosine * under;
        carried = sine * turned;
        diagonal[at + 1] = rest + carried;
        value = cosine * turned - under;
        let (upper, lower) = vectors[at * n..(at + 2) * n].split_at_mut(n);
        for (a, b) in upper.iter_mut().zip(lower) {
            (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
        }
    }
    diagonal[start] -= carried;
    beside[start] = value;
    beside[end] = 0.0;
}

/// The product of two vectors, summed in four parts.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (left, right) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = left.remainder().iter().zip(right.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; 4];
    for (a, b) in left.zip(right) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest
}

#[cfg(test)]
pub(crate) mod tests {
    use polytag_nn::random::Key;

    use super::*;

    /// `A·Aᵀ` of an `n` by `n` matrix of random numbers whose columns shrink.
    pub(crate) fn symmetric(n: usize, shrink: f64) -> Vec<f64> {
        let key = Key::new(7);
        let number = |row: usize, column: usize| {
            (f64::from(key.uniform(row as u32, column as u32)) - 0.5) * shrink.powi(column as i32)
        };
        let cell = |at: usize| (0..n).map(|k| number(at / n, k) * number(at % n, k)).sum();
        (0..n * n).map(cell).collect()
    }

    #[test]
    fn eigen_solves_a_matrix_by_hand() {
        let (values, vectors) = eigen(vec![2.0, 1.0, 1.0, 2.0], 2);
        assert!((values[0] - 3.0).abs() < 1e-14 && (values[1] - 1.0).abs() < 1e-14, "{values:?}");
        assert!((vectors[0] - vectors[1]).abs() < 1e-14 && (vectors[2] + vectors[3]).abs() < 1e-14);
    }

    /// Values fall, each vector is only stretched by its matrix, and all stand across each other.
    fn assert_solved(matrix: &[f64], n: usize) {
        let (values, vectors) = eigen(matrix.to_vec(), n);
        assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
        let size = values.iter().fold(0f64, |size, value| size.max(value.abs()));
        let rows: Vec<&[f64]> = vectors.chunks(n).collect();
        for (at, (value, vector)) in values.iter().zip(&rows).enumerate() {
            for (row, part) in matrix.chunks(n).zip(*vector) {
                let image = dot(row, vector);
                assert!((image - value * part).abs() <= 1e-12 * size, "{n}: {image} {value} {part}");
            }
            for (other, row) in rows.iter().enumerate() {
                let wanted = f64::from(u8::from(at == other));
                assert!((dot(vector, row) - wanted).abs() < 1e-12, "{n}: {at} {other}");
            }
        }
    }

    #[test]
    fn eigen_finds_vectors() {
        for n in [1, 2, 3, 12, 65, 130] {
            assert_solved(&symmetric(n, 0.9), n);
        }
        assert_eq!(eigen(Vec::new(), 0), (Vec::new(), Vec::new()));
    }

    #[test]
    fn eigen_takes_what_is_not_positive_not_coupled_or_all_alike() {
        let n = 9;
        let mut split = symmetric(n, 0.7);
        // Two blocks that know nothing of each other, one of them negative.
        for (at, value) in split.iter_mut().enumerate() {
            match (at / n < 4, at % n < 4) {
                (true, true) => *value = -*value,
                (false, false) => {}
                _ => *value = 0.0,
            }
        }
        assert_solved(&split, n);
        assert_solved(&vec![0.0; n * n], n);
        assert_solved(&vec![1.0; n * n], n);
        let same: Vec<f64> = (0..n * n).map(|at| if at / n == at % n { 3.0 } else { 0.0 }).collect();
        assert_solved(&same, n);
    }

    #[test]
    fn a_triangle_undoes_its_matrix() {
        let matrix = symmetric(9, 0.8);
        let triangle = Triangle::of(&matrix, 9).unwrap();
        let wanted: Vec<f64> = (0..9).map(|at| f64::from(at) - 3.5).collect();
        let mut image: Vec<f64> =
            matrix.chunks(9).map(|row| row.iter().zip(&wanted).map(|(a, b)| a * b).sum()).collect();
        triangle.undo(&mut image);
        triangle.undo_transposed(&mut image);
        assert!(image.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{image:?}");
        assert!(Triangle::of(&[1.0, 2.0, 2.0, 1.0], 2).is_none());
        assert!(Triangle::of(&[0.0], 1).is_none() && Triangle::of(&[f64::NAN], 1).is_none());
    }
}
