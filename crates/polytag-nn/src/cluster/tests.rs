use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::golden::{assert_close, testdata};
use crate::op::testing::{devices, gpu};
use crate::random::Key;

fn config(clusters: usize, iterations: usize) -> KMeansConfig {
    KMeansConfig { clusters, iterations, tolerance: 0.0, seed: 1 }
}

/// Rows around `groups` points, some of them duplicates of the one before.
fn rows(count: usize, dimension: usize, groups: u32) -> Vec<f32> {
    let (points, noise) = (Key::new(3), Key::new(4));
    let number = |row: u32, column: u32| {
        let row = if row % 11 == 5 { row - 1 } else { row };
        let group = points.part(1).bits(row, 0) % groups;
        points.normal(group, column) + 0.5 * noise.normal(row, column)
    };
    (0..count as u32).flat_map(|row| (0..dimension as u32).map(move |column| number(row, column))).collect()
}

fn in_chunks(
    device: &Device,
    rows: &[f32],
    dimension: usize,
    config: &KMeansConfig,
    chunks: Chunks,
) -> Clusters {
    let points = Points::new(rows, dimension).unwrap();
    let centres = begin(&points, &[], config).unwrap();
    run(device, &points, centres, config, chunks).unwrap()
}

fn sizes(clusters: &Clusters, count: usize) -> Vec<usize> {
    (0..count).map(|c| clusters.assignment.iter().filter(|&&of| of as usize == c).count()).collect()
}

#[derive(Deserialize)]
struct Golden {
    made_with: String,
    rows: BTreeMap<String, GoldenRows>,
    cases: Vec<GoldenCase>,
}

#[derive(Deserialize)]
struct GoldenRows {
    dimension: usize,
    values: Vec<f32>,
}

#[derive(Deserialize)]
struct GoldenCase {
    name: String,
    rows: String,
    beginning: Vec<f32>,
    iterations: usize,
    assignment: Vec<u32>,
    centres: Vec<f32>,
    inertia: f64,
}

/// Numbers from scikit-learn, by scripts/make-kmeans-golden.
#[test]
fn clusters_are_those_of_scikit_learn() {
    let text = std::fs::read_to_string(testdata("kmeans-golden.json")).unwrap();
    let golden: Golden = serde_json::from_str(&text).unwrap();
    assert_eq!(golden.cases.len(), 8, "{}", golden.made_with);
    for device in devices("k-means against scikit-learn") {
        for case in &golden.cases {
            let GoldenRows { dimension, values } = &golden.rows[&case.rows];
            let config = config(case.beginning.len() / dimension, case.iterations);
            let found = k_means_from(&device, values, *dimension, &case.beginning, &config).unwrap();
            assert_eq!(found.assignment, case.assignment, "{}", case.name);
            let scale = case.centres.iter().fold(1.0, |most: f32, x| most.max(x.abs()));
            assert_close(&found.centres, &case.centres, 1e-5 * scale, &case.name);
            assert!((found.inertia / case.inertia - 1.0).abs() < 1e-5, "{}: {}", case.name, found.inertia);
            assert!(found.converged || case.iterations < 100, "{}", case.name);
        }
    }
}

#[test]
fn threads_change_no_byte() {
    let (values, device) = (rows(700, 37, 9), Device::cpu());
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| k_means(&device, &values, 37, &config(50, 6)).unwrap())
    };
    assert_eq!(with(1), with(4));
}

#[test]
fn chunks_change_no_byte() {
    let (values, device) = (rows(301, 19, 9), Device::cpu());
    let whole = k_means(&device, &values, 19, &config(40, 4)).unwrap();
    for (rows, clusters) in [(1, 1), (7, 3), (300, 39), (1000, 1000)] {
        let cut = in_chunks(&device, &values, 19, &config(40, 4), Chunks { rows, clusters });
        assert_eq!(cut, whole, "{rows} {clusters}");
    }
}

