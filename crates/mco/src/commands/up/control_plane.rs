//! The embedded API: in process for our own components, over TLS for everybody else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use mco_apiserver::store::StoreError;
use mco_apiserver::{Options, Server, ServerError};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::DataDirectory;
use crate::cli::Up;

#[derive(Clone)]
pub struct ControlPlane {
    server: Arc<Server>,
    listener: Arc<Mutex<Option<TcpListener>>>,
    url: String,
}

impl ControlPlane {
    pub async fn start(arguments: &Up, directory: &DataDirectory) -> anyhow::Result<Self> {
        // Binding first: a port that is taken is known before anything is written.
        let listener = bind(arguments.listen, arguments.port, "--port").await?;
        let address = listener.local_addr().context("cannot listen")?;
        let options = Options {
            hosts: vec![arguments.listen.to_string()],
            ..Options::default()
        };
        let server = Server::open(directory.path(), options)
            .await
            .map_err(|error| unusable(directory, error))?;
        let url = format!("https://{}", reachable(address));
        server.write_kubeconfig(&url)?;
        Ok(Self {
            server: Arc::new(server),
            listener: Arc::new(Mutex::new(Some(listener))),
            url,
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn serve(&self) -> anyhow::Result<()> {
        let listener = self.listener.lock().take();
        let listener = listener.ok_or_else(|| anyhow!("the API is served already"))?;
        Ok(self.server.serve(listener, &self.url).await?)
    }

    pub async fn stop(&self) {
        self.server.shutdown().await;
    }
}

fn unusable(directory: &DataDirectory, error: ServerError) -> anyhow::Error {
    let path = directory.path().display();
    match error {
        ServerError::Store(StoreError::InUse { .. }) => {
            anyhow!("another mco up works in {path}; stop it, or choose another --data-dir")
        }
        // The error says its own cause; the chain would say it again.
        ServerError::Store(StoreError::Open { .. }) => {
            anyhow!("{error}; to start over without what it held, use --fresh")
        }
        error => anyhow!("cannot use the data directory {path}: {error}"),
    }
}

/// Listens, or says what to do about it.
pub async fn bind(address: IpAddr, port: u16, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, port))
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                anyhow!("port {port} is taken, perhaps by another mco up; choose another with {option}")
            }
            io::ErrorKind::PermissionDenied => {
                anyhow!("port {port} is for root alone; choose one above 1023 with {option}")
            }
            _ => anyhow!(error).context(format!("cannot listen on {address} port {port}")),
        })
}

/// The address by which a client on this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
