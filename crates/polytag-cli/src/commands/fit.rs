//! `polytag fit`: from a task folder to a model folder.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use polytag::artifact::{IndexReport, Manifest};
use polytag::encoder::EncoderCache;
use polytag::method::{self, Choice, METHODS, Means, MethodConfig, TrainContext, TrainingFolder};
use polytag_nn::device::Device;
use serde_json::{Map, Value};

use super::{DONE, Done};
use crate::device::{EngineArguments, PrecisionArgument};
use crate::failure::{say, user_error};
use crate::output;
use crate::settings::Session;
use crate::table::count;

/// Learn from a task folder and write a model folder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag fit tasks/eurlex --method lexical --out models/eurlex
  polytag fit tasks/shop --set stem=german --out models/shop
  polytag fit tasks/shop --config shop.toml --out models/shop
  polytag fit tasks/eurlex --method frozen --encoder mpnet --out models/eurlex-mpnet
  polytag fit tasks/million --method frozen --precision int8 --set index=hnsw --out models/million
  polytag fit tasks/eurlex --method of-lan --set epochs=4 --device cuda --out models/eurlex-lan
  polytag fit tasks/eurlex --method label-tree --memory 1GB --out models/eurlex-tree
  polytag fit tasks/packages --method maclr --set item_to_item=true --device cuda --out models/packages

Methods that train an encoder keep their state beside the model, in MODEL.training: after Ctrl-C or a crash the
same command goes on where it was. With a dev split they show how good they are, those that learn from pairs after each
epoch, and these keep the best weights; the curve is in MODEL/curve.jsonl. With --precision int8 they work on the CPU, even
where there is a GPU: steps are in f32 as ever, and all that is encoded between them, for clusters, guesses, measures and label
vectors, is in 8-bit integers.

The settings of a method are listed in its error for a setting it does not know.")]
pub(crate) struct Fit {
    /// The task folder
    task: PathBuf,
    /// The method: `auto` chooses one for the task
    #[arg(long, default_value = "auto", value_parser = METHODS.to_vec())]
    method: String,
    /// Where to write the model; a model that is there is replaced
    #[arg(long, value_name = "MODEL")]
    out: PathBuf,
    /// Settings of the method, in a TOML or JSON file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting of the method, laid over those of --config
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The encoder, for methods that have one: a known name, a name on the hub, or a folder
    #[arg(long, value_name = "NAME")]
    encoder: Option<String>,
    /// What makes one run differ from another
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What documents may take of the memory while they are learned from, for methods that can put them on the disk
    /// (label trees, zest): 1GB, 500MB; the model is the same
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// Print the manifest as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    precision: PrecisionArgument,
    #[command(flatten)]
    engine: EngineArguments,
}

impl Fit {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let started = Instant::now();
        let mut settings = settings(self.config.as_ref(), &self.set)?;
        if let Some(encoder) = &self.encoder {
            settings["encoder"] = Value::String(encoder.clone());
        }
        // Where there is no cache there may still be an encoder in a folder of the user's.
        let encoders = self.engine.cache.root().map(|root| root.join("encoders")).unwrap_or_default();
        let encoders = EncoderCache::new(encoders);
        // Settings that the method does not have are an error before anything is read.
        let given = match self.method.as_str() {
            "auto" => None,
            name => Some(MethodConfig::named(name, &settings).map_err(polytag::Error::from)?),
        };
        let task = session.task(&self.task)?;
        if !session.quiet {
            task.unread_files().iter().for_each(|file| say(&format!("note: {file}")));
        }
        let (config, (device, world)) = match given {
            Some(config) => {
                let network = config.uses_network(&encoders);
                let devices = self.engine.open_all(network, self.precision, session)?;
                (config, devices)
            }
            None => {
                let named = Means::names_encoder(&settings);
                let encoder = Means::has_encoder(&settings, &encoders).map_err(polytag::Error::from)?;
                let devices = self.engine.open_all(encoder, self.precision, session)?;
                let means = Means { encoder, named, gpu: matches!(devices.0, Device::Cuda(_)) };
                let choice = Choice::of(&task, means, &session.stop).map_err(polytag::Error::from)?;
                if !session.quiet {
                    say(&format!("method: {}, {}", choice.method, choice.why));
                    if self.encoder.is_some() && !choice.has_encoder() {
                        say(
                            "note: --encoder is not used, as this method has none; --method names another one",
                        );
                    }
                }
                let config = choice.config(settings).map_err(|error| match error.to_string() {
                    said if said.contains("unknown field") => user_error(format!(
                        "{said}; `auto` took `{}` here: name the method that the setting is for with --method",
                        choice.method
                    )),
                    _ => polytag::Error::from(error).into(),
                })?;
                (config, devices)
            }
        };
        let training = config.trains().then(|| TrainingFolder::beside(&self.out)).transpose();
        let training = training.map_err(polytag::Error::from)?;
        if let Some(training) = training.as_ref().filter(|training| training.is_under_way()) {
            say(&format!(
                "going on with the training in {}; remove it to begin anew",
                training.path().display()
            ));
        }
        let context = TrainContext {
            seed: self.seed,
            world: world.as_ref(),
            folder: training.as_ref().map(TrainingFolder::path),
            memory_limit: self.memory,
            ..TrainContext::new((&device, &encoders), (&session.stop, session.progress.as_ref()))
        };
        let fitted = method::fit(&task, config, &self.out, &context);
        if let Some(training) = training {
            training.end(fitted.is_ok()).map_err(polytag::Error::from)?;
        }
        let fitted = fitted?;
        if self.json {
            output::print_json(&fitted.manifest)?;
        } else {
            output::print_text(&summary(&fitted.manifest, &self.out, started))?;
        }
        Ok(DONE)
    }
}

