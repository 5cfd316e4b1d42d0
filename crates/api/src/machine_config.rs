//! MachineConfig: one piece of node configuration, written by a user or by a controller. Validation and interpretation
//! are not part of this module.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable, column};
use crate::resource::resource;
use crate::schema;
use crate::wire::null_is_default;

resource! {
    /// Configuration of a set of machines, or the rendered sum of many of them.
    MachineConfig, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "machineconfigs",
    spec: MachineConfigSpec
}

impl Installable for MachineConfig {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("Configuration of a set of machines, or the rendered sum of many of them.")
            .operator_managed()
            .short_name("mc")
            .column(column::text(
                "GeneratedByController",
                r".metadata.annotations.machineconfiguration\.openshift\.io/generated-by-controller-version",
                "The controller's version, if a controller made it.",
            ))
            .column(column::text(
                "IgnitionVersion",
                ".spec.config.ignition.version",
                "Version of the embedded Ignition config.",
            ))
            .column(column::age())
            .optional_spec::<MachineConfigSpec>("The configuration.")
            .build()
    }
}

/// Every field but `config` is written even when it is empty: other implementations, and the hash in the
/// name of a rendered config, see the zero values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigSpec {
    /// Image of the packages that extensions are installed from, instead of the cluster's default.
    #[serde(
        rename = "baseOSExtensionsContainerImage",
        deserialize_with = "null_is_default"
    )]
    pub base_os_extensions_container_image: String,

    /// An Ignition config, as an object. Its own `ignition.version` says how it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub config: Option<Value>,

    /// Named bundles of OS features to install.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub extensions: Vec<String>,

    /// Whether the machines run in FIPS mode. It can only be chosen when a machine is installed.
    #[serde(deserialize_with = "null_is_default")]
    pub fips: bool,

    /// Kernel arguments to add to the machines' own.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("nullable" = true, "x-kubernetes-list-type" = "atomic"))]
    pub kernel_arguments: Vec<String>,

    /// The kernel to run: default, realtime or 64k-pages.
    #[serde(deserialize_with = "null_is_default")]
    pub kernel_type: String,

    /// Operating system image to run, instead of the cluster's default.
    #[serde(rename = "osImageURL", deserialize_with = "null_is_default")]
    pub os_image_url: String,
}
