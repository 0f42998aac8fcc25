//! [`OnDevice`] against [`Exact`], with devices that are plain loops: ones that round otherwise, as far as they may, and
//! ones that err.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polytag_nn::device::Device;
use polytag_nn::error::Bytes;
use polytag_nn::nearest::{MOST, Near, Nearest, Numbers};
use proptest::prelude::*;

use super::on_device::{Bring, Candidates, Thresholds};
use super::*;

/// What a device does otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Scores are off by up to so much of what rounding can do.
    Off(f64),
    /// It has no memory to search with.
    Full,
    /// It fails.
    Broken,
    /// It answers with the label behind the right one.
    Beside,
    /// It answers with its best label twice.
    Twice,
    /// It leaves out its best.
    Forgetful,
}

/// A device made of plain loops.
struct StandIn {
    there: Nearest,
    dim: usize,
    longest: f64,
    fault: Arc<dyn Fn() -> Fault + Send + Sync>,
    asked: Arc<AtomicUsize>,
}

impl Candidates for StandIn {
    fn hide(&mut self, position: usize) -> Result<(), polytag_nn::Error> {
        self.there.hide(position)
    }

    fn best(
        &self,
        queries: &[f32],
        most: usize,
        offsets: Option<&[f32]>,
    ) -> Result<Vec<Vec<Near>>, polytag_nn::Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let fault = (self.fault)();
        if fault == Fault::Full {
            let (asked, used, limit) = (Bytes(1), Bytes(1), Bytes(1));
            return Err(polytag_nn::Error::OutOfMemory { device: "abacus".to_owned(), asked, used, limit });
        }
        if fault == Fault::Broken {
            return Err(polytag_nn::Error::Unfit("a bead is missing".to_owned()));
        }
        let mut all = self.there.best(queries, MOST, offsets)?;
        for (query, near) in queries.chunks(self.dim).zip(&mut all) {
            let length = query.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            let bound = 2.0 * (self.dim as f64 + 1.0) * 2f64.powi(-24) * length * self.longest;
            for near in near.iter_mut() {
                if let Fault::Off(share) = fault {
                    let turn =
                        f64::from(near.position.wrapping_mul(0x9E37_79B1) >> 8) / f64::from(1 << 23) - 1.0;
                    near.score = (f64::from(near.score) + turn * share * bound) as f32;
                }
                if fault == Fault::Beside {
                    near.position += 1;
                }
            }
            near.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.position.cmp(&b.position)));
            if fault == Fault::Forgetful && near.len() > most {
                near.remove(0);
            }
            if fault == Fault::Twice && near.len() > 1 {
                near[1] = near[0];
            }
            near.truncate(most);
        }
        Ok(all)
    }
}

/// A way to such devices, and how often they were asked.
fn stand_in(fault: impl Fn() -> Fault + Send + Sync + 'static) -> (Box<Bring>, Arc<AtomicUsize>) {
    let (asked, fault): (Arc<AtomicUsize>, Arc<dyn Fn() -> Fault + Send + Sync>) =
        (Arc::default(), Arc::new(fault));
    let count = asked.clone();
    let bring = move |numbers: Numbers<'_>, dim: usize, offsets: &[f32]| {
        let wide: Vec<f32> = match numbers {
            Numbers::F32(numbers) => numbers.to_vec(),
            Numbers::F16(numbers) => numbers.iter().map(|number| number.to_f32()).collect(),
        };
        let lengths =
            wide.chunks(dim).map(|vector| vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt());
        let longest = lengths.fold(0.0, f64::max);
        let there = Nearest::new(&Device::cpu(), numbers, dim, offsets)?;
        let there = StandIn { there, dim, longest, fault: fault.clone(), asked: count.clone() };
        Ok(Box::new(there) as Box<dyn Candidates>)
    };
    (Box::new(bring), asked)
}

const ALWAYS: Thresholds = Thresholds { from: 0, changes: usize::MAX };

fn on(fault: Fault, exact: Exact, thresholds: Thresholds) -> (OnDevice, Arc<AtomicUsize>) {
    let (bring, asked) = stand_in(move || fault);
    let index = OnDevice::brought(exact, bring, thresholds);
    asked.store(0, Ordering::Relaxed);
    (index, asked)
}

