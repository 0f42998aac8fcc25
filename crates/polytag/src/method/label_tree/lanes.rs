//! The inner loop of [`solve`](super::solve): a row against the weights of sixteen siblings.
//!
//! Written once over arrays of sixteen and compiled for the instruction set at hand. Products and sums stay apart, four
//! chains of sums a row in the order of its entries, so that the width of a register changes nothing but the time.

#![allow(unsafe_code)]

use crate::sparse::{Entry, RowStore};

/// Siblings side by side.
pub(super) const LANES: usize = 16;

/// A number for each sibling. Aligned, so that it is one line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Lanes(pub(super) [f32; LANES]);

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes([0.0; LANES])
    }
}

/// Rows of one block, and what visiting them changes.
pub(super) struct Visit<'a> {
    /// The entries of all rows of the block.
    pub(super) entries: &'a [Entry],
    /// The place of the first of them among those of all blocks.
    pub(super) first: u64,
    /// Where rows begin.
    pub(super) store: &'a RowStore,
    /// Squared lengths of all rows.
    pub(super) squares: &'a [f32],
    /// To which siblings a row belongs, of all rows.
    pub(super) positives: &'a [u16],
    /// One for each lane that has a sibling, zero for the others, whose variables stay zero.
    pub(super) used: &'a [f32; LANES],
    /// What squared hinge adds to the diagonal: 1 / 2C.
    pub(super) slack: f32,
    /// A row none of whose variables is further from its best than this stays as it is.
    pub(super) still: f32,
    /// Weights by column, with the constant at the end.
    pub(super) weights: &'a mut [Lanes],
    /// The variables of all rows.
    pub(super) duals: &'a mut [Lanes],
}

/// Visits rows, and puts beside each how far it was from its best: the greatest projected gradient of its siblings.
pub(super) fn visit(visit: &mut Visit<'_>, order: &mut [(u32, f32)]) {
    #[cfg(target_arch = "x86_64")]
    {
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        if avx512 {
            // SAFETY: the processor has the instructions.
            return unsafe { visit_avx512(visit, order) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { visit_avx2(visit, order) };
        }
    }
    visit_rows(visit, order);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
fn visit_avx512(visit: &mut Visit<'_>, order: &mut [(u32, f32)]) {
    visit_rows(visit, order);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn visit_avx2(visit: &mut Visit<'_>, order: &mut [(u32, f32)]) {
    visit_rows(visit, order);
}

#[inline(always)]
fn visit_rows(visit: &mut Visit<'_>, order: &mut [(u32, f32)]) {
    for (row, far) in order {
        *far = visit_row(visit, *row as usize);
    }
}

/// How far the row was from its best.
#[inline(always)]
fn visit_row(visit: &mut Visit<'_>, row: usize) -> f32 {
    let range = visit.store.range(row);
    let entries = &visit.entries[(range.start - visit.first) as usize..(range.end - visit.first) as usize];
    let score = product(entries, visit.weights);
    let (slack, step) = (visit.slack, 1.0 / (visit.squares[row] + visit.slack));
    let (positive, used) = (visit.positives[row], Lanes(*visit.used));
    let old = visit.duals[row];
    let (mut new, mut change, mut far) = (Lanes::default(), Lanes::default(), Lanes::default());
    for lane in 0..LANES {
        let sign = if positive >> lane & 1 == 1 { 1.0 } else { -1.0 };
        let gradient = sign * score.0[lane] - 1.0 + slack * old.0[lane];
        new.0[lane] = (old.0[lane] - gradient * step * used.0[lane]).max(0.0);
        let projected = if old.0[lane] > 0.0 { gradient } else { gradient.min(0.0) };
        change.0[lane] = (new.0[lane] - old.0[lane]) * sign;
        far.0[lane] = projected.abs() * used.0[lane];
    }
    let far = far.0.iter().fold(0.0f32, |most, &far| most.max(far));
    if far > visit.still {
        visit.duals[row] = new;
        add(entries, &change, visit.weights);
    }
    far
}

/// The products of a row, and the constant, with the weights of all siblings.
#[inline(always)]
fn product(entries: &[Entry], weights: &[Lanes]) -> Lanes {
    let mut sums = [[0.0f32; LANES]; 4];
    sums[0] = weights[weights.len() - 1].0;
    let (fours, rest) = entries.as_chunks::<4>();
    for four in fours {
        for (sum, entry) in sums.iter_mut().zip(four) {
            let weight = &weights[entry.column as usize].0;
            for lane in 0..LANES {
                sum[lane] += entry.value * weight[lane];
            }
        }
    }
    for (sum, entry) in sums.iter_mut().zip(rest) {
        let weight = &weights[entry.column as usize].0;
        for lane in 0..LANES {
            sum[lane] += entry.value * weight[lane];
        }
    }
    let [a, b, c, d] = sums;
    let mut total = Lanes::default();
    for lane in 0..LANES {
        total.0[lane] = (a[lane] + b[lane]) + (c[lane] + d[lane]);
    }
    total
}

/// Adds so much of a row, and of the constant, to the weights of each sibling.
#[inline(always)]
fn add(entries: &[Entry], change: &Lanes, weights: &mut [Lanes]) {
    for entry in entries {
        for (weight, change) in weights[entry.column as usize].0.iter_mut().zip(&change.0) {
            *weight += change * entry.value;
        }
    }
    let last = weights.len() - 1;
    weights[last].0.iter_mut().zip(&change.0).for_each(|(weight, change)| *weight += change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::Room;

    /// What three passes over some rows leave.
    fn passes(visit: impl Fn(&mut Visit<'_>, &mut [(u32, f32)])) -> (Vec<u32>, Vec<[u32; LANES]>) {
        let mut store = RowStore::new(9, &Room::unlimited());
        let entries: Vec<Vec<Entry>> = (0..40u32)
            .map(|row| {
                (row % 4..9)
                    .step_by(2)
                    .map(|column| Entry { column, value: 0.1 + (row * column % 7) as f32 / 9.0 })
                    .collect()
            })
            .collect();
        let lengths: Vec<usize> = entries.iter().map(Vec::len).collect();
        let entries = entries.concat();
        store.extend(&entries, &lengths).unwrap();
        let positives: Vec<u16> = (0..40).map(|row| 0x1111 << (row % 4)).collect();
        let (mut weights, mut duals) = (vec![Lanes::default(); 10], vec![Lanes::default(); 40]);
        let mut order: Vec<(u32, f32)> = (0..40).map(|row| (row, 0.0)).collect();
        for _ in 0..3 {
            let mut visited = Visit {
                entries: &entries,
                first: 0,
                store: &store,
                squares: &[1.5; 40],
                positives: &positives,
                used: &[1.0; LANES],
                slack: 0.25,
                still: 0.05,
                weights: &mut weights,
                duals: &mut duals,
            };
            visit(&mut visited, &mut order);
        }
        let far = order.iter().map(|(_, far)| far.to_bits()).collect();
        (far, weights.iter().map(|lanes| lanes.0.map(f32::to_bits)).collect())
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let plain = passes(visit_rows);
        assert!(plain.1.iter().any(|lanes| lanes.iter().any(|&bits| bits != 0)));
        assert_eq!(passes(visit), plain);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            assert_eq!(passes(|visit, order| unsafe { visit_avx2(visit, order) }), plain);
        }
    }
}
