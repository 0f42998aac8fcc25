//! Rows in groups of like rows and of like size, halved again and again.
//!
//! A set is split by two centres, each row going to the one it is more like, but so that both halves are of one size
//! (balanced spherical 2-means, as label trees use it). Halves are split on until they are small enough.

use rayon::prelude::*;

use super::{Csr, Row};

/// How often centres are moved at most.
const ROUNDS: usize = 20;

/// Below so many rows a set is split on the thread that it is on.
const TOGETHER: usize = 1024;

/// Groups of at most `largest` rows, which differ in size by one at most, in the order of the halves they are of: as many
/// as a power of two, unless they are of single rows. Rows are best of length one. The same seed gives the same groups.
///
/// # Panics
/// If groups are to have no row.
pub fn balanced_groups(rows: &Csr, largest: usize, seed: u64) -> Vec<Vec<u32>> {
    assert!(largest > 0, "a group has a row");
    let all: Vec<u32> = (0..rows.rows() as u32).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let halvings = all.len().div_ceil(largest).next_power_of_two().trailing_zeros();
    split(rows, all, halvings, seed)
}

fn split(rows: &Csr, ids: Vec<u32>, halvings: u32, seed: u64) -> Vec<Vec<u32>> {
    if halvings == 0 || ids.len() == 1 {
        return vec![ids];
    }
    let (left, right) = halves(rows, &ids, seed);
    let (left_seed, right_seed) = (mixed(seed ^ 1), mixed(seed ^ 2));
    let below = |ids, seed| split(rows, ids, halvings - 1, seed);
    let (mut groups, others) = match ids.len() > TOGETHER {
        true => rayon::join(|| below(left, left_seed), || below(right, right_seed)),
        false => (below(left, left_seed), below(right, right_seed)),
    };
    groups.extend(others);
    groups
}

/// The rows in two halves, the first one larger where they are odd; each in rising order.
fn halves(rows: &Csr, ids: &[u32], seed: u64) -> (Vec<u32>, Vec<u32>) {
    let first = mixed(seed) as usize % ids.len();
    let second = (first + 1 + mixed(seed ^ 3) as usize % (ids.len() - 1)) % ids.len();
    let middle = ids.len().div_ceil(2);
    // How much nearer a row is to one centre than to the other is its product with their difference.
    let mut towards = Difference::new(rows.columns());
    towards.add(rows.row(ids[first] as usize), 1.0);
    towards.add(rows.row(ids[second] as usize), -1.0);
    let mut sums = [Difference::new(rows.columns()), Difference::new(rows.columns())];
    let mut left: Vec<u32> = Vec::new();
    for _ in 0..ROUNDS {
        let order = towards.order(rows, ids);
        let mut now: Vec<u32> = order[..middle].to_vec();
        now.sort_unstable();
        if now == left {
            break;
        }
        left = now;
        towards.clear();
        for (sum, half) in sums.iter_mut().zip([&order[..middle], &order[middle..]]) {
            sum.clear();
            half.iter().for_each(|&row| sum.add(rows.row(row as usize), 1.0));
        }
        for (sum, sign) in sums.iter_mut().zip([1.0, -1.0]) {
            let length = sum.length();
            towards.add_all(sum, sign / length);
        }
    }
    let right = ids.iter().copied().filter(|id| left.binary_search(id).is_err()).collect();
    (left, right)
}

/// A dense vector of which only what was written is cleared.
struct Difference {
    values: Vec<f32>,
    used: Vec<u32>,
}

impl Difference {
    fn new(columns: usize) -> Difference {
        Difference { values: vec![0.0; columns], used: Vec::new() }
    }

    fn add(&mut self, row: Row<'_>, factor: f32) {
        for (&column, &value) in row.indices.iter().zip(row.values) {
            let place = &mut self.values[column as usize];
            if *place == 0.0 {
                self.used.push(column);
            }
            *place += factor * value;
        }
    }

    /// Adds so much of another one.
    fn add_all(&mut self, other: &Difference, factor: f32) {
        for &column in &other.used {
            let (place, value) = (&mut self.values[column as usize], other.values[column as usize]);
            if *place == 0.0 {
                self.used.push(column);
            }
            *place += factor * value;
        }
    }

    /// How long it is; one, where it is nothing.
    fn length(&mut self) -> f32 {
        // What came to nothing on the way was written down again.
        self.used.sort_unstable();
        self.used.dedup();
        let squares: f64 =
            self.used.iter().map(|&column| f64::from(self.values[column as usize]).powi(2)).sum();
        if squares > 0.0 { squares.sqrt() as f32 } else { 1.0 }
    }

    fn clear(&mut self) {
        self.used.drain(..).for_each(|column| self.values[column as usize] = 0.0);
    }

    /// The rows, those nearest to the first centre first.
    fn order(&self, rows: &Csr, ids: &[u32]) -> Vec<u32> {
        let nearer = |&id: &u32| {
            let row = rows.row(id as usize);
            let product: f32 = row
                .indices
                .iter()
                .zip(row.values)
                .map(|(&column, value)| self.values[column as usize] * value)
                .sum();
            (product, id)
        };
        let mut scored: Vec<(f32, u32)> = match ids.len() > TOGETHER {
            true => ids.par_iter().map(nearer).collect(),
            false => ids.iter().map(nearer).collect(),
        };
        scored.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scored.into_iter().map(|(_, id)| id).collect()
    }
}

/// The step from one seed to the next of a run of numbers: 2⁶⁴ by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number that has nothing to do with the one before it, but is the same every time (splitmix64).
pub(crate) fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of `kinds` kinds in turn, each with a column of its kind and one of its own.
    fn kinds(count: usize, kinds: usize) -> Csr {
        let mut rows = Csr::empty(kinds + count);
        for i in 0..count {
            rows.push([((i % kinds) as u32, 0.9), ((kinds + i) as u32, 0.4)]);
        }
        rows
    }

    #[test]
    fn groups_hold_every_row_once_and_are_of_like_size() {
        for (count, largest) in [(1, 1), (7, 3), (1000, 64), (5000, 100)] {
            let groups = balanced_groups(&kinds(count, 8), largest, 3);
            let mut all = groups.concat();
            all.sort_unstable();
            assert_eq!(all, (0..count as u32).collect::<Vec<_>>());
            let sizes = groups.iter().map(Vec::len);
            let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
            assert!(most <= largest && least + 1 >= most, "{count}: {least} to {most}");
        }
        assert!(balanced_groups(&Csr::empty(3), 5, 0).is_empty());
    }

    #[test]
    fn like_rows_come_together() {
        // Four kinds, two of which have more in common with each other than with the others.
        let mut rows = Csr::empty(6 + 800);
        for i in 0..800u32 {
            rows.push([(i % 2, 0.6), (2 + i % 4, 0.6), (6 + i, 0.5)]);
        }
        let groups = balanced_groups(&rows, 200, 5);
        assert_eq!(groups.len(), 4);
        for group in &groups {
            assert!(group.iter().all(|id| id % 4 == group[0] % 4), "{group:?}");
        }
        assert_eq!(groups, balanced_groups(&rows, 200, 5), "the seed decides");
    }

    #[test]
    fn rows_without_anything_are_grouped_too() {
        let mut rows = Csr::empty(2);
        (0..10).for_each(|_| rows.push([]));
        assert_eq!(balanced_groups(&rows, 5, 0).iter().map(Vec::len).collect::<Vec<_>>(), [5, 5]);
    }
}
