//! The requests of the steps, with errors that name the object.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use mco_api::vocabulary::names::FIELD_MANAGER;
use mco_core::config::semantic::{self, Blank};
use mco_runtime::FieldManager;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::applied::{AppliedObjects, ComparisonStart, WatchScope};

/// The status code for a kind that does not exist. Unlike for an object, it has no reason.
const KIND_UNKNOWN: u16 = 404;

#[derive(Debug, Error)]
pub enum ClusterError {
    #[error("{attempt} {object}: {}", said(.source))]
    Request {
        attempt: &'static str,
        object: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{object} cannot be written as JSON: {source}")]
    Encode {
        object: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{0}")]
    Profile(String),
    #[error(
        "MachineConfig {name} is missing, but MachineOSConfig {config:?} of pool {pool:?} was seeded with a pre-built image; \
         create it with spec.osImageURL of that image, or delete the MachineOSConfig"
    )]
    PreBuiltImage {
        config: String,
        pool: String,
        name: String,
    },
    #[error("a manifest of ours lacks {0}")]
    Manifest(&'static str),
}

/// Returns the message of the API server without the client's prefix.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// The operator's access to the cluster.
#[derive(Clone)]
pub(crate) struct OperatorClient {
    client: Client,
    applied: Arc<AppliedObjects>,
}

impl OperatorClient {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            applied: Arc::default(),
        }
    }

    /// Returns the objects that equal their manifests.
    pub fn applied(&self) -> &Arc<AppliedObjects> {
        &self.applied
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    {
        Api::all(self.client())
    }

    pub fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// Returns a cluster-wide object, or `None` if it or its kind does not exist.
    pub async fn find<K>(&self, name: &str) -> Result<Option<K>, ClusterError>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + DeserializeOwned + Debug,
    {
        match self.all::<K>().get_opt(name).await {
            Err(kube::Error::Api(status)) if status.code == KIND_UNKNOWN => Ok(None),
            found => found.map_err(failed("reading", || format!("{} {name}", K::kind(&())))),
        }
    }

    pub async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, ClusterError> {
        let found = self.within::<ConfigMap>(namespace).get_opt(name).await;
        found.map_err(failed("reading", || format!("ConfigMap {namespace}/{name}")))
    }

    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ClusterError> {
        let found = self.within::<Secret>(namespace).get_opt(name).await;
        found.map_err(failed("reading", || format!("Secret {namespace}/{name}")))
    }

    /// Server-side applies the manifest. Fields of others stay unchanged, and nothing is written when the object
    /// already matches. Nothing is read either while a watch reports no change of the object.
    pub async fn apply(&self, manifest: &impl Serialize) -> Result<(), ClusterError> {
        let manifest = to_value(manifest)?;
        let place = ObjectLocation::of(&manifest)?;
        if self.is_unchanged(&manifest)? {
            return Ok(());
        }
        let comparison = self.compare(&manifest)?;
        let object = self.apply_value(manifest.clone(), place.blank()).await?;
        self.accept(&comparison, &manifest, &object.metadata);
        Ok(())
    }

    /// Like [`Self::apply`], but always reads the object and returns it.
    pub async fn apply_and_read(&self, manifest: &impl Serialize) -> Result<DynamicObject, ClusterError> {
        let manifest = to_value(manifest)?;
        let blank = ObjectLocation::of(&manifest)?.blank();
        self.apply_value(manifest, blank).await
    }

    /// Like [`Self::apply_and_read`], for a kind in which these values are equal to an absent field.
    pub async fn apply_meaning(
        &self,
        manifest: &impl Serialize,
        blank: Blank,
    ) -> Result<DynamicObject, ClusterError> {
        self.apply_value(to_value(manifest)?, blank).await
    }

    /// Returns whether [`Self::apply`] would neither read nor write the object.
    pub fn is_unchanged(&self, manifest: &Value) -> Result<bool, ClusterError> {
        let place = ObjectLocation::of(manifest)?;
        Ok(self.applied.is_unchanged(&place.scope(), &place.name, manifest))
    }

    /// Begins a comparison of an object that [`Self::accept`] ends.
    pub fn compare(&self, manifest: &Value) -> Result<ObjectComparison, ClusterError> {
        let place = ObjectLocation::of(manifest)?;
        let scope = place.scope();
        Ok(ObjectComparison {
            start: self.applied.begin(&scope),
            scope,
            name: place.name,
        })
    }

    /// Records that the object is left as it is, as if the manifest was applied.
    pub fn accept(&self, comparison: &ObjectComparison, manifest: &Value, found: &ObjectMeta) {
        let ObjectComparison { scope, start, name } = comparison;
        self.applied.record(scope, *start, name, manifest, found);
    }

    async fn apply_value(&self, mut manifest: Value, blank: Blank) -> Result<DynamicObject, ClusterError> {
        let place = ObjectLocation::of(&manifest)?;
        if let Some(found) = self.present(&manifest).await? {
            let object = serde_json::to_value(&found).map_err(|source| ClusterError::Encode {
                object: place.to_string(),
                source,
            })?;
            manifest = semantic::keep_spelling(&object, &manifest, blank);
            if is_applied(&object, &manifest, blank) {
                return Ok(found);
            }
        }
        let answer = place
            .api(&self.client)
            .patch(
                &place.name,
                &PatchParams::apply(FIELD_MANAGER).force(),
                &Patch::Apply(&manifest),
            )
            .await;
        answer.map_err(failed("applying", || place.to_string()))
    }

    /// Returns the current object of a manifest, or `None` if it does not exist.
    pub async fn present(&self, manifest: &Value) -> Result<Option<DynamicObject>, ClusterError> {
        let place = ObjectLocation::of(manifest)?;
        let found = place.api(&self.client).get_opt(&place.name).await;
        found.map_err(failed("reading", || place.to_string()))
    }

    /// Replaces the whole `spec` of a manifest's object, with its resource version as precondition.
    pub async fn replace_spec(
        &self,
        mut object: DynamicObject,
        manifest: &Value,
        spec: Value,
    ) -> Result<(), ClusterError> {
        let place = ObjectLocation::of(manifest)?;
        object.data["spec"] = spec;
        let answer = place
            .api(&self.client)
            .replace(&place.name, &OPERATOR.post_params(), &object)
            .await;
        answer
            .map(|_| ())
            .map_err(failed("replacing", || place.to_string()))
    }

    /// Creates the object; an existing one is left unchanged.
    pub async fn create_if_absent(&self, manifest: &impl Serialize) -> Result<(), ClusterError> {
        let manifest = to_value(manifest)?;
        let place = ObjectLocation::of(&manifest)?;
        if self.is_unchanged(&manifest)? {
            return Ok(());
        }
        let comparison = self.compare(&manifest)?;
        let api = place.api(&self.client);
        let found = api.get_metadata_opt(&place.name).await;
        let failed_reading = failed("reading", || place.to_string());
        if let Some(found) = found.map_err(failed_reading)? {
            self.accept(&comparison, &manifest, &found.metadata);
            return Ok(());
        }
        let object: DynamicObject =
            serde_json::from_value(manifest).map_err(|source| ClusterError::Encode {
                object: place.to_string(),
                source,
            })?;
        match api.create(&OPERATOR.post_params(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            answer => answer
                .map(|_| ())
                .map_err(failed("creating", || place.to_string())),
        }
    }
}

pub(crate) fn to_value(manifest: &impl Serialize) -> Result<Value, ClusterError> {
    serde_json::to_value(manifest).map_err(|source| ClusterError::Encode {
        object: "a manifest".to_owned(),
        source,
    })
}

/// Returns whether applying the manifest would not change the object. A field that we applied before and that is no
/// longer in the manifest is a change.
fn is_applied(found: &Value, manifest: &Value, blank: Blank) -> bool {
    let gives_up = own_fields(found).is_some_and(|fields| semantic::gives_up(fields, manifest));
    !gives_up && semantic::contains(found, manifest, blank)
}

/// Returns the fields of an object that we have applied, or `None` if only other clients wrote it.
pub(crate) fn own_fields(found: &Value) -> Option<&Value> {
    let entries = found.pointer("/metadata/managedFields")?.as_array()?;
    let ours = entries.iter().find(|entry| {
        entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply" && entry["subresource"].is_null()
    });
    ours.map(|entry| &entry["fieldsV1"])
}

/// The field manager of every write of the operator.
pub(crate) const OPERATOR: FieldManager = FieldManager::new(FIELD_MANAGER);

/// Returns an error mapper that adds the request and the object.
pub(crate) fn failed(
    attempt: &'static str,
    object: impl Fn() -> String,
) -> impl Fn(kube::Error) -> ClusterError {
    move |source| ClusterError::Request {
        attempt,
        object: object(),
        source: Box::new(source),
    }
}

/// A comparison of an object with its manifest.
#[derive(Debug)]
pub(crate) struct ObjectComparison {
    scope: WatchScope,
    start: ComparisonStart,
    name: String,
}

/// The API resource and name of a manifest's object.
struct ObjectLocation {
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
}

impl ObjectLocation {
    fn of(manifest: &Value) -> Result<Self, ClusterError> {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let version = text("/apiVersion").ok_or(ClusterError::Manifest("apiVersion"))?;
        let kind = text("/kind").ok_or(ClusterError::Manifest("kind"))?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Ok(Self {
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name")
                .ok_or(ClusterError::Manifest("metadata.name"))?
                .to_owned(),
        })
    }

    /// Returns the values that the API server may omit. It keeps custom resources as they were written.
    fn blank(&self) -> Blank {
        if self.resource.group.ends_with("openshift.io") {
            Blank::Null
        } else {
            Blank::EmptyList
        }
    }

    fn scope(&self) -> WatchScope {
        WatchScope {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
            namespace: self.namespace.clone(),
        }
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }
}

impl std::fmt::Display for ObjectLocation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ", self.resource.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(formatter, "{namespace}/")?;
        }
        formatter.write_str(&self.name)
    }
}

