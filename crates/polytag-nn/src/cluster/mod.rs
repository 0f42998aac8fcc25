//! Groups of vectors that lie near each other: rows enter, a cluster a row and the clusters' centres leave.
//!
//! Methods without labelled documents learn from documents that lie together (paper 001, section 4.2.1), and
//! trees of labels are cut where clusters are. The clusters are those of k-means, by Lloyd's iterations: every
//! row goes to its nearest centre, every centre to the mean of its rows, until nothing moves.
//!
//! The nearest centre `c` of a row `x` has the greatest `x·c − |c|²/2`, so that nearly all of the work is a
//! matrix product. It is made in chunks of rows and of clusters, and of each row only the best score is kept:
//! besides the rows themselves, memory is four times the centres, a few numbers a row, and the chunk of scores,
//! which is 256 KiB a thread on the CPU and 32 MiB on a GPU whatever the number of rows and clusters.
//!
//! Products are made in f32 on a GPU, too: in bf16 or TF32, rows between two centres would go to either.

mod points; // the rows, checked
mod beginning; // where the centres lie at first
mod groups; // the rows of each cluster, and rows for clusters that have none
mod work; // what a device does of an iteration
mod cpu;
mod cuda;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::error::Error;
use beginning::begin;
use cpu::CpuWorker;
use cuda::CudaWorker;
use groups::{Groups, fill_empty};
use points::{Points, squared_distance};
use work::{Chunks, Compared, Worker};

/// How rows are clustered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KMeansConfig {
    /// How many clusters; not more than there are rows.
    pub clusters: usize,
    /// How often centres are moved at most. With none, rows go to the centres that it begins with.
    pub iterations: usize,
    /// Centres that move less count as at rest: the sum of their squared ways, as a multiple of the mean
    /// variance of a column (as scikit-learn's `tol`). With zero, only when no row changes its cluster.
    pub tolerance: f64,
    /// What the choice of the rows to begin with is a function of.
    pub seed: u64,
}

impl Default for KMeansConfig {
    fn default() -> KMeansConfig {
        KMeansConfig { clusters: 2048, iterations: 20, tolerance: 1e-4, seed: 0 }
    }
}

impl KMeansConfig {
    fn check(&self, rows: usize) -> Result<(), Error> {
        let KMeansConfig { clusters, tolerance, .. } = *self;
        let problem = if clusters == 0 {
            "rows cannot be put into zero clusters; ask for one or more".to_owned()
        } else if clusters > rows {
            format!("{rows} rows cannot make {clusters} clusters; ask for {rows} or fewer")
        } else if !(tolerance.is_finite() && tolerance >= 0.0) {
            format!("a tolerance of {tolerance} is not possible; it is zero or a little more")
        } else {
            return Ok(());
        };
        Err(Error::Unfit(problem))
    }
}

/// Rows in clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// The cluster of each row: that of the nearest of [`centres`](Clusters::centres), of the lowest number
    /// where several are as near. Clusters can be empty, above all where rows are duplicates.
    pub assignment: Vec<u32>,
    /// The centre of each cluster, end to end. They can be begun from ([`k_means_from`]).
    pub centres: Vec<f32>,
    /// The sum of the squared distances of rows to their centres.
    pub inertia: f64,
    /// How often the centres were moved.
    pub iterations: usize,
    /// Whether it ended because nothing moved any more, or less than the tolerance.
    pub converged: bool,
}

/// Clusters `rows`, each of `dimension` numbers, beginning with rows that the seed draws.
///
/// The time is that of `iterations + 1` products of rows and centres. The number of threads changes no byte.
///
/// ```
/// use polytag_nn::cluster::{KMeansConfig, k_means};
/// use polytag_nn::device::Device;
///
/// let rows = [0.0, 0.1, 5.0, 5.1, 0.2, 4.9];
/// let config = KMeansConfig { clusters: 2, ..KMeansConfig::default() };
/// let clusters = k_means(&Device::cpu(), &rows, 1, &config)?;
/// let of = &clusters.assignment;
/// assert!(of[0] == of[1] && of[1] == of[4] && of[2] == of[3] && of[3] == of[5] && of[0] != of[2]);
/// # Ok::<(), polytag_nn::Error>(())
/// ```
///
/// # Errors
/// If there are no rows, no clusters or more of these than of those, if `rows` is not whole rows, if a
/// number is not finite, or if a row is so long that its products overflow.
pub fn k_means(
    device: &Device,
    rows: &[f32],
    dimension: usize,
    config: &KMeansConfig,
) -> Result<Clusters, Error> {
    k_means_from(device, rows, dimension, &[], config)
}

/// The same from centres that are given, such as those of the last clustering. Where they are fewer than
/// there shall be clusters, the seed draws rows for the others: so clusters are doubled.
///
/// # Errors
/// As [`k_means`], and if the centres are not whole ones, not finite, or more than the clusters.
pub fn k_means_from(
    device: &Device,
    rows: &[f32],
    dimension: usize,
    given: &[f32],
    config: &KMeansConfig,
) -> Result<Clusters, Error> {
    let points = Points::new(rows, dimension)?;
    config.check(points.count())?;
    let centres = begin(&points, given, config)?;
    run(device, &points, centres, config, Chunks::of(device))
}

/// Checked rows from their first centres on, in chunks that a test may choose.
fn run(
    device: &Device,
    points: &Points<'_>,
    centres: Vec<f32>,
    config: &KMeansConfig,
    chunks: Chunks,
) -> Result<Clusters, Error> {
    match device {
        Device::Cpu(_) => iterate(&mut CpuWorker::new(points, chunks), points, centres, config),
        Device::Cuda(cuda) => iterate(&mut CudaWorker::new(cuda, points, chunks)?, points, centres, config),
    }
}

/// Lloyd's iterations. Assignment comes last, so that it always is that of the centres which are returned.
fn iterate(
    worker: &mut dyn Worker,
    points: &Points<'_>,
    mut centres: Vec<f32>,
    config: &KMeansConfig,
) -> Result<Clusters, Error> {
    let at_rest = config.tolerance * points.variance();
    let mut nearest = vec![0; points.count()];
    worker.assign(&Compared::new(points, &centres), &mut nearest)?;
    // Of which rows the centres are the means; those that they begin with are of none.
    let mut grouped = Vec::new();
    let mut iterations = 0;
    let converged = loop {
        let mut next = nearest.clone();
        fill_empty(points, &centres, &mut next);
        if next == grouped {
            break true;
        }
        if iterations == config.iterations {
            break false;
        }
        grouped = next;
        let before = centres.clone();
        worker.means(&Groups::new(&grouped, config.clusters), &mut centres)?;
        worker.assign(&Compared::new(points, &centres), &mut nearest)?;
        iterations += 1;
        // At zero tolerance rows decide: centres may rest while there is still a row for an empty cluster.
        if config.tolerance > 0.0 && way(points.dimension(), &before, &centres) <= at_rest {
            break true;
        }
    };
    let inertia = points.squared_distances(&centres, &nearest).iter().sum();
    Ok(Clusters { assignment: nearest, centres, inertia, iterations, converged })
}

/// The sum of the squared ways that centres went.
fn way(dimension: usize, before: &[f32], after: &[f32]) -> f64 {
    let centres = before.par_chunks(dimension).zip(after.par_chunks(dimension));
    let ways: Vec<f64> = centres.map(|(before, after)| squared_distance(before, after)).collect();
    ways.iter().sum()
}

#[cfg(test)]
mod tests;
