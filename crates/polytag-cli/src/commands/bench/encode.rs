//! `polytag bench encode`: texts to vectors, beside transformers in PyTorch and onnxruntime.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use polytag_nn::device::Device;
use polytag_nn::measure;
use polytag_nn::op::Pooling;
use polytag_nn::sentence::{Overrides, SentenceEncoder};
use polytag_nn::tokenizer::Text;
use serde::{Deserialize, Serialize};

use super::super::{DONE, Done};
use super::peer::{self, Answer};
use super::{at_least_one, unless_stopped, write};
use crate::cache::CacheArguments;
use crate::device::{DeviceArgument, PrecisionArgument};
use crate::failure::user_error;
use crate::output;
use crate::settings::Session;
use crate::table::{Table, count};

/// The peers' script.
const PEER: &str = include_str!("encode_peer.py");

/// Measure how fast an encoder makes texts into vectors
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag bench encode --encoder minilm --texts texts.txt
  polytag bench encode --encoder path/to/encoder --texts texts.txt --limit 1000 --threads 2 --json
  polytag bench encode --encoder minilm --texts texts.txt --precision int8
  polytag bench encode --encoder mpnet --texts texts.txt --python venv/bin/python --engines torch

The best of the passes counts, from text to vector: the mean over all tokens, made one long. The peers are
transformers in PyTorch (pip install torch transformers) and in onnxruntime (the same and onnx,
onnxruntime), which get the same texts and as many threads. On a CPU the share of its peak is told, which
is measured on the spot. With --precision int8, f32 is measured beside it.")]
pub(crate) struct Encode {
    /// A known encoder, a Hugging Face name that was pulled, or a folder
    #[arg(long, value_name = "NAME|FOLDER")]
    encoder: String,
    /// File with one text a line
    #[arg(long, value_name = "FILE")]
    texts: PathBuf,
    /// How many tokens a text is cut to
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = at_least_one(512))]
    max_tokens: usize,
    /// How many texts the peers encode at once
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = at_least_one(1 << 16))]
    batch: usize,
    /// How many texts are taken, from the first on [default: all]
    #[arg(long, value_name = "N", value_parser = at_least_one(u32::MAX.into()))]
    limit: Option<usize>,
    /// How often all texts are encoded
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = at_least_one(1 << 16))]
    passes: usize,
    #[command(flatten)]
    precision: PrecisionArgument,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    cache: CacheArguments,
    /// The peers to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Torch, Engine::Ort])]
    engines: Vec<Engine>,
    /// The Python that may have the peers
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Engine {
    /// PyTorch
    Torch,
    /// onnxruntime
    Ort,
}

/// What the peers' script is asked to do.
#[derive(Serialize)]
struct Job<'a> {
    engine: Engine,
    folder: &'a Path,
    device: &'a str,
    threads: usize,
    batch: usize,
    max_tokens: usize,
    passes: usize,
    texts: &'a [&'a str],
}

/// What the peers' script prints.
#[derive(Debug, Deserialize)]
struct PeerFigures {
    name: String,
    seconds: f64,
    least_cosine: f64,
}

/// What one program does.
#[derive(Debug, Serialize)]
struct Figures {
    name: String,
    /// The best pass.
    seconds: f64,
    texts_per_second: f64,
    tokens_per_second: f64,
    gigaflops: f64,
    /// The share of what the CPU can do at best.
    share_of_peak: Option<f64>,
}

/// What came of a peer.
#[derive(Debug, Serialize)]
struct Peer {
    engine: Engine,
    figures: Option<Figures>,
    /// Why there are none.
    missing: Option<String>,
    /// Our speed by the peer's.
    ratio: Option<f64>,
    /// The cosine of our vector and the peer's where they differ most.
    least_cosine: Option<f64>,
}

