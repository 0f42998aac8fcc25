//! [`Exact`] against what a plain sum in 64 bits finds, on every instruction set there is.

use proptest::prelude::*;

use super::kernel::Instructions;
use super::*;
use crate::ranking::Scored;

/// Vectors by position, none where there is no label.
type Vectors = Vec<Option<Vec<f32>>>;

fn index(vectors: &Vectors, dim: usize, precision: Precision) -> Exact {
    let mut index = Exact::new(dim, precision).unwrap();
    for (position, vector) in vectors.iter().enumerate() {
        if let Some(vector) = vector {
            index.set(LabelId::from_index(position), vector).unwrap();
        }
    }
    index
}

/// The scores in 64 bits, of the labels that may be answered with.
fn by_hand(vectors: &Vectors, query: &[f32], allowed: Option<&Allowed>) -> Vec<(LabelId, f64)> {
    // A plain sum starts from -0.0.
    let product = |vector: &Vec<f32>| {
        vector.iter().zip(query).fold(0.0, |sum, (&a, &b)| sum + f64::from(a) * f64::from(b))
    };
    let labels = vectors.iter().enumerate().map(|(position, vector)| (LabelId::from_index(position), vector));
    labels
        .filter(|(label, _)| allowed.is_none_or(|allowed| allowed.contains(*label)))
        .filter_map(|(label, vector)| Some((label, product(vector.as_ref()?))))
        .collect()
}

/// Numbers that 64, 32 and 16 bits agree on, products and sums too; ties are many.
fn whole_number() -> impl Strategy<Value = f32> + Clone {
    (-4i8..=4).prop_map(f32::from)
}

fn vectors(dim: usize, number: impl Strategy<Value = f32> + Clone) -> impl Strategy<Value = Vectors> {
    prop::collection::vec(prop::option::weighted(0.8, prop::collection::vec(number, dim)), 0..90)
}