fn number(seed: usize) -> f32 {
    ((seed * 7919 + seed / 11 * 104_729) % 2003) as f32 / 1001.0 - 1.0
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|place| number(seed + place)).collect()
}

fn vectors(labels: usize, dim: usize, precision: Precision) -> Exact {
    let mut exact = Exact::new(dim, precision).unwrap();
    for label in 0..labels {
        exact.set(LabelId::from_index(label), &numbers(dim, label * dim)).unwrap();
    }
    exact
}

/// A step in the life of an index.
#[derive(Clone, Debug)]
enum Step {
    Set(u32, Vec<f32>),
    Remove(u32),
    Settle,
    Search { queries: Vec<f32>, k: usize, allowed: Option<Allowed> },
}

fn step(dim: usize, number: impl Strategy<Value = f32> + Clone + 'static) -> impl Strategy<Value = Step> {
    let vector = prop::collection::vec(number.clone(), dim);
    let queries = (0usize..5).prop_flat_map(move |count| prop::collection::vec(number.clone(), count * dim));
    let some = prop::collection::vec(0u32..320, 0..300);
    let allowed = prop::option::of(some.prop_map(|some| some.into_iter().map(LabelId).collect::<Allowed>()));
    prop_oneof![
        2 => (0u32..320, vector).prop_map(|(label, vector)| Step::Set(label, vector)),
        2 => (0u32..320).prop_map(Step::Remove),
        1 => Just(Step::Settle),
        3 => (queries, 0usize..120, allowed).prop_map(|(queries, k, allowed)| Step::Search { queries, k, allowed }),
    ]
}

/// Numbers with many ties, or hardly any, or so small that products vanish.
fn scale() -> impl Strategy<Value = (bool, f32)> {
    prop_oneof![Just((true, 1.0)), Just((false, 1.0)), Just((false, 1e-20)), Just((true, 1e-3))]
}

#[derive(Clone, Debug)]
struct Life {
    dim: usize,
    first: Vec<Vec<f32>>,
    gains: Vec<f32>,
    steps: Vec<Step>,
    precision: Precision,
    fault: Fault,
    changes: usize,
}

