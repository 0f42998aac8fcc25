//! Linear classifiers for up to sixteen siblings at once, by dual coordinate descent (Hsieh et al., 2008).
//!
//! Each sibling is a support vector machine with squared hinge loss: the least ½|w|² + C Σ max(0, 1 − y·w·x)² over the
//! rows of its parent. A row brings one variable, which is set to its best value while the others stay; that is done for
//! all siblings when the row is visited, side by side in lanes, so that a row is read once for sixteen of them and a
//! weight is one line of the cache. Lanes do not mix and nothing is fused, so that every instruction set gives the same
//! bits. A row that is near its best for every sibling rests for a pass, then for three, then for seven: leaving out a row
//! for good, as is done for one classifier, would have to wait for all sixteen, while most rows soon have little to say
//! to any of them (results/2026-11-16-label-tree).
//!
//! Rows are visited block by block, in an order that the seed gives, wherever they lie.

use super::lanes::{Lanes, Visit, visit};
use crate::method::error::MethodError;
use crate::progress::Stop;
use crate::sparse::{GOLDEN, RowStore, mixed};

/// Rows of a block: what is read at once.
const BLOCK: usize = 2048;

/// Passes that a row rests at most.
const LONGEST_REST: u8 = 7;

/// A row nearer to its best than this share of the tolerance is not moved.
const STILL: f32 = 0.1;

/// Siblings that are learned at once.
pub(super) const SIBLINGS: usize = super::lanes::LANES;

/// Rows to learn from, the same for all siblings.
pub(super) struct Rows<'a> {
    /// The rows; every row has a further entry, a one that stands for nothing, as a column of its own at the end.
    pub(super) store: &'a RowStore,
    /// The squared length of each row, with that entry.
    pub(super) squares: &'a [f32],
}

/// How well to learn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// What a row on the wrong side costs, next to large weights.
    pub(super) cost: f32,
    /// How far from the best is good enough.
    pub(super) tolerance: f32,
    /// How often rows are gone through at most.
    pub(super) passes: usize,
}

/// The weights of `siblings` classifiers, a line of lanes a column, with the constant at the end. Bit `i` of a row's
/// number in `positives` says whether it belongs to sibling `i`.
pub(super) fn solve(
    rows: &Rows<'_>,
    (positives, siblings): (&[u16], usize),
    effort: &Effort,
    seed: u64,
    stop: &Stop,
) -> Result<Vec<Lanes>, MethodError> {
    let count = rows.store.rows();
    let mut weights = vec![Lanes::default(); rows.store.columns() + 1];
    let mut duals = vec![Lanes::default(); count];
    let mut random = Random(seed);
    let used: [f32; SIBLINGS] = std::array::from_fn(|lane| if lane < siblings { 1.0 } else { 0.0 });
    let mut rests = vec![Rest::default(); count];
    let mut blocks: Vec<usize> = (0..count.div_ceil(BLOCK)).collect();
    let (mut buffer, mut order) = (Vec::new(), Vec::with_capacity(BLOCK));
    for _ in 0..effort.passes {
        if stop.is_asked() {
            return Err(MethodError::Stopped);
        }
        random.shuffle(&mut blocks);
        let (mut is_whole, mut is_done) = (true, true);
        for &block in &blocks {
            let range = block * BLOCK..count.min((block + 1) * BLOCK);
            order.clear();
            order.extend(range.clone().filter(|&row| rests[row].is_over()).map(|row| (row as u32, 0.0)));
            is_whole &= order.len() == range.len();
            if order.is_empty() {
                continue;
            }
            random.shuffle(&mut order);
            let mut visited = Visit {
                entries: rows.store.read(range.clone(), &mut buffer)?,
                first: rows.store.range(range.start).start,
                store: rows.store,
                squares: rows.squares,
                positives,
                used: &used,
                slack: 0.5 / effort.cost,
                still: effort.tolerance * STILL,
                weights: &mut weights,
                duals: &mut duals,
            };
            visit(&mut visited, &mut order);
            for &(row, far) in &order {
                let is_near = far <= effort.tolerance;
                rests[row as usize].visited(is_near);
                is_done &= is_near;
            }
        }
        match (is_done, is_whole) {
            (true, true) => break,
            // What rested may have become wrong since.
            (true, false) => rests.fill(Rest::default()),
            (false, _) => (),
        }
    }
    Ok(weights)
}

/// How long a row is left alone.
#[derive(Clone, Copy, Default)]
struct Rest {
    /// Passes still to come.
    left: u8,
    /// Passes in all.
    length: u8,
}

