//! `polytag serve`: an API and a page.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use polytag::data::Split;
use polytag_nn::device::Device;
use polytag_server::api::App;
use polytag_server::journal::Journal;
use polytag_server::served::{Model, Neighbours};
use polytag_server::{OpenError, Server, ServerConfig, Serving};
use serde_json::{Map, Value};

use super::{DONE, Done};
use crate::device::{EngineArguments, PrecisionArgument};
use crate::failure::{say, user_error};
use crate::settings::Session;

/// Settings in the environment begin with this.
const PREFIX: &str = "POLYTAG_SERVE_";

/// The password of the database of labels.
const PASSWORD: &str = "PGPASSWORD";

/// Serve models: an API, and a page where people tag text and add labels
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag serve MODEL
  polytag serve laws=models/eurovoc shop=models/catalogue --port 9000
  polytag serve MODEL --task TASK --audit labels-audit.jsonl
  polytag serve MODEL --config serve.toml --set batch_tokens=16384
  polytag serve MODEL --labels postgres://tags@db1,db2/labels --create
  polytag serve MODEL --labels postgres://tags@db1,db2/labels --create --label-search database
  curl -s localhost:8080/v1/models/MODEL/tag -H 'content-type: application/json' -d '{\"texts\": [\"trade in tea\"]}'

Settings come from --config (TOML), then the environment (POLYTAG_SERVE_LISTEN and so on), then options. Other machines
are let in with keys only: `polytag serve-key` makes one. Ctrl-C or SIGTERM finishes what was taken, then ends.")]
pub(crate) struct Serve {
    /// Model folders, each as FOLDER or NAME=FOLDER
    #[arg(required = true)]
    models: Vec<String>,
    /// The port to listen on, on this machine's own address; 0 takes any that is free
    #[arg(long, value_name = "N", conflicts_with = "listen")]
    port: Option<u16>,
    /// The address and port to listen on
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// A file of settings, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change a setting
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A certificate in PEM, for HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Keep changes of labels in this database, which several servers share, instead of in the model folder:
    /// postgres://USER@HOST[,HOST]/DATABASE. The password is taken from PGPASSWORD or labels_password_file
    #[arg(long, value_name = "ADDRESS")]
    labels: Option<String>,
    /// Put the tables and the model's labels into that database, where they are not there yet
    #[arg(long)]
    create: bool,
    /// Where labels in that database are searched: by this server (memory), by the database, or as memory allows (auto)
    #[arg(long, value_name = "WHERE", value_parser = ["auto", "memory", "database"])]
    label_search: Option<String>,
    /// Show training documents of this task beside labels
    #[arg(long, value_name = "TASK")]
    task: Option<PathBuf>,
    /// Write a line for each change of a label here instead of on standard error
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    #[command(flatten)]
    precision: PrecisionArgument,
    #[command(flatten)]
    engine: EngineArguments,
}

