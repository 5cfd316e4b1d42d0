//! The cluster's network settings.

use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The cluster's network: its plugin and its address ranges.
    Network, ClusterResourceScope, "config.openshift.io" / "v1", "networks",
    spec: NetworkSpec,
    status: NetworkStatus,
    unknown fields kept in extra
}

/// The requested network. It is used in place of the status until the network operator has run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkSpec {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub network_type: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub service_network: Vec<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The effective network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkStatus {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub network_type: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub service_network: Vec<String>,
    #[serde(rename = "clusterNetworkMTU", skip_serializing_if = "Option::is_none")]
    pub cluster_network_mtu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<NetworkMigration>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A network migration in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkMigration {
    /// The plugin that replaces the current one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub network_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<MtuMigration>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A change of the MTU, of the pods' network and of the machines' own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MtuMigration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MtuMigrationValues>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<MtuMigrationValues>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The MTU before and after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MtuMigrationValues {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Returns the schema of an MTU migration inside a ControllerConfig.
pub(crate) fn mtu_migration_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let values = |description: &str| {
        let mtu = |description: &str| serde_json::json!({"description": description, "type": "integer", "format": "int32", "minimum": 0});
        serde_json::json!({
            "description": description,
            "type": "object",
            "properties": {
                "from": mtu("The MTU before the change."),
                "to": mtu("The MTU after the change."),
            },
        })
    };
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "machine": values("The machines' own network."),
            "network": values("The pods' network."),
        },
    })
}
