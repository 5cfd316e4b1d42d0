//! Boot images: which machine templates get newer ones, and the policy for outdated ones.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::build::{list_by, object, string};
use crate::schema::{label_selector_node, rule};
use crate::wire::{is_default, null_is_default};

/// Which machine templates get newer boot images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedBootImages {
    /// One entry per kind of machine template. An empty list turns the updates off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_managers_schema")]
    pub machine_managers: Option<Vec<MachineManager>>,
}

/// A kind of machine template and which of them get newer boot images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineManager {
    #[serde(deserialize_with = "null_is_default")]
    pub api_group: String,
    #[serde(deserialize_with = "null_is_default")]
    pub resource: String,
    #[serde(deserialize_with = "null_is_default")]
    pub selection: MachineManagerSelection,
}

/// All, none, or some of the machine templates of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineManagerSelection {
    /// `All`, `Partial` or `None`.
    #[serde(deserialize_with = "null_is_default")]
    pub mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialSelection>,
}

/// Some of the machine templates of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialSelection {
    #[serde(deserialize_with = "null_is_default")]
    pub machine_resource_selector: LabelSelector,
}

fn machine_managers_schema(_: &mut SchemaGenerator) -> Schema {
    let partial = object().about("Which templates, for the mode Partial.").required(
        "machineResourceSelector",
        label_selector_node().about("Chooses the templates by their labels."),
    );
    let selection = object()
        .about("Which of these templates get newer boot images.")
        .required(
            "mode",
            string()
                .one_of(&["All", "Partial", "None"])
                .about("All, some (Partial) or None of them."),
        )
        .field("partial", partial)
        .rule(
            "has(self.mode) && self.mode == 'Partial' ?  has(self.partial) : !has(self.partial)",
            "Partial is required when type is partial, and forbidden otherwise",
        );
    let manager = object()
        .about("One kind of machine template.")
        .required(
            "apiGroup",
            string().one_of(&["machine.openshift.io"]).about("API group of the templates."),
        )
        .required(
            "resource",
            string()
                .one_of(&["machinesets", "controlplanemachinesets"])
                .about("Resource of the templates, in the plural."),
        )
        .required("selection", selection)
        .rule(
            "self.resource != 'controlplanemachinesets' || self.selection.mode == 'All' || self.selection.mode == 'None'",
            "Only All or None selection mode is permitted for ControlPlaneMachineSets",
        );
    list_by(&["resource", "apiGroup"], manager).max_items(5).into()
}

/// What happens when machines are created from boot images that have become too old.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "required" = ["mode"],
    "x-kubernetes-validations" = [rule(
        "has(self.mode) && (self.mode =='Manual') ?  has(self.manual) : !has(self.manual)",
        "manual is required when mode is Manual, and forbidden otherwise"
    )]
))]
pub struct BootImageSkewEnforcement {
    /// The oldest boot image in use, for the mode Manual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,

    /// Manual: the user says what the oldest boot image is. None: nothing happens.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("enum" = ["Manual", "None"]))]
    pub mode: String,
}

/// What is in force about boot images that have become too old.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "required" = ["mode"],
    "x-kubernetes-validations" = [
        rule(
            "has(self.mode) && (self.mode == 'Automatic') ?  has(self.automatic) : !has(self.automatic)",
            "automatic is required when mode is Automatic, and forbidden otherwise"
        ),
        rule(
            "has(self.mode) && (self.mode == 'Manual') ?  has(self.manual) : !has(self.manual)",
            "manual is required when mode is Manual, and forbidden otherwise"
        ),
    ]
))]
pub struct BootImageSkewEnforcementStatus {
    /// The oldest boot image in use, for the mode Automatic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticBootImageVersion>,

    /// The oldest boot image in use, for the mode Manual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,

    /// Automatic: the controller knows the oldest boot image. Manual: the user says it. None: nothing happens.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("enum" = ["Automatic", "Manual", "None"]))]
    pub mode: String,
}

/// The oldest boot image in use, as the controller found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "minProperties" = 1,
    "x-kubernetes-validations" = [rule(
        "has(self.ocpVersion) || has(self.rhcosVersion)",
        "at least one of ocpVersion or rhcosVersion is required"
    )]
))]
pub struct AutomaticBootImageVersion {
    /// The release that the boot image came with.
    #[serde(
        rename = "ocpVersion",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    #[schemars(schema_with = "release_version_schema")]
    pub ocp_version: String,

