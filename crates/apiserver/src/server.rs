//! The server: opens a data directory, serves it in process and over TLS, and runs the background tasks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::Admission;
use crate::audit::RejectionLog;
use crate::auth::{
    self, AuthenticatedCaller, Authorizer, Credential, Identity, NodeRestriction, Pki, PkiError,
    RbacEscalation, TokenStore, TokenStoreError,
};
use crate::clock::{Clock, SystemClock};
use crate::cpu::CpuThreads;
use crate::error::ApiError;
use crate::http::{Api, ApiService, ExtraRoute, SchemaCache};
use crate::limits::RequestLimits;
use crate::metrics::ApiMetrics;
use crate::registry::ObjectRegistry;
use crate::store::{ObjectStore, Retention, StoreError};
use crate::{bootstrap, controllers, files, listen};

/// The interval of bookmarks, which is about that of Kubernetes.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// The interval at which expired history is removed.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("creating the data directory {path}: {source}")]
    DataDirectory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tokens(#[from] TokenStoreError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("creating the bootstrap objects: {0}")]
    Bootstrap(#[source] ApiError),
    #[error("writing {path}: {source}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("listening: {0}")]
    Listen(#[source] io::Error),
}

/// Where a server keeps its objects, and on which threads it works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// In the data directory, with threads for the disk and for large requests.
    #[default]
    Threads,
    /// In memory, and all work in the tasks of the runtime, so that a simulation with one thread is deterministic.
    Inline,
}

/// The settings of a server.
#[derive(Debug)]
pub struct ApiServerOptions {
    pub clock: Arc<dyn Clock>,
    pub admission: Vec<Arc<dyn Admission>>,
    pub authorizers: Vec<Arc<dyn Authorizer>>,
    pub extra_routes: Vec<Arc<dyn ExtraRoute>>,
    pub retention: Retention,
    pub bookmark_interval: Duration,
    /// Runs garbage collection, namespace deletion, disruption budgets and the like. Without them the server behaves as
    /// a bare kube-apiserver.
    pub controllers: bool,
    /// Creates a ServiceAccount and the certificates of the server in each namespace, as a controller manager does.
    pub namespace_content: bool,
    /// Further names and addresses of the server for its certificate.
    pub hosts: Vec<String>,
    /// Lifetime of the certificates of the server and of administrators, which are renewed in time.
    pub certificate_lifetime: Duration,
    pub execution: Execution,
}

impl Default for ApiServerOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            admission: Vec::new(),
            authorizers: Vec::new(),
            extra_routes: Vec::new(),
            retention: Retention::default(),
            bookmark_interval: BOOKMARK_INTERVAL,
            controllers: true,
            namespace_content: true,
            hosts: Vec::new(),
            certificate_lifetime: auth::CERTIFICATE_LIFETIME,
            execution: Execution::default(),
        }
    }
}

/// A running control plane over one data directory.
#[derive(Debug)]
pub struct ApiServer {
    api: Arc<Api>,
    pki: Arc<Pki>,
    data_directory: PathBuf,
    hosts: Vec<String>,
    stop: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

impl ApiServer {
    /// Opens a data directory and creates what is missing. Must be called inside a tokio runtime.
    pub async fn open(data_directory: &Path, options: ApiServerOptions) -> Result<Self, ServerError> {
        std::fs::create_dir_all(data_directory).map_err(|source| ServerError::DataDirectory {
            path: data_directory.to_owned(),
            source,
        })?;
        let (store, cpu) = match options.execution {
            Execution::Threads => {
                let path = data_directory.join("store.redb");
                (
                    ObjectStore::open(&path, options.retention)?,
                    CpuThreads::default(),
                )
            }
            Execution::Inline => (ObjectStore::in_memory(options.retention)?, CpuThreads::inline()),
        };
        let store = Arc::new(store);
        let tokens = Arc::new(TokenStore::open(&data_directory.join("tokens.json"))?);
        let nodes_at = store.revision();
        auth::node_tokens::prune(&store, &tokens)?;
        let pki = Pki::open(&data_directory.join("pki"), options.clock.now())?;
        let pki = Arc::new(pki.with_lifetime(options.certificate_lifetime));
        let mut admission: Vec<Arc<dyn Admission>> =
            vec![Arc::new(NodeRestriction::default()), Arc::new(RbacEscalation)];
        admission.extend(options.admission);
        let authorizers = options.authorizers.clone();
        let registry = Arc::new(ObjectRegistry::new(store, options.clock, admission, authorizers));
        bootstrap::prepare(&registry)
            .await
            .map_err(ServerError::Bootstrap)?;
        if options.controllers && options.namespace_content {
            // Before the first request, and before stored webhooks that nothing answers yet.
            controllers::namespace_content::complete_all(&registry, pki.bundle()).await;
        }
        registry.load_admission();
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(expire_history(Arc::clone(&registry), stopped.clone()));
        tasks.spawn(auth::node_tokens::run(
            Arc::clone(&registry.store),
            Arc::clone(&tokens),
            nodes_at,
            stopped.clone(),
        ));
        controllers::start_own(&registry, &stopped, &mut tasks);
        if options.controllers {
            let bundle = options.namespace_content.then(|| pki.bundle());
            controllers::start(&registry, bundle, &stopped, &mut tasks);
        }
        let api = Arc::new(Api {
            registry,
            tokens,
            pki: Arc::clone(&pki),
            authorizers: options.authorizers,
            extra_routes: options.extra_routes,
            limits: RequestLimits::default(),
            cpu,
            metrics: ApiMetrics::default(),
            schemas: SchemaCache::default(),
            rejections: RejectionLog::default(),
            bookmark_interval: options.bookmark_interval,
            stop: stopped,
        });
        let mut hosts: Vec<String> = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default.svc",
        ]
        .map(str::to_owned)
        .into();
        hosts.extend(options.hosts);
        Ok(Self {
            api,
            pki,
            data_directory: data_directory.to_owned(),
            hosts,
            stop,
            tasks: Mutex::new(tasks),
        })
    }

