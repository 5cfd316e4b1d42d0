//! The namespaces and the CustomResourceDefinitions.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use mco_api::crd::{CompanionKinds, CustomResourceDefinition, companion_crds, own_crds, plain_crds};
use mco_api::vocabulary::names;
use mco_core::config::semantic;
use serde_json::Value;

use crate::cluster::{ClusterError, OperatorClient, failed, metadata, own_fields, to_value};
use crate::manifests;
use crate::profile::ClusterProfile;

/// A kind is served shortly after its CRD is stored.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The prefix of the annotation that a release's manifests carry for each of their cluster profiles.
const RELEASE_PROFILE: &str = "include.release.openshift.io/";

/// Creates our own namespace and, with config servers, the one of the machines' user data.
pub async fn namespaces(cluster: &OperatorClient, profile: &ClusterProfile) -> Result<(), ClusterError> {
    cluster.apply(&manifests::namespace()).await?;
    if !profile.server {
        return Ok(());
    }
    let machines = Namespace {
        metadata: metadata(None, names::MACHINE_API_NAMESPACE),
        ..Namespace::default()
    };
    cluster.create_if_absent(&machines).await
}

/// Applies our own CRDs, unless those of another owner are compatible; foreign CRDs are created only where they are
/// missing. A cluster without OpenShift's kinds has those of `mco.dev` in place of them.
pub async fn definitions(cluster: &OperatorClient, kinds: CompanionKinds) -> Result<(), ClusterError> {
    let (own, companions) = match kinds {
        CompanionKinds::OpenShift => (own_crds(), companion_crds()),
        CompanionKinds::Plain => (plain_crds(), Vec::new()),
    };
    let mut changed = Vec::new();
    for definition in &own {
        let wanted = to_value(definition)?;
        if cluster.is_unchanged(&wanted)? {
            continue;
        }
        changed.push(definition);
        let comparison = cluster.compare(&wanted)?;
        let found = cluster.present(&wanted).await?;
        let is_left_alone = found.as_ref().is_some_and(|found| {
            let found = serde_json::to_value(found).unwrap_or_default();
            is_left_alone(&found, &wanted)
        });
        match found {
            Some(found) if is_left_alone => cluster.accept(&comparison, &wanted, &found.metadata),
            _ => cluster.apply(&wanted).await?,
        }
    }
    for definition in &companions {
        let wanted = to_value(definition)?;
        if !cluster.is_unchanged(&wanted)? {
            changed.push(definition);
            cluster.create_if_absent(&wanted).await?;
        }
    }
    for definition in changed {
        established(cluster, definition.metadata.name.as_deref().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Returns whether a CRD belongs to another owner and is left unchanged. One that the cluster version operator
/// reconciles only has to serve our versions, because the two operators would overwrite each other endlessly. Any other
/// has to accept what ours does.
fn is_left_alone(found: &Value, wanted: &Value) -> bool {
    if own_fields(found).is_some() {
        return false;
    }
    if is_of_release(found) {
        return served_versions(wanted).is_subset(&served_versions(found));
    }
    semantic::definition_accepts(found, wanted)
}

/// Returns whether the cluster version operator reconciles an object.
fn is_of_release(found: &Value) -> bool {
    let annotations = found.pointer("/metadata/annotations").and_then(Value::as_object);
    let mut keys = annotations.into_iter().flatten().map(|(key, _)| key);
    keys.any(|key| key.starts_with(RELEASE_PROFILE))
}

fn served_versions(definition: &Value) -> BTreeSet<&str> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .filter_map(|version| version["name"].as_str())
        .collect()
}

/// Waits until the API server serves the kind. A timeout is not an error here: later requests report it.
async fn established(cluster: &OperatorClient, name: &str) -> Result<(), ClusterError> {
    let definitions = cluster.all::<CustomResourceDefinition>();
    let deadline = tokio::time::Instant::now() + ESTABLISHED_WITHIN;
    while tokio::time::Instant::now() < deadline {
        let found = definitions.get_opt(name).await;
        let found = found.map_err(failed("reading", || format!("CustomResourceDefinition {name}")))?;
        let status = found.and_then(|found| found.status);
        let mut conditions = status
            .into_iter()
            .flat_map(|status| status.conditions.unwrap_or_default());
        if conditions.any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mco_api::vocabulary::names::FIELD_MANAGER;
    use serde_json::json;

    use super::*;

    fn definition(description: &str, type_: &str, metadata: &Value) -> Value {
        json!({"metadata": metadata, "spec": {"versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema":
            {"description": description, "properties": {"a": {"type": type_}}}}}]}})
    }

    #[test]
    fn definitions_of_the_release_were_overwritten() {
        let ours = definition("ours", "string", &json!({}));
        let release =
            json!({"annotations": {"include.release.openshift.io/self-managed-high-availability": "true"}});
        let applied =
            json!({"managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {}}]});
        let mut other_version = definition("theirs", "string", &release);
        other_version["spec"]["versions"][0]["name"] = json!("v1alpha1");
        for (name, found, expected) in [
            (
                "other descriptions",
                definition("theirs", "string", &json!({})),
                true,
            ),
            (
                "another schema",
                definition("theirs", "integer", &json!({})),
                false,
            ),
            (
                "another schema of the release",
                definition("theirs", "integer", &release),
                true,
            ),
            ("a release without our version", other_version, false),
            (
                "an older one of ours",
                definition("older", "string", &applied),
                false,
            ),
        ] {
            assert_eq!(is_left_alone(&found, &ours), expected, "{name}");
        }
    }
}
