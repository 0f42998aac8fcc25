//! Products of bytes against plain integers, in every instruction set, and against products of `f32`.

use proptest::prelude::*;

use super::*;
use crate::cpu::testing::{bits, random, same_with_any_threads};
use crate::random::Key;

/// Sums of products as plain integers, with the zeros taken out.
fn plain(lefts: &[Vec<u8>], zeros: &[i32], columns: &[Vec<i8>]) -> Vec<i64> {
    let mut out = Vec::new();
    for (left, &zero) in lefts.iter().zip(zeros) {
        for column in columns {
            let products =
                left.iter().zip(column).map(|(&a, &b)| (i64::from(a) - i64::from(zero)) * i64::from(b));
            out.push(products.sum());
        }
    }
    out
}

/// Checks that all sets give the plain integers, to the bit; scales are one.
fn check_integers(lefts: &[Vec<u8>], zeros: &[i32], columns: &[Vec<i8>]) {
    let depth = lefts.first().or(columns.first().map(|_| &lefts[0])).map_or(0, Vec::len);
    let expected: Vec<f32> = plain(lefts, zeros, columns).into_iter().map(|sum| sum as f32).collect();
    let mut bytes = vec![0xa5; lefts.len() * stride(depth)];
    for (left, bytes) in lefts.iter().zip(bytes.chunks_mut(stride(depth).max(1))) {
        bytes[..depth].copy_from_slice(left);
    }
    let steps: Vec<Step> = zeros.iter().map(|&zero| Step { scale: 1.0, zero }).collect();
    for set in IntegerSet::all() {
        let weights = EightBitWeights::packed(set, (depth, columns.len()), |column, integers| {
            integers.copy_from_slice(&columns[column]);
            1.0
        });
        let mut out = vec![f32::NAN; expected.len()];
        Product::new(&weights, EightBitThen::Store).multiply(&bytes, &steps, &mut out);
        assert_eq!(out, expected, "{}", set.name());
    }
}

fn bytes(rows: usize, depth: usize, seed: u64) -> Vec<Vec<u8>> {
    let key = Key::new(seed);
    let row = |row: usize| (0..depth).map(|column| key.bits(row as u32, column as u32) as u8).collect();
    (0..rows).map(row).collect()
}

fn signed(rows: Vec<Vec<u8>>) -> Vec<Vec<i8>> {
    rows.into_iter().map(|row| row.into_iter().map(|byte| byte as i8).collect()).collect()
}

fn zeros(rows: usize) -> Vec<i32> {
    (0..rows).map(|row| (row * 37 % 256) as i32).collect()
}

#[test]
fn every_set_gives_the_plain_integers() {
    for (rows, depth, columns) in
        [(1, 1, 1), (1, 384, 40), (15, 3, 33), (29, 65, 31), (200, 5, 7), (14, 1536, 32), (3, 4, 70)]
    {
        check_integers(&bytes(rows, depth, 1), &zeros(rows), &signed(bytes(columns, depth, 2)));
    }
}

/// 255 · 127 + 255 · 127 does not fit the 16 bits that some instructions sum in.
#[test]
fn extremes_do_not_saturate() {
    for depth in [2, 4, 384, 1537] {
        for weight in [i8::MIN, -127, 127] {
            for (byte, zero) in [(255, 0), (255, 255), (0, 255), (255, 128), (0, 128)] {
                check_integers(&vec![vec![byte; depth]; 15], &[zero; 15], &vec![vec![weight; depth]; 33]);
            }
        }
        // Signs that change from byte to byte.
        let column: Vec<i8> = (0..depth).map(|i| if i % 2 == 0 { i8::MIN } else { i8::MAX }).collect();
        let left: Vec<u8> = (0..depth).map(|i| if i % 2 == 0 { 255 } else { 0 }).collect();
        check_integers(&vec![left; 3], &[0; 3], &vec![column; 3]);
    }
}

#[test]
fn the_deepest_sums_fit() {
    let columns = [vec![i8::MIN; MAX_DEPTH], vec![i8::MAX; MAX_DEPTH]];
    check_integers(&[vec![255; MAX_DEPTH], vec![0; MAX_DEPTH]], &[0, 255], &columns);
}

