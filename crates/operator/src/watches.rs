//! The watches that trigger a sync: of objects that the operator writes or reads, and of the pools that it reports.
//!
//! Only metadata is watched. A kind that the cluster does not have is not watched until it appears.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Client, Resource};
use mco_api::crd::CompanionKinds;
use mco_api::foreign::cluster_operator::ClusterOperator;
use mco_api::foreign::image::Image;
use mco_api::vocabulary::{labels, names};
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfigPool, MachineConfiguration,
    MachineOSBuild, MachineOSConfig, plain,
};
use mco_core::generators::registry_pull_secret;
use mco_runtime::with_backoff;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::applied::{AppliedObjects, WatchScope};
use crate::facts;
use crate::profile::ClusterProfile;

type Metadata = PartialObjectMeta<DynamicObject>;

const ELECTION: &str = "control-plane.alpha.kubernetes.io/leader";

/// The nodes of the control plane, whose number decides about replicas.
const CONTROL_PLANE_NODES: [&str; 2] = [labels::node::ROLE_CONTROL_PLANE, labels::node::ROLE_MASTER];

/// The extent of a sync, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Only report, because only pools changed, which the steps do not modify once they exist.
    Status,
    /// Read the states of workloads and report, because only their status changed.
    Workloads,
    /// Run all steps, because an input or output of theirs changed.
    Everything,
}

/// Accumulates changes until the next sync.
#[derive(Debug, Default)]
struct PendingWork {
    extent: Mutex<Option<Work>>,
    notify: Notify,
}

impl PendingWork {
    fn call(&self, work: Work) {
        let mut extent = self.extent.lock();
        *extent = (*extent).max(Some(work));
        self.notify.notify_one();
    }
}

/// The running watches, which end on drop.
pub(crate) struct Watches {
    client: Client,
    applied: Arc<AppliedObjects>,
    wake: Arc<PendingWork>,
    watched: HashSet<String>,
    tasks: JoinSet<()>,
}

