//! Combinations of predicted labels, and how near they come to unseen ones (paper 000, algorithm 1).
//!
//! The vectors of predicted labels and their probabilities enter, and vectors of unseen labels; for each unseen label the
//! combination leaves whose sum `Σ p_i e_i` has the highest cosine with it. No such sum is ever made: cosines need the
//! products of the labels with each other, which do not depend on the unseen label, and with the unseen label.
//!
//! Up to [`EXACT`] labels the answer is the best of all combinations, to 0.00001: few labels are walked through, more are
//! searched by bounds. Up to [`MOST`] it is what a beam finds. Products are summed in 64 bits. A sum without length has the cosine 0, as has an unseen label without length. Cost:
//! products of every label with every unseen one, and some microseconds to some tens of them an unseen label; memory: 8 bytes a
//! number of the predicted labels' vectors, and up to 12 bytes a combination.

use rayon::prelude::*;

use super::gram::Gram;
use super::kernel::{LANES, dot};
use super::walk::Lengths;
use super::{beam, exact};

/// Labels of which all combinations are weighed.
pub const EXACT: usize = 25;

/// Labels that can be combined at all.
pub const MOST: usize = 64;

/// A set of predicted labels and its cosine with an unseen one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combination {
    /// The cosine, from -1 to 1.
    pub cosine: f32,
    members: u64,
}

impl Combination {
    /// The places of its labels among those that were given, ascending.
    pub fn members(&self) -> impl Iterator<Item = usize> + use<> {
        super::gram::each(self.members).map(|(label, _)| label)
    }

    /// How many labels it has; none only where there was none to choose from.
    pub fn len(&self) -> usize {
        self.members.count_ones() as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.members == 0
    }
}

/// How combinations are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The best of all, where there are no more than [`EXACT`] labels; else what a beam this wide finds.
    Best {
        /// Combinations that the beam keeps.
        beam: usize,
    },
    /// All labels together, as in ConSE.
    All,
}

/// Labels that were predicted for a document.
///
/// ```
/// use polytag::method::{Effort, Predicted};
/// // A lion or a tiger, and a spoon.
/// let predicted = Predicted::new(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], 3, &[0.6, 0.6, 0.5]);
/// let liger = [0.7, 0.7, 0.0];
/// let best = &predicted.combine(&liger, Effort::Best { beam: 16 })[0];
/// assert_eq!(best.members().collect::<Vec<_>>(), [0, 1]);
/// assert!((best.cosine - 1.0).abs() < 1e-6);
/// assert!(predicted.combine(&liger, Effort::All)[0].cosine < 0.9);
/// ```
pub struct Predicted {
    /// Each label's vector, weighted by its probability.
    vectors: Vec<f64>,
    dim: usize,
    products: Products,
}

/// Products of labels with each other, in rows that are just long enough.
enum Products {
    Few(Gram<16>),
    Some(Gram<32>),
    Many(Gram<64>),
}

