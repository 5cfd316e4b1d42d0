//! The embedded API: in process for the components of `mco up`, over TLS for other clients.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use kube::Client;
use mco_apiserver::admission::Admission;
use mco_apiserver::store::StoreError;
use mco_apiserver::{ApiServer, ApiServerOptions, Identity, ServerError};
use mco_operator::admission::InUseIndex;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::admission::MachineConfigAdmission;
use super::component_policy::ComponentPolicy;
use super::data_directory::{self, START_OVER};
use super::ignition_server::IgnitionServerFiles;
use super::node_policy::NodePolicy;
use super::rotation::{RotationRoute, SharedRotation};
use super::secret_files::{SecretFilesRoute, SharedSecretFiles};
use super::{DataDirectory, addresses, joining};
use crate::cli::Up;

/// The component that reads Secrets for nodes.
const OPERATOR: &str = "operator";
/// The identity of a new machine until it has its own credentials.
const BOOTSTRAPPER: &str = "system:bootstrap:mco";
const BOOTSTRAPPERS: &str = "system:bootstrappers";

#[derive(Clone)]
pub struct ControlPlane {
    server: Arc<ApiServer>,
    in_use: Arc<InUseIndex>,
    listener: Arc<Mutex<Option<TcpListener>>>,
    url: String,
}

impl ControlPlane {
    pub async fn start(arguments: &Up, directory: &DataDirectory) -> anyhow::Result<Self> {
        // Bound first, so that a port in use is reported before anything is written.
        let listener = bind(arguments.listen, arguments.port, "--port").await?;
        let address = listener.local_addr().context("cannot listen")?;
        let in_use = Arc::new(InUseIndex::default());
        let mut admission: Vec<Arc<dyn Admission>> = vec![Arc::new(NodePolicy)];
        if !arguments.server.bare {
            admission.push(Arc::new(MachineConfigAdmission::new(Arc::clone(&in_use))));
        }
        let rotation = Arc::new(RotationRoute::default());
        let mut extra_routes =
            joining::routes(directory.path()).map_err(|error| unusable(directory, error.into()))?;
        extra_routes.push(Arc::new(SharedRotation(Arc::clone(&rotation))));
        let secret_files = Arc::new(SecretFilesRoute::default());
        extra_routes.push(Arc::new(SharedSecretFiles(Arc::clone(&secret_files))));
        let options = ApiServerOptions {
            admission,
            authorizers: vec![Arc::new(NodePolicy), Arc::new(ComponentPolicy)],
            extra_routes,
            hosts: addresses::names(arguments.listen, &arguments.advertise),
            namespace_content: !arguments.server.empty_namespaces,
            certificate_lifetime: arguments.certificate_lifetime,
            ..ApiServerOptions::default()
        };
        let server = ApiServer::open(directory.path(), options)
            .await
            .map_err(|error| unusable(directory, error))?;
        let url = format!("https://{}", reachable(address));
        server
            .write_kubeconfig(&url)
            .map_err(|error| unusable(directory, error))?;
        let server = Arc::new(server);
        rotation.set_server(&server, &url);
        let operator = server.service_as(Identity::component(OPERATOR));
        secret_files.set_client(Client::new(operator, "default"));
        Ok(Self {
            server,
            in_use,
            listener: Arc::new(Mutex::new(Some(listener))),
            url,
        })
    }

    /// Returns the rendered configs that admission protects; the caller keeps them up to date.
    pub fn in_use(&self) -> &Arc<InUseIndex> {
        &self.in_use
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns a client for one of the components, without a socket.
    pub fn client(&self, component: &str) -> Client {
        self.client_as(Identity::component(component))
    }

    /// Returns a client with the rights of a node's daemon.
    pub fn client_of_node(&self, name: &str) -> Client {
        self.client_as(Identity::node(name))
    }

    /// Returns a client with the rights of the administrator.
    pub fn client_of_administrator(&self) -> Client {
        self.client_as(Identity::admin())
    }

    fn client_as(&self, identity: Identity) -> Client {
        Client::new(self.server.service_as(identity), "default")
    }

    /// Writes the bootstrap credentials that the Ignition server hands to new machines.
    pub fn prepare_bootstrap(&self, files: &IgnitionServerFiles) -> anyhow::Result<()> {
        let bootstrapper = Identity::new(BOOTSTRAPPER, &[BOOTSTRAPPERS]);
        // A token that is incomplete or that the server does not recognize would be useless.
        let existing = files
            .bootstrap_token()
            .filter(|token| self.server.identify(token).as_ref() == Some(&bootstrapper));
        let token = match existing {
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

/// Returns the error for an unusable directory, with the least destructive remedy.
fn unusable(directory: &DataDirectory, error: ServerError) -> anyhow::Error {
    let path = directory.path();
    match error {
        ServerError::Store(StoreError::InUse { .. }) => data_directory::in_use(path),
        // These messages contain their causes, so that the chain is dropped.
        ServerError::Tokens(error) => {
            anyhow!("{error}; remove the file to continue without its tokens, or {START_OVER}")
        }
        ServerError::Pki(error) => anyhow!(
            "the certificate authority in {pki} cannot be used: {error}; remove {pki} to create a new one, after which \
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
            anyhow!("{error}; change its owner, or choose another --data-dir")
        }
    }
}

/// Binds a socket; the error contains the remedy.
pub async fn bind(address: IpAddr, port: u16, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, port))
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                anyhow!("port {port} is in use, perhaps by another mco up; choose another with {option}")
            }
            io::ErrorKind::PermissionDenied => {
                anyhow!("port {port} requires root; choose one above 1023 with {option}")
            }
            _ => anyhow!(error).context(format!("cannot listen on {address} port {port}")),
        })
}

/// Returns the address by which a client on this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