impl Watches {
    pub fn new(client: Client, applied: Arc<AppliedObjects>) -> Self {
        Self {
            client,
            applied,
            wake: Arc::default(),
            watched: HashSet::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Watches our own kinds and namespaces, which must exist.
    pub fn follow_own(&mut self, profile: &ClusterProfile) {
        let one = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let kind = |resource| (resource, watcher::Config::default());
        self.follow(
            kind(ApiResource::erase::<ControllerConfig>(&())),
            Work::Everything,
        );
        let (configurations, operators) = match profile.kinds {
            CompanionKinds::OpenShift => (
                ApiResource::erase::<MachineConfiguration>(&()),
                ApiResource::erase::<ClusterOperator>(&()),
            ),
            CompanionKinds::Plain => (
                ApiResource::erase::<plain::MachineConfiguration>(&()),
                ApiResource::erase::<plain::MachineConfigOperator>(&()),
            ),
        };
        self.follow(kind(configurations), Work::Everything);
        if profile.kinds == CompanionKinds::OpenShift {
            // Clusters that are not OpenShift have the kind, but an Image only once a user creates one.
            self.follow(kind(ApiResource::erase::<Image>(&())), Work::Everything);
        }
        self.follow(kind(ApiResource::erase::<KubeletConfig>(&())), Work::Everything);
        self.follow(
            kind(ApiResource::erase::<ContainerRuntimeConfig>(&())),
            Work::Everything,
        );
        self.follow(kind(ApiResource::erase::<MachineConfigPool>(&())), Work::Status);
        // The builder is deployed with the first MachineOSConfig and deleted after the last build. It writes their status,
        // and the progress of builds as annotations.
        self.follow_with::<MachineOSConfig>(Triggers::Any {
            change: Some(Work::Everything),
            status: None,
        });
        self.follow_with::<MachineOSBuild>(Triggers::Any {
            change: None,
            status: None,
        });
        self.follow((operators, one(names::CLUSTER_OPERATOR)), Work::Status);
        self.follow_within::<ConfigMap>(names::NAMESPACE);
        self.follow_within::<Secret>(names::NAMESPACE);
        if profile.server {
            self.follow_within::<Secret>(names::MACHINE_API_NAMESPACE);
        }
    }

    /// Watches the ConfigMaps with the CAs and addresses of a cluster. Some have arbitrary names; in namespaces with
    /// many others only those with fixed names are watched.
    pub fn follow_facts(&mut self) {
        self.follow_within::<ConfigMap>(names::CONFIG_NAMESPACE);
        self.follow_within::<ConfigMap>(names::CONFIG_MANAGED_NAMESPACE);
        for (namespace, name) in facts::CONFIG_MAPS {
            self.follow_named::<ConfigMap>(namespace, name);
        }
        self.follow_named::<Secret>(names::CONFIG_NAMESPACE, names::secret::PULL_SECRET);
        self.follow_named::<ServiceAccount>(names::NAMESPACE, registry_pull_secret::SERVICE_ACCOUNT);
        self.follow_named::<Secret>(names::CONFIG_MANAGED_NAMESPACE, names::secret::ENTITLEMENT);
        for role in CONTROL_PLANE_NODES {
            if self.watched.insert(format!("Node/{role}")) {
                let nodes = Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
                let config = watcher::Config::default().labels(role);
                self.spawn(nodes, config, Triggers::any(None), None);
            }
        }
    }

    /// Watches the workloads of the operator, so that a deleted one is recreated and a ready one is reported
    /// immediately.
    pub fn follow_workloads(&mut self) {
        self.follow_status_within::<Deployment>(names::NAMESPACE, Work::Workloads);
        self.follow_status_within::<DaemonSet>(names::NAMESPACE, Work::Workloads);
        self.follow_within::<Service>(names::NAMESPACE);
        self.follow_status_within::<PodDisruptionBudget>(names::NAMESPACE, Work::Status);
        self.follow_within::<NetworkPolicy>(names::NAMESPACE);
    }

    /// Watches optional kinds that the cluster has.
    pub fn follow_kinds(&mut self, kinds: Vec<ApiResource>) {
        for kind in kinds {
            self.follow((kind, watcher::Config::default()), Work::Everything);
        }
    }

    /// Watches the kinds of all objects that were applied, so that one that did not change is not read again.
    pub fn follow_applied(&mut self) {
        for scope in self.applied.scopes() {
            let within = scope.namespace.as_deref();
            let key = format!("{}/{}", scope.kind, within.unwrap_or(&scope.api_version));
            if !self.watched.insert(key) {
                continue;
            }
            let (group, version) = scope
                .api_version
                .split_once('/')
                .unwrap_or(("", &scope.api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &scope.kind));
            let api: Api<Metadata> = match within {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            self.spawn(
                api,
                watcher::Config::default(),
                Triggers::OnlyApplied,
                Some(scope),
            );
        }
    }

    /// Waits for a change.
    pub async fn changed(&self) -> Work {
        self.wake.notify.notified().await;
        self.taken()
    }

    /// Returns the accumulated changes and resets them.
    pub fn taken(&self) -> Work {
        self.wake.extent.lock().take().unwrap_or(Work::Status)
    }

    fn follow(&mut self, (resource, config): (ApiResource, watcher::Config), work: Work) {
        self.follow_triggering(&resource, config, Triggers::any(Some(work)));
    }

    fn follow_with<K: Resource<DynamicType = ()>>(&mut self, triggers: Triggers) {
        self.follow_triggering(
            &ApiResource::erase::<K>(&()),
            watcher::Config::default(),
            triggers,
        );
    }

    fn follow_triggering(&mut self, resource: &ApiResource, config: watcher::Config, triggers: Triggers) {
        if self
            .watched
            .insert(format!("{}/{}", resource.kind, resource.api_version))
        {
            let api: Api<Metadata> = Api::all_with(self.client.clone(), resource);
            let is_complete = config.field_selector.is_none() && config.label_selector.is_none();
            let scope = is_complete.then(|| scope_of(resource, None));
            self.spawn(api, config, triggers, scope);
        }
    }

    fn follow_within<K>(&mut self, namespace: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        self.follow_status_within::<K>(namespace, Work::Everything);
    }

    /// Watches a kind in a namespace. A change of the status alone triggers `status`.
    fn follow_status_within<K>(&mut self, namespace: &str, status: Work)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        let resource = ApiResource::erase::<K>(&());
        if self.watched.insert(format!("{}/{namespace}", resource.kind)) {
            let api: Api<Metadata> = Api::namespaced_with(self.client.clone(), namespace, &resource);
            let triggers = Triggers::Any {
                change: Some(Work::Everything),
                status: Some(status),
            };
            let scope = scope_of(&resource, Some(namespace));
            self.spawn(api, watcher::Config::default(), triggers, Some(scope));
        }
    }

    fn follow_named<K>(&mut self, namespace: &str, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        let resource = ApiResource::erase::<K>(&());
        if self
            .watched
            .insert(format!("{}/{namespace}/{name}", resource.kind))
        {
            let api: Api<Metadata> = Api::namespaced_with(self.client.clone(), namespace, &resource);
            let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
            self.spawn(api, one, Triggers::any(Some(Work::Everything)), None);
        }
    }

    /// Runs a watch. With a `scope` it reports all objects of that scope.
    fn spawn(
        &mut self,
        api: Api<Metadata>,
        config: watcher::Config,
        triggers: Triggers,
        scope: Option<WatchScope>,
    ) {
        let (wake, applied) = (Arc::clone(&self.wake), Arc::clone(&self.applied));
        let url = api.resource_url().to_owned();
        self.tasks.spawn(async move {
            let mut changes = with_backoff(watcher(api, config)).boxed();
            let mut known = HashMap::new();
            while let Some(change) = changes.next().await {
                match change {
                    Ok(change) => {
                        let is_applied = scope
                            .as_ref()
                            .is_some_and(|scope| applied.observe(scope, &change));
                        let work = match triggers {
                            Triggers::Any {
                                change: on_change,
                                status,
                            } => work_of_change(&change, on_change, status, &mut known),
                            Triggers::OnlyApplied => is_applied.then_some(Work::Everything),
                        };
                        if let Some(work) = work {
                            debug!(?work, kind = %url, "{} triggers a sync", described(&change));
                            wake.call(work);
                        }
                    }
                    Err(error) if is_forbidden(&error) => warn!("a watch is not allowed: {error}"),
                    Err(error) => debug!("a watch was interrupted and is retried: {error}"),
                }
            }
        });
    }
}

fn scope_of(resource: &ApiResource, namespace: Option<&str>) -> WatchScope {
    WatchScope {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: namespace.map(str::to_owned),
    }
}

/// Returns the object of an event for the log.
fn described(event: &watcher::Event<Metadata>) -> String {
    let (action, object) = match event {
        watcher::Event::Init | watcher::Event::InitDone => return "a list".to_owned(),
        watcher::Event::InitApply(object) => ("listed", object),
        watcher::Event::Apply(object) => ("changed", object),
        watcher::Event::Delete(object) => ("deleted", object),
    };
    let managers = object.metadata.managed_fields.iter().flatten();
    let latest = managers.max_by_key(|entry| entry.time.clone());
    let by = latest.and_then(|entry| entry.manager.clone()).unwrap_or_default();
    format!("{action} {} (last written by {by})", name(object))
}

/// The sync that a modified object triggers, or `None`.
#[derive(Clone, Copy, Debug)]
enum Triggers {
    Any {
        change: Option<Work>,
        /// For a change of the status alone.
        status: Option<Work>,
    },
    /// A full sync, for an object that was compared with its manifest and changed since.
    OnlyApplied,
}

impl Triggers {
    fn any(work: Option<Work>) -> Self {
        Self::Any {
            change: work,
            status: work,
        }
    }
}

/// What a writer of the status does not change. The API server increments the generation with the spec.
#[derive(Debug, PartialEq, Eq)]
struct Revision {
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Revision {
    fn of(object: &Metadata) -> Self {
        Self {
            generation: object.metadata.generation,
            labels: object.metadata.labels.clone(),
            annotations: object.metadata.annotations.clone(),
        }
    }
}

/// Returns the sync that a change of an object in `known` triggers. An added or deleted object always triggers a full
/// sync.
fn work_of_change(
    change: &watcher::Event<Metadata>,
    on_change: Option<Work>,
    on_status: Option<Work>,
    known: &mut HashMap<String, Revision>,
) -> Option<Work> {
    match change {
        watcher::Event::Init => {
            known.clear();
            None
        }
        watcher::Event::InitApply(object) => {
            known.insert(name(object), Revision::of(object));
            None
        }
        // A list can be newer than the last sync, also after an interrupted watch, so anything may have changed.
        watcher::Event::InitDone => Some(Work::Everything),
        watcher::Event::Apply(object) | watcher::Event::Delete(object) if is_election(object) => None,
        watcher::Event::Apply(object) => {
            let revision = Revision::of(object);
            let is_same = known.get(&name(object)).map(|before| *before == revision);
            known.insert(name(object), revision);
            match is_same {
                None => Some(Work::Everything),
                Some(true) => on_status,
                Some(false) => on_change,
            }
        }
        watcher::Event::Delete(object) => {
            known.remove(&name(object));
            Some(Work::Everything)
        }
    }
}

/// Not retried immediately: without permission, changes are found by the resync.
fn is_forbidden(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.is_forbidden(),
        _ => false,
    }
}

fn name(object: &Metadata) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// Returns whether the object is a leader election record in a ConfigMap, which changes every few seconds.
fn is_election(object: &Metadata) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(ELECTION))
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    fn object(annotation: Option<&str>) -> Metadata {
        let annotations = annotation.map(|key| [(key.to_owned(), String::new())].into());
        let metadata = ObjectMeta {
            annotations,
            ..ObjectMeta::default()
        };
        Metadata {
            types: None,
            metadata,
            _phantom: std::marker::PhantomData,
        }
    }

