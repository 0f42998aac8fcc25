//! `polytag bench search`: the best labels for a batch of vectors, beside FAISS.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use polytag::ids::LabelId;
use polytag::index::{Exact, LabelIndex, OnDevice, Precision};
use polytag::ranking::Ranking;
use polytag_nn::device::Device;
use polytag_nn::random::Key;
use serde::{Deserialize, Serialize};

use super::super::{DONE, Done};
use super::peer::{self, Answer};
use super::{at_least_one, unless_stopped, write};
use crate::cache::CacheArguments;
use crate::device::DeviceArgument;
use crate::failure::user_error;
use crate::output;
use crate::settings::Session;
use crate::table::{Table, count};

/// The peer's script.
const PEER: &str = include_str!("search_peer.py");

/// Measure the exact search for the best labels of dense vectors
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag bench search
  polytag bench search --labels 1000000 --dim 384 --k 100 --batch 1 --precision f16 --threads 2
  polytag bench search --labels 1000000 --batch 256 --device cuda
  polytag bench search --python venv/bin/python --json

The vectors are random, of length one, and those of the seed. The best of the rounds counts. The peer is
FAISS (pip install faiss-cpu), which gets the same vectors and as many threads. On a GPU our search is measured
beside that on the CPU, which scores its answers again; both must answer alike.")]
pub(crate) struct Search {
    /// How many labels there are
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = at_least_one(u32::MAX.into()))]
    labels: usize,
    /// How many numbers a vector has
    #[arg(long, default_value_t = 384, value_name = "N", value_parser = at_least_one(1 << 16))]
    dim: usize,
    /// How many labels a query is answered with
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = at_least_one(1 << 20))]
    k: usize,
    /// How many queries are asked at once
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = at_least_one(1 << 16))]
    batch: usize,
    /// How the numbers of label vectors are kept
    #[arg(long, value_enum, default_value_t)]
    precision: Kept,
    /// How often it is measured
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = at_least_one(1 << 16))]
    rounds: usize,
    /// What the vectors are made from
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    cache: CacheArguments,
    /// The Python that may have the peer
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kept {
    #[default]
    F32,
    F16,
    I8,
}

/// What one program does.
#[derive(Debug, Serialize)]
struct Figures {
    name: String,
    /// The best time for the batch.
    seconds: f64,
    queries_per_second: f64,
    /// Bytes of label vectors by time, as if each were read once.
    gigabytes_per_second: f64,
    gigaflops: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    labels: usize,
    dim: usize,
    k: usize,
    batch: usize,
    precision: Kept,
    threads: usize,
    ours: Figures,
    /// Ours with a GPU's help, where there is one.
    gpu: Option<Figures>,
    /// Why there is one and it does not help.
    no_gpu: Option<String>,
    peer: Option<Figures>,
    /// Why there is no peer.
    no_peer: Option<String>,
    /// Our speed by the peer's.
    ratio: Option<f64>,
    /// The share of the peer's labels that are ours too.
    agreement: Option<f64>,
}

/// What the peer's script prints.
#[derive(Debug, Deserialize)]
struct PeerFigures {
    name: String,
    seconds: f64,
    found: Vec<Vec<i64>>,
}

