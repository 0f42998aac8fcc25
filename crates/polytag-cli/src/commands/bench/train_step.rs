//! `polytag bench train-step`: a step of training an encoder, beside PyTorch.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use polytag_nn::encoder::{EncoderConfig, Family};
use polytag_nn::error::Bytes;
use polytag_nn::measure::{self, Lesson, StepTimes};
use serde::{Deserialize, Serialize};

use super::super::{DONE, Done};
use super::peer::{self, Answer};
use super::{at_least_one, unless_stopped};
use crate::cache::CacheArguments;
use crate::device::DeviceArgument;
use crate::failure::user_error;
use crate::output;
use crate::settings::Session;
use crate::table::{Table, count};

/// The peer's script.
const PEER: &str = include_str!("train_step_peer.py");

/// The longest text that is taken.
const LONGEST: usize = 512;

/// Measure a step of training an encoder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag bench train-step --device cuda
  polytag bench train-step --shape minilm --batch 256 --length 128 --peak 700 --json
  polytag bench train-step --lengths batches.json --modes eager --python venv/bin/python
  polytag bench train-step --device cpu --shape minilm --batch 8 --steps 5
  polytag bench train-step --shape minilm --batch 32 --length 512 --labels 4271 --looking

Weights and tokens are random; the loss is InfoNCE between the halves of the batch or, with --labels, binary
cross-entropy over labels, five of which each text carries; the optimizer is AdamW.
Lengths from a file are a JSON list of batches, each a list of lengths. The peer is PyTorch (pip install
torch): bf16 on a GPU, padded batches, as many threads; where lengths vary, the ratio is one of tokens a
second.")]
pub(crate) struct TrainStep {
    /// The shape of the encoder
    #[arg(long, value_enum, default_value_t)]
    shape: Shape,
    /// Layers, if not those of the shape
    #[arg(long, value_name = "N", value_parser = at_least_one(1 << 10))]
    layers: Option<usize>,
    /// Numbers a token, if not those of the shape
    #[arg(long, value_name = "N", value_parser = at_least_one(1 << 16))]
    hidden: Option<usize>,
    /// Heads of attention, if not those of the shape
    #[arg(long, value_name = "N", value_parser = at_least_one(1 << 10))]
    heads: Option<usize>,
    /// Numbers a token inside the feed-forward part [default: four times those outside]
    #[arg(long, value_name = "N", value_parser = at_least_one(1 << 18))]
    inner: Option<usize>,
    /// How many texts a batch has; an even number, unless there are labels
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = at_least_one(1 << 16))]
    batch: usize,
    /// How many tokens each text has
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = at_least_one(LONGEST as u64))]
    length: usize,
    /// File with the lengths of the texts, batch by batch
    #[arg(long, value_name = "FILE", conflicts_with_all = ["batch", "length"])]
    lengths: Option<PathBuf>,
    /// Learn which of so many labels texts carry, not which texts go together
    #[arg(long, value_name = "N", value_parser = at_least_one(1 << 24))]
    labels: Option<usize>,
    /// Labels look for themselves at the first layer, too
    #[arg(long, requires = "labels")]
    looking: bool,
    /// How many steps are measured
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = at_least_one(1 << 20))]
    steps: usize,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    cache: CacheArguments,
    /// What the device does in matrix products at best, to tell the share of it
    #[arg(long, value_name = "TFLOPS", value_parser = positive)]
    peak: Option<f64>,
    /// How PyTorch is run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Eager, Mode::Compile])]
    modes: Vec<Mode>,
    /// The length that PyTorch pads to, instead of the longest of each batch
    #[arg(long, value_name = "N", value_parser = at_least_one(LONGEST as u64))]
    pad_to: Option<usize>,
    /// The Python that may have the peer
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "it is a number above zero".to_owned())
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Shape {
    /// 12 layers, 768 numbers, 12 heads
    #[default]
    BertBase,
    /// 6 layers, 384 numbers, 12 heads
    Minilm,
}

#[derive(Clone, Copy, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    /// As it is written
    Eager,
    /// Through torch.compile
    Compile,
}

/// What the peer's script is asked to do.
#[derive(Serialize)]
struct Job<'a> {
    mode: Mode,
    device: &'a str,
    threads: usize,
    steps: usize,
    pad_to: Option<usize>,
    labels: Option<usize>,
    looking: bool,
    layers: usize,
    hidden: usize,
    heads: usize,
    inner: usize,
    vocabulary: usize,
    positions: usize,
    batches: &'a [Vec<usize>],
}