/// A case of everything: dimensions, vectors, queries, k, allowed labels.
fn case(
    number: impl Strategy<Value = f32> + Clone,
) -> impl Strategy<Value = (usize, Vectors, Vec<f32>, usize, Option<Allowed>)> {
    (1usize..40, 0usize..40).prop_flat_map(move |(dim, queries)| {
        let some = prop::collection::vec(0u32..100, 0..60);
        let allowed = prop::option::of(some.prop_map(|some| some.into_iter().map(LabelId).collect()));
        let queries = prop::collection::vec(number.clone(), dim * queries);
        (Just(dim), vectors(dim, number.clone()), queries, 0usize..110, allowed)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Where sums are exact, so is the ranking: ties, holes, subsets and all.
    #[test]
    fn the_best_are_found((dim, vectors, queries, k, allowed) in case(whole_number())) {
        let expected: Vec<Ranking> = queries
            .chunks(dim)
            .map(|query| {
                let scores = by_hand(&vectors, query, allowed.as_ref()).into_iter();
                let scored = scores.map(|(label, score)| Scored { label, score: score as f32 }).collect();
                Ranking::new(scored, k).unwrap()
            })
            .collect();
        for precision in [Precision::F32, Precision::F16] {
            for instructions in Instructions::available() {
                let index = index(&vectors, dim, precision).with_instructions(instructions);
                prop_assert_eq!(index.search(&queries, k, allowed.as_ref()).unwrap(), expected.clone());
            }
        }
    }

    /// Where sums are rounded, scores are close to the true ones and the same bits everywhere.
    #[test]
    fn scores_are_close_and_the_same_everywhere((dim, vectors, queries, _, allowed) in case(-1.0f32..1.0)) {
        for (precision, tolerance) in [(Precision::F32, 1e-7), (Precision::F16, 5e-4)] {
            let tolerance = tolerance * dim as f64;
            let mut all = Vec::new();
            for instructions in Instructions::available() {
                let index = index(&vectors, dim, precision).with_instructions(instructions);
                all.push(index.search(&queries, vectors.len(), allowed.as_ref()).unwrap());
            }
            for (query, ranking) in queries.chunks(dim).zip(&all[0]) {
                let expected = by_hand(&vectors, query, allowed.as_ref());
                prop_assert_eq!(ranking.len(), expected.len());
                for entry in ranking.entries() {
                    let (_, score) = expected.iter().find(|(label, _)| *label == entry.label).unwrap();
                    prop_assert!((score - f64::from(entry.score)).abs() <= tolerance);
                }
            }
            prop_assert!(all.iter().all(|rankings| *rankings == all[0]));
        }
    }

    /// What a label gains is added to its product, and no label is passed over for it.
    #[test]
    fn gains_are_added(
        (dim, vectors, queries, k, allowed) in case(whole_number()),
        gains in prop::collection::vec((-40i8..=40).prop_map(f32::from), 0..90),
    ) {
        let expected: Vec<Ranking> = queries
            .chunks(dim)
            .map(|query| {
                let scores = by_hand(&vectors, query, allowed.as_ref()).into_iter();
                let gain = |label: LabelId| gains.get(label.index()).copied().unwrap_or(0.0);
                let scored = |(label, score): (LabelId, f64)| Scored { label, score: score as f32 + gain(label) };
                Ranking::new(scores.map(scored).collect(), k).unwrap()
            })
            .collect();
        for precision in [Precision::F32, Precision::F16] {
            for instructions in Instructions::available() {
                let index = index(&vectors, dim, precision).with_instructions(instructions);
                let index = index.with_gains(gains.clone()).unwrap();
                prop_assert_eq!(index.search(&queries, k, allowed.as_ref()).unwrap(), expected.clone());
            }
        }
    }

    /// A query alone, a label alone: the score is the same as in company.
    #[test]
    fn company_changes_nothing((dim, vectors, queries, k, allowed) in case(-1.0f32..1.0)) {
        let index = index(&vectors, dim, Precision::F32);
        let together = index.search(&queries, k, allowed.as_ref()).unwrap();
        for (query, ranking) in queries.chunks(dim).zip(&together) {
            prop_assert_eq!(&index.search(query, k, allowed.as_ref()).unwrap()[0], ranking);
            for entry in ranking.entries() {
                let alone = index.search(query, 1, Some(&[entry.label].into_iter().collect())).unwrap();
                prop_assert_eq!(alone[0].entries(), [*entry]);
            }
        }
    }

    /// However an index came about, its answers follow from what is in it.
    #[test]
    fn history_changes_nothing(first in vectors(5, -1.0f32..1.0), second in vectors(5, -1.0f32..1.0)) {
        let mut changed = index(&first, 5, Precision::F16);
        for position in 0..first.len().max(second.len()) {
            let label = LabelId::from_index(position);
            match second.get(position).cloned().flatten() {
                Some(vector) => changed.set(label, &vector).unwrap(),
                None => changed.remove(label),
            }
        }
        let fresh = index(&second, 5, Precision::F16);
        prop_assert_eq!(changed.len(), fresh.len());
        prop_assert_eq!(changed.labels(), fresh.labels());
        let queries = [0.5, -0.25, 1.0, 0.0, 0.125, -1.0, 2.0, 0.0, 0.5, 0.5];
        prop_assert_eq!(changed.search(&queries, 20, None).unwrap(), fresh.search(&queries, 20, None).unwrap());
        let again = Exact::from_rows(5, changed.rows().into_owned(), changed.labels().clone()).unwrap();
        prop_assert_eq!(again.search(&queries, 20, None).unwrap(), fresh.search(&queries, 20, None).unwrap());
    }
}

/// Numbers that look random, from -1 to 1.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let key = polytag_nn::random::Key::new(seed.into());
    (0..len).map(|place| key.uniform(0, place as u32) * 2.0 - 1.0).collect()
}

#[test]
fn threads_change_nothing() {
    let (dim, labels) = (33, 5000);
    let vectors: Vectors =
        noise(labels * dim, 1).chunks(dim).map(|vector| (vector[0] < 0.9).then(|| vector.to_vec())).collect();
    // More queries than one walk takes.
    let queries = noise(300 * dim, 2);
    for precision in [Precision::F32, Precision::F16] {
        let index = index(&vectors, dim, precision);
        let search = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| index.search(&queries, 50, None).unwrap())
        };
        let alone = search(1);
        assert_eq!(alone, search(3));
        assert_eq!(alone.len(), 300);
        let single: Vec<Ranking> =
            queries.chunks(dim).flat_map(|query| index.search(query, 50, None).unwrap()).collect();
        assert_eq!(alone, single);
    }
}

