//! The console as a component, which serves until it is stopped.

use std::sync::Arc;

use mco_core::generators::templates::TemplateTree;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::ConsoleAccess;
use crate::http::{ConsoleApp, listen};

/// Options of the embedding program.
#[derive(Debug)]
pub struct ConsoleOptions {
    /// The program's version, shown on pages and recorded in what plans render.
    pub version: String,
    /// Base templates of this cluster, for plans with generated configs; `None` for the built-in ones.
    pub templates: Option<TemplateTree>,
    /// The only host name under which the console is served; `None` for any. Without TLS use [`local_host`]: browsers
    /// send the cookies of a host to all of its ports, but no other program has this name.
    pub host: Option<String>,
    /// The TLS configuration; without it the console must listen on loopback only.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl ConsoleOptions {
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            templates: None,
            host: None,
            tls: None,
        }
    }
}

/// Returns a random name that browsers resolve to the loopback interface.
pub fn local_host() -> Result<String, mco_http::tokens::RandomError> {
    let number = u64::from_le_bytes(mco_http::tokens::random()?);
    Ok(format!("mco-{number:016x}.localhost"))
}

#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error(transparent)]
    Random(#[from] mco_http::tokens::RandomError),
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
}

/// Serves the console on a socket until `stop`.
pub async fn run(
    listener: TcpListener,
    access: ConsoleAccess,
    options: ConsoleOptions,
    stop: CancellationToken,
) -> Result<(), ConsoleError> {
    let port = listener.local_addr()?.port();
    access.new_code()?;
    let tls = options.tls.clone();
    let app = Arc::new(ConsoleApp::new(access, options, port));
    listen::serve(listener, tls, app, stop).await;
    Ok(())
}