impl Serve {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let config = self.settings(environment())?;
        let server = Server::try_from(config).map_err(|error| user_error(error.to_string()))?;
        let named = named(&self.models)?;
        let neighbours = self.task.as_deref().map(|task| read_documents(task, session)).transpose()?;
        let mut devices = Vec::new();
        for (_, dir) in &named {
            devices.push(self.engine.for_prediction(dir, self.precision, session)?);
        }
        let models = named
            .iter()
            .zip(&devices)
            .map(|((name, dir), device)| Model {
                name: name.clone(),
                dir,
                device,
                neighbours: neighbours.clone(),
            })
            .collect();
        serve(server, models, journal(self.audit.as_deref())?, session)
    }

    /// The settings of a file, the environment and options, each over those before it.
    fn settings(&self, environment: impl Iterator<Item = (String, String)>) -> anyhow::Result<ServerConfig> {
        let mut settings = match &self.config {
            None => Map::new(),
            Some(path) => {
                let read = std::fs::read_to_string(path)
                    .map_err(|error| user_error(format!("{}: cannot read: {error}", path.display())))?;
                let table: Value = toml::from_str(&read).map_err(|error| {
                    user_error(format!("{}: {}", path.display(), error.to_string().trim()))
                })?;
                table.as_object().cloned().unwrap_or_default()
            }
        };
        let mut password = None;
        for (name, value) in environment {
            if let Some(setting) = name.strip_prefix(PREFIX) {
                let setting = setting.to_lowercase();
                let value = parsed(&setting, &value);
                settings.insert(setting, value);
            } else if name == PASSWORD {
                password = Some(value);
            }
        }
        for assignment in &self.set {
            let (setting, value) = assignment
                .split_once('=')
                .ok_or_else(|| user_error(format!("--set {assignment}: say KEY=VALUE")))?;
            settings.insert(setting.to_owned(), parsed(setting, value));
        }
        let path = |path: &PathBuf| Value::from(path.display().to_string());
        let listen = self.listen.clone().or_else(|| self.port.map(|port| format!("127.0.0.1:{port}")));
        let options = [
            ("listen", listen.map(Value::from)),
            ("tls_certificate", self.tls_certificate.as_ref().map(path)),
            ("tls_key", self.tls_key.as_ref().map(path)),
            ("labels", self.labels.clone().map(Value::from)),
            ("labels_create", self.create.then_some(Value::from(true))),
            ("labels_search", self.label_search.clone().map(Value::from)),
        ];
        for (setting, value) in options {
            settings.extend(value.map(|value| (setting.to_owned(), value)));
        }
        // As every program takes it that speaks to PostgreSQL, if we are told no other.
        let told = ["labels_password", "labels_password_file"].iter().any(|key| settings.contains_key(*key));
        settings.extend(password.filter(|_| !told).map(|text| ("labels_password".to_owned(), text.into())));
        serde_json::from_value(Value::Object(settings))
            .map_err(|error| user_error(format!("settings of the server: {error}")))
    }
}

/// Variables whose names and values are text; no others are ours.
fn environment() -> impl Iterator<Item = (String, String)> {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text)
}

/// A value as JSON, or else as a string; a password is a string, also if it looks like a number.
fn parsed(setting: &str, value: &str) -> Value {
    match setting {
        "labels" | "labels_password" => Value::from(value),
        _ => serde_json::from_str(value).unwrap_or_else(|_| Value::from(value)),
    }
}

/// Model folders by name: the one that was given, or that of the folder.
fn named(models: &[String]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut taken = BTreeSet::new();
    let mut all = Vec::new();
    for model in models {
        let is_folder = Path::new(model).is_dir();
        let (name, dir) = match model.split_once('=').filter(|_| !is_folder) {
            Some((name, dir)) => (name.to_owned(), PathBuf::from(dir)),
            None => {
                let dir = PathBuf::from(model);
                // As the folder is called, wherever the path began.
                let whole = dir.canonicalize().unwrap_or_else(|_| dir.clone());
                (whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(), dir)
            }
        };
        if name.is_empty() || name.contains('/') {
            return Err(user_error(format!("{model}: {name:?} is no name for a model; say NAME=FOLDER")));
        }
        if !taken.insert(name.clone()) {
            return Err(user_error(format!("{model}: there are two models {name:?}; say NAME=FOLDER")));
        }
        all.push((name, dir));
    }
    Ok(all)
}

/// The training documents of a task.
fn read_documents(dir: &Path, session: &Session) -> anyhow::Result<Arc<Neighbours>> {
    let task = session.task(dir)?;
    let dataset =
        task.dataset(Split::Train, session.progress.as_ref(), &session.stop).map_err(polytag::Error::from)?;
    Ok(Arc::new(Neighbours::read(&dataset)?))
}

fn journal(audit: Option<&Path>) -> anyhow::Result<Journal> {
    let sink: Box<dyn Write + Send> = match audit {
        None => Box::new(io::stderr()),
        Some(path) => {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            Box::new(
                opened.map_err(|error| user_error(format!("{}: cannot write: {error}", path.display())))?,
            )
        }
    };
    Ok(Journal::new(sink))
}

