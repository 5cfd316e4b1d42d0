//! What wakes the operator: changes to what it writes, to what it reads, and to the pools whose state it tells.
//!
//! Only metadata is watched; what changed is read when it is needed. A kind that the cluster does not have is not
//! watched until it appears.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource};
use mco_api::foreign::cluster_operator::ClusterOperator;
use mco_api::vocabulary::names;
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfigPool, MachineConfiguration,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::debug;

type Metadata = PartialObjectMeta<DynamicObject>;

/// How much there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Something that the steps read or write changed.
    Everything,
    /// Only a pool changed, which the steps leave alone.
    Status,
}

/// Collects changes until somebody has time for them.
#[derive(Debug, Default)]
struct Wake {
    everything: AtomicBool,
    notify: Notify,
}

impl Wake {
    fn call(&self, work: Work) {
        if work == Work::Everything {
            self.everything.store(true, Ordering::Release);
        }
        self.notify.notify_one();
    }
}

/// The running watches. They end when this is dropped.
pub(crate) struct Watches {
    client: Client,
    wake: Arc<Wake>,
    watched: HashSet<String>,
    tasks: JoinSet<()>,
}

impl Watches {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            wake: Arc::default(),
            watched: HashSet::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Follows our own kinds and namespaces; to be called when they exist.
    pub fn follow_own(&mut self) {
        let one = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let kind = |resource| (resource, watcher::Config::default());
        self.follow(
            kind(ApiResource::erase::<ControllerConfig>(&())),
            Work::Everything,
        );
        self.follow(
            kind(ApiResource::erase::<MachineConfiguration>(&())),
            Work::Everything,
        );
        self.follow(kind(ApiResource::erase::<KubeletConfig>(&())), Work::Everything);
        self.follow(
            kind(ApiResource::erase::<ContainerRuntimeConfig>(&())),
            Work::Everything,
        );
        self.follow(kind(ApiResource::erase::<MachineConfigPool>(&())), Work::Status);
        let operators = ApiResource::erase::<ClusterOperator>(&());
        self.follow((operators, one(names::CLUSTER_OPERATOR)), Work::Status);
        for namespace in [names::NAMESPACE, names::MACHINE_API_NAMESPACE] {
            self.follow_within::<ConfigMap>(namespace);
            self.follow_within::<Secret>(namespace);
        }
    }

    /// Follows kinds of others that the cluster turned out to have.
    pub fn follow_kinds(&mut self, kinds: Vec<ApiResource>) {
        for kind in kinds {
            self.follow((kind, watcher::Config::default()), Work::Everything);
        }
    }

    /// Waits for a change.
    pub async fn changed(&self) -> Work {
        self.wake.notify.notified().await;
        self.taken()
    }

    /// What has changed by now.
    pub fn taken(&self) -> Work {
        if self.wake.everything.swap(false, Ordering::AcqRel) {
            Work::Everything
        } else {
            Work::Status
        }
    }

    fn follow(&mut self, (resource, config): (ApiResource, watcher::Config), work: Work) {
        if self
            .watched
            .insert(format!("{}/{}", resource.api_version, resource.kind))
        {
            let api: Api<Metadata> = Api::all_with(self.client.clone(), &resource);
            self.spawn(api, config, work);
        }
    }

    fn follow_within<K>(&mut self, namespace: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        let resource = ApiResource::erase::<K>(&());
        if self.watched.insert(format!("{}/{namespace}", resource.kind)) {
            let api: Api<Metadata> = Api::namespaced_with(self.client.clone(), namespace, &resource);
            self.spawn(api, watcher::Config::default(), Work::Everything);
        }
    }

    fn spawn(&mut self, api: Api<Metadata>, config: watcher::Config, work: Work) {
        let wake = Arc::clone(&self.wake);
        self.tasks.spawn(async move {
            let mut changes = watcher(api, config).default_backoff().boxed();
            while let Some(change) = changes.next().await {
                match change {
                    // The first list tells nothing new: whoever asked for the watch has just read it all.
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone) => {}
                    Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => wake.call(work),
                    Err(error) => debug!("a watch was interrupted and goes on: {error}"),
                }
            }
        });
    }
}
