//! Serving a cluster's own objects.
//!
//! Pools, the ControllerConfig and what else decides about a document are watched; of rendered configs only those that are
//! served are fetched, by name, because all of them together would not fit into a small server. Nothing is ever written.

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
use mco_runtime::Store;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{error, warn};

use crate::choose::{self, ImageSources};
use crate::compose::{Origin, Source, Surroundings};
use crate::http::App;
use crate::kubeconfig;
use crate::prepared::{Sources, Trouble};

/// Where the cluster's own image registry lives.
const REGISTRY_NAMESPACE: &str = "openshift-image-registry";
/// The certificates of the API server inside the config map and beside the token.
const CA_BUNDLE: &str = "ca-bundle.crt";
/// How often the token's files are looked at; they change when the token is replaced.
const FILES_INTERVAL: Duration = Duration::from_secs(5);
/// Changes come in groups; one answer for all of them is enough.
const SETTLE: Duration = Duration::from_millis(50);
/// Rendered configs do not change. Asking now and then notices one that was deleted and made again.
const CONFIG_AGE: Duration = Duration::from_mins(5);

/// Where the objects and the machines' first credentials are.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// How machines reach the API server.
    pub api_server_url: String,
    /// Holds `token` and `ca.crt`.
    pub token_directory: PathBuf,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("api_server_url", &self.api_server_url)
            .field("token_directory", &self.token_directory)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Publishes what the cluster has as soon as it is known, then follows every change for ever.
    pub async fn follow(self, app: Arc<App>) {
        let changed = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        let view = View::start(&self.client, &changed, &mut watches);
        let mut configs = RenderedConfigs::new(self.client.clone());
        loop {
            if let Some(sources) = self.sources(&view, &mut configs).await {
                let app = Arc::clone(&app);
                let unknown = Trouble::NotYet("there is no pool of this name".to_owned());
                let published =
                    tokio::task::spawn_blocking(move || app.store.publish(sources, unknown)).await;
                if let Err(problem) = published {
                    error!("cannot publish: {problem}");
                }
            }
            tokio::select! {
                () = changed.notified() => tokio::time::sleep(SETTLE).await,
                () = tokio::time::sleep(FILES_INTERVAL) => {}
            }
        }
    }

    /// What every pool's documents are made from; `None` until the objects are known.
    async fn sources(&self, view: &View, configs: &mut RenderedConfigs) -> Option<Sources> {
        let pools = view.pools.listed()?;
        let controller_configs = view.controller_configs.listed()?;
        let authorities = view.kubeconfig_data.listed()?;
        let kubeconfig = self.kubeconfig(&authorities);
        let surroundings = match (controller_configs.first(), kubeconfig) {
            (None, _) => Err(Trouble::NotYet(format!(
                "could not get controllerconfig: {CONTROLLER_CONFIG_NAME} does not exist"
            ))),
            (_, Err(problem)) => Err(Trouble::NotYet(problem)),
            (Some(controller_config), Ok(kubeconfig)) => Ok(Surroundings {
                kubeconfig: kubeconfig.into_bytes(),
                ..Surroundings::of(controller_config, Origin::Cluster)
            }),
        };
        let images = view.images();
        let mut sources = Sources::new();
        for pool in &pools {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let source = match &surroundings {
                Ok(surroundings) => source(pool, surroundings.clone(), images.as_ref(), configs).await,
                Err(trouble) => Err(trouble.clone()),
            };
            sources.insert(name, source);
        }
        configs.forget_unused();
        Some(sources)
    }

    /// The kubeconfig for new machines, from the files and the certificates of this moment.
    fn kubeconfig(&self, authorities: &[ConfigMap]) -> Result<String, String> {
        let read = |name: &str| {
            let path = self.token_directory.join(name);
            std::fs::read(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))
        };
        let published = authorities
            .iter()
            .find_map(|map| Some(map.binary_data.as_ref()?.get(CA_BUNDLE)?.0.clone()));
        let authority = match published {
            Some(bundle) => bundle,
            None => read("ca.crt")?,
        };
        let token = String::from_utf8(read("token")?)
            .map_err(|_| format!("{}/token is not text", self.token_directory.display()))?;
        Ok(kubeconfig::bootstrap(&self.api_server_url, &authority, &token))
    }
}

