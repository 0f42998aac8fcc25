//! What there is to know of predicted labels to weigh their combinations: the products of their vectors with each
//! other. Sets of labels are bits, the first label the lowest.

use super::kernel::dot;

/// A sum that is shorter than this part of its summands, squared, is rounding and has no direction: its cosine is 0.
pub(super) const NOTHING: f64 = 1e-12;

/// Products of weighted label vectors with each other, in rows of `N` numbers, zero past the labels there are.
pub(super) struct Gram<const N: usize> {
    rows: Vec<[f64; N]>,
    diagonal: Box<[f64; N]>,
}

/// A combination, summed up: what its labels' products with an unseen label are together, how long the sum of their
/// vectors is, squared, and how long they are one by one, squared and added.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) dot: f64,
    pub(super) square: f64,
    pub(super) parts: f64,
}

impl Sum {
    /// The cosine; 0 where the sum has no length.
    pub(super) fn cosine(&self) -> f64 {
        if self.has_length() { self.dot / self.square.sqrt() } else { 0.0 }
    }

    pub(super) fn has_length(&self) -> bool {
        self.square > NOTHING * self.parts
    }
}

impl<const N: usize> Gram<N> {
    /// The products of vectors that lie end to end, `dim` numbers each.
    ///
    /// # Panics
    /// When there are more than `N` vectors.
    pub(super) fn new(vectors: &[f64], dim: usize) -> Gram<N> {
        let labels = vectors.len() / dim;
        assert!(labels <= N, "a row has room for every label");
        let mut rows = vec![[0.0; N]; labels];
        for (i, first) in vectors.chunks_exact(dim).enumerate() {
            for (j, second) in vectors.chunks_exact(dim).enumerate().take(i + 1) {
                let product = dot(first, second);
                (rows[i][j], rows[j][i]) = (product, product);
            }
        }
        let mut diagonal = Box::new([0.0; N]);
        rows.iter().enumerate().for_each(|(label, row)| diagonal[label] = row[label]);
        Gram { rows, diagonal }
    }

    /// How many labels there are.
    pub(super) fn labels(&self) -> usize {
        self.rows.len()
    }

    /// The products of a label with all.
    pub(super) fn row(&self, label: usize) -> &[f64; N] {
        &self.rows[label]
    }

    /// The products of labels with themselves.
    pub(super) fn diagonal(&self) -> &[f64; N] {
        &self.diagonal
    }

    /// A combination, summed up from nothing.
    pub(super) fn sum(&self, members: u64, dots: &[f64; N]) -> Sum {
        let mut sum = Sum::default();
        for (label, later) in each(members) {
            let with_later: f64 = each(later).map(|(other, _)| self.rows[label][other]).sum();
            sum.dot += dots[label];
            sum.square += self.diagonal[label] + 2.0 * with_later;
            sum.parts += self.diagonal[label];
        }
        sum
    }

    /// A combination with one label more, whose products with the members are `shared` in all.
    pub(super) fn with(&self, sum: Sum, label: usize, shared: f64, dots: &[f64; N]) -> Sum {
        let own = self.diagonal[label];
        Sum { dot: sum.dot + dots[label], square: sum.square + 2.0 * shared + own, parts: sum.parts + own }
    }

    /// The products of all labels with the sum of a combination.
    pub(super) fn shared(&self, members: u64) -> [f64; N] {
        let mut shared = [0.0; N];
        each(members).for_each(|(label, _)| add(&mut shared, &self.rows[label], 1.0));
        shared
    }
}

/// The labels of a set, each with the set of those after it.
pub(super) fn each(mut set: u64) -> impl Iterator<Item = (usize, u64)> {
    std::iter::from_fn(move || {
        let label = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (label < 64).then_some((label, set))
    })
}

/// Adds `times` one row to another.
pub(super) fn add<const N: usize>(to: &mut [f64; N], row: &[f64; N], times: f64) {
    to.iter_mut().zip(row).for_each(|(to, value)| *to += times * value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_vectors() {
        let vectors = [1.0, 0.0, 2.0, 1.0, -3.0, -1.0];
        let gram = Gram::<16>::new(&vectors, 2);
        let dots = std::array::from_fn(|label| if label < 3 { [1.0, 2.0, -3.0][label] } else { 0.0 });
        let sum = gram.sum(0b011, &dots);
        assert_eq!((sum.dot, sum.square, sum.parts), (3.0, 10.0, 6.0));
        assert_eq!(sum.cosine(), 3.0 / 10f64.sqrt());
        let all = gram.with(sum, 2, gram.shared(0b011)[2], &dots);
        assert_eq!((all.dot, all.square), (0.0, 0.0));
        assert_eq!(all.cosine(), 0.0, "a sum without length has no direction");
        assert_eq!(each(0b1010).collect::<Vec<_>>(), [(1, 0b1000), (3, 0)]);
        assert_eq!(each(1 << 63).collect::<Vec<_>>(), [(63, 0)]);
    }
}
