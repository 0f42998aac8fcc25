//! A connection to the database that comes back by itself, and the threads that wait for it.
//!
//! The rest of the server waits for the database on threads that may wait; one thread of its own reads what comes in. A
//! connection on which anything failed is closed, so that whatever was open on it is undone.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::address::Address;
use super::error::StoreError;
use super::tls::Rustls;

/// How long the database may take where all labels are written, or an index over them is made.
pub(super) const CREATION: Duration = Duration::from_secs(24 * 3600);

/// What each connection is told first. Waiting is bounded here and not there, as a wait for a synchronous replica that the
/// database cuts short counts as success. A change is on the disk of the database, and of replicas that it waits for,
/// before it is confirmed, whatever is usual there. Whoever is silent in the middle of a change must not hold up others.
const GREETING: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
     SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = warning; \
     SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

/// Where connections are read, whoever waits for them.
pub(crate) struct Engine(Option<Runtime>);

impl Engine {
    pub(crate) fn start() -> io::Result<Engine> {
        let built =
            Builder::new_multi_thread().worker_threads(1).thread_name("store").enable_all().build()?;
        Ok(Engine(Some(built)))
    }

    /// Waits, on a thread that may.
    pub(super) fn wait<F: Future>(&self, work: F) -> F::Output {
        self.0.as_ref().expect("it runs until it is dropped").block_on(work)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Whoever drops it may be a thread that must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A bell that one thread waits for.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Default)]
struct Rung {
    rung: bool,
    ended: bool,
}

impl Bell {
    pub(super) fn ring(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).rung = true;
        self.changed.notify_all();
    }

    /// Nobody waits any more.
    pub(super) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changed.notify_all();
    }

    /// Waits until it rings, or for some time; false once it has ended.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, at_most, |state| !state.rung && !state.ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.rung = false;
        !state.ended
    }
}

/// A connection, or the way to one.
pub(crate) struct Link {
    /// One for each machine, in order.
    ways: Vec<Config>,
    tls: Rustls,
    pub(super) patience: Duration,
    bell: Arc<Bell>,
    /// What is listened to.
    channel: Option<String>,
    /// What each connection is told beside the usual.
    greeting: String,
    client: Option<Client>,
    /// Whether the database warned of something on this connection.
    warned: Arc<AtomicBool>,
    /// How often a connection was made.
    pub(super) made: u64,
    /// Whether others wait for what was begun on it.
    pub(super) holds: bool,
}

impl Link {
    pub(super) fn new(address: &Address, bell: Arc<Bell>) -> Result<Link, StoreError> {
        let (config, tls) = address.complete()?;
        Ok(Link {
            ways: ways(&config),
            tls,
            patience: address.patience,
            bell,
            channel: None,
            greeting: String::new(),
            client: None,
            warned: Arc::default(),
            made: 0,
            holds: false,
        })
    }

    /// Says this on every connection that is made from now on.
    pub(super) fn greet(&mut self, greeting: String) {
        self.greeting = greeting;
    }

    /// Listens to `channel` from now on, on every connection.
    pub(super) async fn listen(&mut self, channel: String) -> Result<(), StoreError> {
        self.channel = Some(channel.clone());
        self.begin(async |client| client.batch_execute(&format!("LISTEN {channel}")).await).await
    }