fn life() -> impl Strategy<Value = Life> {
    let fault = prop_oneof![
        Just(Fault::None),
        Just(Fault::Off(0.4)),
        Just(Fault::Off(30.0)),
        Just(Fault::Full),
        Just(Fault::Broken),
        Just(Fault::Beside),
        Just(Fault::Twice),
    ];
    let precision = prop_oneof![Just(Precision::F32), Just(Precision::F16), Just(Precision::I8)];
    (1usize..24, scale(), fault, precision).prop_flat_map(|(dim, (whole, scale), fault, precision)| {
        let number = (-40i8..=40).prop_map(move |n| {
            (if whole { f32::from(n % 3) } else { f32::from(n) * 0.37 + f32::from(n % 7) * 0.01 }) * scale
        });
        let first = prop::collection::vec(prop::collection::vec(number.clone(), dim), 1..300);
        let gains = prop_oneof![Just(Vec::new()), prop::collection::vec(number.clone(), 0..310)];
        let steps = prop::collection::vec(step(dim, number), 1..14);
        (first, gains, steps, 0usize..8).prop_map(move |(first, gains, steps, changes)| Life {
            dim,
            first,
            gains,
            steps,
            precision,
            fault,
            changes,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Whatever the device does, and whatever happened to labels: the answers are those of the CPU.
    #[test]
    fn answers_are_those_of_the_cpu(life in life()) {
        let Life { dim, first, gains, steps, precision, fault, changes } = life;
        let made = || {
            let mut exact = Exact::new(dim, precision).unwrap();
            for (label, vector) in first.iter().enumerate() {
                exact.set(LabelId::from_index(label), vector).unwrap();
            }
            exact.with_gains(gains.clone()).unwrap()
        };
        let mut here = made();
        let (mut there, _) = on(fault, made(), Thresholds { from: 20, changes });
        for step in steps {
            match step {
                Step::Set(label, vector) => {
                    here.set(LabelId(label), &vector).unwrap();
                    there.set(LabelId(label), &vector).unwrap();
                }
                Step::Remove(label) => {
                    here.remove(LabelId(label));
                    there.remove(LabelId(label));
                }
                Step::Settle => there.settle(),
                Step::Search { queries, k, allowed } => {
                    let found = there.search(&queries, k, allowed.as_ref()).unwrap();
                    // A model whose device failed is one that never had any.
                    let expected = match (precision, there.told()) {
                        (Precision::I8, None) => vec![here.search_in_full(&queries, k, allowed.as_ref()).unwrap()],
                        (Precision::I8, Some(_)) => vec![
                            here.search_in_full(&queries, k, allowed.as_ref()).unwrap(),
                            here.search(&queries, k, allowed.as_ref()).unwrap(),
                        ],
                        _ => vec![here.search(&queries, k, allowed.as_ref()).unwrap()],
                    };
                    prop_assert!(expected.contains(&found), "{:?}\n{:?}", found, expected);
                }
            }
        }
        if matches!(fault, Fault::None | Fault::Off(0.4)) {
            prop_assert_eq!(there.told(), None);
        }
    }
}

#[test]
fn the_device_answers_where_it_can() {
    for precision in [Precision::F32, Precision::F16, Precision::I8] {
        for fault in [Fault::None, Fault::Off(0.4)] {
            let (index, asked) = on(fault, vectors(1500, 16, precision), ALWAYS);
            let queries = numbers(9 * 16, 5_000_000);
            let expected = index.exact().search_in_full(&queries, 50, None).unwrap();
            assert_eq!(index.search(&queries, 50, None).unwrap(), expected);
            assert_eq!((asked.load(Ordering::Relaxed), index.told(), index.helped()), (1, None, 9));
            // More than it can keep, and nothing at all, are for the CPU.
            assert_eq!(index.search(&queries, MOST, None).unwrap()[0].len(), 1500);
            assert_eq!(index.search(&queries, 0, None).unwrap()[0].len(), 0);
            assert_eq!((asked.load(Ordering::Relaxed), index.helped()), (1, 9));
        }
    }
}

#[test]
fn labels_that_score_the_same_are_told_apart_by_the_cpu() {
    let mut exact = Exact::new(2, Precision::F32).unwrap();
    (0..400).for_each(|label| exact.set(LabelId(label), &[0.6, 0.8]).unwrap());
    let (index, asked) = on(Fault::Off(0.4), exact, ALWAYS);
    let found = index.search(&[0.3, 0.1], 5, None).unwrap();
    assert_eq!(found[0].labels().map(|label| label.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!((asked.load(Ordering::Relaxed), index.told(), index.helped()), (1, None, 0));
}

#[test]
fn few_allowed_labels_are_compared_on_the_cpu() {
    let (index, asked) = on(Fault::None, vectors(500, 4, Precision::F32), Thresholds { from: 100, ..ALWAYS });
    let query = numbers(4, 77);
    for (allowed, times) in [(Allowed::first(99), 0), (Allowed::first(100), 1)] {
        let found = index.search(&query, 9, Some(&allowed)).unwrap();
        assert_eq!(found, index.exact().search(&query, 9, Some(&allowed)).unwrap());
        assert_eq!(asked.load(Ordering::Relaxed), times);
    }
}

#[test]
fn a_device_that_is_wrong_from_the_start_is_not_asked_again_and_it_is_told() {
    let cases = [
        (Fault::Off(30.0), "further from those of the CPU"),
        (Fault::Beside, "further from those of the CPU"),
        (Fault::Twice, "other labels than it should"),
        (Fault::Forgetful, "not those of the CPU"),
        (Fault::Broken, "a bead is missing"),
        (Fault::Full, "abacus is out of memory"),
    ];
    for (fault, why) in cases {
        let (index, asked) = on(fault, vectors(600, 8, Precision::F32), ALWAYS);
        let told = index.told().unwrap();
        assert!(told.contains(why) && told.contains("searched on the CPU"), "{fault:?}: {told}");
        let query = numbers(8, 99);
        let expected = index.exact().search(&query, 7, None).unwrap();
        assert_eq!(index.search(&query, 7, None).unwrap(), expected);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_device_may_run_out_of_memory_and_go_on_but_not_fail() {
    let turn = Arc::new(AtomicUsize::new(0));
    let faults = [Fault::None, Fault::Full, Fault::None, Fault::Broken, Fault::None];
    let next = turn.clone();
    let (bring, asked) = stand_in(move || faults[next.fetch_add(1, Ordering::Relaxed).min(4)]);
    let thresholds = Thresholds { from: 0, changes: 3 };
    let mut index = OnDevice::brought(vectors(600, 8, Precision::F32), bring, thresholds);
    let query = numbers(8, 99);
    let expected = index.exact().search(&query, 7, None).unwrap();
    for (times, told) in [(2, false), (3, false), (4, true), (4, true)] {
        assert_eq!(index.search(&query, 7, None).unwrap(), expected);
        assert_eq!((asked.load(Ordering::Relaxed), index.told().is_some()), (times, told));
    }
    // What failed is let go of, and not brought there again.
    (0..5).for_each(|label| index.set(LabelId(label), &numbers(8, 31 + label as usize)).unwrap());
    index.settle();
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert_eq!(index.search(&query, 7, None).unwrap(), index.exact().search(&query, 7, None).unwrap());
}

#[test]
fn the_copy_is_made_anew_after_many_changes() {
    let (mut index, asked) =
        on(Fault::None, vectors(600, 8, Precision::F32), Thresholds { from: 0, changes: 3 });
    for label in 0..4 {
        index.set(LabelId(598 + label), &numbers(8, 31 + label as usize)).unwrap();
    }
    index.remove(LabelId(10_000));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    index.settle();
    assert_eq!(asked.load(Ordering::Relaxed), 1, "a new copy is checked");
    index.settle();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let query = numbers(8, 99);
    assert_eq!(index.search(&query, 7, None).unwrap(), index.exact().search(&query, 7, None).unwrap());
    assert_eq!((index.len(), index.told()), (602, None));
}

#[test]
fn what_may_overflow_is_for_the_cpu_errors_too() {
    let mut exact = vectors(300, 2, Precision::F32);
    exact.set(LabelId(7), &[3e30, 3e30]).unwrap();
    let (index, _) = on(Fault::None, exact, ALWAYS);
    let (small, large) = ([1.0, 2.0], [3e30, 3e30]);
    assert_eq!(index.search(&small, 3, None).unwrap(), index.exact().search(&small, 3, None).unwrap());
    let error = index.search(&large, 3, None).unwrap_err();
    assert_eq!(error, index.exact().search(&large, 3, None).unwrap_err());
    assert!(index.search(&[f32::NAN, 0.0], 3, None).is_err() && index.search(&[0.0], 3, None).is_err());
    assert_eq!(index.told(), None);
}

#[test]
fn vectors_too_long_for_products_are_not_for_a_device() {
    let mut exact = vectors(300, 2, Precision::F32);
    exact.set(LabelId(0), &[3e38, 3e38]).unwrap();
    let (index, _) = on(Fault::None, exact, ALWAYS);
    assert!(index.told().unwrap().contains("not a finite number"), "{:?}", index.told());
    let query = [1e-3, 1e-3];
    assert_eq!(index.search(&query, 3, None).unwrap(), index.exact().search(&query, 3, None).unwrap());
}

#[test]
fn a_gpu_answers_as_the_cpu() {
    let device = match Device::cuda(&polytag_nn::cuda::CudaOptions::default()) {
        Ok(device) => device,
        Err(why) => {
            // Straight to the file: the test harness hides what passing tests print.
            writeln!(std::io::stderr(), "skipped on the GPU: search among label vectors ({why})").ok();
            return;
        }
    };
    for precision in [Precision::F32, Precision::F16, Precision::I8] {
        let exact = vectors(70_001, 100, precision);
        let gains = numbers(60_000, 3);
        let mut index = OnDevice::new(exact.with_gains(gains).unwrap(), &device);
        let queries = numbers(300 * 100, 8_000_000);
        let half: Allowed = (0..70_001).step_by(2).map(LabelId).collect();
        for round in 0..2 {
            for (k, allowed) in [(1, None), (100, None), (1100, None), (100, Some(&half))] {
                let expected = index.exact().search_in_full(&queries, k, allowed).unwrap();
                assert_eq!(
                    index.search(&queries, k, allowed).unwrap(),
                    expected,
                    "{precision:?} {k} {round}"
                );
            }
            (0..50).for_each(|label| index.remove(LabelId(label * 7)));
            (0..50)
                .for_each(|label| index.set(LabelId(label * 5), &numbers(100, 77 + label as usize)).unwrap());
        }
        assert_eq!(index.told(), None);
    }
}