async fn source(
    pool: &MachineConfigPool,
    surroundings: Surroundings,
    images: Option<&Images>,
    configs: &mut RenderedConfigs,
) -> Result<Source, Trouble> {
    let name = choose::config_name(pool)
        .ok_or_else(|| Trouble::NotYet("it has no rendered config yet".to_owned()))?;
    let config = configs.get(name).await?;
    let layered_image = images
        .and_then(|images| choose::layered_image(pool, name, images.sources()))
        .map(str::to_owned);
    let surroundings = Surroundings {
        layered_image,
        ..surroundings
    };
    Source::new(config, surroundings).map_err(|error| Trouble::Broken(error.to_string()))
}

/// The watched objects.
struct View {
    pools: Arc<Store<MachineConfigPool>>,
    controller_configs: Arc<Store<ControllerConfig>>,
    kubeconfig_data: Arc<Store<ConfigMap>>,
    os_configs: Arc<Store<MachineOSConfig>>,
    builds: Arc<Store<MachineOSBuild>>,
    registry_services: Arc<Store<Service>>,
    registry_routes: Arc<Store<DynamicObject>>,
}

impl View {
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

    /// Everything about images; `None` while any of it is unknown, which means no image.
    fn images(&self) -> Option<Images> {
        let services = self.registry_services.listed()?;
        let routes = self.registry_routes.listed()?;
        Some(Images {
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
    api: Api<K>,
    config: watcher::Config,
    changed: Arc<Notify>,
    watches: &mut JoinSet<()>,
) -> Arc<Store<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    // A list may change nothing but that the objects are known, so readiness notifies as well.
    let ready = Arc::clone(&changed);
    let store = Arc::new(Store::new(
        |object: &mut K| object.meta_mut().managed_fields = None,
        move |_| changed.notify_one(),
    ));
    let (followed, listed) = (Arc::clone(&store), Arc::clone(&store));
    watches.spawn(async move { followed.follow(watcher::watcher(api, config)).await });
    watches.spawn(async move {
        listed.wait_until_ready().await;
        ready.notify_one();
    });
    store
}

struct Images {
    os_configs: Vec<MachineOSConfig>,
    builds: Vec<MachineOSBuild>,
    internal_registries: Vec<String>,
}

impl Images {
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

/// The rendered configs that are served, fetched when they are first needed.
struct RenderedConfigs {
    api: Api<MachineConfig>,
    fetched: BTreeMap<String, Fetched>,
}

struct Fetched {
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

    async fn get(&mut self, name: &str) -> Result<Arc<MachineConfig>, Trouble> {
        if let Some(known) = self.fetched.get_mut(name)
            && known.at.elapsed() < CONFIG_AGE
        {
            known.used = true;
            return Ok(Arc::clone(&known.config));
        }
        match self.api.get_opt(name).await {
            Ok(Some(config)) => {
                let config = Arc::new(config);
                let fetched = Fetched {
                    config: Arc::clone(&config),
                    at: tokio::time::Instant::now(),
                    used: true,
                };
                self.fetched.insert(name.to_owned(), fetched);
                Ok(config)
            }
            Ok(None) => {
                self.fetched.remove(name);
                Err(Trouble::NotYet(format!(
                    "could not fetch config {name}: it does not exist"
                )))
            }
            Err(problem) => match self.fetched.get_mut(name) {
                // An API server that is away must not keep machines from booting.
                Some(known) => {
                    warn!("serving {name} as it was: {problem}");
                    known.used = true;
                    Ok(Arc::clone(&known.config))
                }
                None => Err(Trouble::NotYet(format!(
                    "could not fetch config {name}, err: {problem}"
                ))),
            },
        }
    }

    fn forget_unused(&mut self) {
        self.fetched
            .retain(|_, fetched| std::mem::take(&mut fetched.used));
    }
}