/// The same in `f32`, where the precision is another one.
#[derive(Debug, Serialize)]
struct InFloats {
    figures: Figures,
    /// Our speed by that in `f32`.
    ratio: f64,
    /// The cosines of the vectors: that of the two that differ most, and the mean.
    least_cosine: f64,
    mean_cosine: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    encoder: String,
    device: String,
    threads: usize,
    texts: usize,
    tokens: usize,
    max_tokens: usize,
    dimension: usize,
    /// What the CPU can do at best; not known of a GPU.
    peak_gigaflops: Option<f64>,
    ours: Figures,
    in_f32: Option<InFloats>,
    peers: Vec<Peer>,
}

/// How much is to be done, the same for all.
struct Work {
    texts: usize,
    tokens: usize,
    operations: f64,
    /// What the CPU does in a second at best.
    peak: Option<f64>,
}

/// What we did.
struct Ours {
    work: Work,
    seconds: f64,
    dimension: usize,
    vectors: Vec<f32>,
}

impl Encode {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let file = output::read_text(&self.texts)?;
        let texts: Vec<&str> = file.lines().take(self.limit.unwrap_or(usize::MAX)).collect();
        if texts.is_empty() {
            return Err(user_error(format!("{}: has no texts", self.texts.display())));
        }
        let folder = self.folder()?;
        let device = self.device.open_in(self.precision, self.cache.root().as_deref(), session)?;
        let (device_name, torch_name) = (device.name(), self.device.torch_name(&device));
        let ours = self.measure(&folder, device, &texts, session)?;
        let in_f32 = match self.precision.is_int8() {
            true => Some(ours.in_floats(&self.measure(&folder, Device::cpu(), &texts, session)?)),
            false => None,
        };
        let mut peers = Vec::new();
        for &engine in &self.engines {
            let job = Job {
                engine,
                folder: &folder,
                device: &torch_name,
                threads: rayon::current_num_threads(),
                batch: self.batch,
                max_tokens: self.max_tokens,
                passes: self.passes,
                texts: &texts,
            };
            let answer = self.ask_peer(&job, &ours.vectors);
            unless_stopped(session)?;
            peers.push(ours.beside(engine, answer));
        }
        let report = Report {
            encoder: self.encoder.clone(),
            device: device_name,
            threads: rayon::current_num_threads(),
            texts: ours.work.texts,
            tokens: ours.work.tokens,
            max_tokens: self.max_tokens,
            dimension: ours.dimension,
            peak_gigaflops: ours.work.peak.map(|peak| peak / 1e9),
            ours: ours.work.figures(self.own_name().to_owned(), ours.seconds),
            in_f32,
            peers,
        };
        if self.json {
            output::print_json(&report)?
        } else {
            output::print_text(&describe(&report))?
        }
        Ok(DONE)
    }

    fn own_name(&self) -> &'static str {
        if self.precision.is_int8() { "polytag in int8" } else { "polytag" }
    }

    fn folder(&self) -> anyhow::Result<PathBuf> {
        Ok(self.cache.encoders()?.locate(&self.encoder).map_err(polytag::Error::from)?)
    }

    /// Takes the device, so that the peers have its memory afterwards.
    fn measure(
        &self,
        folder: &Path,
        device: Device,
        texts: &[&str],
        session: &Session,
    ) -> anyhow::Result<Ours> {
        let overrides = Overrides {
            max_tokens: Some(self.max_tokens),
            pooling: Some(Pooling::Mean),
            normalise: Some(true),
        };
        let encoder = SentenceEncoder::load(folder, &device, &overrides)?;
        let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::new(text)).collect();
        let tokens = encoder.tokenizer().encode(&texts, self.max_tokens)?;
        let lengths: Vec<usize> = tokens.iter().map(Vec::len).collect();
        let (mut seconds, mut vectors) = (f64::INFINITY, Vec::new());
        for _ in 0..self.passes {
            unless_stopped(session)?;
            let started = Instant::now();
            vectors = encoder.encode(&texts)?;
            seconds = seconds.min(started.elapsed().as_secs_f64());
        }
        let work = Work {
            texts: texts.len(),
            tokens: lengths.iter().sum(),
            operations: measure::forward_operations(encoder.encoder().config(), &lengths),
            peak: matches!(device, Device::Cpu(_)).then(measure::peak_operations),
        };
        Ok(Ours { work, seconds, dimension: encoder.dimension(), vectors })
    }

    fn ask_peer(&self, job: &Job<'_>, vectors: &[f32]) -> Answer<PeerFigures> {
        peer::ask(&self.python, PEER, &[], |input| {
            serde_json::to_writer(&mut *input, job)?;
            input.write_all(b"\n")?;
            write(input, vectors)
        })
    }
}

