//! Which documents count as alike at a step (paper 001, section 4.2.1): few large clusters at first, twice as many every
//! so often, put together anew with the encoder as it has become, and in the second half each document by itself.

use std::fs;
use std::path::{Path, PathBuf};

use polytag_nn::cluster::{KMeansConfig, k_means};
use polytag_nn::device::Device;
use polytag_nn::error::Error;
use polytag_nn::random::Key;
use serde::{Deserialize, Serialize};

use super::config::MaclrConfig;

/// Iterations of k-means: documents have moved little since the last time, and a cluster need not be exact.
const ITERATIONS: usize = 10;

/// When documents are put into how many clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    first: usize,
    most: usize,
    double_every: u64,
    update_every: u64,
    until: u64,
}

/// A clustering: after which step it is made, and into how many clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) step: u64,
    pub(super) clusters: usize,
}

impl Schedule {
    /// For so many documents and steps; none where there are to be no clusters, or nothing to put into them.
    pub(super) fn new(config: &MaclrConfig, documents: usize, steps: u64) -> Option<Schedule> {
        let part = |share: f64| ((steps as f64 * share).round() as u64).max(1);
        // Clusters of one are what the second half has.
        let most = documents / 2;
        let schedule = Schedule {
            first: config.clusters?.min(most),
            most,
            double_every: part(config.clusters_double),
            update_every: part(config.clusters_update),
            until: steps / 2,
        };
        (most > 0 && schedule.until > 0).then_some(schedule)
    }

    /// How many clusterings are made from a step on.
    pub(super) fn clusterings_from(&self, step: u64) -> u64 {
        let until = |step: u64| step.div_ceil(self.update_every);
        until(self.until).saturating_sub(until(step))
    }

    /// The clustering in force at a step; none where each document is by itself.
    pub(super) fn at(&self, step: u64) -> Option<Due> {
        if step >= self.until {
            return None;
        }
        let made = step - step % self.update_every;
        let doublings = u32::try_from(made / self.double_every).unwrap_or(u32::MAX);
        let clusters = 1usize.checked_shl(doublings).and_then(|times| self.first.checked_mul(times));
        Some(Due { step: made, clusters: clusters.map_or(self.most, |clusters| clusters.min(self.most)) })
    }
}

/// Which cluster each document is in.
pub(super) struct Clustering {
    pub(super) due: Due,
    pub(super) of: Vec<u32>,
}

/// A clustering as it is kept, so that a training that is broken off goes on with the same.
#[derive(Serialize, Deserialize)]
struct Kept {
    about: String,
    clusters: usize,
    of: Vec<u32>,
}

impl Clustering {
    /// Puts rows into clusters.
    pub(super) fn make(
        device: &Device,
        rows: &[f32],
        dimension: usize,
        (due, seed): (Due, u64),
    ) -> Result<Clustering, Error> {
        let (low, high) = Key::new(seed).part(0x636c_7573).part(due.step).halves();
        let (low, high) = (u64::from(low), u64::from(high));
        let config = KMeansConfig {
            clusters: due.clusters,
            iterations: ITERATIONS,
            seed: high << 32 | low,
            ..Default::default()
        };
        Ok(Clustering { due, of: k_means(device, rows, dimension, &config)?.assignment })
    }

    /// Writes it into the folder of a training, whole or not at all.
    pub(super) fn keep(&self, folder: &Path, about: &str) -> Result<(), Error> {
        let kept = Kept { about: about.to_owned(), clusters: self.due.clusters, of: self.of.clone() };
        let (path, text) =
            (file(folder, about, self.due), serde_json::to_vec(&kept).expect("numbers are plain"));
        let part = path.with_extension("part");
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
        written.map_err(|error| unfit(&path, format!("cannot be written: {error}")))
    }

    /// Reads the one that [`Clustering::keep`] wrote.
    pub(super) fn kept(
        folder: &Path,
        about: &str,
        (due, documents): (Due, usize),
    ) -> Result<Clustering, Error> {
        let path = file(folder, about, due);
        let bytes = fs::read(&path).map_err(|error| unfit(&path, format!("cannot be read: {error}")))?;
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| unfit(&path, error.to_string()))?;
        let fits = kept.about == about && kept.clusters == due.clusters && kept.of.len() == documents;
        if !fits {
            return Err(unfit(&path, "it is another training's".to_owned()));
        }
        Ok(Clustering { due, of: kept.of })
    }
}

/// Another training's are other files, so that one that is refused here has not touched them.
fn file(folder: &Path, about: &str, due: Due) -> PathBuf {
    let start = about.get(..8).unwrap_or(about);
    folder.join(format!("clusters-{start}-{}.json", due.step))
}

fn unfit(path: &Path, problem: String) -> Error {
    Error::Unfit(format!("{}: {problem}; remove the folder to begin anew", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(clusters: usize, documents: usize, steps: u64) -> Option<Schedule> {
        let config = MaclrConfig {
            clusters: Some(clusters),
            clusters_double: 0.2,
            clusters_update: 0.1,
            ..MaclrConfig::default()
        };
        Schedule::new(&config, documents, steps)
    }

    #[test]
    fn clusters_double_are_made_anew_and_end_halfway() {
        let schedule = schedule(8, 1000, 100).unwrap();
        let at = |step| schedule.at(step).map(|due| (due.step, due.clusters));
        assert_eq!([at(0), at(9), at(10)], [Some((0, 8)), Some((0, 8)), Some((10, 8))]);
        assert_eq!([at(20), at(49)], [Some((20, 16)), Some((40, 32))]);
        assert_eq!([at(50), at(99)], [None, None]);
        let from = [0, 1, 10, 11, 41, 50, 99].map(|step| schedule.clusterings_from(step));
        assert_eq!(from, [5, 4, 4, 3, 0, 0, 0], "the one in force is made before its first step");
    }

    #[test]
    fn there_are_never_more_clusters_than_half_the_documents() {
        let schedule = schedule(2048, 10, 100).unwrap();
        assert_eq!(schedule.at(0).unwrap().clusters, 5);
        assert_eq!(schedule.at(49).unwrap().clusters, 5);
        assert_eq!(super::tests::schedule(8, 1, 100), None, "one document has nobody to be alike");
        assert_eq!(super::tests::schedule(8, 100, 1), None);
        assert_eq!(Schedule::new(&MaclrConfig::ict(), 100, 100), None);
    }

    #[test]
    fn doubling_for_ever_ends_at_the_documents() {
        let config = MaclrConfig { clusters: Some(3), clusters_double: 1e-9, ..MaclrConfig::default() };
        let schedule = Schedule::new(&config, 1_000_000, 100_000).unwrap();
        assert_eq!(schedule.at(49_999).unwrap().clusters, 500_000);
    }

    #[test]
    fn a_clustering_is_kept_for_the_training_it_belongs_to() {
        let folder = tempfile::tempdir().unwrap();
        let due = Due { step: 5, clusters: 2 };
        Clustering { due, of: vec![0, 1, 1] }.keep(folder.path(), "mine").unwrap();
        let kept = |about, documents| Clustering::kept(folder.path(), about, (due, documents));
        assert_eq!(kept("mine", 3).unwrap().of, [0, 1, 1]);
        for wrong in [kept("yours", 3), kept("mine", 4)] {
            assert!(wrong.err().unwrap().to_string().contains("begin anew"));
        }
        let due = Due { step: 6, ..due };
        let missing = Clustering::kept(folder.path(), "mine", (due, 3)).err().unwrap().to_string();
        assert!(missing.contains("clusters-mine-6.json"), "{missing}");
    }
}
