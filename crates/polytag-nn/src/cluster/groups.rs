//! The rows of each cluster, and rows for clusters that have none.

use super::points::Points;

/// Rows by cluster.
pub(super) struct Groups {
    /// Where each cluster's members begin, and where the last one's end.
    pub(super) starts: Vec<u32>,
    /// The rows, cluster by cluster, in order within each.
    pub(super) members: Vec<u32>,
}

impl Groups {
    /// Sorts rows by cluster, by counting.
    pub(super) fn new(assignment: &[u32], clusters: usize) -> Groups {
        let mut starts = vec![0; clusters + 1];
        for (cluster, size) in sizes(assignment, clusters).into_iter().enumerate() {
            starts[cluster + 1] = starts[cluster] + size;
        }
        let mut next = starts.clone();
        let mut members = vec![0; assignment.len()];
        for (row, &cluster) in (0..).zip(assignment) {
            let place = &mut next[cluster as usize];
            members[*place as usize] = row;
            *place += 1;
        }
        Groups { starts, members }
    }
}

fn sizes(assignment: &[u32], clusters: usize) -> Vec<u32> {
    let mut sizes = vec![0; clusters];
    for &cluster in assignment {
        sizes[cluster as usize] += 1;
    }
    sizes
}

/// Gives every empty cluster, the first one first, the row that is farthest from its centre among those of
/// clusters with others left; of rows as far away the first. Rows that lie on their centre stay: so clusters
/// remain empty where rows are duplicates.
///
/// No sum of squared distances rises by this: the row's own becomes zero, and its old cluster's mean comes
/// nearer to those who stay.
pub(super) fn fill_empty(points: &Points<'_>, centres: &[f32], assignment: &mut [u32]) {
    let mut sizes = sizes(assignment, centres.len() / points.dimension());
    let empty: Vec<u32> = (0..).zip(&sizes).filter(|&(_, &size)| size == 0).map(|(c, _)| c).collect();
    if empty.is_empty() {
        return;
    }
    let distances = points.squared_distances(centres, assignment);
    let mut far: Vec<u32> =
        (0..).zip(&distances).filter(|&(_, &far)| far > 0.0).map(|(row, _)| row).collect();
    far.sort_unstable_by(|&a, &b| distances[b as usize].total_cmp(&distances[a as usize]).then(a.cmp(&b)));
    let mut far = far.into_iter();
    for cluster in empty {
        let spare = |&row: &u32| sizes[assignment[row as usize] as usize] > 1;
        // A cluster that has only one row left never gets another: who is passed over is so for good.
        let Some(row) = far.by_ref().find(spare) else { return };
        sizes[assignment[row as usize] as usize] -= 1;
        sizes[cluster as usize] = 1;
        assignment[row as usize] = cluster;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_cluster() {
        let groups = Groups::new(&[2, 0, 2, 3, 0], 5);
        assert_eq!(groups.starts, [0, 2, 2, 4, 5, 5]);
        assert_eq!(groups.members, [1, 4, 0, 2, 3]);
    }

    #[test]
    fn empty_clusters_take_the_farthest_rows_of_those_that_have_others() {
        // Row 4 is farthest but alone; rows 1 and 3 are as far as each other.
        let points = Points::new(&[0.0, 2.0, 1.0, -2.0, 90.0], 1).unwrap();
        let mut assignment = [1, 1, 1, 1, 3];
        fill_empty(&points, &[7.0, 0.0, 7.0, 50.0], &mut assignment);
        assert_eq!(assignment, [1, 0, 1, 2, 3]);
    }

    #[test]
    fn rows_on_their_centre_stay() {
        let points = Points::new(&[1.0, 1.0, 1.0, 4.0], 1).unwrap();
        let mut assignment = [0, 0, 0, 0];
        fill_empty(&points, &[1.0, 0.0, 0.0], &mut assignment);
        assert_eq!(assignment, [0, 0, 0, 1]);
    }
}