impl Rest {
    /// Whether the row is to be visited now; else a pass of its rest is over.
    fn is_over(&mut self) -> bool {
        let is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_over
    }

    /// A row that was near its best rests, each time twice as long.
    fn visited(&mut self, is_near: bool) {
        self.length = if is_near { (2 * self.length + 1).min(LONGEST_REST) } else { 0 };
        self.left = self.length;
    }
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        let number = mixed(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        number
    }

    /// A number below `end`, as good as even.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::{Entry, Room};

    /// Rows of `width` columns, and to which of `siblings` each belongs: those whose column it has most of, and a few
    /// others, so that no weights are perfect.
    fn problem(rows: usize, width: usize, siblings: usize, room: &Room) -> (RowStore, Vec<f32>, Vec<u16>) {
        let mut store = RowStore::new(width, room);
        let mut random = Random(5);
        let (mut squares, mut positives) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let column = row % width;
            let mut values = vec![0.0f32; width];
            values[column] = 0.9;
            values[random.below(width)] += 0.3;
            values[random.below(width)] += 0.2;
            let entries: Vec<Entry> = values
                .iter()
                .enumerate()
                .filter(|(_, value)| **value != 0.0)
                .map(|(column, &value)| Entry { column: column as u32, value })
                .collect();
            squares.push(1.0 + values.iter().map(|value| value * value).sum::<f32>());
            let noise = if random.below(10) == 0 { 1 << random.below(siblings) } else { 0 };
            positives.push(1u16 << (column % siblings) | noise);
            store.extend(&entries, &[entries.len()]).unwrap();
        }
        (store, squares, positives)
    }

    fn solved(store: &RowStore, squares: &[f32], positives: (&[u16], usize), passes: usize) -> Vec<Lanes> {
        let effort = Effort { cost: 1.0, tolerance: 1e-4, passes };
        let rows = Rows { store, squares };
        solve(&rows, positives, &effort, 1, &Stop::default()).unwrap()
    }

    /// The objective of one sibling, in double precision.
    fn objective(store: &RowStore, positives: &[u16], lane: usize, weights: &[f64]) -> f64 {
        let mut buffer = Vec::new();
        let losses = (0..store.rows()).map(|row| {
            let entries = store.read(row..row + 1, &mut buffer).unwrap();
            let score: f64 =
                entries.iter().map(|entry| weights[entry.column as usize] * f64::from(entry.value)).sum();
            let sign = if positives[row] >> lane & 1 == 1 { 1.0 } else { -1.0 };
            (1.0 - sign * (score + weights[store.columns()])).max(0.0).powi(2)
        });
        let losses: f64 = losses.sum();
        losses + 0.5 * weights.iter().map(|weight| weight * weight).sum::<f64>()
    }

    #[test]
    fn no_weight_can_be_bettered() {
        let (store, squares, positives) = problem(300, 12, 5, &Room::unlimited());
        let found = solved(&store, &squares, (&positives, 5), 1000);
        for lane in 0..5 {
            let weights: Vec<f64> = found.iter().map(|lanes| f64::from(lanes.0[lane])).collect();
            let best = objective(&store, &positives, lane, &weights);
            for column in 0..weights.len() {
                for step in [-0.01, 0.01] {
                    let mut other = weights.clone();
                    other[column] += step;
                    assert!(objective(&store, &positives, lane, &other) > best, "{lane} {column}");
                }
            }
        }
        assert!(found.iter().all(|lanes| lanes.0[5..].iter().all(|&weight| weight == 0.0)), "unused lanes");
    }

    #[test]
    fn rows_are_learned_from_on_the_disk_as_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let little = Room { memory: Some(1000), spool: dir.path().to_owned() };
        let (store, squares, positives) = problem(5000, 20, 7, &Room::unlimited());
        let (on_disk, _, _) = problem(5000, 20, 7, &little);
        assert!(on_disk.is_on_disk() && !store.is_on_disk());
        let all = solved(&store, &squares, (&positives, 7), 4);
        let read = solved(&on_disk, &squares, (&positives, 7), 4);
        assert!(all.iter().zip(&read).all(|(a, b)| a.0 == b.0));
    }

    #[test]
    fn it_stops_when_asked() {
        let (store, squares, positives) = problem(10, 3, 2, &Room::unlimited());
        let stop = Stop::default();
        stop.ask();
        let effort = Effort { cost: 1.0, tolerance: 0.1, passes: 5 };
        let rows = Rows { store: &store, squares: &squares };
        assert!(matches!(solve(&rows, (&positives, 2), &effort, 1, &stop), Err(MethodError::Stopped)));
    }
}
