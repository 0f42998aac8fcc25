//! `polytag bench fusion`: the best combination of predicted labels for each unseen one, beside NumPy.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use polytag::artifact::ModelFolder;
use polytag::index::Rows;
use polytag::method::{Combination, Effort, Predicted, fitted_vectors};
use polytag_nn::random::Key;
use serde::{Deserialize, Serialize};

use super::super::{DONE, Done};
use super::peer::{self, Answer};
use super::{at_least_one, unless_stopped, write};
use crate::failure::user_error;
use crate::output;
use crate::settings::Session;
use crate::table::{Table, count};

/// The peer's script.
const PEER: &str = include_str!("fusion_peer.py");

/// Predicted labels whose combinations the peer can hold in memory.
const PEER_LABELS: usize = 17;

/// How often the peer is measured: it takes its time.
const PEER_ROUNDS: usize = 2;

/// Measure the search for the best combination of predicted labels
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag bench fusion
  polytag bench fusion --predicted 25 --unseen 500 --threads 2
  polytag bench fusion --model models/frozen --predicted 25 --json

The vectors are random, of length one, and those of the seed; with --model they are those of random labels of a model
that has such. The best of the rounds counts. The peer is Algorithm 1 of XML0 as it is written, all combinations one by one,
in NumPy; it gets the same vectors and as many threads, and is left out where they are too many for it.")]
pub(crate) struct Fusion {
    /// How many labels were predicted: up to 25 are combined exactly, more by a beam
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = at_least_one(64))]
    predicted: usize,
    /// How many unseen labels there are
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = at_least_one(1 << 20))]
    unseen: usize,
    /// How many numbers a vector has
    #[arg(long, default_value_t = 384, value_name = "N", value_parser = at_least_one(1 << 16), conflicts_with = "model")]
    dim: usize,
    /// The mean cosine of two vectors, from 0 to 0.95
    #[arg(long, default_value_t = 0.3, value_name = "COSINE", conflicts_with = "model")]
    alike: f32,
    /// A model folder whose label vectors are taken, such as one of `frozen`
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Combinations that a beam keeps
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = at_least_one(1 << 12))]
    beam: usize,
    /// How often it is measured
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = at_least_one(1 << 16))]
    rounds: usize,
    /// What vectors, probabilities and labels are drawn from
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// The Python that may have the peer
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one program does.
#[derive(Debug, Serialize)]
struct Figures {
    name: String,
    /// The best time for one document.
    seconds: f64,
    unseen_labels_per_second: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    predicted: usize,
    unseen: usize,
    dim: usize,
    threads: usize,
    /// Labels of a combination, in the mean.
    mean_members: f64,
    ours: Figures,
    peer: Option<Figures>,
    /// Why there is no peer.
    no_peer: Option<String>,
    /// Our speed by the peer's.
    ratio: Option<f64>,
    /// The largest difference of a cosine to the peer's.
    difference: Option<f64>,
}

/// What the peer's script prints.
#[derive(Debug, Deserialize)]
struct PeerFigures {
    name: String,
    seconds: f64,
    cosines: Vec<f64>,
}

/// What is combined, and compared with.
struct Vectors {
    dim: usize,
    predicted: Vec<f32>,
    probabilities: Vec<f32>,
    unseen: Vec<f32>,
}

