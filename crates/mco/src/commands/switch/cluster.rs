//! Cluster access of `mco switch`, one request per function.

use anyhow::{Context as _, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use mco_api::vocabulary::names;
use mco_api::{MachineConfigPool, NodeAdoption};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connection::FIELD_MANAGER;
use crate::connection::{list_all, to_cli_error};

/// The Lease that the active controller of any implementation holds.
const CONTROLLER_LEASE: &str = "machine-config-controller";
/// Attempts to write on conflict.
const ATTEMPTS: usize = 5;

pub struct SwitchCluster {
    client: Client,
}

impl SwitchCluster {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    pub async fn pools(&self) -> anyhow::Result<Vec<MachineConfigPool>> {
        let mut pools: Vec<MachineConfigPool> = list_all(&self.client, "list the pools").await?;
        pools.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(pools)
    }

    pub async fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        list_all(&self.client, "list the nodes").await
    }

    /// Returns all NodeAdoptions; none if the kind does not exist.
    pub async fn adoptions(&self) -> anyhow::Result<Vec<NodeAdoption>> {
        let adoptions: Api<NodeAdoption> = Api::all(self.client.clone());
        match adoptions.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            found => Ok(to_cli_error(found, "list the NodeAdoptions")?.items),
        }
    }

    pub async fn patch_pool(&self, name: &str, patch: &Value) -> anyhow::Result<()> {
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let changed = pools
            .patch(name, &FIELD_MANAGER.patch_params(), &Patch::Merge(patch))
            .await;
        to_cli_error(changed, &format!("change pool {name}")).map(|_| ())
    }

    pub async fn patch_node(&self, name: &str, patch: &Value) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let changed = nodes
            .patch(name, &FIELD_MANAGER.patch_params(), &Patch::Merge(patch))
            .await;
        to_cli_error(changed, &format!("change node {name}")).map(|_| ())
    }

    /// Returns the object of a manifest, or `None` if it or its kind does not exist.
    pub async fn find(&self, manifest: &Value) -> anyhow::Result<Option<Value>> {
        let place = ObjectPlace::of(manifest)?;
        match place.api(&self.client).get_opt(&place.name).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            found => to_cli_error(found, &format!("read {place}"))?
                .map(|mut object| {
                    object.types = Some(kube::core::TypeMeta {
                        api_version: place.resource.api_version.clone(),
                        kind: place.resource.kind.clone(),
                    });
                    serde_json::to_value(object).context("cannot represent an object")
                })
                .transpose(),
        }
    }

    pub async fn patch(&self, manifest: &Value, patch: &Value) -> anyhow::Result<()> {
        let place = ObjectPlace::of(manifest)?;
        let api = place.api(&self.client);
        let changed = api
            .patch(&place.name, &FIELD_MANAGER.patch_params(), &Patch::Merge(patch))
            .await;
        to_cli_error(changed, &format!("change {place}")).map(|_| ())
    }

    /// Creates an object; an existing one is left unchanged.
    pub async fn create(&self, manifest: &Value) -> anyhow::Result<()> {
        let place = ObjectPlace::of(manifest)?;
        let object: DynamicObject =
            serde_json::from_value(manifest.clone()).with_context(|| format!("{place} is not an object"))?;
        match place
            .api(&self.client)
            .create(&FIELD_MANAGER.post_params(), &object)
            .await
        {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => to_cli_error(created, &format!("create {place}")).map(|_| ()),
        }
    }

    /// Starts the foreground deletion of an object, which ends when its dependents are gone.
    pub async fn delete(&self, manifest: &Value) -> anyhow::Result<()> {
        let place = ObjectPlace::of(manifest)?;
        let deleted = place
            .api(&self.client)
            .delete(&place.name, &DeleteParams::foreground())
            .await;
        match deleted {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => to_cli_error(deleted, &format!("delete {place}")).map(|_| ()),
        }
    }

    /// Deletes an object; its dependents are garbage-collected afterwards, so that nothing waits for a kubelet.
    pub async fn delete_in_background(&self, manifest: &Value) -> anyhow::Result<()> {
        let place = ObjectPlace::of(manifest)?;
        let parameters = DeleteParams::background();
        let deleted = place.api(&self.client).delete(&place.name, &parameters).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => to_cli_error(deleted, &format!("delete {place}")).map(|_| ()),
        }
    }

    /// Returns the pods of our namespace.
    pub async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        let found = pods.list(&ListParams::default()).await;
        Ok(to_cli_error(found, "list the pods")?.items)
    }

    /// Deletes a pod without waiting for its kubelet.
    pub async fn delete_pod_at_once(&self, name: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        match pods.delete(name, &DeleteParams::default().grace_period(0)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => to_cli_error(deleted, &format!("delete pod {name}")).map(|_| ()),
        }
    }

    /// Returns the metadata of all objects of one of our kinds; none if the kind does not exist.
    pub async fn metadata_of<K>(&self, what: &str) -> anyhow::Result<Vec<PartialObjectMeta<K>>>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let objects: Api<K> = Api::all(self.client.clone());
        match objects.list_metadata(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
            found => Ok(to_cli_error(found, &format!("list the {what}"))?.items),
        }
    }

    /// Patches the metadata of one object with `change`, computed again from its latest version on conflict.
    pub async fn patch_metadata<K>(
        &self,
        object: PartialObjectMeta<K>,
        change: impl Fn(&PartialObjectMeta<K>) -> Option<Value>,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let objects: Api<K> = Api::all(self.client.clone());
        let kind = K::kind(&());
        let name = object.metadata.name.clone().unwrap_or_default();
        let mut present = Some(object);
        for _ in 0..ATTEMPTS {
            let Some(patch) = present.as_ref().and_then(&change) else {
                return Ok(());
            };
            let written = objects
                .patch_metadata(&name, &FIELD_MANAGER.patch_params(), &Patch::Merge(patch))
                .await;
            match written {
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_conflict() => {
                    let read = objects.get_metadata_opt(&name).await;
                    present = to_cli_error(read, &format!("read {kind} {name}"))?;
                }
                written => return to_cli_error(written, &format!("change {kind} {name}")).map(|_| ()),
            }
        }
        bail!("{kind} {name} conflicts on every attempt; is a controller still running?")
    }

    /// Patches a node with `change`, computed again from its latest version on conflict.
    pub async fn change_node(
        &self,
        node: Node,
        change: impl Fn(&Node) -> Option<Value>,
    ) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = node.metadata.name.clone().unwrap_or_default();
        let mut present = Some(node);
        for _ in 0..ATTEMPTS {
            let Some(patch) = present.as_ref().and_then(&change) else {
                return Ok(());
            };
            let written = nodes
                .patch(&name, &FIELD_MANAGER.patch_params(), &Patch::Merge(patch))
                .await;
            match written {
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_conflict() => {
                    present = to_cli_error(nodes.get_opt(&name).await, &format!("read node {name}"))?;
                }
                written => return to_cli_error(written, &format!("change node {name}")).map(|_| ()),
            }
        }
        bail!("node {name} conflicts on every attempt")
    }

    /// Returns the holder of the Lease, or `None` if it was released or has expired.
    pub async fn leader(&self) -> anyhow::Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        let lease = to_cli_error(
            leases.get_opt(CONTROLLER_LEASE).await,
            "read the controllers' Lease",
        )?;
        let Some(spec) = lease.and_then(|lease| lease.spec) else {
            return Ok(None);
        };
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let seconds = i64::from(spec.lease_duration_seconds.unwrap_or_default());
        let renewed = spec.renew_time.map_or(0, |time| time.0.as_second());
        Ok(holder.filter(|_| renewed + seconds > Timestamp::now().as_second()))
    }
}

/// The API resource and name of an object.
pub struct ObjectPlace {
    pub resource: ApiResource,
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectPlace {
    pub fn of(manifest: &Value) -> anyhow::Result<Self> {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let (Some(version), Some(kind), Some(name)) =
            (text("/apiVersion"), text("/kind"), text("/metadata/name"))
        else {
            bail!("an object needs apiVersion, kind and metadata.name");
        };
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Ok(Self {
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: name.to_owned(),
        })
    }

    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }
}

impl std::fmt::Display for ObjectPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.resource.kind, self.name)
    }
}
