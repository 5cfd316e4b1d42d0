//! Serving the objects of a cluster.
//!
//! Pools, the ControllerConfig and the other inputs of a document are watched. Rendered configs are fetched by name
//! when they are served, because all of them together would not fit into a small server. The server never writes to the
//! cluster.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::names;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_runtime::{Lenient, Store, run_blocking};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::warn;

use crate::choose::{self, ImageSources};
use crate::compose::{ComposeContext, ConfigOrigin, PoolSource};
use crate::http::{IgnitionApp, PANIC_COMPONENT};
use crate::kubeconfig;
use crate::prepared::{PoolSources, Unavailable};

/// The namespace of the internal image registry.
const REGISTRY_NAMESPACE: &str = "openshift-image-registry";
/// The key of the API server CA in the ConfigMap.
const CA_BUNDLE: &str = "ca-bundle.crt";
/// How often the files of the bootstrap token are read; they change when the token is rotated.
const FILES_INTERVAL: Duration = Duration::from_secs(5);
/// Debounces changes, which come in bursts.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// Rendered configs are immutable. Refetching them detects one that was deleted and created again.
const CONFIG_AGE: Duration = Duration::from_mins(5);

/// The cluster whose objects are served, and the bootstrap credentials of its machines.
#[derive(Clone)]
pub struct ClusterBackend {
    pub client: Client,
    /// The URL of the API server in the kubeconfig of machines.
    pub api_server_url: String,
    /// Contains `token` and `ca.crt`.
    pub token_directory: PathBuf,
}

impl std::fmt::Debug for ClusterBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterBackend")
            .field("api_server_url", &self.api_server_url)
            .field("token_directory", &self.token_directory)
            .finish_non_exhaustive()
    }
}

impl ClusterBackend {
    /// Publishes the documents of the cluster and every change of them, without end.
    pub async fn follow(self, app: Arc<IgnitionApp>) {
        let changed = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        let view = ClusterView::start(&self.client, &changed, &mut watches);
        let mut configs = RenderedConfigs::new(self.client.clone());
        loop {
            if let Some(sources) = self.sources(&view, &mut configs).await {
                let app = Arc::clone(&app);
                let unknown = Unavailable::NotYet("there is no pool of this name".to_owned());
                // A panic is counted and logged; the former documents stay.
                let _ = run_blocking(PANIC_COMPONENT, "all pools", move || {
                    app.store.publish(sources, unknown);
                })
                .await;
            }
            tokio::select! {
                () = changed.notified() => tokio::time::sleep(QUIET_PERIOD).await,
                () = tokio::time::sleep(FILES_INTERVAL) => {}
            }
        }
    }

    /// Returns the inputs of every pool's documents; `None` until the watches are synced.
    async fn sources(&self, view: &ClusterView, configs: &mut RenderedConfigs) -> Option<PoolSources> {
        let pools = view.pools.listed()?;
        let controller_configs = view.controller_configs.listed()?;
        let ca_bundles = view.kubeconfig_data.listed()?;
        let kubeconfig = self.kubeconfig(&ca_bundles);
        let context = match (controller_configs.first(), kubeconfig) {
            (None, _) => Err(Unavailable::NotYet(format!(
                "could not get controllerconfig: {CONTROLLER_CONFIG_NAME} does not exist"
            ))),
            (_, Err(problem)) => Err(Unavailable::NotYet(problem)),
            (Some(controller_config), Ok(kubeconfig)) => Ok(ComposeContext {
                kubeconfig: kubeconfig.into_bytes(),
                ..ComposeContext::of(controller_config, ConfigOrigin::Cluster)
            }),
        };
        let images = view.images();
        let mut sources = PoolSources::new();
        for pool in &pools {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let source = match &context {
                Ok(context) => source(pool, context.clone(), images.as_ref(), configs).await,
                Err(unavailable) => Err(unavailable.clone()),
            };
            sources.insert(name, source);
        }
        configs.evict_unused();
        Some(sources)
    }

    /// Returns the kubeconfig for new machines, from the current token and CA.
    fn kubeconfig(&self, ca_bundles: &[ConfigMap]) -> Result<String, String> {
        let read = |name: &str| {
            let path = self.token_directory.join(name);
            std::fs::read(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))
        };
        let published = ca_bundles
            .iter()
            .find_map(|map| Some(map.binary_data.as_ref()?.get(CA_BUNDLE)?.0.clone()));
        let ca = match published {
            Some(bundle) => bundle,
            None => read("ca.crt")?,
        };
        let token = String::from_utf8(read("token")?)
            .map_err(|_| format!("{}/token is not text", self.token_directory.display()))?;
        Ok(kubeconfig::bootstrap(&self.api_server_url, &ca, &token))
    }
}

async fn source(
    pool: &MachineConfigPool,
    context: ComposeContext,
    images: Option<&ImageInputs>,
    configs: &mut RenderedConfigs,
) -> Result<PoolSource, Unavailable> {
    let name = choose::config_name(pool)
        .ok_or_else(|| Unavailable::NotYet("it has no rendered config yet".to_owned()))?;
    let config = configs.get(name).await?;
    let layered_image = images
        .and_then(|images| choose::layered_image(pool, name, images.sources()))
        .map(str::to_owned);
    let context = ComposeContext {
        layered_image,
        ..context
    };
    PoolSource::new(config, context).map_err(|error| Unavailable::Broken(error.to_string()))
}

/// The watched objects.
struct ClusterView {
    pools: Arc<Store<MachineConfigPool>>,
    controller_configs: Arc<Store<ControllerConfig>>,
    kubeconfig_data: Arc<Store<ConfigMap>>,
    os_configs: Arc<Store<MachineOSConfig>>,
    builds: Arc<Store<MachineOSBuild>>,
    registry_services: Arc<Store<Service>>,
    registry_routes: Arc<Store<DynamicObject>>,
}

