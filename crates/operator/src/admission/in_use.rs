//! Cache of the rendered configs that are in use, fed by watches, so that admission needs no request.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use mco_api::{MachineConfigPool, MachineOSBuild};
use mco_core::config::problem::Problem;
use mco_core::config::rendered_configs::{used_by_build, used_by_node, used_by_pool};
use mco_core::pipeline::admission::{InUse as Answer, Request, Users, review};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// The users of every rendered config. Shared between the watches and the webhook.
#[derive(Debug, Default)]
pub struct InUse {
    nodes: RwLock<Configs>,
    pools: RwLock<Configs>,
    builds: RwLock<Configs>,
}

/// The configs that each object uses; `known` once the first list is complete.
#[derive(Debug, Default)]
struct Configs {
    by_user: HashMap<String, BTreeSet<String>>,
    /// The list that is being received.
    listed: HashMap<String, BTreeSet<String>>,
    known: bool,
}

impl InUse {
    /// Returns the users of this config.
    pub fn of(&self, config: &str) -> Answer {
        let (nodes, pools, builds) = (read(&self.nodes), read(&self.pools), read(&self.builds));
        if !(nodes.known && pools.known && builds.known) {
            return Answer::Unknown;
        }
        Answer::By(Users {
            nodes: nodes.users(config),
            pools: pools.users(config),
            builds: builds.users(config),
        })
    }

    /// Reviews a write; see [`mco_core::pipeline::admission::review`].
    pub fn review(&self, request: &Request<'_>) -> Result<Vec<Problem>, String> {
        review(request, |config| self.of(config))
    }

    /// Runs the watches until `stop`.
    pub async fn follow(&self, client: Client, stop: CancellationToken) {
        let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
        let pools: Api<MachineConfigPool> = Api::all(client.clone());
        let builds: Api<MachineOSBuild> = Api::all(client);
        tokio::select! {
            () = stop.cancelled() => {}
            () = follow(nodes, &self.nodes, |node| owned(used_by_node(&node.metadata))) => {}
            () = follow(pools, &self.pools, |pool| owned(used_by_pool(pool))) => {}
            () = follow(builds, &self.builds, |build| owned(used_by_build(build))) => {}
        }
    }
}

impl Configs {
    fn users(&self, config: &str) -> BTreeSet<String> {
        let users = self.by_user.iter();
        users
            .filter(|(_, configs)| configs.contains(config))
            .map(|(user, _)| user.clone())
            .collect()
    }
}

async fn follow<K>(api: Api<K>, configs: &RwLock<Configs>, used: fn(&K) -> BTreeSet<String>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut changes = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(change) = changes.next().await {
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        match change {
            Ok(watcher::Event::Init) => write(configs).listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                write(configs).listed.insert(name(&object), used(&object));
            }
            Ok(watcher::Event::InitDone) => {
                let mut configs = write(configs);
                configs.by_user = std::mem::take(&mut configs.listed);
                configs.known = true;
            }
            Ok(watcher::Event::Apply(object)) => {
                write(configs).by_user.insert(name(&object), used(&object));
            }
            Ok(watcher::Event::Delete(object)) => {
                write(configs).by_user.remove(&name(&object));
            }
            Err(error) => debug!("a watch was interrupted and is retried: {error}"),
        }
    }
}

fn owned<'n>(names: impl Iterator<Item = &'n str>) -> BTreeSet<String> {
    names.map(str::to_owned).collect()
}

fn read(configs: &RwLock<Configs>) -> RwLockReadGuard<'_, Configs> {
    configs.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(configs: &RwLock<Configs>) -> RwLockWriteGuard<'_, Configs> {
    configs.write().unwrap_or_else(PoisonError::into_inner)
}