#[test]
fn the_seed_chooses_the_beginning() {
    let (values, device) = (rows(200, 5, 9), Device::cpu());
    let with = |seed| k_means(&device, &values, 5, &KMeansConfig { seed, ..config(20, 2) }).unwrap();
    assert_eq!(with(1), with(1));
    assert_ne!(with(1).centres, with(2).centres);
}

#[test]
fn every_row_is_with_its_nearest_centre_and_inertia_never_rises() {
    let (values, device) = (rows(400, 8, 12), Device::cpu());
    let points = Points::new(&values, 8).unwrap();
    let mut last = f64::INFINITY;
    for iterations in 0..30 {
        let found = k_means(&device, &values, 8, &config(40, iterations)).unwrap();
        for (row, &cluster) in (0..400).zip(&found.assignment) {
            let distance = |centre: &[f32]| squared_distance(points.row(row), centre);
            let nearest = found.centres.chunks(8).map(distance).fold(f64::INFINITY, f64::min);
            let own = distance(&found.centres[8 * cluster as usize..][..8]);
            assert!(own <= nearest + 1e-5, "row {row}: {own} {nearest}");
        }
        assert!(found.inertia <= last * (1.0 + 1e-9), "{iterations}: {} {last}", found.inertia);
        last = found.inertia;
    }
    let end = k_means(&device, &values, 8, &config(40, 300)).unwrap();
    assert!(end.converged && end.iterations < 300);
    let on = k_means_from(&device, &values, 8, &end.centres, &config(40, 300)).unwrap();
    assert_eq!((on.iterations, &on.centres, &on.assignment), (1, &end.centres, &end.assignment));
}

#[test]
fn a_tolerance_ends_it_sooner() {
    let (values, device) = (rows(2000, 8, 1), Device::cpu());
    let with =
        |tolerance| k_means(&device, &values, 8, &KMeansConfig { tolerance, ..config(40, 300) }).unwrap();
    let (soon, late) = (with(0.1), with(0.0));
    assert!(soon.converged && soon.iterations < late.iterations);
    assert!(late.inertia <= soon.inertia);
}

#[test]
fn an_empty_cluster_gets_a_row() {
    let values = [0.0, 1.0, 2.0, 10.0];
    let found = k_means_from(&Device::cpu(), &values, 1, &[1.0, 500.0], &config(2, 9)).unwrap();
    assert_eq!((found.assignment, found.centres), (vec![0, 0, 0, 1], vec![1.0, 10.0]));
    // Many of them: each gets one, and the clusters end as if they had begun well.
    let values = rows(300, 6, 5);
    let mut given = vec![0.0; 6 * 30];
    given[6..].fill(1e3);
    for device in devices("k-means with empty clusters") {
        let found = k_means_from(&device, &values, 6, &given, &config(30, 50)).unwrap();
        assert!(sizes(&found, 30).iter().all(|&size| size > 0));
    }
}

#[test]
fn duplicates_leave_clusters_empty() {
    // A third is no number of bits: sums of it must not wander off.
    let third = 1.0_f32 / 3.0;
    for device in devices("k-means of duplicates") {
        let found = k_means(&device, &[third; 60], 3, &config(5, 10)).unwrap();
        assert_eq!(sizes(&found, 5), [20, 0, 0, 0, 0]);
        assert_eq!((found.inertia, found.converged, found.centres), (0.0, true, vec![third; 15]));
        // Three kinds of rows in seven clusters.
        let values: Vec<f32> = (0..100).flat_map(|row| [(row % 3) as f32 * third, third]).collect();
        let found = k_means(&device, &values, 2, &config(7, 10)).unwrap();
        assert_eq!(found.inertia, 0.0);
        assert_eq!(sizes(&found, 7).iter().filter(|&&size| size > 0).count(), 3);
        assert_eq!(sizes(&found, 7)[..3].iter().sum::<usize>(), 100);
    }
}

#[test]
fn as_many_clusters_as_rows_and_clusters_doubled() {
    let (values, device) = (rows(23, 4, 23), Device::cpu());
    let alone = k_means(&device, &values, 4, &config(23, 10)).unwrap();
    assert_eq!(alone.inertia, 0.0);
    let values = rows(300, 4, 20);
    let few = k_means(&device, &values, 4, &config(10, 10)).unwrap();
    let many = k_means_from(&device, &values, 4, &few.centres, &config(20, 10)).unwrap();
    assert!(many.centres.len() == 80 && many.inertia < few.inertia);
}

