//! Sockets, TLS, draining.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;

use crate::api::{self, App};

/// How often it is looked whether the server is to stop.
const HEARING: Duration = Duration::from_millis(100);

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; is another program there? --port chooses another one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{}, {}: cannot be used as certificate and key: {source}", certificate.display(), key.display())]
    Tls {
        /// The certificate.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Serving failed.
    #[error("the server failed: {0}")]
    Failed(#[from] std::io::Error),
}

/// A server that listens.
pub struct Serving {
    /// Where: the port is known here, if any was taken.
    pub address: SocketAddr,
    /// Whether it speaks HTTPS.
    pub tls: bool,
}

/// Serves until `stop` says so, then finishes what was taken. `begun` is told once it listens.
///
/// # Errors
/// If the address or the certificate cannot be used.
pub fn serve(
    app: App,
    stop: impl Fn() -> bool + Send + 'static,
    begun: impl FnOnce(&Serving),
) -> Result<(), ServeError> {
    let (address, drain) = (app.server.address, app.server.drain);
    let listener = TcpListener::bind(address).map_err(|source| ServeError::Listen { address, source })?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let app = Arc::new(app);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(async {
        let tls = match &app.server.tls {
            None => None,
            Some((certificate, key)) => {
                // Another part of the program may have chosen already, and then the same.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let read = RustlsConfig::from_pem_file(certificate, key).await;
                let read = read.map_err(|source| ServeError::Tls {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    source,
                })?;
                let mut config = rustls::ServerConfig::clone(&read.get_inner());
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                Some(RustlsConfig::from_config(Arc::new(config)))
            }
        };
        let handle = Handle::new();
        tokio::spawn(watch(stop, handle.clone(), Arc::clone(&app), drain));
        let service = api::router(Arc::clone(&app)).into_make_service();
        begun(&Serving { address: bound, tls: tls.is_some() });
        let receive = app.server.receive;
        match tls {
            None => {
                let mut server = axum_server::from_tcp(listener)?.handle(handle);
                patience(server.http_builder(), receive);
                Ok(server.serve(service).await?)
            }
            Some(config) => {
                let mut server = axum_server::from_tcp_rustls(listener, config)?.handle(handle);
                patience(server.http_builder(), receive);
                Ok(server.serve(service).await?)
            }
        }
    });
    app.close();
    served
}

/// Whoever takes longer to say what they want is not waited for. HTTP/1.1 alone: where both are spoken, a client that
/// says nothing is waited for without end to learn which it will be.
fn patience(builder: &mut Builder<TokioExecutor>, receive: Duration) {
    *builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(receive);
}

/// Waits until the server is to stop, and lets it finish.
async fn watch(stop: impl Fn() -> bool + Send, handle: Handle<SocketAddr>, app: Arc<App>, drain: Duration) {
    while !stop() {
        tokio::time::sleep(HEARING).await;
    }
    app.draining.store(true, Ordering::Relaxed);
    handle.graceful_shutdown(Some(drain));
}
