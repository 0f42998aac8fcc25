//! What a server allows. A [`ServerConfig`] is put together from a file, the environment and flags; only a checked
//! [`Server`] can serve.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::keys::{KeyConfig, Keys};
use crate::store::{Address, LabelSearch, Parts, Secret};

/// Settings of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The address and port to listen on. Anything but this machine's own needs keys.
    pub listen: String,
    /// API keys, as hashes. None are needed where only this machine can ask.
    pub keys: Vec<KeyConfig>,
    /// A certificate chain in PEM, for HTTPS.
    pub tls_certificate: Option<PathBuf>,
    /// Its private key in PEM.
    pub tls_key: Option<PathBuf>,
    /// How many bytes a request may have. Streams of documents may be longer; their lines may not.
    pub max_body: usize,
    /// How many documents a request may have. Streams may have more.
    pub max_documents: usize,
    /// How many tokens a request may have, at about four bytes a token. Streams may have more.
    pub max_tokens: usize,
    /// How many labels may be asked for.
    pub max_k: usize,
    /// How many labels a request may add, name as allowed or get listed.
    pub max_labels: usize,
    /// How many labels a request may be answered with: its texts times k.
    pub max_answers: usize,
    /// How many labels a request may have explained.
    pub max_explained: usize,
    /// How many tokens are tagged at once.
    pub batch_tokens: usize,
    /// How many tokens may wait; whoever comes then is told to come again.
    pub queue_tokens: usize,
    /// How many seconds an answer may take.
    pub deadline: f64,
    /// How many seconds a request may take to arrive.
    pub receive: f64,
    /// How many seconds requests are finished for when the server is told to stop.
    pub drain: f64,
    /// A database that keeps changes of labels, for several servers: postgres://USER@HOST/DATABASE. The model folder
    /// keeps them, if there is none.
    pub labels: Option<Secret>,
    /// The password of the user, if it is not in the address.
    pub labels_password: Option<Secret>,
    /// A file with that password.
    pub labels_password_file: Option<PathBuf>,
    /// Certificates in PEM of whoever signed the database's, for TLS.
    pub labels_ca: Option<PathBuf>,
    /// Whether what is missing in the database is made: tables, and the labels of the model.
    pub labels_create: bool,
    /// Where labels are searched: by the server (memory), by the database, or as memory allows (auto).
    pub labels_search: LabelSearch,
    /// How many seconds the database may take to answer.
    pub labels_timeout: f64,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: "127.0.0.1:8080".to_owned(),
            keys: Vec::new(),
            tls_certificate: None,
            tls_key: None,
            max_body: 8 << 20,
            max_documents: 1000,
            max_tokens: 1 << 20,
            max_k: 1000,
            max_labels: 1000,
            max_answers: 50_000,
            max_explained: 50,
            batch_tokens: 16_384,
            queue_tokens: 16_384,
            deadline: 30.0,
            receive: 10.0,
            drain: 20.0,
            labels: None,
            labels_password: None,
            labels_password_file: None,
            labels_ca: None,
            labels_create: false,
            labels_search: LabelSearch::Auto,
            labels_timeout: 5.0,
        }
    }
}

/// Why settings are refused.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct ConfigError {
    /// The setting.
    pub setting: &'static str,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// Checked settings.
#[derive(Clone, Debug)]
pub struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) keys: Keys,
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    pub(crate) limits: Limits,
    pub(crate) deadline: Duration,
    pub(crate) receive: Duration,
    pub(crate) drain: Duration,
    /// The database of labels, if there is one.
    pub(crate) labels: Option<Address>,
}

/// How much may be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) body: usize,
    pub(crate) documents: usize,
    pub(crate) tokens: usize,
    pub(crate) k: usize,
    pub(crate) labels: usize,
    pub(crate) answers: usize,
    pub(crate) explained: usize,
    pub(crate) batch_tokens: usize,
    pub(crate) queue_tokens: usize,
}

impl Server {
    /// The address to listen on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether only this machine can ask.
    pub fn is_local(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Whether it speaks HTTPS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }
}

impl TryFrom<ServerConfig> for Server {
    type Error = ConfigError;