impl Fusion {
    pub(crate) fn run(&self, session: &Session) -> Done {
        if !(0.0..=0.95).contains(&self.alike) {
            return Err(user_error(format!("--alike {}: say a cosine from 0 to 0.95", self.alike)));
        }
        let vectors = self.vectors()?;
        let (seconds, combinations) = self.measure(&vectors, session)?;
        let members: usize = combinations.iter().map(Combination::len).sum();
        let mut report = Report {
            predicted: self.predicted,
            unseen: self.unseen,
            dim: vectors.dim,
            threads: rayon::current_num_threads(),
            mean_members: members as f64 / self.unseen as f64,
            ours: self.figures("polytag".to_owned(), seconds),
            peer: None,
            no_peer: None,
            ratio: None,
            difference: None,
        };
        let peer = self.ask_peer(&vectors);
        // The peer was stopped with us, and has nothing to say.
        unless_stopped(session)?;
        match peer {
            Answer::Measured(peer) if peer.cosines.len() == combinations.len() => {
                report.ratio = Some(peer.seconds / seconds);
                report.difference = Some(difference(&combinations, &peer.cosines));
                report.peer = Some(self.figures(peer.name, peer.seconds));
            }
            Answer::Measured(_) => {
                report.no_peer = Some("it did not answer for every unseen label".to_owned());
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

    fn vectors(&self) -> anyhow::Result<Vectors> {
        let key = Key::new(self.seed);
        let (dim, all) = match &self.model {
            Some(model) => self.of_model(model)?,
            None => {
                let all =
                    (0..self.predicted + self.unseen).flat_map(|label| self.vector(label + 1)).collect();
                (self.dim, all)
            }
        };
        let (predicted, unseen) = all.split_at(self.predicted * dim);
        // A few labels are likely, most are not.
        let probability = |label| 0.05 + 0.95 * key.uniform(label as u32, u32::MAX).powi(2);
        Ok(Vectors {
            dim,
            predicted: predicted.to_vec(),
            probabilities: (0..self.predicted).map(probability).collect(),
            unseen: unseen.to_vec(),
        })
    }

    /// A vector of length one; the first is what all others share.
    fn vector(&self, place: usize) -> Vec<f32> {
        let key = Key::new(self.seed);
        let unit = |place: usize| -> Vec<f32> {
            let number = |column| key.uniform(place as u32, column as u32) - 0.5;
            scaled((0..self.dim).map(number).collect())
        };
        let (shared, own) = (self.alike.sqrt(), (1.0 - self.alike).sqrt());
        scaled(unit(0).iter().zip(unit(place)).map(|(all, one)| shared * all + own * one).collect())
    }

    /// The vectors of random labels of a model, each once.
    fn of_model(&self, model: &Path) -> anyhow::Result<(usize, Vec<f32>)> {
        let read = || fitted_vectors(&ModelFolder::open(model)?);
        let (dim, rows) = read().map_err(polytag::Error::from)?;
        let (labels, wanted) = (rows.len() / dim, self.predicted + self.unseen);
        if labels < wanted {
            let complaint = format!("{}: has {labels} labels, and {wanted} are asked for", model.display());
            return Err(user_error(complaint));
        }
        let key = Key::new(self.seed);
        let mut places: Vec<usize> = (0..labels).collect();
        places.sort_by_cached_key(|&place| key.uniform(place as u32, u32::MAX - 1).to_bits());
        let numbers = places[..wanted].iter().flat_map(|place| place * dim..(place + 1) * dim);
        let vectors = numbers.map(|at| match &rows {
            Rows::F32(values) => values[at],
            Rows::F16(values) => values[at].to_f32(),
        });
        Ok((dim, vectors.collect()))
    }

    fn measure(&self, vectors: &Vectors, session: &Session) -> anyhow::Result<(f64, Vec<Combination>)> {
        let (mut best, mut combinations) = (f64::INFINITY, Vec::new());
        for _ in 0..self.rounds {
            unless_stopped(session)?;
            let started = Instant::now();
            let predicted = Predicted::new(&vectors.predicted, vectors.dim, &vectors.probabilities);
            combinations = predicted.combine(&vectors.unseen, Effort::Best { beam: self.beam });
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok((best, combinations))
    }

    fn ask_peer(&self, vectors: &Vectors) -> Answer<PeerFigures> {
        if self.predicted > PEER_LABELS {
            let why = format!("it cannot hold 2^{} combinations; --predicted 15 is for it", self.predicted);
            return Answer::Missing(why);
        }
        let numbers = [self.predicted, self.unseen, vectors.dim, PEER_ROUNDS, rayon::current_num_threads()];
        let arguments: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        peer::ask(&self.python, PEER, &arguments, |input| {
            [&vectors.predicted, &vectors.probabilities, &vectors.unseen]
                .into_iter()
                .try_for_each(|values| write(input, values))
        })
    }

    fn figures(&self, name: String, seconds: f64) -> Figures {
        Figures { name, seconds, unseen_labels_per_second: self.unseen as f64 / seconds }
    }
}

/// The vector made one long; one of nothing but zeros stays what it is.
fn scaled(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|value| *value /= length.max(f32::MIN_POSITIVE));
    vector
}

fn difference(ours: &[Combination], theirs: &[f64]) -> f64 {
    ours.iter().zip(theirs).map(|(ours, theirs)| (f64::from(ours.cosine) - theirs).abs()).fold(0.0, f64::max)
}

fn describe(report: &Report) -> String {
    let Report { predicted, dim, threads, .. } = report;
    let unseen = count(report.unseen as u64);
    let mut text = format!(
        "{predicted} predicted labels, {unseen} unseen ones, {dim} numbers a vector, {threads} threads; \
         {:.1} labels a combination\n\n",
        report.mean_members
    );
    let mut table = Table::default();
    table.row(["", "ms a document", "unseen labels/s"]);
    for figures in [Some(&report.ours), report.peer.as_ref()].into_iter().flatten() {
        table.row([
            figures.name.clone(),
            format!("{:.3}", figures.seconds * 1e3),
            format!("{:.0}", figures.unseen_labels_per_second),
        ]);
    }
    text.push_str(&table.render(2));
    if let (Some(ratio), Some(difference)) = (report.ratio, report.difference) {
        text.push_str(&format!("\n  {ratio:.1} x the peer; cosines differ by {difference:.1e} at most\n"));
    }
    if let Some(why) = &report.no_peer {
        text.push_str(&format!("\n  no peer: {why}\n"));
    }
    text
}
