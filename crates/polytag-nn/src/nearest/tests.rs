use half::f16;

use super::cuda::{keys_in_shared_memory, near};
use super::*;
use crate::op::testing::gpu;
use crate::random::Key;

/// Numbers that 16 bits hold and whose sums are exact in any order; ties are many.
fn whole(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u32).map(|place| (Key::new(seed).bits(place, 0) % 7) as f32 - 3.0).collect()
}

fn offsets(count: usize) -> Vec<f32> {
    let offset = |place| if place % 5 == 3 { f32::NEG_INFINITY } else { (place % 3) as f32 };
    (0..count).map(offset).collect()
}

#[test]
fn the_best_come_first_and_ties_by_position() {
    let vectors = [1.0, 3.0, 2.0, 3.0, f32::NAN, -1.0];
    let mut nearest =
        Nearest::new(&Device::cpu(), Numbers::F32(&vectors), 1, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.5]).unwrap();
    let positions = |nearest: &Nearest, most, offsets| -> Vec<Vec<u32>> {
        let best = nearest.best(&[1.0, -1.0], most, offsets).unwrap();
        best.iter().map(|best| best.iter().map(|near| near.position).collect()).collect()
    };
    assert_eq!(positions(&nearest, 9, None), [vec![1, 2, 3, 0, 5], vec![5, 0, 2, 1, 3]]);
    assert_eq!(positions(&nearest, 2, None), [[1, 2], [5, 0]]);
    assert_eq!(positions(&nearest, 2, Some(&[9.0; 6])), [[1, 3], [5, 0]]);
    nearest.hide(2).unwrap();
    assert_eq!(positions(&nearest, 3, None), [[1, 3, 0], [5, 0, 1]]);
    assert_eq!(positions(&nearest, 0, None), [[0; 0], [0; 0]]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let cpu = Device::cpu();
    assert!(Nearest::new(&cpu, Numbers::F32(&[1.0, 2.0, 3.0]), 2, &[0.0]).is_err());
    assert!(Nearest::new(&cpu, Numbers::F16(&[f16::ONE]), 0, &[0.0]).is_err());
    let nearest = Nearest::new(&cpu, Numbers::F32(&[1.0, 2.0]), 2, &[0.0]).unwrap();
    assert!(nearest.best(&[1.0], 1, None).is_err());
    assert!(nearest.best(&[1.0, 1.0], MOST + 1, None).is_err());
    assert!(nearest.best(&[1.0, 1.0], 1, Some(&[0.0, 0.0])).is_err());
}

/// The kernel's key of a score and a position, said again.
fn key_of(score: f32, position: u32) -> u64 {
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!position)
}

#[test]
fn keys_order_as_scores_then_positions_and_come_back() {
    let scores = [f32::INFINITY, f32::MAX, 2.5, 1e-40, 0.0, -1e-40, -1.0, f32::MIN, f32::NEG_INFINITY];
    let mut keys = Vec::new();
    for score in scores {
        for position in [0, 1, 77, i32::MAX as u32] {
            keys.push(key_of(score, position));
            assert_eq!(near(key_of(score, position)), Some(Near { position, score }));
        }
    }
    assert!(keys.windows(2).all(|pair| pair[0] > pair[1]), "{keys:x?}");
    assert_eq!(key_of(-0.0, 3), key_of(0.0, 3));
    assert_eq!(near(0), None);
}

#[test]
fn there_is_room_for_what_is_kept_and_what_comes() {
    for most in 1..=MOST {
        let size = keys_in_shared_memory(most);
        assert!(size.is_power_of_two() && size >= most + 256 && 8 * size <= 48 << 10, "{most}: {size}");
    }
}

/// Where sums are exact, both devices give the same bits.
#[test]
fn a_gpu_finds_what_plain_loops_find() {
    let Some(device) = gpu("the nearest of many vectors") else { return };
    let cases = [(1, 1, 1, 1), (5, 3, 7, 4), (300, 40, 33, 132), (5000, 17, 385, 1100), (9000, 3, 8, MOST)];
    for (count, queries, dimension, most) in cases {
        let vectors = whole(count * dimension, 1);
        let narrow: Vec<f16> = vectors.iter().map(|&number| f16::from_f32(number)).collect();
        let queries = whole(queries * dimension, 2);
        let others: Vec<f32> = offsets(count).into_iter().rev().collect();
        for numbers in [Numbers::F32(&vectors), Numbers::F16(&narrow)] {
            let on = |device: &Device| Nearest::new(device, numbers, dimension, &offsets(count)).unwrap();
            let mut here = on(&Device::cpu());
            for block in [(256, 32_768), (16, 64), (7, 1024)] {
                let mut there = on(&device).in_blocks(block);
                for offsets in [None, Some(&others[..])] {
                    let expected = here.best(&queries, most, offsets).unwrap();
                    assert_eq!(there.best(&queries, most, offsets).unwrap(), expected, "{count} {block:?}");
                }
                [&mut here, &mut there].into_iter().for_each(|nearest| nearest.hide(count / 2).unwrap());
                let expected = here.best(&queries, most, None).unwrap();
                assert_eq!(there.best(&queries, most, None).unwrap(), expected, "{count} {block:?}");
                here = on(&Device::cpu());
            }
        }
    }
}
