//! [`Hnsw`] against a search through all labels.

use super::*;
use crate::progress::{Silent, Stop};

const DIM: usize = 24;

/// Numbers that look like chance and are always the same.
fn noise(seed: usize) -> f32 {
    let bits = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let bits = (bits ^ (bits >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((bits >> 40) as f32) / (1 << 24) as f32 - 0.5
}

/// Vectors of length one around a hundred centres.
fn vector(place: usize) -> Vec<f32> {
    let centre = 7_000_000 + place % 100 * DIM;
    let numbers = (0..DIM).map(|at| noise(centre + at) + 0.5 * noise(place * DIM + at));
    let numbers: Vec<f32> = numbers.collect();
    let length = numbers.iter().map(|value| value * value).sum::<f32>().sqrt();
    numbers.iter().map(|value| value / length).collect()
}

fn all(labels: usize, precision: Precision) -> Exact {
    let mut index = Exact::new(DIM, precision).unwrap();
    (0..labels).for_each(|label| index.set(LabelId::from_index(label), &vector(label)).unwrap());
    index
}

fn queries(count: usize) -> Vec<f32> {
    (0..count).flat_map(|query| vector(1_000_000 + query)).collect()
}

fn graph(labels: usize) -> Hnsw {
    let config = HnswConfig { width: 16, breadth: 64, recall: 0.97, seed: 1 };
    let built = Hnsw::build(all(labels, Precision::I8), &config, &queries(50), (&Silent, &Stop::default()));
    built.unwrap().unwrap().0
}

#[test]
fn what_is_found_is_nearly_all_there_is_and_scored_to_the_bit() {
    let (index, exact) = (graph(4000), all(4000, Precision::F16));
    let queries = queries(120);
    let (found, truth) =
        (index.search(&queries, 100, None).unwrap(), exact.search(&queries, 100, None).unwrap());
    let share = recall(&truth, &found);
    assert!(share >= 0.95, "{share}");
    for (query, ranking) in queries.chunks(DIM).zip(&found) {
        assert_eq!(ranking.len(), 100);
        let labels: Allowed = ranking.labels().collect();
        // The same scores in the same order as a search through just these labels.
        assert_eq!(exact.search(query, 100, Some(&labels)).unwrap()[0], *ranking);
    }
    assert!(index.search(&queries[..DIM], 0, None).unwrap()[0].is_empty());
    assert_eq!(index.search(&queries[..DIM], 5000, None).unwrap()[0].len(), 4000);
    assert!(index.search(&queries[1..DIM], 5, None).is_err());
    let nothing = [f32::NAN; DIM];
    assert!(index.search(&nothing, 5, None).is_err());
}

#[test]
fn few_and_many_allowed_labels_are_all_found() {
    let (index, exact) = (graph(4000), all(4000, Precision::F16));
    let queries = queries(40);
    // Two of three; one of seven; those around one centre, which is far from most queries; six; none.
    let sets: [Allowed; 5] = [
        (0..4000).filter(|label| label % 3 != 0).map(LabelId).collect(),
        (0..4000).filter(|label| label % 7 == 0).map(LabelId).collect(),
        (0..4000).filter(|label| label % 100 < 15).map(LabelId).collect(),
        [3, 700, 1500, 2222, 3999, 9000].map(LabelId).into_iter().collect(),
        Allowed::default(),
    ];
    for (set, allowed) in sets.iter().enumerate() {
        let found = index.search(&queries, 20, Some(allowed)).unwrap();
        let truth = exact.search(&queries, 20, Some(allowed)).unwrap();
        let share = recall(&truth, &found);
        assert!(share >= 0.95, "set {set}: {share}");
        assert!(found.iter().flat_map(Ranking::labels).all(|label| allowed.contains(label)));
        assert!(found.iter().zip(&truth).all(|(found, truth)| found.len() == truth.len()), "set {set}");
    }
}

#[test]
fn labels_of_the_same_name_are_found() {
    let mut same = Exact::new(DIM, Precision::I8).unwrap();
    // Eight of each, far from each other by position.
    (0..4000).for_each(|label| same.set(LabelId::from_index(label), &vector(label % 500)).unwrap());
    let config = HnswConfig { width: 16, breadth: 64, recall: 0.97, seed: 1 };
    let built = Hnsw::build(same, &config, &queries(50), (&Silent, &Stop::default()));
    let (index, _) = built.unwrap().unwrap();
    let found = |name: usize| {
        let best = index.search(&vector(name), 8, None).unwrap();
        best[0].labels().filter(|label| label.index() % 500 == name).count()
    };
    let found: usize = (0..500).map(found).sum();
    assert!(found >= 3990, "{found} of 4000");
}

#[test]
fn labels_come_and_go() {
    let mut index = graph(1500);
    let query = vector(3);
    let first = |index: &Hnsw| index.search(&query, 3, None).unwrap()[0].labels().next();
    assert_eq!(first(&index), Some(LabelId(3)));
    index.remove(LabelId(3));
    assert_ne!(first(&index), Some(LabelId(3)));
    // A new label, one past a hole, and one that becomes another.
    index.set(LabelId(1600), &query).unwrap();
    assert_eq!((first(&index), index.len()), (Some(LabelId(1600)), 1500));
    index.set(LabelId(9), &query).unwrap();
    let best = index.search(&query, 2, None).unwrap();
    assert_eq!(best[0].labels().collect::<Vec<_>>(), [LabelId(9), LabelId(1600)]);
    index.remove(LabelId(9));
    index.remove(LabelId(1600));
    index.remove(LabelId(77_777));
    assert_eq!(index.len(), 1498);
    assert!(
        !index.search(&query, 1500, None).unwrap()[0].labels().any(|label| [3, 9, 1600].contains(&label.0))
    );
    // Nearly all of them gone.
    (0..1490).for_each(|label| index.remove(LabelId(label)));
    let left: Vec<LabelId> = index.search(&query, 100, None).unwrap()[0].labels().collect();
    assert_eq!(left.len(), 10);
    assert!(index.set(LabelId(0), &[1.0]).is_err() && index.set(LabelId(0), &[f32::NAN; DIM]).is_err());
}

#[test]
fn walks_go_by_the_vectors_that_the_graph_was_made_of() {
    let (untouched, mut index) = (graph(1500), graph(1500));
    // Labels become far ones; those that stay are found as before.
    let far: Vec<f32> = vector(3).iter().map(|value| -value).collect();
    (0..1500).step_by(2).for_each(|label| index.set(LabelId(label), &far).unwrap());
    let odd: Allowed = (1..1500).step_by(2).map(LabelId).collect();
    let queries = queries(40);
    let found = index.search(&queries, 10, Some(&odd)).unwrap();
    assert_eq!(found, untouched.search(&queries, 10, Some(&odd)).unwrap());
    assert_eq!(index.search(&far, 5, None).unwrap()[0].labels().next(), Some(LabelId(0)));
}

#[test]
fn what_was_changed_since_is_kept_with_the_graph() {
    let mut index = graph(600);
    index.set(LabelId(9), &vector(5000)).unwrap();
    index.set(LabelId(611), &vector(5001)).unwrap();
    index.set(LabelId(640), &vector(5002)).unwrap();
    index.remove(LabelId(640));
    index.remove(LabelId(10));
    let (rows, codes) = (index.exact().rows().into_owned(), index.exact().codes().unwrap());
    let (numbers, scales) = codes.parts();
    let codes = (numbers.to_vec().into(), scales.to_vec().into());
    let exact = Exact::from_coded_rows(DIM, rows, index.labels().clone(), Some(codes)).unwrap();
    let again = Hnsw::from_parts(exact, index.arrays()).unwrap();
    for query in [vector(5000), vector(5001), vector(5002), vector(10)] {
        assert_eq!(again.search(&query, 20, None).unwrap(), index.search(&query, 20, None).unwrap());
    }
    assert_eq!(again.search(&vector(5001), 1, None).unwrap()[0].labels().next(), Some(LabelId(611)));
    // One that is gone is not found though nothing came since.
    let mut less = graph(600);
    less.remove(LabelId(10));
    let (rows, codes) = (less.exact().rows().into_owned(), less.exact().codes().unwrap());
    let codes = (codes.parts().0.to_vec().into(), codes.parts().1.to_vec().into());
    let exact = Exact::from_coded_rows(DIM, rows, less.labels().clone(), Some(codes)).unwrap();
    let again = Hnsw::from_parts(exact, less.arrays()).unwrap();
    let found = again.search(&vector(10), 20, None).unwrap();
    assert!(found == less.search(&vector(10), 20, None).unwrap());
    assert!(found[0].labels().all(|label| label != LabelId(10)));
    let mut arrays = index.arrays();
    arrays.outside = vec![641].into();
    let exact = all(641, Precision::I8);
    assert!(Hnsw::from_parts(exact, arrays).unwrap_err().to_string().contains("outside"));
}

#[test]
fn a_graph_needs_codes() {
    let config = HnswConfig { width: 16, breadth: 64, ..HnswConfig::default() };
    let built = Hnsw::build(all(300, Precision::F16), &config, &queries(5), (&Silent, &Stop::default()));
    let index = built.unwrap().unwrap().0;
    let found = index.search(&vector(3), 1, None).unwrap();
    assert_eq!(found[0].labels().next(), Some(LabelId(3)));
    let error = Hnsw::from_parts(all(300, Precision::F16), index.arrays()).unwrap_err().to_string();
    assert!(error.contains("8 bits"), "{error}");
}

#[test]
fn the_graph_is_the_same_on_any_number_of_threads() {
    let made = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let GraphArrays { links, nodes, upper, numbers, .. } = pool.install(|| graph(1200)).arrays();
        [links, nodes, upper, numbers].map(|array| array.to_vec())
    };
    assert_eq!(made(1), made(3));
}

#[test]
fn a_kept_graph_finds_the_same_and_a_wrong_one_is_refused() {
    let index = graph(600);
    let again = Hnsw::from_parts(all(600, Precision::I8), index.arrays()).unwrap();
    let queries = queries(10);
    assert_eq!(again.search(&queries, 10, None).unwrap(), index.search(&queries, 10, None).unwrap());

    let refused = |change: &dyn Fn(&mut GraphArrays)| {
        let mut arrays = index.arrays();
        change(&mut arrays);
        Hnsw::from_parts(all(600, Precision::I8), arrays).unwrap_err().to_string()
    };
    let held = |array: &mut crate::storage::Array<u32>, change: &dyn Fn(&mut Vec<u32>)| {
        change(array.held_mut().unwrap())
    };
    assert!(refused(&|arrays| held(&mut arrays.links, &|links| links[5] = 600)).contains("600"));
    assert!(refused(&|arrays| held(&mut arrays.links, &|links| _ = links.pop())).contains("lowest layer"));
    assert!(refused(&|arrays| held(&mut arrays.upper, &|links| links[0] = 70_000)).contains("70000"));
    assert!(refused(&|arrays| held(&mut arrays.upper, &|links| links.push(1))).contains("more of it"));
    assert!(refused(&|arrays| held(&mut arrays.nodes, &|nodes| nodes.swap(0, 1))).contains("layer 1"));
    assert!(refused(&|arrays| held(&mut arrays.nodes, &|nodes| _ = nodes.pop())).contains("cut short"));
    assert!(
        refused(&|arrays| held(&mut arrays.numbers, &|numbers| numbers[0] = u32::MAX)).contains("cut short")
    );
    assert!(refused(&|arrays| held(&mut arrays.numbers, &|numbers| numbers[0] = 0)).contains("more of it"));
    assert!(refused(&|arrays| held(&mut arrays.numbers, &|numbers| numbers[1] = 0)).contains("lead nowhere"));
    assert!(
        refused(&|arrays| held(&mut arrays.numbers, &|numbers| numbers[2] = 600)).contains("begins at 600")
    );
    assert!(
        refused(&|arrays| held(&mut arrays.numbers, &|numbers| numbers.truncate(2))).contains("how wide")
    );
}

#[test]
fn one_label_and_labels_that_are_all_the_same_are_found() {
    for labels in [1, 2, 300] {
        let mut all = Exact::new(DIM, Precision::I8).unwrap();
        (0..labels).for_each(|label| all.set(LabelId(label), &vector(0)).unwrap());
        let config = HnswConfig { width: 8, breadth: 16, ..HnswConfig::default() };
        let built = Hnsw::build(all, &config, &vector(0), (&Silent, &Stop::default())).unwrap();
        let found = built.unwrap().0.search(&vector(0), 5, None).unwrap();
        assert_eq!(found[0].len(), 5.min(labels as usize));
    }
    let none = Exact::new(DIM, Precision::I8).unwrap();
    assert!(Hnsw::build(none, &HnswConfig::default(), &[], (&Silent, &Stop::default())).unwrap().is_none());
}