    fn try_from(config: ServerConfig) -> Result<Server, ConfigError> {
        let refused = |setting, problem: String| ConfigError { setting, problem };
        let address: SocketAddr = config.listen.parse().map_err(|_| {
            let problem = format!("{:?} is no address with a port, such as 127.0.0.1:8080", config.listen);
            refused("listen", problem)
        })?;
        let keys = Keys::new(&config.keys).map_err(|problem| refused("keys", problem))?;
        if !address.ip().is_loopback() && keys.is_empty() {
            let problem = format!(
                "{address} can be reached from other machines; give keys (`polytag serve-key` makes one), or listen on 127.0.0.1"
            );
            return Err(refused("keys", problem));
        }
        let tls = match (config.tls_certificate, config.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let problem = "a certificate and its key go together; give both".to_owned();
                return Err(refused("tls_key", problem));
            }
        };
        let at_least_one = [
            ("max_body", config.max_body),
            ("max_documents", config.max_documents),
            ("max_tokens", config.max_tokens),
            ("max_k", config.max_k),
            ("max_labels", config.max_labels),
            ("max_answers", config.max_answers),
            ("max_explained", config.max_explained),
            ("batch_tokens", config.batch_tokens),
            ("queue_tokens", config.queue_tokens),
        ];
        if let Some((setting, _)) = at_least_one.into_iter().find(|(_, value)| *value == 0) {
            return Err(refused(setting, "0 leaves nothing to serve; say at least 1".to_owned()));
        }
        let seconds = |setting, value: f64| {
            let fits = value > 0.0 && value <= 86_400.0;
            fits.then(|| Duration::from_secs_f64(value))
                .ok_or_else(|| refused(setting, format!("{value} is no number of seconds up to a day")))
        };
        let patience = seconds("labels_timeout", config.labels_timeout)?;
        let of_database = [
            ("labels_create", config.labels_create),
            ("labels_search", config.labels_search == LabelSearch::Database),
            ("labels_password_file", config.labels_password_file.is_some()),
            ("labels_ca", config.labels_ca.is_some()),
        ];
        if let Some((setting, _)) = of_database.into_iter().find(|(_, is_said)| *is_said)
            && config.labels.is_none()
        {
            let problem = "this is about a database of labels, and none is named; say --labels postgres://USER@HOST/DATABASE";
            return Err(refused(setting, problem.to_owned()));
        }
        let labels = config.labels.map(|url| {
            let (password, password_file) = (config.labels_password, config.labels_password_file);
            let (authorities, create) = (config.labels_ca, config.labels_create);
            let search = config.labels_search;
            Address::new(Parts { url, password, password_file, authorities, create, search, patience })
                .map_err(|problem| refused("labels", problem))
        });
        Ok(Server {
            labels: labels.transpose()?,
            address,
            keys,
            tls,
            limits: Limits {
                body: config.max_body,
                documents: config.max_documents,
                tokens: config.max_tokens,
                k: config.max_k,
                labels: config.max_labels,
                answers: config.max_answers,
                explained: config.max_explained,
                batch_tokens: config.batch_tokens,
                queue_tokens: config.queue_tokens,
            },
            deadline: seconds("deadline", config.deadline)?,
            receive: seconds("receive", config.receive)?,
            drain: seconds("drain", config.drain)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut ServerConfig)) -> String {
        let mut config = ServerConfig::default();
        change(&mut config);
        Server::try_from(config).unwrap_err().to_string()
    }

    #[test]
    fn senseless_settings_are_refused() {
        assert!(Server::try_from(ServerConfig::default()).unwrap().is_local());
        assert!(refused(|config| config.listen = "here".to_owned()).contains("127.0.0.1:8080"));
        assert!(refused(|config| config.listen = "0.0.0.0:80".to_owned()).contains("give keys"));
        assert!(refused(|config| config.tls_key = Some("key.pem".into())).contains("give both"));
        assert!(refused(|config| config.max_k = 0).starts_with("max_k: 0"));
        assert!(refused(|config| config.deadline = f64::NAN).contains("seconds"));
        assert!(
            refused(|config| config.labels = Some(Secret::new("db"))).starts_with("labels: say postgres")
        );
        // What is said of a database is not passed over where there is none.
        assert!(refused(|config| config.labels_create = true).starts_with("labels_create: "));
        let elsewhere = refused(|config| config.labels_search = LabelSearch::Database);
        assert!(elsewhere.starts_with("labels_search: ") && elsewhere.contains("--labels postgres://"));
        assert!(refused(|config| config.labels_ca = Some("ca.pem".into())).starts_with("labels_ca: "));
    }

    #[test]
    fn the_world_may_ask_with_keys() {
        let key = KeyConfig::of("secret", "desk", crate::keys::Scope::Read);
        let config = ServerConfig { listen: "0.0.0.0:80".to_owned(), keys: vec![key], ..Default::default() };
        assert!(!Server::try_from(config).unwrap().is_local());
    }
}