/// A size such as 500MB, 1.5GB or 2GiB.
fn bytes(size: &str) -> Result<u64, String> {
    let size = size.trim();
    let at = size.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(size.len());
    let (number, unit) = size.split_at(at);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err("say a number and B, KB, MB or GB, for example 500MB".to_owned()),
    };
    match number.parse::<f64>() {
        Ok(number) if number * unit >= 1.0 => Ok((number * unit) as u64),
        _ => Err("say a number and B, KB, MB or GB, for example 500MB".to_owned()),
    }
}

/// What was fitted, in a line.
pub(crate) fn summary(manifest: &Manifest, out: &Path, started: Instant) -> String {
    let fitted = format!(
        "{}: {}, {} labels, {} training documents, {:.1} s\n",
        out.display(),
        manifest.method,
        count(manifest.labels),
        count(manifest.train_documents),
        started.elapsed().as_secs_f64()
    );
    manifest.index.as_ref().map_or(fitted.clone(), |index| format!("{fitted}{}\n", searched(index)))
}

/// How labels are searched, in a line.
fn searched(index: &IndexReport) -> String {
    let mut line = format!("index: {} ({})", index.kind, index.why);
    if let (Some(width), Some(ef)) = (index.width, index.ef) {
        line.push_str(&format!(", {width} links a label, walks of {ef}"));
    }
    if let (Some(recall), Some(queries)) = (index.recall_at_100, index.queries) {
        line.push_str(&format!(", recall@100 {recall:.4} on {queries} queries"));
    }
    line
}

/// The settings of a file, with those of the command line laid over them.
fn settings(file: Option<&PathBuf>, set: &[String]) -> anyhow::Result<Value> {
    let mut settings = match file {
        None => Map::new(),
        Some(path) => {
            let text = output::read_text(path)?;
            let parsed = if path.extension().is_some_and(|ext| ext == "json") {
                serde_json::from_str(&text).map_err(|error| error.to_string())
            } else {
                toml::from_str(&text).map_err(|error| error.to_string())
            };
            parsed.map_err(|error| user_error(format!("{}: {error}", path.display())))?
        }
    };
    for setting in set {
        let (name, value) = setting.split_once('=').ok_or_else(|| {
            user_error(format!("--set {setting}: write NAME=VALUE, for example --set ngrams=2"))
        })?;
        // What is not JSON is a string: stem=german needs no quotes.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        settings.insert(name.to_owned(), value);
    }
    Ok(Value::Object(settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_unit() {
        assert_eq!(bytes("1GB"), Ok(1_000_000_000));
        assert_eq!(bytes("1.5 kib"), Ok(1536));
        assert_eq!(bytes("700"), Ok(700));
        for wrong in ["", "GB", "-1GB", "1TB", "0MB", "1..5GB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
