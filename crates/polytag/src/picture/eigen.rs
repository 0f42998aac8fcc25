//! The two directions in which a symmetric matrix stretches most.
//!
//! Block power iteration: eight vectors are multiplied with the matrix, made orthonormal, and turned among
//! themselves so that they stand as eigenvectors would. How fast the first two settle depends on how far the
//! second eigenvalue is above the ninth, not above the third, which in label vectors is often close by.

use polytag_nn::random::Key;
use rayon::prelude::*;

use crate::algebra::eigen;

/// Vectors that are iterated together.
const BLOCK: usize = 8;
/// Most multiplications. Where they do not suffice, more than eight directions are about as good as each
/// other, and what is returned is one of them.
const ROUNDS: usize = 400;
/// How far an eigenvector may be off, as a share of the first eigenvalue.
const TOLERANCE: f64 = 1e-11;

/// One number of each vector of the block.
type Lanes = [f64; BLOCK];

/// The leading eigenvalues and eigenvectors. Where the matrix has fewer than two dimensions, the second value
/// is zero; the vector of a value that is zero up to rounding has no meaning.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) values: [f64; 2],
    pub(super) vectors: [Vec<f64>; 2],
}

/// The leading eigenpairs of a positive semi-definite matrix, `dimension` rows end to end.
///
/// The sign of a vector is such that its largest number, the first of those, is positive.
pub(super) fn leading(matrix: &[f64], dimension: usize) -> Leading {
    let key = Key::new(0);
    let start = |at: usize| std::array::from_fn(|lane| f64::from(key.uniform(at as u32, lane as u32)) - 0.5);
    let mut basis: Vec<Lanes> = (0..dimension).map(start).collect();
    let mut values = [0.0; BLOCK];
    for _ in 0..ROUNDS {
        orthonormalise(&mut basis);
        let mut image = product(matrix, &basis);
        let (found, turn) = eigen(inner_products(&basis, &image), BLOCK);
        values.copy_from_slice(&found);
        rotate(&mut basis, &turn);
        rotate(&mut image, &turn);
        if residual(&basis, &image, &values) <= TOLERANCE * values[0] {
            break;
        }
        basis = image;
    }
    orthonormalise(&mut basis);
    let vectors = [0, 1].map(|lane| signed(basis.iter().map(|lanes| lanes[lane]).collect()));
    Leading { values: [values[0].max(0.0), values[1].max(0.0)], vectors }
}

fn product(matrix: &[f64], basis: &[Lanes]) -> Vec<Lanes> {
    let row_times_basis = |row: &[f64]| {
        let mut sums = [0.0; BLOCK];
        for (value, lanes) in row.iter().zip(basis) {
            sums.iter_mut().zip(lanes).for_each(|(sum, lane)| *sum += value * lane);
        }
        sums
    };
    matrix.par_chunks(basis.len().max(1)).map(row_times_basis).collect()
}

/// Makes the vectors of unit length and perpendicular; one that lies in the span of those before becomes zero.
fn orthonormalise(basis: &mut [Lanes]) {
    for lane in 0..BLOCK {
        let before = length(basis, lane);
        // Twice, as the first time leaves rounding behind where vectors are nearly parallel.
        for _ in 0..2 {
            for other in 0..lane {
                let along: f64 = basis.iter().map(|lanes| lanes[lane] * lanes[other]).sum();
                basis.iter_mut().for_each(|lanes| lanes[lane] -= along * lanes[other]);
            }
        }
        let after = length(basis, lane);
        let scale = if after > before * 1e-12 { after.recip() } else { 0.0 };
        basis.iter_mut().for_each(|lanes| lanes[lane] *= scale);
    }
}

fn length(basis: &[Lanes], lane: usize) -> f64 {
    basis.iter().map(|lanes| lanes[lane] * lanes[lane]).sum::<f64>().sqrt()
}

/// `basisᵀ · image`, made symmetric.
fn inner_products(basis: &[Lanes], image: &[Lanes]) -> Vec<f64> {
    let mut sums = vec![0.0; BLOCK * BLOCK];
    for (left, right) in basis.iter().zip(image) {
        for (row, left) in sums.chunks_mut(BLOCK).zip(left) {
            row.iter_mut().zip(right).for_each(|(sum, right)| *sum += left * right);
        }
    }
    (0..BLOCK * BLOCK).map(|at| (sums[at] + sums[at % BLOCK * BLOCK + at / BLOCK]) / 2.0).collect()
}

/// Turns the vectors among themselves: vector `i` becomes the combination in row `i` of `turn`.
fn rotate(basis: &mut [Lanes], turn: &[f64]) {
    for lanes in basis {
        let old = *lanes;
        for (lane, weights) in lanes.iter_mut().zip(turn.chunks(BLOCK)) {
            *lane = weights.iter().zip(old).map(|(weight, old)| weight * old).sum();
        }
    }
}

/// How far the first two vectors are from being eigenvectors.
fn residual(basis: &[Lanes], image: &[Lanes], values: &Lanes) -> f64 {
    let off = |lane: usize| {
        let gap = |(at, to): (&Lanes, &Lanes)| (to[lane] - values[lane] * at[lane]).powi(2);
        basis.iter().zip(image).map(gap).sum::<f64>().sqrt()
    };
    off(0).max(off(1))
}

fn signed(mut vector: Vec<f64>) -> Vec<f64> {
    let largest =
        vector.iter().fold(0.0f64, |best, &value| if value.abs() > best.abs() { value } else { best });
    if largest < 0.0 {
        vector.iter_mut().for_each(|value| *value = -*value);
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algebra::tests::symmetric;

    #[test]
    fn the_leading_pairs_are_those_of_eigen() {
        for n in [2, 3, 8, 9, 40] {
            let matrix = symmetric(n, 0.9);
            let found = leading(&matrix, n);
            let (values, vectors) = eigen(matrix, n);
            for at in 0..2 {
                assert!(
                    (found.values[at] - values[at]).abs() < 1e-10 * values[0],
                    "{n}: {values:?} {found:?}"
                );
                let expected = signed(vectors[at * n..][..n].to_vec());
                for (a, b) in found.vectors[at].iter().zip(expected) {
                    assert!((a - b).abs() < 1e-7, "{n}, vector {at}: {a} is not {b}");
                }
            }
        }
    }

    #[test]
    fn nothing_gives_zeros() {
        assert_eq!(leading(&[], 0).values, [0.0; 2]);
        assert_eq!(leading(&[0.0; 9], 3).values, [0.0; 2]);
        let one = leading(&[4.0], 1);
        assert_eq!((one.values, &one.vectors[0][..]), ([4.0, 0.0], &[1.0][..]));
    }

    #[test]
    fn a_matrix_without_a_preference_ends() {
        let identity: Vec<f64> = (0..400).map(|at| f64::from(at / 20 == at % 20)).collect();
        let found = leading(&identity, 20);
        assert!(found.values.iter().all(|value| (value - 1.0).abs() < 1e-12));
    }
}
