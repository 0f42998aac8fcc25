//! Products against plain sums in `f64`, in every instruction set.

use proptest::prelude::*;

use super::*;
use crate::cpu::testing::{bits, random, same_with_any_threads};

fn plain(left: View<'_>, right: View<'_>) -> Vec<f64> {
    let mut out = Vec::with_capacity(left.rows() * right.columns());
    for row in 0..left.rows() {
        for column in 0..right.columns() {
            let products =
                (0..left.columns()).map(|i| f64::from(left.at(row, i)) * f64::from(right.at(i, column)));
            out.push(products.sum());
        }
    }
    out
}

fn close(out: &[f32], plain: &[f64], depth: usize) {
    let bound = 1e-6 * (depth as f64 + 10.0);
    for (index, (&out, &plain)) in out.iter().zip(plain).enumerate() {
        assert!((f64::from(out) - plain).abs() < bound, "{index}: {out} {plain}");
    }
}

/// Checks all there is about one shape, with rows or columns of each side end to end.
fn check(rows: usize, depth: usize, columns: usize) {
    let (a, b, bias) = (random(rows * depth, 1), random(depth * columns, 2), random(columns, 3));
    let lefts = [View::new(&a, rows, depth), View::new(&a, depth, rows).transposed()];
    let rights = [View::new(&b, depth, columns), View::new(&b, columns, depth).transposed()];
    for (left, right) in lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))) {
        let plain = plain(left, right);
        let with_bias: Vec<f64> =
            plain.iter().enumerate().map(|(i, sum)| sum + f64::from(bias[i % columns])).collect();
        for set in Set::all() {
            let packed = Packed::for_set(set, right);
            let mut out = vec![f32::NAN; rows * columns];
            multiply(left, &packed, &mut out, Then::Store);
            close(&out, &plain, depth);
            let before = out.clone();
            multiply(left, &packed, &mut out, Then::Add);
            close(&out, &plain.iter().map(|sum| 2.0 * sum).collect::<Vec<_>>(), depth);
            multiply(left, &packed, &mut out, Then::Bias(&bias));
            close(&out, &with_bias, depth);
            let (sums, mut kept) = (out.clone(), vec![f32::NAN; rows * columns]);
            multiply(left, &packed, &mut out, Then::BiasGelu { bias: &bias, before: Some(&mut kept) });
            assert_eq!(bits(&kept), bits(&sums));
            let mut gelu = vec![0.0; kept.len()];
            crate::cpu::gelu(&kept, &mut gelu);
            close(&out, &gelu.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), 0);
            multiply_once_in(set, left, right, (&mut out, false));
            assert_eq!(bits(&out), bits(&before));
            multiply_alone(left, &packed, &mut out, Then::Store);
            assert_eq!(bits(&out), bits(&before));
        }
    }
}

#[test]
fn awkward_shapes() {
    for (rows, depth, columns) in [
        (1, 1, 1),
        (1, 384, 40),
        (15, 1, 33),
        (29, 65, 31),
        (200, 3, 7),
        (7, 800, 70),
        (3, 1600, 32),
        (14, 0, 5),
        (0, 4, 4),
        (4, 4, 0),
    ] {
        check(rows, depth, columns);
    }
}

#[test]
fn a_view_of_some_columns_is_multiplied_in_place() {
    let (a, b) = (random(20 * 30, 1), random(10 * 40, 2));
    let (left, right) = (View::of_columns(&a, 30, 5, 10), View::new(&b, 10, 40));
    let mut out = vec![0.0; 20 * 40];
    multiply(left, &Packed::new(right), &mut out, Then::Store);
    close(&out, &plain(left, right), 10);
}

#[test]
fn packing_again_forgets_the_first_matrix() {
    let (a, b, c) = (random(5 * 9, 1), random(9 * 35, 2), random(9 * 35, 3));
    let mut packed = Packed::new(View::new(&b, 9, 35));
    packed.repack(View::new(&c, 9, 35));
    let mut out = vec![0.0; 5 * 35];
    multiply(View::new(&a, 5, 9), &packed, &mut out, Then::Store);
    close(&out, &plain(View::new(&a, 5, 9), View::new(&c, 9, 35)), 9);
}

#[test]
fn neither_threads_nor_other_rows_change_a_byte() {
    let (rows, depth, columns) = (300, 900, 100);
    let (a, b) = (random(rows * depth, 1), random(depth * columns, 2));
    let packed = Packed::new(View::new(&b, depth, columns));
    let product = |rows: usize| {
        let mut out = vec![0.0; rows * columns];
        multiply(View::new(&a[..rows * depth], rows, depth), &packed, &mut out, Then::Store);
        bits(&out)
    };
    same_with_any_threads(|| product(rows));
    assert_eq!(product(17), product(rows)[..17 * columns]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shape(rows in 0_usize..60, depth in 0_usize..100, columns in 0_usize..80) {
        check(rows, depth, columns);
    }
}
