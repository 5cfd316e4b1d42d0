//! The embedded API: in process for our own components, over TLS for everybody else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use kube::Client;
use mco_apiserver::admission::Admission;
use mco_apiserver::store::StoreError;
use mco_apiserver::{ApiServer, ApiServerOptions, Identity, ServerError};
use mco_operator::admission::InUse;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::admission::Guard;
use super::data_directory::{self, START_OVER};
use super::ignition_server::Files;
use super::node_policy::NodePolicy;
use super::{DataDirectory, addresses, joining};
use crate::cli::Up;

/// Whom a new machine is until it has its own credentials.
const BOOTSTRAPPER: &str = "system:bootstrap:mco";
const BOOTSTRAPPERS: &str = "system:bootstrappers";

#[derive(Clone)]
pub struct ControlPlane {
    server: Arc<ApiServer>,
    in_use: Arc<InUse>,
    listener: Arc<Mutex<Option<TcpListener>>>,
    url: String,
}

impl ControlPlane {
    pub async fn start(arguments: &Up, directory: &DataDirectory) -> anyhow::Result<Self> {
        // Binding first: a port that is taken is known before anything is written.
        let listener = bind(arguments.listen, arguments.port, "--port").await?;
        let address = listener.local_addr().context("cannot listen")?;
        let in_use = Arc::new(InUse::default());
        let mut admission: Vec<Arc<dyn Admission>> = vec![Arc::new(NodePolicy)];
        if !arguments.bare {
            admission.push(Arc::new(Guard::new(Arc::clone(&in_use))));
        }
        let options = ApiServerOptions {
            admission,
            authorizers: vec![Arc::new(NodePolicy)],
            extra_routes: joining::routes(directory.path())
                .map_err(|error| unusable(directory, error.into()))?,
            hosts: addresses::names(arguments.listen, &arguments.advertise),
            ..ApiServerOptions::default()
        };
        let server = ApiServer::open(directory.path(), options)
            .await
            .map_err(|error| unusable(directory, error))?;
        let url = format!("https://{}", reachable(address));
        server
            .write_kubeconfig(&url)
            .map_err(|error| unusable(directory, error))?;
        Ok(Self {
            server: Arc::new(server),
            in_use,
            listener: Arc::new(Mutex::new(Some(listener))),
            url,
        })
    }

    /// What admission knows about rendered configs; somebody has to keep it up to date.
    pub fn in_use(&self) -> &Arc<InUse> {
        &self.in_use
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The API for one of our own components, without a socket.
    pub fn client(&self, component: &str) -> Client {
        self.client_as(Identity::component(component))
    }

    /// The API as a node's daemon may use it.
    pub fn client_of_node(&self, name: &str) -> Client {
        self.client_as(Identity::node(name))
    }

    /// The API as the administrator uses it, who has the kubeconfig.
    pub fn client_of_administrator(&self) -> Client {
        self.client_as(Identity::admin())
    }

    fn client_as(&self, identity: Identity) -> Client {
        Client::new(self.server.service_as(identity), "default")
    }

    /// Gives the Ignition server the credentials that it hands to new machines.
    pub fn prepare_bootstrap(&self, files: &Files) -> anyhow::Result<()> {
        let bootstrapper = Identity::new(BOOTSTRAPPER, &[BOOTSTRAPPERS]);
        // One that the server has forgotten, or that was never whole, would let nobody in.
        let known = files
            .bootstrap_token()
            .filter(|token| self.server.identify(token).as_ref() == Some(&bootstrapper));
        let token = match known {
            Some(token) => token,
            None => self.server.issue_token(&bootstrapper)?,
        };
        files.write_bootstrap(&token, self.server.ca_bundle())
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

/// What is wrong with the directory, and the least that has to be given up to go on.
fn unusable(directory: &DataDirectory, error: ServerError) -> anyhow::Error {
    let path = directory.path();
    match error {
        ServerError::Store(StoreError::InUse { .. }) => data_directory::in_use(path),
        // The errors say their own causes; the chain would say them again.
        ServerError::Tokens(error) => {
            anyhow!("{error}; remove the file to go on without the tokens in it, or {START_OVER}")
        }
        ServerError::Pki(error) => anyhow!(
            "the certificate authority in {pki} cannot be used: {error}; remove {pki} to get a new one, with which \
             machines have to join again, or {START_OVER}",
            pki = path.join("pki").display()
        ),
        ServerError::Store(_) | ServerError::Bootstrap(_) => {
            anyhow!(
                "the data directory {} is damaged: {error}; {START_OVER}",
                path.display()
            )
        }
        ServerError::DataDirectory { .. } | ServerError::Write { .. } | ServerError::Listen(_) => {
            anyhow!("{error}; let it be yours, or choose another --data-dir")
        }
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