/// What one program does.
#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    name: String,
    /// The step in the middle.
    milliseconds: f64,
    tokens_per_second: f64,
    /// The most memory of the device in use; not known of PyTorch on a CPU.
    peak_bytes: Option<u64>,
    /// Operations on tokens, not on padding.
    #[serde(default)]
    teraflops: f64,
    /// The share of the peak that was given.
    #[serde(default)]
    share_of_peak: Option<f64>,
}

/// What came of a peer.
#[derive(Debug, Serialize)]
struct Peer {
    mode: Mode,
    figures: Option<Figures>,
    /// Why there are none.
    missing: Option<String>,
    /// Our speed by the peer's.
    ratio: Option<f64>,
    /// Our memory by the peer's.
    memory_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    device: String,
    threads: usize,
    layers: usize,
    hidden: usize,
    heads: usize,
    inner: usize,
    batches: usize,
    texts: usize,
    /// How many tokens all batches have.
    tokens: usize,
    steps: usize,
    /// How many labels are learned, if not pairs; whether they look for themselves.
    labels: Option<usize>,
    looking: bool,
    /// Whether texts differ in length, so that tokens a second are compared.
    lengths_vary: bool,
    ours: Figures,
    loss: f32,
    peers: Vec<Peer>,
}

impl TrainStep {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let batches = self.batches()?;
        let lesson = match self.labels {
            None => Lesson::Pairs,
            Some(count) => Lesson::Labels { count, looking: self.looking },
        };
        let step = measure::TrainStep { lesson, config: self.config(), batches, steps: self.steps };
        let device = self.device.open(self.cache.root().as_deref(), session)?;
        let times = step.run(&device)?;
        unless_stopped(session)?;
        let (device_name, torch_name) = (device.name(), self.device.torch_name(&device));
        // The peers are to have the device's memory for themselves.
        drop(device);
        let mut report = self.report(&step, &times, device_name);
        for &mode in &self.modes {
            let answer = self.ask_peer(&step, mode, &torch_name);
            unless_stopped(session)?;
            let peer = report.peer(mode, answer, times.operations / times.tokens as f64, self.peak);
            report.peers.push(peer);
        }
        if self.json {
            output::print_json(&report)?
        } else {
            output::print_text(&describe(&report))?
        }
        Ok(DONE)
    }

    fn config(&self) -> EncoderConfig {
        let (layers, hidden) = match self.shape {
            Shape::BertBase => (12, 768),
            Shape::Minilm => (6, 384),
        };
        let hidden = self.hidden.unwrap_or(hidden);
        EncoderConfig {
            family: Family::Bert,
            vocabulary: 30_522,
            hidden,
            layers: self.layers.unwrap_or(layers),
            heads: self.heads.unwrap_or(12),
            inner: self.inner.unwrap_or(4 * hidden),
            positions: LONGEST,
            types: 0,
            epsilon: 1e-12,
            hidden_dropout: 0.0,
            attention_dropout: 0.0,
            padding: 0,
            ends: None,
        }
    }

    fn batches(&self) -> anyhow::Result<Vec<Vec<usize>>> {
        let batches: Vec<Vec<usize>> = match &self.lengths {
            None => vec![vec![self.length; self.batch]],
            Some(path) => serde_json::from_str(&output::read_text(path)?).map_err(|problem| {
                let path = path.display();
                user_error(format!(
                    "{path}: is not a JSON list of batches, each a list of lengths: {problem}"
                ))
            })?,
        };
        let most = self.pad_to.unwrap_or(LONGEST);
        match batches.iter().flatten().find(|length| !(1..=most).contains(length)) {
            Some(length) => Err(user_error(format!("a text of {length} tokens; 1 to {most} can be taken"))),
            None => Ok(batches),
        }
    }

    fn report(&self, step: &measure::TrainStep, times: &StepTimes, device: String) -> Report {
        let EncoderConfig { layers, hidden, heads, inner, .. } = step.config;
        let lengths = || step.batches.iter().flatten();
        let teraflops = times.operations_per_second() / 1e12;
        Report {
            device,
            threads: rayon::current_num_threads(),
            layers,
            hidden,
            heads,
            inner,
            batches: step.batches.len(),
            texts: lengths().count(),
            tokens: lengths().sum(),
            steps: step.steps,
            labels: self.labels,
            looking: self.looking,
            lengths_vary: lengths().min() != lengths().max(),
            ours: Figures {
                name: "polytag".to_owned(),
                milliseconds: times.median_milliseconds(),
                tokens_per_second: times.tokens_per_second(),
                peak_bytes: Some(times.peak_memory.0),
                teraflops,
                share_of_peak: self.peak.map(|peak| teraflops / peak),
            },
            loss: times.loss,
            peers: Vec::new(),
        }
    }

    fn ask_peer(&self, step: &measure::TrainStep, mode: Mode, device: &str) -> Answer<Figures> {
        let EncoderConfig { layers, hidden, heads, inner, vocabulary, positions, .. } = step.config;
        let job = Job {
            mode,
            device,
            threads: rayon::current_num_threads(),
            steps: self.steps,
            pad_to: self.pad_to,
            labels: self.labels,
            looking: self.looking,
            layers,
            hidden,
            heads,
            inner,
            vocabulary,
            positions,
            batches: &step.batches,
        };
        peer::ask(&self.python, PEER, &[], |input| Ok(serde_json::to_writer(input, &job)?))
    }
}