impl ClusterView {
    fn start(client: &Client, changed: &Arc<Notify>, watches: &mut JoinSet<()>) -> Self {
        let all = watcher::Config::default;
        let one = |name: &str| all().fields(&format!("metadata.name={name}"));
        let route = ApiResource {
            group: "route.openshift.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "route.openshift.io/v1".to_owned(),
            kind: "Route".to_owned(),
            plural: "routes".to_owned(),
        };
        let client = || client.clone();
        let changed = || Arc::clone(changed);
        Self {
            pools: watch(Api::all(client()), all(), changed(), watches),
            controller_configs: watch(
                Api::all(client()),
                one(CONTROLLER_CONFIG_NAME),
                changed(),
                watches,
            ),
            kubeconfig_data: watch(
                Api::namespaced(client(), names::NAMESPACE),
                one(names::config_map::KUBECONFIG_DATA),
                changed(),
                watches,
            ),
            os_configs: watch(Api::all(client()), all(), changed(), watches),
            builds: watch(Api::all(client()), all(), changed(), watches),
            registry_services: watch(
                Api::namespaced(client(), REGISTRY_NAMESPACE),
                all(),
                changed(),
                watches,
            ),
            registry_routes: watch(
                Api::namespaced_with(client(), REGISTRY_NAMESPACE, &route),
                all(),
                changed(),
                watches,
            ),
        }
    }

    /// Returns the inputs of the image choice; `None` until all watches are synced.
    fn images(&self) -> Option<ImageInputs> {
        let services = self.registry_services.listed()?;
        let routes = self.registry_routes.listed()?;
        Some(ImageInputs {
            os_configs: self.os_configs.listed()?,
            builds: self.builds.listed()?,
            internal_registries: services
                .iter()
                .filter_map(service_host)
                .chain(routes.iter().filter_map(route_host))
                .collect(),
        })
    }
}

/// Starts a watch that lasts as long as `watches`, and notifies `changed` after each change.
fn watch<K>(
    api: Api<Lenient<K>>,
    config: watcher::Config,
    changed: Arc<Notify>,
    watches: &mut JoinSet<()>,
) -> Arc<Store<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    // A list may change nothing but that the objects are known, so readiness notifies as well.
    let ready = Arc::clone(&changed);
    // A machine gets the complete config of its pool or none, so nothing is left out.
    let store = Store::new(
        |object: &mut K| object.meta_mut().managed_fields = None,
        move |_| changed.notify_one(),
    );
    let store = Arc::new(store.keep_last_readable());
    let (followed, listed) = (Arc::clone(&store), Arc::clone(&store));
    watches.spawn(async move { followed.follow(watcher::watcher(api, config)).await });
    watches.spawn(async move {
        listed.wait_until_ready().await;
        ready.notify_one();
    });
    store
}

struct ImageInputs {
    os_configs: Vec<MachineOSConfig>,
    builds: Vec<MachineOSBuild>,
    internal_registries: Vec<String>,
}

impl ImageInputs {
    fn sources(&self) -> ImageSources<'_> {
        ImageSources {
            os_configs: &self.os_configs,
            builds: &self.builds,
            internal_registries: &self.internal_registries,
        }
    }
}

fn service_host(service: &Service) -> Option<String> {
    let name = service.meta().name.as_deref()?;
    let port = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_ref()?.first())
        .map(|port| format!(":{}", port.port))
        .unwrap_or_default();
    Some(format!("{name}.{REGISTRY_NAMESPACE}.svc{port}"))
}

fn route_host(route: &DynamicObject) -> Option<String> {
    let host = route.data.pointer("/spec/host")?.as_str()?;
    (!host.is_empty()).then(|| host.to_owned())
}

/// A cache of the rendered configs that are served.
struct RenderedConfigs {
    api: Api<MachineConfig>,
    fetched: BTreeMap<String, FetchedConfig>,
}

struct FetchedConfig {
    config: Arc<MachineConfig>,
    at: tokio::time::Instant,
    used: bool,
}

impl RenderedConfigs {
    fn new(client: Client) -> Self {
        Self {
            api: Api::all(client),
            fetched: BTreeMap::new(),
        }
    }

    async fn get(&mut self, name: &str) -> Result<Arc<MachineConfig>, Unavailable> {
        if let Some(cached) = self.fetched.get_mut(name)
            && cached.at.elapsed() < CONFIG_AGE
        {
            cached.used = true;
            return Ok(Arc::clone(&cached.config));
        }
        match self.api.get_opt(name).await {
            Ok(Some(config)) => {
                let config = Arc::new(config);
                let fetched = FetchedConfig {
                    config: Arc::clone(&config),
                    at: tokio::time::Instant::now(),
                    used: true,
                };
                self.fetched.insert(name.to_owned(), fetched);
                Ok(config)
            }
            Ok(None) => {
                self.fetched.remove(name);
                Err(Unavailable::NotYet(format!(
                    "could not fetch config {name}: it does not exist"
                )))
            }
            Err(problem) => match self.fetched.get_mut(name) {
                // Machines must be able to boot while the API server is unavailable.
                Some(cached) => {
                    warn!("serving the cached config {name}: {problem}");
                    cached.used = true;
                    Ok(Arc::clone(&cached.config))
                }
                None => Err(Unavailable::NotYet(format!(
                    "could not fetch config {name}, err: {problem}"
                ))),
            },
        }
    }

    fn evict_unused(&mut self) {
        self.fetched
            .retain(|_, fetched| std::mem::take(&mut fetched.used));
    }
}