impl Predicted {
    /// Labels by their vectors, end to end, and their probabilities.
    ///
    /// # Panics
    /// When there are more than [`MOST`] labels, or not a vector of `dim` numbers for each.
    pub fn new(vectors: &[f32], dim: usize, probabilities: &[f32]) -> Predicted {
        assert!(dim > 0 && vectors.len() == dim * probabilities.len(), "a vector a label");
        assert!(probabilities.len() <= MOST, "no more labels than can be combined");
        let weighted = |(vector, probability): (&[f32], &f32)| {
            let weigh = |value: &f32| f64::from(*value) * f64::from(*probability);
            vector.iter().map(weigh).collect::<Vec<_>>()
        };
        let vectors: Vec<f64> = vectors.chunks_exact(dim).zip(probabilities).flat_map(weighted).collect();
        let products = match probabilities.len() {
            ..=16 => Products::Few(Gram::new(&vectors, dim)),
            17..=32 => Products::Some(Gram::new(&vectors, dim)),
            _ => Products::Many(Gram::new(&vectors, dim)),
        };
        Predicted { vectors, dim, products }
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.vectors.len() / self.dim
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// The combination for each of the unseen labels whose vectors lie end to end. Without a predicted label it is
    /// an empty one, with the cosine 0.
    ///
    /// # Panics
    /// When the vectors are not as long as those of the predicted labels.
    pub fn combine(&self, unseen: &[f32], effort: Effort) -> Vec<Combination> {
        assert!(unseen.len().is_multiple_of(self.dim), "vectors of one length");
        match &self.products {
            Products::Few(gram) => self.combine_by(gram, unseen, effort),
            Products::Some(gram) => self.combine_by(gram, unseen, effort),
            Products::Many(gram) => self.combine_by(gram, unseen, effort),
        }
    }

    /// What each label of a combination adds to its cosine with an unseen label.
    pub fn shares(&self, combination: &Combination, unseen: &[f32]) -> Vec<(usize, f32)> {
        let dots: [f64; MOST] = self.dots(unseen);
        let mut sum = vec![0.0; self.dim];
        for label in combination.members() {
            let vector = &self.vectors[label * self.dim..][..self.dim];
            sum.iter_mut().zip(vector).for_each(|(to, value)| *to += value);
        }
        let length = dot(&sum, &sum).sqrt();
        let share = |label: usize| if length > 0.0 { (dots[label] / length) as f32 } else { 0.0 };
        combination.members().map(|label| (label, share(label))).collect()
    }

    fn combine_by<const N: usize>(&self, gram: &Gram<N>, unseen: &[f32], effort: Effort) -> Vec<Combination> {
        if self.is_empty() {
            return vec![Combination { cosine: 0.0, members: 0 }; unseen.len() / self.dim];
        }
        let all = u64::MAX >> (MOST - self.len());
        let lengths = if effort == Effort::All { None } else { Lengths::new(gram) };
        let combinations = |unseen: &[f32]| -> Vec<Combination> {
            let dots: Vec<[f64; N]> = unseen.chunks_exact(self.dim).map(|row| self.dots(row)).collect();
            let one = |dots: &[f64; N]| match effort {
                Effort::All => (gram.sum(all, dots).cosine(), all),
                Effort::Best { .. } if self.len() <= EXACT => exact::best(gram, dots),
                Effort::Best { beam } => beam::best(gram, dots, beam),
            };
            let found = match &lengths {
                Some(lengths) => lengths.best(gram, &dots),
                None => dots.iter().map(one).collect(),
            };
            let combination = |(cosine, members): (f64, u64)| Combination {
                cosine: cosine.clamp(-1.0, 1.0) as f32,
                members,
            };
            found.into_iter().map(combination).collect()
        };
        let chunks: Vec<Vec<Combination>> = unseen.par_chunks(LANES * self.dim).map(combinations).collect();
        chunks.concat()
    }

    /// The products of the labels with the unit vector of an unseen one; all 0 where it has no length.
    fn dots<const N: usize>(&self, unseen: &[f32]) -> [f64; N] {
        let unseen: Vec<f64> = unseen.iter().copied().map(f64::from).collect();
        let length = dot(&unseen, &unseen).sqrt();
        let mut dots = [0.0; N];
        if length > 0.0 {
            let labels = self.vectors.chunks_exact(self.dim);
            dots.iter_mut().zip(labels).for_each(|(to, label)| *to = dot(label, &unseen) / length);
        }
        dots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEST: Effort = Effort::Best { beam: 16 };

    /// The cosine of a combination, from the vectors themselves.
    fn cosine(vectors: &[f32], dim: usize, probabilities: &[f32], members: u64, unseen: &[f32]) -> f64 {
        let (mut sum, mut parts) = (vec![0.0f64; dim], 0.0);
        for (label, _) in super::super::gram::each(members) {
            for (to, value) in sum.iter_mut().zip(&vectors[label * dim..][..dim]) {
                let value = f64::from(*value) * f64::from(probabilities[label]);
                *to += value;
                parts += value * value;
            }
        }
        let unseen: Vec<f64> = unseen.iter().copied().map(f64::from).collect();
        let (square, length) = (dot(&sum, &sum), dot(&unseen, &unseen));
        if square <= super::super::gram::NOTHING * parts || length == 0.0 {
            return 0.0;
        }
        dot(&sum, &unseen) / (square * length).sqrt()
    }

    /// The highest cosine of all combinations.
    fn brute_force(vectors: &[f32], dim: usize, probabilities: &[f32], unseen: &[f32]) -> f64 {
        let all = 1u64..1 << probabilities.len();
        let cosines = all.map(|members| cosine(vectors, dim, probabilities, members, unseen));
        cosines.reduce(f64::max).unwrap_or(0.0)
    }

    /// Numbers from -1 to 1 plus `shift`, from a seed.
    fn numbers(count: usize, seed: u64, shift: f32) -> Vec<f32> {
        let key = polytag_nn::random::Key::new(seed);
        (0..count).map(|place| key.uniform(place as u32, 7) * 2.0 - 1.0 + shift).collect()
    }

    /// Few different numbers, so that there are ties, zeros, duplicates and opposites.
    fn coarse(count: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec((-2i8..=2).prop_map(f32::from), count)
    }

    fn labels(
        number: impl Fn(usize) -> BoxedStrategy<Vec<f32>>,
    ) -> impl Strategy<Value = (usize, [Vec<f32>; 3])> {
        let probability = prop_oneof![4 => 0.01f32..1.0, 1 => Just(0.0f32), 1 => Just(1e-7f32)];
        let probability = probability.boxed();
        (1usize..6, 0usize..=12).prop_flat_map(move |(dim, count)| {
            let probabilities = prop::collection::vec(probability.clone(), count);
            (Just(dim), (number(dim * count), probabilities, number(dim * 3)).prop_map(|(a, b, c)| [a, b, c]))
        })
    }

    fn check(
        dim: usize,
        vectors: &[f32],
        probabilities: &[f32],
        unseen: &[f32],
    ) -> Result<(), TestCaseError> {
        let found = Predicted::new(vectors, dim, probabilities).combine(unseen, BEST);
        for (found, unseen) in found.iter().zip(unseen.chunks_exact(dim)) {
            let best = brute_force(vectors, dim, probabilities, unseen);
            prop_assert!((f64::from(found.cosine) - best).abs() < 1e-5, "{found:?}, not {best}");
            let members = found.members().map(|label| 1 << label).sum();
            let own = cosine(vectors, dim, probabilities, members, unseen);
            prop_assert!((f64::from(found.cosine) - own).abs() < 1e-5, "{found:?} has {own}");
            prop_assert_eq!(found.is_empty(), probabilities.is_empty());
            searched(dim, vectors, probabilities, unseen, best)?;
        }
        Ok(())
    }

    /// What the search by bounds finds must be the best, too, where combinations could be walked through.
    fn searched(
        dim: usize,
        vectors: &[f32],
        probabilities: &[f32],
        unseen: &[f32],
        best: f64,
    ) -> Result<(), TestCaseError> {
        let predicted = Predicted::new(vectors, dim, probabilities);
        let cosine = match &predicted.products {
            _ if predicted.is_empty() => 0.0,
            Products::Few(gram) => exact::best(gram, &predicted.dots(unseen)).0,
            Products::Some(gram) => exact::best(gram, &predicted.dots(unseen)).0,
            Products::Many(gram) => exact::best(gram, &predicted.dots(unseen)).0,
        };
        prop_assert!((cosine - best).abs() < 1e-5, "{cosine}, not {best}");
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn it_is_the_best_of_all((dim, [vectors, probabilities, unseen]) in labels(|n| prop::collection::vec(-1f32..1.0, n).boxed())) {
            check(dim, &vectors, &probabilities, &unseen)?;
        }

        #[test]
        fn ties_zeros_and_opposites_are_no_trouble((dim, [vectors, probabilities, unseen]) in labels(|n| coarse(n).boxed())) {
            check(dim, &vectors, &probabilities, &unseen)?;
        }
    }

    #[test]
    fn more_labels_than_can_be_walked_through_are_searched_exactly() {
        // The last of 17 to 20 labels needs rows of 32 numbers.
        for (seed, (count, dim, shift)) in
            [(20, 6, 0.0), (17, 40, 0.5), (18, 3, -0.2), (16, 24, 0.2)].into_iter().enumerate()
        {
            let vectors = numbers(count * dim, seed as u64, shift);
            let probabilities: Vec<f32> =
                numbers(count, 100 + seed as u64, 1.1).iter().map(|p| p / 2.1).collect();
            let unseen = numbers(2 * dim, 200 + seed as u64, shift);
            check(dim, &vectors, &probabilities, &unseen).unwrap();
        }
    }

    #[test]
    fn one_label_is_best_where_all_point_away() {
        let predicted = Predicted::new(&[-1.0, 0.5, -1.0, -0.5, -1.0, 0.0], 2, &[0.5, 0.5, 1.0]);
        let best = predicted.combine(&[1.0, 0.0], BEST)[0];
        assert_eq!(best.members().collect::<Vec<_>>(), [0]);
        assert!((best.cosine + 1.0 / 1.25f32.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn a_beam_finds_what_the_exact_search_finds_on_easy_sets_and_never_less_than_a_single_label() {
        let (count, dim) = (40, 24);
        let vectors = numbers(count * dim, 1, 0.1);
        let probabilities = vec![0.5; count];
        let unseen = numbers(20 * dim, 2, 0.1);
        let predicted = Predicted::new(&vectors, dim, &probabilities);
        let found = predicted.combine(&unseen, BEST);
        assert_eq!(found, predicted.combine(&unseen, BEST));
        for (found, unseen) in found.iter().zip(unseen.chunks_exact(dim)) {
            let members = found.members().map(|label| 1 << label).sum();
            let own = cosine(&vectors, dim, &probabilities, members, unseen);
            assert!((f64::from(found.cosine) - own).abs() < 1e-5);
            let single = (0..count).map(|label| cosine(&vectors, dim, &probabilities, 1 << label, unseen));
            assert!(f64::from(found.cosine) >= single.fold(f64::NEG_INFINITY, f64::max));
            // The first 25 labels alone are searched exactly; more of them are as good, as the beam is wide enough here.
            let fewer = Predicted::new(&vectors[..25 * dim], dim, &probabilities[..25]);
            assert!(found.cosine >= fewer.combine(unseen, BEST)[0].cosine - 1e-5);
        }
    }

    #[test]
    fn all_labels_together_are_one_combination() {
        let predicted = Predicted::new(&[1.0, 0.0, 0.0, 1.0], 2, &[0.6, 0.8]);
        let all = predicted.combine(&[0.0, 2.0, 0.0, 0.0], Effort::All);
        assert_eq!(all.iter().map(Combination::len).collect::<Vec<_>>(), [2, 2]);
        assert!((all[0].cosine - 0.8).abs() < 1e-6);
        assert_eq!(all[1].cosine, 0.0);
        assert!(Predicted::new(&[], 2, &[]).combine(&[1.0, 0.0], BEST)[0].is_empty());
    }
}