    #[test]
    fn changes_before_a_watch_and_while_it_was_broken_are_not_missed() {
        let everything = Some(Work::Everything);
        for (name, event, expected) in [
            ("a list begins", Init, None),
            ("what is there", InitApply(object(None)), None),
            ("anything may have changed before", InitDone, everything),
            ("a change", Apply(object(None)), everything),
            ("an election", Apply(object(Some(ELECTION))), None),
            (
                "another annotation",
                Apply(object(Some("example.com/a"))),
                everything,
            ),
            ("an object is deleted", Delete(object(None)), everything),
        ] {
            let mut known = HashMap::new();
            assert_eq!(
                work_of_change(&event, everything, everything, &mut known),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_pool_that_appears_or_goes_is_more_than_a_change_of_status() {
        let pool = || object(None);
        let mut known = HashMap::new();
        for (name, event, expected) in [
            ("what is there", InitApply(pool()), None),
            ("its status", Apply(pool()), Some(Work::Status)),
            ("it goes", Delete(pool()), Some(Work::Everything)),
            ("it comes back", Apply(pool()), Some(Work::Everything)),
            ("its status again", Apply(pool()), Some(Work::Status)),
        ] {
            let status = Some(Work::Status);
            assert_eq!(
                work_of_change(&event, status, status, &mut known),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_daemon_that_restarts_with_its_node_does_not_trigger_a_full_sync() {
        let workload = |generation| {
            let mut object = object(None);
            object.metadata.generation = Some(generation);
            object
        };
        let (change, status) = (Some(Work::Everything), Some(Work::Workloads));
        let mut known = HashMap::new();
        for (name, event, expected) in [
            ("what is there", InitApply(workload(1)), None),
            ("its status", Apply(workload(1)), Some(Work::Workloads)),
            ("its spec", Apply(workload(2)), Some(Work::Everything)),
            ("its status again", Apply(workload(2)), Some(Work::Workloads)),
            ("it is deleted", Delete(workload(2)), Some(Work::Everything)),
        ] {
            assert_eq!(
                work_of_change(&event, change, status, &mut known),
                expected,
                "{name}"
            );
        }
    }
}