#[test]
fn what_cannot_be_compared_is_refused_by_name() {
    let mut index = Exact::new(2, Precision::F16).unwrap();
    index.set(LabelId(7), &[1.0, 2.0]).unwrap();
    let message = |refused: Result<(), IndexError>| refused.unwrap_err().to_string();
    for (vector, part) in [
        (&[f32::NAN, 0.0][..], "label 7: number 0 of its vector is NaN"),
        (&[0.0, f32::INFINITY], "label 7: number 1 of its vector is inf"),
        (&[0.0, 70000.0], "is 70000, and 16 bits hold finite numbers up to 65504"),
        (&[0.0; 3], "label 7: its vector holds 3 numbers, and this index holds vectors of 2"),
    ] {
        let told = message(index.set(LabelId(7), vector));
        assert!(told.contains(part), "{told}");
    }
    // The label still has the vector it had.
    assert_eq!(index.search(&[1.0, 1.0], 1, None).unwrap()[0].entries()[0].score, 3.0);
    assert!(message(index.search(&[1.0; 3], 1, None).map(drop)).contains("no whole number of queries"));
    assert!(
        message(index.search(&[1.0, 1.0, 0.0, f32::NAN], 1, None).map(drop)).contains("query 1: number 1")
    );
    assert_eq!(Exact::new(0, Precision::F32).unwrap_err(), IndexError::NoDimensions);
    let told =
        Exact::new(1, Precision::F32).unwrap().with_gains(vec![0.0, f32::NAN]).unwrap_err().to_string();
    assert!(told.contains("label 1: what it gains is NaN"), "{told}");
}

#[test]
fn vectors_from_a_file_are_checked() {
    let rows = |numbers: &[f32]| Rows::F32(numbers.to_vec().into());
    let of = |numbers: &[f32], labels| Exact::from_rows(2, rows(numbers), Allowed::first(labels)).map(drop);
    assert_eq!(of(&[1.0; 4], 2), Ok(()));
    assert_eq!(of(&[1.0; 4], 1), Ok(()));
    assert!(matches!(of(&[1.0; 4], 3), Err(IndexError::Shape { .. })));
    assert!(matches!(of(&[1.0; 3], 1), Err(IndexError::Shape { .. })));
    let error = of(&[1.0, 1.0, 1.0, f32::NAN], 2).unwrap_err();
    assert!(error.to_string().contains("label 1: number 1"), "{error}");
}

#[test]
fn a_score_beyond_all_numbers_is_an_error_that_names_the_label() {
    for instructions in Instructions::available() {
        for sign in [1.0, -1.0] {
            let mut index = Exact::new(2, Precision::F32).unwrap().with_instructions(instructions);
            (0..40).for_each(|label| index.set(LabelId(label), &[f32::from(label as u8), 0.0]).unwrap());
            index.set(LabelId(30), &[sign * f32::MAX, f32::MAX]).unwrap();
            for (query, fine) in [([2.0, 0.0], false), ([2.0, -2.0], false), ([0.5, 0.0], true)] {
                let found = index.search(&query, 3, None);
                match found {
                    Ok(_) => assert!(fine),
                    Err(IndexError::Score(error)) => assert!(!fine && error.label == LabelId(30)),
                    Err(other) => panic!("{other}"),
                }
            }
            // A label that may not be answered with cannot fail.
            let others: Allowed = (0..30).map(LabelId).collect();
            assert_eq!(index.search(&[2.0, 0.0], 3, Some(&others)).unwrap()[0].len(), 3);
        }
    }
}

#[test]
fn zero_has_one_sign() {
    for instructions in Instructions::available() {
        let mut index = Exact::new(1, Precision::F32).unwrap().with_instructions(instructions);
        index.set(LabelId(0), &[-1e-30]).unwrap();
        index.set(LabelId(1), &[0.0]).unwrap();
        let rankings = index.search(&[1e-30], 2, None).unwrap();
        assert_eq!(rankings[0].labels().collect::<Vec<_>>(), [LabelId(0), LabelId(1)]);
        assert!(rankings[0].entries().iter().all(|entry| entry.score.to_bits() == 0));
    }
}

#[test]
fn a_vector_that_no_memory_can_hold_is_refused() {
    let mut index = Exact::new(1 << 40, Precision::F32).unwrap();
    assert!(matches!(index.reserve(1 << 20), Err(IndexError::Memory { .. })));
    assert!(matches!(index.reserve(usize::MAX), Err(IndexError::Memory { .. })));
}