#[test]
fn what_cannot_be_clustered_is_an_error() {
    let device = Device::cpu();
    let problem = |rows: &[f32], dimension, config: &KMeansConfig| {
        k_means(&device, rows, dimension, config).unwrap_err().to_string()
    };
    assert!(problem(&[], 3, &config(1, 1)).contains("no rows"));
    assert!(problem(&[1.0; 6], 0, &config(1, 1)).contains("no rows"));
    assert!(problem(&[1.0; 7], 3, &config(1, 1)).contains("7 numbers are not whole rows of 3"));
    assert!(problem(&[1.0; 6], 3, &config(0, 1)).contains("zero clusters"));
    let text = problem(&[1.0; 6], 3, &config(4, 1));
    assert_eq!(text, "2 rows cannot make 4 clusters; ask for 2 or fewer");
    assert!(problem(&[1.0, f32::NAN], 1, &config(1, 1)).contains("not a finite number"));
    let lax = KMeansConfig { tolerance: f64::NAN, ..config(1, 1) };
    assert!(problem(&[1.0], 1, &lax).contains("tolerance"));
    let whole = k_means_from(&device, &[1.0; 6], 3, &[1.0; 4], &config(2, 1)).unwrap_err().to_string();
    assert_eq!(whole, "4 numbers are not whole centres of 3");
    // As large as numbers may be, nothing overflows.
    let found = k_means(&device, &[6e18, -6e18, 5e18, -5e18], 1, &config(2, 9)).unwrap();
    assert!(found.inertia.is_finite() && found.assignment[0] == found.assignment[2]);
}

/// The GPU multiplies in f32, but sums in another order: rows between two centres may go to either.
#[test]
fn the_gpu_agrees_with_the_cpu() {
    let Some(gpu) = gpu("k-means") else { return };
    let cpu = Device::cpu();
    for (count, dimension, clusters) in [(5000, 384, 300), (1000, 64, 129), (999, 7, 65), (70, 300, 1)] {
        let values = rows(count, dimension, 40);
        let start = config(clusters, 0);
        let (here, there) = (
            k_means(&cpu, &values, dimension, &start).unwrap(),
            k_means(&gpu, &values, dimension, &start).unwrap(),
        );
        let other = here.assignment.iter().zip(&there.assignment).filter(|(a, b)| a != b).count();
        assert!(other * 1000 <= count, "{count} x {dimension}: {other} rows are elsewhere");
        assert!((here.inertia / there.inertia - 1.0).abs() < 1e-6, "{} {}", here.inertia, there.inertia);
        // Given the same groups, means are the same to the bit.
        let points = Points::new(&values, dimension).unwrap();
        let groups = Groups::new(&here.assignment, clusters);
        let means_of = |worker: &mut dyn Worker| {
            let mut centres = vec![7.0; clusters * dimension];
            worker.means(&groups, &mut centres).unwrap();
            centres
        };
        let Device::Cuda(cuda) = &gpu else { unreachable!("a GPU was asked for") };
        let chunks = Chunks { rows: 64, clusters: 64 };
        let own = means_of(&mut CpuWorker::new(&points, chunks));
        assert_eq!(means_of(&mut CudaWorker::new(cuda, &points, chunks).unwrap()), own);
        // Whole runs end as well, the same each time, and in small chunks, too.
        let whole = config(clusters, 8);
        let (here, there) = (
            k_means(&cpu, &values, dimension, &whole).unwrap(),
            k_means(&gpu, &values, dimension, &whole).unwrap(),
        );
        assert_eq!(there, k_means(&gpu, &values, dimension, &whole).unwrap());
        for found in [there, in_chunks(&gpu, &values, dimension, &whole, chunks)] {
            assert!((found.inertia / here.inertia - 1.0).abs() < 1e-2, "{} {}", found.inertia, here.inertia);
        }
    }
}
