//! Where the database is, and how it is spoken to: checked once, never shown with its password.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::error::StoreError;
use super::tls::Rustls;

/// How long one of several machines may take to answer that it is there, unless the address says otherwise.
const CONNECT: Duration = Duration::from_secs(3);

/// Text that is not to be shown.
#[derive(Clone, PartialEq, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Hides text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("(secret)")
    }
}

/// Where labels are searched that a database keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelSearch {
    /// By this server, unless their vectors do not fit in half of the memory that is free.
    #[default]
    Auto,
    /// By this server, which has the vectors of all labels.
    Memory,
    /// By the database.
    Database,
}

/// A database of labels.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) config: Config,
    password_file: Option<PathBuf>,
    authorities: Option<PathBuf>,
    /// Whether what is missing is made.
    pub(crate) create: bool,
    /// Where labels are searched.
    pub(crate) search: LabelSearch,
    /// How long it may take to answer.
    pub(crate) patience: Duration,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words())
    }
}

/// The parts of an address, as they are set.
pub(crate) struct Parts {
    pub(crate) url: Secret,
    pub(crate) password: Option<Secret>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) create: bool,
    pub(crate) search: LabelSearch,
    pub(crate) patience: Duration,
}

impl Address {
    /// Checks an address; what is wrong with it.
    pub(crate) fn new(parts: Parts) -> Result<Address, String> {
        let url = parts.url.reveal();
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err("say postgres://USER@HOST/DATABASE".to_owned());
        }
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| match std::error::Error::source(&error) {
                Some(source) => format!("no address of a database: {source}"),
                None => format!("no address of a database: {error}"),
            })?;
        if config.get_hosts().is_empty() || config.get_user().is_none() || config.get_dbname().is_none() {
            return Err("names no machine, user or database; say postgres://USER@HOST/DATABASE".to_owned());
        }
        if let (Some(password), None) = (&parts.password, config.get_password()) {
            config.password(password.reveal());
        }
        // Whoever cannot write is no store: of several machines, the one that can is found.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("polytag");
        }
        // A machine that went without a word is missed soon.
        config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3).tcp_user_timeout(Duration::from_secs(20));
        if !url.contains("sslmode=") && config.get_hosts().iter().all(is_here) {
            config.ssl_mode(SslMode::Disable);
        }
        let Parts { password_file, authorities, create, search, patience, .. } = parts;
        Ok(Address { config, password_file, authorities, create, search, patience })
    }

    /// Reads what lies in files.
    pub(super) fn complete(&self) -> Result<(Config, Rustls), StoreError> {
        let mut config = self.config.clone();
        if let (Some(path), None) = (&self.password_file, config.get_password()) {
            let read = std::fs::read_to_string(path).map_err(|error| StoreError::Setting {
                setting: "labels_password_file",
                problem: format!("{}: cannot read: {error}", path.display()),
            })?;
            config.password(read.trim_end_matches(['\r', '\n']));
        }
        Ok((config, Rustls::new(self.authorities.as_deref())?))
    }

    /// Which machines and which database.
    pub(crate) fn in_words(&self) -> String {
        let ports = self.config.get_ports();
        let place = |(at, host): (usize, &Host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        };
        let places: Vec<String> = self.config.get_hosts().iter().enumerate().map(place).collect();
        format!("{}/{}", places.join(","), self.config.get_dbname().unwrap_or_default())
    }
}

/// Whether a host is this machine, so that nobody listens in between.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Result<Address, String> {
        Address::new(Parts {
            url: Secret::new(url),
            password: Some(Secret::new("hush-hush")),
            password_file: None,
            authorities: None,
            create: false,
            search: LabelSearch::default(),
            patience: Duration::from_secs(5),
        })
    }

    #[test]
    fn several_machines_are_one_address_and_passwords_are_not_shown() {
        let found = address("postgres://tags:top-secret@127.0.0.1:5433,[::1]:5434/labels").unwrap();
        assert_eq!(found.in_words(), "127.0.0.1:5433,::1:5434/labels");
        assert_eq!(found.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(found.config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(found.config.get_password(), Some(&b"top-secret"[..]));
        let shown = format!("{found:?} {:?} {}", Secret::new("x"), serde_json::json!(Secret::new("top")));
        assert!(!shown.contains("top"), "{shown}");
        let elsewhere = address("postgres://tags@db.example/labels").unwrap();
        assert_eq!(elsewhere.config.get_ssl_mode(), SslMode::Prefer);
        assert_eq!(elsewhere.config.get_password(), Some(&b"hush-hush"[..]));
        let asked = address("postgres://tags@localhost/labels?sslmode=require").unwrap();
        assert_eq!(asked.config.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn what_is_no_address_is_told_without_what_it_says() {
        for (url, words) in [
            ("mysql://a:top@b/c", "say postgres://"),
            ("postgres://u:top@h/d?colour=red", "colour"),
            ("postgres://u:top@h:port/d", "port"),
            ("postgres://h/d", "names no"),
            ("postgres://u:top@/d", "names no"),
            ("postgres://u:top@h", "names no"),
        ] {
            let problem = address(url).unwrap_err();
            assert!(problem.contains(words) && !problem.contains("top"), "{url}: {problem}");
        }
    }
}