    /// Does something on a connection, which is made if there is none.
    pub(super) async fn begin<T, E: Into<StoreError>>(
        &mut self,
        work: impl AsyncFnOnce(&Client) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        // What still holds others up was left by somebody who broke down; closing the connection undoes it.
        if std::mem::take(&mut self.holds) || self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = None;
            self.client = Some(self.connect().await?);
            self.made += 1;
        }
        self.go_on(work).await
    }

    /// Does something on the connection that is there, as part of what was begun.
    pub(super) async fn go_on<T, E: Into<StoreError>>(
        &mut self,
        work: impl AsyncFnOnce(&Client) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        let Some(client) = &self.client else {
            return Err(StoreError::Away { problem: "the connection was closed".to_owned() });
        };
        let done = match timeout(self.patience, work(client)).await {
            Ok(done) => done.map_err(Into::into),
            Err(_) => Err(StoreError::late(self.patience)),
        };
        if done.is_err() {
            self.client = None;
            self.holds = false;
        }
        done
    }

    /// Commits what was begun. An error that says so leaves open whether it was done.
    pub(super) async fn commit(&mut self) -> Result<(), StoreError> {
        self.holds = false;
        self.warned.store(false, Ordering::SeqCst);
        let done = self.go_on(async |client| client.batch_execute("COMMIT").await).await;
        done.map_err(|error| StoreError::Unsure { problem: error.to_string() })?;
        if self.warned.load(Ordering::SeqCst) {
            // Such as a wait for a synchronous replica that an administrator cut short.
            self.client = None;
            return Err(StoreError::Unsure {
                problem: "it warned that a replica may not have it".to_owned(),
            });
        }
        Ok(())
    }

    /// Undoes what was begun.
    pub(super) async fn roll_back(&mut self) {
        self.holds = false;
        // Where that fails, the connection is closed, which undoes it too.
        let _ = self.go_on(async |client| client.batch_execute("ROLLBACK").await).await;
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let mut problem = StoreError::Away { problem: "no machine is named".to_owned() };
        for way in &self.ways {
            let limit = way.get_connect_timeout().copied().unwrap_or(self.patience);
            let found = match timeout(limit, self.connect_to(way)).await {
                Ok(found) => found,
                Err(_) => Err(StoreError::late(limit)),
            };
            match found {
                Ok(client) => return Ok(client),
                // What somebody can do something about is worth more than that nobody is there.
                Err(error) if problem.may_pass() => problem = error,
                Err(_) => {}
            }
        }
        Err(problem)
    }

    async fn connect_to(&self, way: &Config) -> Result<Client, StoreError> {
        let (client, mut connection) = way.connect(self.tls.clone()).await?;
        let (bell, warned) = (Arc::clone(&self.bell), Arc::clone(&self.warned));
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    AsyncMessage::Notification(_) => bell.ring(),
                    AsyncMessage::Notice(_) => warned.store(true, Ordering::SeqCst),
                    _ => {}
                }
            }
            // It is gone: somebody should look.
            bell.ring();
        });
        client.batch_execute(&format!("{GREETING}; {}", self.greeting)).await?;
        if let Some(channel) = &self.channel {
            client.batch_execute(&format!("LISTEN {channel}")).await?;
        }
        Ok(client)
    }
}

/// The same settings for each machine alone, so that one that hangs is given up for the next.
fn ways(config: &Config) -> Vec<Config> {
    let (hosts, ports) = (config.get_hosts(), config.get_ports());
    let way = |(at, host): (usize, &Host)| {
        let mut way = Config::new();
        match host {
            Host::Tcp(name) => way.host(name),
            #[cfg(unix)]
            Host::Unix(path) => way.host_path(path),
        };
        way.port(ports.get(at).or(ports.first()).copied().unwrap_or(5432));
        config.get_user().map(|user| way.user(user));
        config.get_password().map(|password| way.password(password));
        config.get_dbname().map(|name| way.dbname(name));
        config.get_options().map(|options| way.options(options));
        config.get_hostaddrs().get(at).map(|address| way.hostaddr(*address));
        way.channel_binding(config.get_channel_binding());
        config.get_application_name().map(|name| way.application_name(name));
        config.get_connect_timeout().map(|limit| way.connect_timeout(*limit));
        config.get_tcp_user_timeout().map(|limit| way.tcp_user_timeout(*limit));
        way.ssl_mode(config.get_ssl_mode()).keepalives(config.get_keepalives());
        way.keepalives_idle(config.get_keepalives_idle());
        config.get_keepalives_interval().map(|every| way.keepalives_interval(every));
        config.get_keepalives_retries().map(|times| way.keepalives_retries(times));
        way.target_session_attrs(config.get_target_session_attrs());
        way
    };
    hosts.iter().enumerate().map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_bell_is_heard_once_and_ends() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.wait(Duration::from_secs(60)));
        let begun = Instant::now();
        assert!(bell.wait(Duration::from_millis(20)));
        assert!(begun.elapsed() >= Duration::from_millis(20));
        bell.end();
        assert!(!bell.wait(Duration::from_secs(60)));
    }

    #[test]
    fn each_machine_is_a_way_of_its_own() {
        let config: Config = "postgres://u:p@a:1,b:2/d?sslmode=require&options=-cx%3D1".parse().unwrap();
        let ways = ways(&config);
        assert_eq!(ways.len(), 2);
        assert_eq!((ways[1].get_hosts(), ways[1].get_ports()), (&[Host::Tcp("b".into())][..], &[2][..]));
        for way in ways {
            assert_eq!((way.get_user(), way.get_password()), (Some("u"), Some(&b"p"[..])));
            assert_eq!((way.get_dbname(), way.get_options()), (Some("d"), Some("-cx=1")));
            assert_eq!(way.get_ssl_mode(), config.get_ssl_mode());
        }
    }
}