impl Work {
    fn figures(&self, name: String, seconds: f64) -> Figures {
        let operations = self.operations / seconds;
        Figures {
            name,
            seconds,
            texts_per_second: self.texts as f64 / seconds,
            tokens_per_second: self.tokens as f64 / seconds,
            gigaflops: operations / 1e9,
            share_of_peak: self.peak.map(|peak| operations / peak),
        }
    }
}

impl Ours {
    fn in_floats(&self, floats: &Ours) -> InFloats {
        let rows = self.vectors.chunks_exact(self.dimension).zip(floats.vectors.chunks_exact(self.dimension));
        // All are one long.
        let cosines: Vec<f64> =
            rows.map(|(a, b)| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()).collect();
        InFloats {
            figures: floats.work.figures("polytag in f32".to_owned(), floats.seconds),
            ratio: floats.seconds / self.seconds,
            least_cosine: cosines
                .iter()
                .copied()
                .fold(1.0, |least, cosine| if cosine >= least { least } else { cosine }),
            mean_cosine: cosines.iter().sum::<f64>() / cosines.len() as f64,
        }
    }

    fn beside(&self, engine: Engine, answer: Answer<PeerFigures>) -> Peer {
        match answer {
            Answer::Measured(peer) => Peer {
                engine,
                ratio: Some(peer.seconds / self.seconds),
                least_cosine: Some(peer.least_cosine),
                figures: Some(self.work.figures(peer.name, peer.seconds)),
                missing: None,
            },
            Answer::Missing(why) => {
                Peer { engine, figures: None, missing: Some(why), ratio: None, least_cosine: None }
            }
        }
    }
}

fn describe(report: &Report) -> String {
    let Report { encoder, device, threads, max_tokens, dimension, .. } = report;
    let (texts, tokens) = (count(report.texts as u64), count(report.tokens as u64));
    let mut text = format!("{encoder} ({dimension} numbers): {texts} texts, {tokens} tokens, ");
    text.push_str(&format!("at most {max_tokens} a text; {device}, {threads} threads\n\n"));
    let mut table = Table::default();
    table.row(["", "texts/s", "tokens/s", "GFLOP/s", "of peak"]);
    let peers = report.peers.iter().filter_map(|peer| peer.figures.as_ref());
    let in_f32 = report.in_f32.iter().map(|floats| &floats.figures);
    for figures in std::iter::once(&report.ours).chain(in_f32).chain(peers) {
        table.row([
            figures.name.clone(),
            format!("{:.1}", figures.texts_per_second),
            count(figures.tokens_per_second.round() as u64),
            format!("{:.1}", figures.gigaflops),
            figures.share_of_peak.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share)),
        ]);
    }
    text.push_str(&table.render(2));
    text.push('\n');
    if let Some(peak) = report.peak_gigaflops {
        text.push_str(&format!("  the peak is {peak:.1} GFLOP/s of f32\n"));
    }
    if let Some(InFloats { ratio, least_cosine, mean_cosine, .. }) = &report.in_f32 {
        text.push_str(&format!(
            "  {ratio:.2} x f32; cosine of the vectors {least_cosine:.4} or more, {mean_cosine:.4} on the mean\n"
        ));
    }
    for peer in &report.peers {
        if let (Some(figures), Some(ratio), Some(cosine)) = (&peer.figures, peer.ratio, peer.least_cosine) {
            let name = &figures.name;
            text.push_str(&format!("  {ratio:.2} x {name}; cosine of the vectors {cosine:.6} or more\n"));
        }
        if let Some(why) = &peer.missing {
            let engine = match peer.engine {
                Engine::Torch => "torch",
                Engine::Ort => "onnxruntime",
            };
            text.push_str(&format!("  no {engine}: {why}\n"));
        }
    }
    text
}
