//! Resources that belong to others and that we read or write. Only the fields this program uses have types;
//! everything else is kept in `extra` and written back as it came.

pub mod dns;
pub mod infrastructure;
pub mod network;
pub mod proxy;

/// Fields this program does not know, kept as they came.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// A reference by name; what it names follows from the field.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct NameReference {
    #[serde(deserialize_with = "crate::wire::null_is_default")]
    pub name: String,
    #[serde(flatten)]
    pub extra: Extra,
}
