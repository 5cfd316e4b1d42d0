//! Foreign resources that we read or write. Only the fields this program uses have types; all others are preserved in
//! `extra` and written back unchanged.

pub mod api_server;
pub mod cluster_operator;
pub mod cluster_version;
pub mod credential_provider;
pub mod dns;
pub mod feature_gate;
pub mod image;
pub mod image_policy;
pub mod infrastructure;
pub mod machine_set;
pub mod mirrors;
pub mod network;
pub mod node;
pub mod proxy;
pub mod scheduler;
pub mod tls;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Unknown fields, preserved unchanged.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// A reference by name; the kind follows from the field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct NameReference {
    /// Name of the object.
    #[serde(deserialize_with = "crate::wire::null_is_default")]
    pub name: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