/// `left · weightᵀ + bias` in `f64`, and the bound on what rounding both sides may change of each.
fn exact(left: View<'_>, weight: View<'_>, bias: &[f32]) -> Vec<(f64, f64)> {
    let greatest = |view: View<'_>, row: usize| {
        (0..view.columns()).map(|i| f64::from(view.at(row, i)).abs()).fold(0.0, f64::max)
    };
    let mut out = Vec::new();
    for row in 0..left.rows() {
        let values: Vec<f64> = (0..left.columns()).map(|i| f64::from(left.at(row, i))).collect();
        let range = values.iter().copied().fold(0.0, f64::max) - values.iter().copied().fold(0.0, f64::min);
        let of_left = 0.501 * range / 255.0;
        for (column, &bias) in bias.iter().enumerate() {
            let of_weight = 0.501 * greatest(weight, column) / 127.0;
            let (mut sum, mut bound) = (f64::from(bias), 1e-5);
            for (i, value) in values.iter().enumerate() {
                let factor = f64::from(weight.at(column, i));
                sum += value * factor;
                bound += value.abs() * of_weight + factor.abs() * of_left + of_left * of_weight;
            }
            out.push((sum, bound));
        }
    }
    out
}

/// Checks a product against `f64`, and that all sets give the same bits.
fn check(rows: usize, depth: usize, columns: usize, seed: u64) {
    let (a, b, bias) =
        (random(rows * depth, seed), random(columns * depth, seed + 1), random(columns, seed + 2));
    let (left, weight) = (View::new(&a, rows, depth), View::new(&b, columns, depth));
    let exact = exact(left, weight, &bias);
    let mut first: Option<Vec<f32>> = None;
    for set in IntegerSet::all() {
        let weights = EightBitWeights::for_set(set, weight);
        assert_eq!((weights.depth(), weights.columns()), (depth, columns));
        let mut out = vec![f32::NAN; rows * columns];
        multiply_eight_bit(left, &weights, &mut out, EightBitThen::Bias(&bias));
        for (index, (&found, &(sum, bound))) in out.iter().zip(&exact).enumerate() {
            let off = (f64::from(found) - sum).abs();
            assert!(off <= bound, "{} {index}: {found} is {off} off, more than {bound}", set.name());
        }
        assert_eq!(bits(first.get_or_insert_with(|| out.clone())), bits(&out), "{}", set.name());
        let mut gelu = vec![0.0; out.len()];
        crate::cpu::gelu(&out, &mut gelu);
        multiply_eight_bit(left, &weights, &mut out, EightBitThen::BiasGelu(&bias));
        assert!(out.iter().zip(&gelu).all(|(a, b)| (a - b).abs() < 5e-5), "{}", set.name());
    }
}

#[test]
fn a_product_is_near_that_of_floats() {
    for (rows, depth, columns) in
        [(1, 1, 1), (1, 384, 40), (15, 1, 33), (230, 65, 31), (14, 0, 5), (0, 4, 4), (4, 4, 0)]
    {
        check(rows, depth, columns, 1);
    }
}

#[test]
fn a_feed_forward_part_is_its_two_products() {
    let (rows, depth, wide) = (130, 20, 70);
    let (a, up, down) = (random(rows * depth, 1), random(wide * depth, 2), random(depth * wide, 3));
    let bias = random(wide, 4);
    let up = EightBitWeights::new(View::new(&up, wide, depth));
    let down = EightBitWeights::new(View::new(&down, depth, wide));
    let left = View::new(&a, rows, depth);
    let (mut between, mut expected) = (vec![0.0; rows * wide], vec![0.0; rows * depth]);
    multiply_eight_bit(left, &up, &mut between, EightBitThen::BiasGelu(&bias));
    multiply_eight_bit(View::new(&between, rows, wide), &down, &mut expected, EightBitThen::Store);
    same_with_any_threads(|| {
        let mut out = vec![0.0; rows * depth];
        feed_forward_eight_bit(left, (&up, &bias), &down, &mut out);
        assert_eq!(bits(&out), bits(&expected));
        bits(&out)
    });
}

#[test]
fn what_is_not_finite_comes_out_again() {
    let (mut a, mut b) = (random(5 * 20, 1), random(6 * 20, 2));
    (a[2 * 20 + 3], b[4 * 20 + 5]) = (f32::INFINITY, f32::NAN);
    for set in IntegerSet::all() {
        let weights = EightBitWeights::for_set(set, View::new(&b, 6, 20));
        let mut out = vec![0.0; 5 * 6];
        multiply_eight_bit(View::new(&a, 5, 20), &weights, &mut out, EightBitThen::Store);
        for (index, value) in out.iter().enumerate() {
            assert_eq!(value.is_nan(), index / 6 == 2 || index % 6 == 4, "{} {index}", set.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shape(rows in 0_usize..60, depth in 0_usize..100, columns in 0_usize..80, seed in 0_u64..1000) {
        check(rows, depth, columns, seed);
    }

    #[test]
    fn any_bytes(rows in 1_usize..40, depth in 1_usize..200, columns in 1_usize..70, seed in 0_u64..1000) {
        check_integers(&bytes(rows, depth, seed), &zeros(rows), &signed(bytes(columns, depth, seed + 1)));
    }
}