/// Serves models until the session is stopped.
fn serve(server: Server, models: Vec<Model<'_>>, journal: Journal, session: &Session) -> Done {
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let app = App::open(server, models, journal).map_err(|error| match error {
        OpenError::Model(error) => error.into(),
        error => user_error(error.to_string()),
    })?;
    let stop = session.stop.clone();
    let quiet = session.quiet;
    let begun = |serving: &Serving| {
        if !quiet {
            let scheme = if serving.tls { "https" } else { "http" };
            let address = serving.address;
            say(&format!("serving {} on {scheme}://{address}/ (Ctrl-C ends it)", names.join(", ")));
        }
    };
    polytag_server::serve(app, move || stop.is_asked(), begun)
        .map_err(|error| user_error(error.to_string()))?;
    Ok(DONE)
}

/// Serves the one model of the demo.
pub(super) fn serve_demo(task: &Path, model: &Path, port: u16, session: &Session) -> Done {
    let config = ServerConfig { listen: format!("127.0.0.1:{port}"), ..ServerConfig::default() };
    let server = Server::try_from(config).map_err(|error| user_error(error.to_string()))?;
    let (device, neighbours) = (Device::cpu(), Some(read_documents(task, session)?));
    let model = Model { name: "demo".to_owned(), dir: model, device: &device, neighbours };
    serve(server, vec![model], journal(None)?, session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: Serve,
    }

    fn settings(options: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<ServerConfig> {
        let line = Line::parse_from(["serve", "m"].iter().chain(options));
        line.serve.settings(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn options_come_over_the_environment_and_that_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serve.toml");
        let (key, kept) = polytag_server::keys::KeyConfig::random("k", polytag_server::keys::Scope::Admin);
        assert_eq!(key.len(), 64);
        let text = format!(
            "max_k = 7\nmax_labels = 8\nlisten = \"[::1]:1\"\n[[keys]]\n{}",
            toml::to_string(&kept).unwrap()
        );
        std::fs::write(&path, text).unwrap();
        let file = path.to_str().unwrap();
        let environment =
            [("POLYTAG_SERVE_MAX_LABELS", "9"), ("PATH", "/bin"), ("POLYTAG_SERVE_LISTEN", "x")];
        let config =
            settings(&["--config", file, "--port", "81", "--set", "deadline=2.5"], &environment).unwrap();
        assert_eq!((config.max_k, config.max_labels, config.deadline), (7, 9, 2.5));
        assert_eq!((config.listen.as_str(), config.keys), ("127.0.0.1:81", vec![kept]));
    }

    #[test]
    fn passwords_are_taken_as_they_are_and_ours_before_the_usual_one() {
        let usual = ("PGPASSWORD", "0x10");
        let password = |options: &[&str], environment: &[(&str, &str)]| {
            settings(options, environment).unwrap().labels_password
        };
        let secret = |text: &str| Some(polytag_server::store::Secret::new(text));
        assert_eq!(password(&[], &[usual]), secret("0x10"));
        assert_eq!(password(&[], &[usual, ("POLYTAG_SERVE_LABELS_PASSWORD", "1e5")]), secret("1e5"));
        assert_eq!(password(&["--set", "labels_password_file=p"], &[usual]), None);
        let config = settings(&["--labels", "postgres://u@h/d", "--create"], &[]).unwrap();
        assert!(config.labels.is_some() && config.labels_create);
    }

    #[test]
    fn unknown_settings_are_told() {
        let error = settings(&["--set", "max_kk=1"], &[]).unwrap_err().to_string();
        assert!(error.contains("max_kk"), "{error}");
        let error = settings(&[], &[("POLYTAG_SERVE_NO", "1")]).unwrap_err().to_string();
        assert!(error.contains("no"), "{error}");
    }

    #[test]
    fn models_have_names_of_their_own() {
        let named =
            |models: &[&str]| named(&models.iter().map(|&model| model.to_owned()).collect::<Vec<_>>());
        assert_eq!(named(&["a=x/y", "z"]).unwrap(), [("a".into(), "x/y".into()), ("z".into(), "z".into())]);
        assert!(named(&["a=x", "a=y"]).unwrap_err().to_string().contains("two models"));
        assert!(named(&["=x"]).unwrap_err().to_string().contains("no name"));
    }
}
