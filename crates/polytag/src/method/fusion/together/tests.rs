//! Labels that go together, on vectors whose partners are known.

use polytag_nn::random::Key;

use super::*;
use crate::data::{DataError, Document, Label, LabelSpace};

const DIM: usize = 8;

/// Documents that carry a label of the first ten and its partner, ten further on.
struct Partners {
    space: LabelSpace,
    sets: Vec<Vec<LabelId>>,
}

impl Dataset for Partners {
    fn len(&self) -> usize {
        self.sets.len()
    }

    fn document(&self, _: DocId) -> Result<Document, DataError> {
        unreachable!("label sets are all that is asked for")
    }

    fn labels_of(&self, id: DocId) -> &[LabelId] {
        &self.sets[id.index()]
    }

    fn label_space(&self) -> &LabelSpace {
        &self.space
    }
}

fn partners(labels: usize, documents: usize) -> Partners {
    let mut space = LabelSpace::default();
    (0..2 * labels).for_each(|label| _ = space.add(Label::new(label.to_string(), "a name")).unwrap());
    let sets = (0..documents).map(|at| [at % labels, at % labels + labels].map(LabelId::from_index).to_vec());
    let sets: Vec<Vec<LabelId>> = sets.collect();
    let mut counts = vec![0; space.positions()];
    sets.iter().flatten().for_each(|label| counts[label.index()] += 1);
    space.set_train_counts(counts, documents as u64);
    Partners { space, sets }
}

/// A random vector for each of the first labels; its partner's has the same numbers from back to front.
fn vector(labels: usize) -> impl Fn(LabelId, &mut Vec<f32>) -> bool {
    move |label, to| {
        let (own, turn) = (label.index() % labels, label.index() / labels);
        let place = |at: usize| if turn == 0 { at } else { DIM - 1 - at };
        let number = |at: usize| Key::new(3).uniform(own as u32, place(at) as u32) - 0.5;
        to.extend((0..DIM).map(number));
        true
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

#[test]
fn labels_that_go_together_come_near_each_other() {
    // A hundred partners to learn from, twenty more that no document carries.
    let (known, all) = (partners(100, 1000), vector(120));
    let learned = Together::learn(&known, DIM, |label, to| {
        let at = label.index();
        all(LabelId::from_index(if at < 100 { at } else { at + 20 }), to)
    });
    let learned = learned.unwrap();
    let of = |label: usize, side| {
        let mut row = Vec::new();
        all(LabelId::from_index(label), &mut row);
        learned.turned(&row, side)
    };
    for unseen in 100..120 {
        let own = of(unseen, Side::Predicted);
        let near = |other: usize| cosine(&own, &of(other + 120, Side::Wanted));
        let best = (100..120).max_by(|a, b| near(*a).total_cmp(&near(*b))).unwrap();
        assert_eq!(best, unseen, "{}", near(unseen));
    }
}

#[test]
fn too_few_sets_teach_nothing() {
    assert!(Together::learn(&partners(5, 7), DIM, vector(5)).is_none());
    let mut alone = partners(100, 1000);
    alone.sets.iter_mut().for_each(|set| set.truncate(1));
    assert!(Together::learn(&alone, DIM, vector(100)).is_none());
    // A thousand documents, and all of them carry the same two labels.
    assert!(Together::learn(&partners(1, 1000), DIM, vector(1)).is_none());
    // No label has a vector, or all have the same.
    assert!(Together::learn(&partners(100, 1000), DIM, |_, _| false).is_none());
    let same = |_: LabelId, to: &mut Vec<f32>| {
        to.extend([1.0; DIM]);
        true
    };
    assert!(Together::learn(&partners(100, 1000), DIM, same).is_none());
}

#[test]
fn what_is_usual_counts_for_nothing() {
    let (known, vector) = (partners(100, 1000), vector(100));
    let learned = Together::learn(&known, DIM, &vector).unwrap();
    let mut rows = Vec::new();
    (0..200).for_each(|label| _ = vector(LabelId::from_index(label), &mut rows));
    let wanted = learned.turned(&rows, Side::Wanted);
    for (row, usual) in wanted.chunks(DIM).zip(learned.usual_for(&wanted)) {
        let cosines: Vec<f64> = learned.usual.chunks(DIM).map(|sum| cosine(sum, row)).collect();
        let above: Vec<f64> = cosines.iter().map(|&c| f64::from(usual.above(c as f32))).collect();
        let mean = above.iter().sum::<f64>() / above.len() as f64;
        let deviation = (above.iter().map(|a| a * a).sum::<f64>() / above.len() as f64).sqrt();
        assert!(
            mean.abs() < 1e-5 && (deviation - f64::from(learned.spread)).abs() < 1e-5,
            "{mean} {deviation}"
        );
        let parts = usual.factor() * 0.25 + usual.taken();
        assert!((parts - usual.above(0.25)).abs() < 1e-6);
    }
}

#[test]
fn what_has_no_length_stays_where_it_is() {
    let learned = Together::learn(&partners(100, 1000), DIM, vector(100)).unwrap();
    assert_eq!(learned.turned(&learned.mean, Side::Wanted), [0.0; DIM]);
}