impl Report {
    /// A peer beside ours. Both did the same steps, so that a token took as many operations.
    fn peer(&self, mode: Mode, answer: Answer<Figures>, operations: f64, peak: Option<f64>) -> Peer {
        let mut figures = match answer {
            Answer::Measured(figures) => figures,
            Answer::Missing(why) => {
                return Peer { mode, figures: None, missing: Some(why), ratio: None, memory_ratio: None };
            }
        };
        figures.teraflops = figures.tokens_per_second * operations / 1e12;
        figures.share_of_peak = peak.map(|peak| figures.teraflops / peak);
        let ratio = match self.lengths_vary {
            true => self.ours.tokens_per_second / figures.tokens_per_second,
            false => figures.milliseconds / self.ours.milliseconds,
        };
        let memory = self.ours.peak_bytes.zip(figures.peak_bytes);
        Peer {
            mode,
            ratio: Some(ratio),
            memory_ratio: memory.map(|(ours, theirs)| ours as f64 / theirs as f64),
            figures: Some(figures),
            missing: None,
        }
    }
}

fn describe(report: &Report) -> String {
    let Report { layers, hidden, heads, batches, texts, device, threads, .. } = report;
    let tokens = count(report.tokens as u64);
    let mut text =
        format!("{layers} layers of {hidden} numbers, {heads} heads; {batches} batches, {texts} texts, ");
    let labels = report.labels.map_or(String::new(), |labels| {
        let looking = if report.looking { " that look for themselves, too" } else { "" };
        format!("; {} labels{looking}", count(labels as u64))
    });
    text.push_str(&format!("{tokens} tokens{labels}; {device}, {threads} threads\n\n"));
    let mut table = Table::default();
    table.row(["", "ms", "tokens/s", "TFLOP/s", "of peak", "memory"]);
    let peers = report.peers.iter().filter_map(|peer| peer.figures.as_ref());
    for figures in std::iter::once(&report.ours).chain(peers) {
        let or_dash = |cell: Option<String>| cell.unwrap_or("–".to_owned());
        table.row([
            figures.name.clone(),
            format!("{:.2}", figures.milliseconds),
            count(figures.tokens_per_second.round() as u64),
            format!("{:.3}", figures.teraflops),
            or_dash(figures.share_of_peak.map(|share| format!("{:.1} %", 100.0 * share))),
            or_dash(figures.peak_bytes.map(|bytes| Bytes(bytes).to_string())),
        ]);
    }
    text.push_str(&table.render(2));
    text.push('\n');
    for peer in &report.peers {
        if let (Some(figures), Some(ratio)) = (&peer.figures, peer.ratio) {
            let what = if report.lengths_vary { "tokens a second" } else { "speed" };
            let memory = peer.memory_ratio.map(|ratio| format!(", {ratio:.2} x the memory"));
            let memory = memory.unwrap_or_default();
            text.push_str(&format!("  {ratio:.2} x the {what} of {}{memory}\n", figures.name));
        }
        if let Some(why) = &peer.missing {
            let mode = match peer.mode {
                Mode::Eager => "eager",
                Mode::Compile => "compile",
            };
            text.push_str(&format!("  no torch {mode}: {why}\n"));
        }
    }
    text
}