    /// The version of the boot image itself.
    #[serde(
        rename = "rhcosVersion",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    #[schemars(schema_with = "os_version_schema")]
    pub rhcos_version: String,
}

/// The oldest boot image in use, as configured by the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "required" = ["mode"],
    "x-kubernetes-validations" = [
        rule(
            "has(self.mode) && (self.mode =='OCPVersion') ?  has(self.ocpVersion) : !has(self.ocpVersion)",
            "ocpVersion is required when mode is OCPVersion, and forbidden otherwise"
        ),
        rule(
            "has(self.mode) && (self.mode =='RHCOSVersion') ?  has(self.rhcosVersion) : !has(self.rhcosVersion)",
            "rhcosVersion is required when mode is RHCOSVersion, and forbidden otherwise"
        ),
    ]
))]
pub struct ManualBootImageVersion {
    /// Which of the two versions is given.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("enum" = ["OCPVersion", "RHCOSVersion"]))]
    pub mode: String,

    /// The release that the boot image came with.
    #[serde(
        rename = "ocpVersion",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    #[schemars(schema_with = "release_version_schema")]
    pub ocp_version: String,

    /// The version of the boot image itself.
    #[serde(
        rename = "rhcosVersion",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    #[schemars(schema_with = "os_version_schema")]
    pub rhcos_version: String,
}

fn release_version_schema(_: &mut SchemaGenerator) -> Schema {
    string()
        .length(5, 10)
        .rule(
            r"self.matches('^[0-9]+\\.[0-9]+\\.[0-9]+$')",
            "ocpVersion must match the OCP semver compatible format of x.y.z",
        )
        .into()
}

fn os_version_schema(_: &mut SchemaGenerator) -> Schema {
    string()
        .length(14, 21)
        .rule(
            r"self.matches('^[0-9]+\\.[0-9]+\\.([0-9]{8}|[0-9]{12})-[0-9]+$')",
            "rhcosVersion must match format [major].[minor].[datestamp(YYYYMMDD)]-[buildnumber] or must match legacy \
             format [major].[minor].[timestamp(YYYYMMDDHHmm)]-[buildnumber]",
        )
        .into()
}

/// Requires updates of all machine templates for the mode Automatic, because the oldest boot image cannot be determined
/// otherwise.
pub(super) fn automatic_mode_rules() -> Vec<Value> {
    let when_automatic = |then: &str, message: &str| {
        rule(
            &format!(
                r#"self.?status.bootImageSkewEnforcementStatus.mode.orValue("") == 'Automatic' ? {then}: true"#
            ),
            message,
        )
    };
    vec![
        when_automatic(
            "self.?spec.managedBootImages.hasValue() || self.?status.managedBootImagesStatus.hasValue() ",
            "when skew enforcement is in Automatic mode, a boot image configuration is required",
        ),
        when_automatic(
            "!(self.?spec.managedBootImages.machineManagers.hasValue()) || \
             size(self.spec.managedBootImages.machineManagers) > 0 ",
            "when skew enforcement is in Automatic mode, managedBootImages.machineManagers must not be an empty list",
        ),
        when_automatic(
            "!(self.?spec.managedBootImages.machineManagers.hasValue()) || \
             !self.spec.managedBootImages.machineManagers.exists(m, m.resource == 'machinesets' && m.apiGroup == \
             'machine.openshift.io') || self.spec.managedBootImages.machineManagers.exists(m, m.resource == \
             'machinesets' && m.apiGroup == 'machine.openshift.io' && m.selection.mode == 'All') ",
            "when skew enforcement is in Automatic mode, any MachineAPI MachineSet MachineManager must use selection \
             mode 'All'",
        ),
        when_automatic(
            "!(self.?status.managedBootImagesStatus.machineManagers.hasValue()) || \
             self.status.managedBootImagesStatus.machineManagers.exists(m, m.selection.mode == 'All' && m.resource == \
             'machinesets' && m.apiGroup == 'machine.openshift.io')",
            "when skew enforcement is in Automatic mode, managedBootImagesStatus must contain a MachineManager opting \
             in all MachineAPI MachineSets",
        ),
    ]
}