impl Search {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let queries: Vec<f32> = (0..self.batch).flat_map(|query| self.vector(self.labels + query)).collect();
        let device = self.device.open(self.cache.root().as_deref(), session)?;
        let index = self.index(session)?;
        let (seconds, rankings) = self.measure(&index, &queries, session)?;
        let mut report = Report {
            labels: self.labels,
            dim: self.dim,
            k: self.k,
            batch: self.batch,
            precision: self.precision,
            threads: rayon::current_num_threads(),
            ours: self.figures("polytag Exact".to_owned(), seconds),
            gpu: None,
            no_gpu: None,
            peer: None,
            no_peer: None,
            ratio: None,
            agreement: None,
        };
        if let Device::Cuda(_) = device {
            let index = OnDevice::new(index, &device);
            let truth = index.exact().search_in_full(&queries, self.k, None)?;
            let (seconds, found) = self.measure(&index, &queries, session)?;
            let asked = (self.rounds * self.batch) as u64;
            report.no_gpu = match index.told() {
                Some(why) => Some(why.to_owned()),
                None if found != truth => Some("it answers otherwise than the CPU".to_owned()),
                None if index.helped() < asked => {
                    Some(format!("the CPU answered {} of {asked} queries alone", asked - index.helped()))
                }
                None => None,
            };
            let name = format!("polytag Exact, {}", device.name());
            report.gpu = report.no_gpu.is_none().then(|| self.figures(name, seconds));
        }
        let peer = self.ask_peer(&queries);
        // The peer was stopped with us, and has nothing to say.
        unless_stopped(session)?;
        match peer {
            Answer::Measured(peer) => {
                report.ratio = Some(peer.seconds / seconds);
                report.agreement = Some(agreement(&rankings, &peer.found));
                report.peer = Some(self.figures(peer.name, peer.seconds));
            }
            Answer::Missing(why) => report.no_peer = Some(why),
        }
        if self.json {
            output::print_json(&report)?
        } else {
            output::print_text(&describe(&report))?
        }
        Ok(DONE)
    }

    /// The vector at a place: labels first, then queries.
    fn vector(&self, place: usize) -> Vec<f32> {
        let key = Key::new(self.seed);
        let number = |column| key.uniform(place as u32, column as u32) - 0.5;
        let mut vector: Vec<f32> = (0..self.dim).map(number).collect();
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        // A vector of nothing but zeros stays what it is.
        vector.iter_mut().for_each(|value| *value /= length.max(f32::MIN_POSITIVE));
        vector
    }

    fn index(&self, session: &Session) -> anyhow::Result<Exact> {
        let precision = match self.precision {
            Kept::F32 => Precision::F32,
            Kept::F16 => Precision::F16,
            Kept::I8 => Precision::I8,
        };
        let mut index = Exact::new(self.dim, precision)?;
        index.reserve(self.labels).map_err(|error| user_error(error.to_string()))?;
        for label in 0..self.labels {
            unless_stopped(session)?;
            index.set(LabelId::from_index(label), &self.vector(label))?;
        }
        Ok(index)
    }

    fn measure(
        &self,
        index: &dyn LabelIndex,
        queries: &[f32],
        session: &Session,
    ) -> anyhow::Result<(f64, Vec<Ranking>)> {
        let (mut best, mut rankings) = (f64::INFINITY, Vec::new());
        for _ in 0..self.rounds {
            unless_stopped(session)?;
            let started = Instant::now();
            rankings = index.search(queries, self.k, None)?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok((best, rankings))
    }

    fn ask_peer(&self, queries: &[f32]) -> Answer<PeerFigures> {
        let numbers = [self.labels, self.batch, self.dim, self.k, self.rounds, rayon::current_num_threads()];
        let mut arguments: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        arguments.push(match self.precision {
            Kept::F32 => "f32".to_owned(),
            Kept::F16 => "f16".to_owned(),
            Kept::I8 => "i8".to_owned(),
        });
        peer::ask(&self.python, PEER, &arguments, |input| {
            (0..self.labels).try_for_each(|label| write(input, &self.vector(label)))?;
            write(input, queries)
        })
    }

    fn figures(&self, name: String, seconds: f64) -> Figures {
        let numbers = self.labels as f64 * self.dim as f64;
        let bytes = numbers
            * match self.precision {
                Kept::F32 => 4.0,
                Kept::F16 => 2.0,
                Kept::I8 => 1.0,
            };
        Figures {
            name,
            seconds,
            queries_per_second: self.batch as f64 / seconds,
            gigabytes_per_second: bytes / seconds / 1e9,
            gigaflops: 2.0 * numbers * self.batch as f64 / seconds / 1e9,
        }
    }
}

/// The share of `theirs` that is in `ours`; ties at the end and rounding may cost a little.
fn agreement(ours: &[Ranking], theirs: &[Vec<i64>]) -> f64 {
    let (mut shared, mut all) = (0, 0);
    for (ours, theirs) in ours.iter().zip(theirs) {
        let mut labels: Vec<i64> = ours.labels().map(|label| label.0.into()).collect();
        labels.sort_unstable();
        // FAISS fills up with -1 where there are fewer labels.
        for label in theirs.iter().filter(|label| **label >= 0) {
            shared += usize::from(labels.binary_search(label).is_ok());
            all += 1;
        }
    }
    if all == 0 { 1.0 } else { shared as f64 / all as f64 }
}

fn describe(report: &Report) -> String {
    let Report { labels, dim, k, batch, threads, .. } = report;
    let labels = count(*labels as u64);
    let mut text =
        format!("{labels} labels of {dim} numbers, {batch} queries at once, k = {k}, {threads} threads\n\n");
    let mut table = Table::default();
    table.row(["", "ms", "queries/s", "GB/s", "GFLOP/s"]);
    for figures in [Some(&report.ours), report.gpu.as_ref(), report.peer.as_ref()].into_iter().flatten() {
        table.row([
            figures.name.clone(),
            format!("{:.2}", figures.seconds * 1e3),
            format!("{:.1}", figures.queries_per_second),
            format!("{:.1}", figures.gigabytes_per_second),
            format!("{:.1}", figures.gigaflops),
        ]);
    }
    text.push_str(&table.render(2));
    if let (Some(ratio), Some(agreement)) = (report.ratio, report.agreement) {
        text.push_str(&format!(
            "\n  {ratio:.2} x the peer; {:.2} % of its labels are ours too\n",
            agreement * 100.0
        ));
    }
    if let Some(why) = &report.no_gpu {
        text.push_str(&format!("\n  no GPU: {why}\n"));
    }
    if let Some(why) = &report.no_peer {
        text.push_str(&format!("\n  no peer: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use polytag::ranking::Scored;

    #[test]
    fn agreement_counts_the_labels_of_the_peer() {
        let scored = |label| Scored { label: LabelId(label), score: 1.0 };
        let ours = [Ranking::new(vec![scored(3), scored(1)], 2).unwrap()];
        assert_eq!(agreement(&ours, &[vec![1, 3]]), 1.0);
        assert_eq!(agreement(&ours, &[vec![1, 2]]), 0.5);
        assert_eq!(agreement(&ours, &[vec![3, -1]]), 1.0);
        assert_eq!(agreement(&ours, &[vec![]]), 1.0);
    }
}