/// Returns the metadata of an object of ours.
pub(crate) fn metadata(namespace: Option<&str>, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_says_the_same_is_not_written_again() {
        let object = |labels: Value, managed: Value| json!({"metadata": {"name": "x", "labels": labels, "managedFields": managed}});
        let ours = |fields: Value| json!([{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": fields}}}]);
        let wanted = json!({"metadata": {"name": "x", "labels": {"a": "1"}, "annotations": null}});
        for (name, found, expected) in [
            (
                "another client wrote it",
                object(json!({"a": "1", "b": "2"}), json!([])),
                true,
            ),
            (
                "another client has a different value",
                object(json!({"a": "2"}), json!([])),
                false,
            ),
            (
                "we applied just this",
                object(json!({"a": "1"}), ours(json!({"f:a": {}}))),
                true,
            ),
            (
                "we applied more before",
                object(json!({"a": "1", "b": "2"}), ours(json!({"f:a": {}, "f:b": {}}))),
                false,
            ),
        ] {
            assert_eq!(is_applied(&found, &wanted, Blank::Null), expected, "{name}");
        }
    }

    #[test]
    fn an_empty_list_that_the_api_server_omits_is_not_applied_again_and_again() {
        for manifest in crate::manifests::network_policies() {
            let blank = ObjectLocation::of(&manifest).unwrap().blank();
            let mut stored = manifest.clone();
            let spec = stored["spec"].as_object_mut().unwrap();
            spec.retain(|_, value| !value.as_array().is_some_and(Vec::is_empty));
            let kept = semantic::keep_spelling(&stored, &manifest, blank);
            assert!(
                is_applied(&stored, &kept, blank),
                "{}",
                manifest["metadata"]["name"]
            );
            // An entry that another client adds is still removed.
            let mut changed = stored.clone();
            changed["spec"]["egress"] = json!([{"ports": []}, {}]);
            let kept = semantic::keep_spelling(&changed, &manifest, blank);
            let names_egress = manifest["spec"].get("egress").is_some();
            assert_eq!(is_applied(&changed, &kept, blank), !names_egress);
        }
    }
}