#[test]
fn an_empty_index_answers_with_nothing() {
    let index = Exact::new(3, Precision::F32).unwrap();
    assert!(index.is_empty());
    assert!(index.search(&[1.0; 6], 5, None).unwrap().iter().all(Ranking::is_empty));
    assert!(index.search(&[], 5, None).unwrap().is_empty());
}

/// In 8 bits what is found is scored as in 16, and is nearly what is found there, with every instruction set.
#[test]
fn eight_bits_find_what_sixteen_do() {
    let number = |seed: usize| ((seed * 7919 + seed / 13 * 104_729) % 4001) as f32 / 2000.0 - 1.0;
    let (dim, labels) = (48, 2000);
    let vectors: Vectors =
        (0..labels).map(|label| Some((0..dim).map(|at| number(label * dim + at)).collect())).collect();
    let queries: Vec<f32> = (0..20 * dim).map(|at| number(9_000_000 + at)).collect();
    let truth = index(&vectors, dim, Precision::F16).search(&queries, 50, None).unwrap();
    let coded = || index(&vectors, dim, Precision::I8);
    let found = coded().search(&queries, 50, None).unwrap();
    assert!(recall(&truth, &found) > 0.995, "{}", recall(&truth, &found));
    for (found, truth) in found.iter().zip(&truth) {
        for entry in truth.entries().iter().filter(|entry| found.labels().any(|label| label == entry.label)) {
            assert!(found.entries().contains(entry));
        }
    }
    for integers in kernel8::Integers::available() {
        assert_eq!(
            coded().with_integers(integers).search(&queries, 50, None).unwrap(),
            found,
            "{integers:?}"
        );
    }
    assert_eq!(coded().search_in_full(&queries, 50, None).unwrap(), truth);
    // Few enough to be scored all.
    let some: Allowed = (0..60).map(LabelId).collect();
    let few = index(&vectors, dim, Precision::F16).search(&queries, 50, Some(&some)).unwrap();
    assert_eq!(coded().search(&queries, 50, Some(&some)).unwrap(), few);
    assert!(Exact::new(1 << 17, Precision::I8).is_err());
}

/// Vectors in a file stay there: what is given later lies beside them, and nothing else tells the difference.
#[test]
fn vectors_in_a_file_are_changed_beside_it() {
    use crate::storage::{Array, Mapped};
    use std::sync::Arc;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vectors");
    let numbers: Vec<f32> = (0..40 * 3).map(|at| ((at * 37) % 23) as f32 - 11.0).collect();
    std::fs::write(&path, bytemuck::cast_slice::<f32, u8>(&numbers)).unwrap();
    let file = Arc::new(Mapped::open(&path).unwrap());
    for coded in [false, true] {
        let rows = || Rows::F32(Array::mapped(&file, 0..numbers.len() * 4).unwrap());
        let held = || Rows::F32(numbers.clone().into());
        let make = |rows: Rows| match coded {
            false => Exact::from_rows(3, rows, Allowed::first(40)).unwrap(),
            true => Exact::from_coded_rows(3, rows, Allowed::first(40), None).unwrap(),
        };
        let (mut mapped, mut memory) = (make(rows()), make(held()));
        let query = [1.0, -2.0, 0.5];
        for index in [&mut mapped, &mut memory] {
            index.set(LabelId(7), &[9.0, -9.0, 9.0]).unwrap();
            index.set(LabelId(50), &[8.0, -8.0, 8.0]).unwrap();
            index.set(LabelId(7), &[30.0, -9.0, 9.0]).unwrap();
            index.remove(LabelId(3));
            index.remove(LabelId(50));
            index.set(LabelId(41), &[0.5, 0.25, 4.0]).unwrap();
        }
        assert_eq!(mapped.search(&query, 45, None).unwrap(), memory.search(&query, 45, None).unwrap());
        assert_eq!(mapped.vector(LabelId(7)).unwrap(), Some(vec![30.0, -9.0, 9.0]));
        assert_eq!(mapped.vector(LabelId(3)).unwrap(), None);
        assert_eq!((mapped.vector(LabelId(50)).unwrap(), mapped.len()), (None, 40));
        let rows = mapped.rows();
        assert_eq!((rows.len(), rows.is_mapped()), (51 * 3, false));
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytemuck::cast_slice::<f32, u8>(&numbers));
}
