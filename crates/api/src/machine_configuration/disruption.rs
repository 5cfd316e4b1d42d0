//! Node disruption policies: the cost of a change to files, units or SSH keys.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::schema::build::{SchemaBuilder, atomic_list_of, list_by, object, string};
use crate::wire::{is_default, null_is_default};

/// The effective policies: the defaults, overridden by the user's policies for the same path, unit or SSH keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDisruptionPolicyStatus {
    /// The policies of the whole cluster.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "cluster_policies_schema")]
    pub cluster_policies: NodeDisruptionPolicies,
}

/// Policies by what changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeDisruptionPolicies {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub files: Vec<FileDisruptionPolicy>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub units: Vec<UnitDisruptionPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sshkey: Option<SshKeyDisruptionPolicy>,
}

/// The cost of a change to a file, or to anything below a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileDisruptionPolicy {
    #[serde(deserialize_with = "null_is_default")]
    pub path: String,
    #[serde(deserialize_with = "null_is_default")]
    pub actions: Vec<DisruptionAction>,
}

/// The cost of a change to a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitDisruptionPolicy {
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(deserialize_with = "null_is_default")]
    pub actions: Vec<DisruptionAction>,
}

/// The cost of a change to the SSH keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SshKeyDisruptionPolicy {
    #[serde(deserialize_with = "null_is_default")]
    pub actions: Vec<DisruptionAction>,
}

/// An action after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DisruptionAction {
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub type_: DisruptionActionType,
    /// The service, for [`DisruptionActionType::Reload`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<ServiceName>,
    /// The service, for [`DisruptionActionType::Restart`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<ServiceName>,
}

impl DisruptionAction {
    /// Returns an action that needs no service.
    pub fn plain(type_: DisruptionActionType) -> Self {
        Self {
            type_,
            reload: None,
            restart: None,
        }
    }

    pub fn reload(service: &str) -> Self {
        let reload = Some(ServiceName {
            service_name: service.to_owned(),
        });
        Self {
            type_: DisruptionActionType::Reload,
            reload,
            restart: None,
        }
    }

    pub fn restart(service: &str) -> Self {
        let restart = Some(ServiceName {
            service_name: service.to_owned(),
        });
        Self {
            type_: DisruptionActionType::Restart,
            reload: None,
            restart,
        }
    }
}

/// Names a systemd unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceName {
    #[serde(deserialize_with = "null_is_default")]
    pub service_name: String,
}

/// The types of actions after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisruptionActionType {
    /// The default, because it is always safe.
    #[default]
    Reboot,
    Drain,
    Reload,
    Restart,
    DaemonReload,
    None,
    /// Decided by the content of the change. Only in defaults, never in a user's policy.
    Special,
    /// An action of a newer API version; treat it like a reboot.
    #[serde(untagged)]
    Other(String),
}

/// The user's own policies.
pub(super) fn user_policies_schema(_: &mut SchemaGenerator) -> Schema {
    policies(
        50,
        &["Reboot", "Drain", "Reload", "Restart", "DaemonReload", "None"],
    )
    .into()
}

/// The user's policies and the defaults.
fn cluster_policies_schema(_: &mut SchemaGenerator) -> Schema {
    policies(
        100,
        &[
            "Reboot",
            "Drain",
            "Reload",
            "Restart",
            "DaemonReload",
            "None",
            "Special",
        ],
    )
    .into()
}

fn policies(at_most: u32, types: &[&str]) -> SchemaBuilder {
    let file = object()
        .about("What a change to one file costs.")
        .required("actions", actions(types))
        .required(
            "path",
            string().about("The file, or a directory that it is below."),
        );
    let unit = object()
        .about("What a change to one unit costs.")
        .required("actions", actions(types))
        .required("name", unit_name().about("The unit."));
    object()
        .field(
            "files",
            list_by(&["path"], file)
                .max_items(at_most)
                .about("Changes to files."),
        )
        .field(
            "units",
            list_by(&["name"], unit)
                .max_items(at_most)
                .about("Changes to systemd units."),
        )
        .field(
            "sshkey",
            object()
                .about("Changes to SSH keys.")
                .required("actions", actions(types)),
        )
}

fn actions(types: &[&str]) -> SchemaBuilder {
    let service = |what: &str| {
        object()
            .about(what)
            .required("serviceName", unit_name().about("The unit."))
    };
    let action = object()
        .about("One thing to do.")
        .required("type", string().one_of(types).about("What to do."))
        .field("reload", service("The unit to reload, for the type Reload."))
        .field("restart", service("The unit to restart, for the type Restart."))
        .rule(
            "has(self.type) && self.type == 'Reload' ? has(self.reload) : !has(self.reload)",
            "reload is required when type is Reload, and forbidden otherwise",
        )
        .rule(
            "has(self.type) && self.type == 'Restart' ? has(self.restart) : !has(self.restart)",
            "restart is required when type is Restart, and forbidden otherwise",
        );
    atomic_list_of(action)
        .max_items(10)
        .about("What is done, in this order.")
        .rule(
            "self.exists(x, x.type=='Reboot') ? size(self) == 1 : true",
            "Reboot action can only be specified standalone, as it will override any other actions",
        )
        .rule(
            "self.exists(x, x.type=='None') ? size(self) == 1 : true",
            "None action can only be specified standalone, as it will override any other actions",
        )
}

fn unit_name() -> SchemaBuilder {
    string()
        .max_length(255)
        .rule(
            r"self.matches('\\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$')",
            "Invalid ${SERVICETYPE} in service name. Expected format is ${NAME}${SERVICETYPE}, where ${SERVICETYPE} \
             must be one of \".service\", \".socket\", \".device\", \".mount\", \".automount\", \".swap\", \
             \".target\", \".path\", \".timer\",\".snapshot\", \".slice\" or \".scope\".",
        )
        .rule(
            r"self.matches('^[a-zA-Z0-9:._\\\\-]+\\..')",
            "Invalid ${NAME} in service name. Expected format is ${NAME}${SERVICETYPE}, where {NAME} must be atleast \
             1 character long and can only consist of alphabets, digits, \":\", \"-\", \"_\", \".\", and \"\\\"",
        )
}