    /// Returns the API for the embedding program, without a socket: `kube::Client::new(server.service(), ...)`.
    pub fn service(&self) -> ApiService {
        self.service_as(Identity::admin())
    }

    /// Returns the API with the rights of a caller.
    pub fn service_as(&self, identity: Identity) -> ApiService {
        let caller = AuthenticatedCaller {
            identity,
            credential: Credential::InProcess,
        };
        ApiService::new(Arc::clone(&self.api), Some(caller))
    }

    /// Returns the API for connections without a client certificate: requests need a token.
    pub fn anonymous_service(&self) -> ApiService {
        ApiService::new(Arc::clone(&self.api), None)
    }

    pub fn registry(&self) -> &Arc<ObjectRegistry> {
        &self.api.registry
    }

    /// Issues a bearer token. Only its hash is stored.
    pub fn issue_token(&self, identity: &Identity) -> Result<String, ServerError> {
        Ok(self.api.tokens.issue(identity)?)
    }

    /// Returns the owner of a token.
    pub fn identify(&self, token: &str) -> Option<Identity> {
        self.api.tokens.identify(token).map(|(identity, _)| identity)
    }

    pub fn revoke_tokens(&self, user: &str) -> Result<(), ServerError> {
        Ok(self.api.tokens.revoke(user)?)
    }

    /// Revokes all credentials of administrators: client certificates, and tokens in their group. Open streams with
    /// them end. Nodes keep their access.
    pub fn revoke_administrators(&self) -> Result<(), ServerError> {
        self.pki.rotate_clients(self.api.registry.clock().now())?;
        self.api.tokens.revoke_group(auth::MASTERS)?;
        self.api.tokens.announce_revocation();
        Ok(())
    }

    /// Revokes the credentials of administrators as [`ApiServer::revoke_administrators`] does, and writes a new
    /// kubeconfig.
    pub fn rotate_administrators(&self, url: &str) -> Result<PathBuf, ServerError> {
        self.revoke_administrators()?;
        self.write_kubeconfig(url)
    }

    /// Revokes the credentials of administrators in the data directory of a server that does not run.
    pub fn revoke_administrators_of(data_directory: &Path) -> Result<(), ServerError> {
        let pki = Pki::open(&data_directory.join("pki"), SystemClock.now())?;
        pki.rotate_clients(SystemClock.now())?;
        TokenStore::open(&data_directory.join("tokens.json"))?.revoke_group(auth::MASTERS)?;
        Ok(())
    }

    /// Returns the certificates that clients of the socket must trust.
    pub fn ca_bundle(&self) -> &str {
        self.pki.bundle()
    }

    /// Returns a kubeconfig with a client certificate.
    pub fn kubeconfig(&self, url: &str, identity: &Identity) -> Result<String, ServerError> {
        let credentials = self.pki.client(identity, self.api.registry.clock().now())?;
        Ok(bootstrap::kubeconfig(
            url,
            self.pki.bundle(),
            &identity.user,
            &credentials,
        ))
    }

    /// Writes the administrator's kubeconfig into the data directory and returns its path.
    pub fn write_kubeconfig(&self, url: &str) -> Result<PathBuf, ServerError> {
        let path = self.data_directory.join("kubeconfig");
        let text = self.kubeconfig(url, &Identity::admin())?;
        files::write_private(&path, text.as_bytes()).map_err(|source| ServerError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// Serves TLS connections until [`ApiServer::shutdown`], and renews the administrator's kubeconfig meanwhile.
    pub async fn serve(&self, listener: TcpListener, url: &str) -> Result<(), ServerError> {
        self.write_kubeconfig(url)?;
        let clock = Arc::clone(self.api.registry.clock());
        let identities = listen::Identities {
            pki: Arc::clone(&self.pki),
            hosts: self.hosts.clone(),
            clock,
        };
        let renew = || self.write_kubeconfig(url).map(|_| ());
        listen::serve(
            listener,
            Arc::clone(&self.api),
            &identities,
            renew,
            self.stop.subscribe(),
        )
        .await
    }

    /// Ends watches and background tasks, completes accepted writes, and closes the store.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
        self.api.registry.store.close();
    }
}

/// Removes history that is older than the retention.
async fn expire_history(registry: Arc<ObjectRegistry>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(EXPIRE_INTERVAL) => registry.store.expire(),
        }
    }
}
