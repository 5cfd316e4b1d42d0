//! The catalogue of kinds the embedded control plane serves without a CRD.
//!
//! It knows names, scopes, verbs and which fields a field selector may use. It must not know how objects are
//! stored or served: everything here is data, and the same for every request.

mod catalogue;
mod definitions;
pub mod event;
mod field;
mod merge;
mod types;

pub use catalogue::BUILT_IN;
pub use definitions::{REFERENCE_PREFIX, definitions};
pub use field::{FieldSource, SelectableField, UnsupportedLabel, text_at};
pub use merge::{
    ATOMIC as MERGE_ATOMIC, KEY_DEFAULTS, MEMBERS as MERGE_MEMBERS, MergePatchRule, MergeRule, MergeShape,
    short_name,
};
pub use types::schema_of;

use crate::object_meta::NameRule;
use base64::Engine as _;
use sha2::{Digest as _, Sha256};

/// Whether objects of a kind live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// Where the objects of a kind are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Under the kind's own group and plural.
    Own,
    /// In the store of another kind, converted on the way in and out; `events.k8s.io` shares core events.
    SharedWith {
        group: &'static str,
        plural: &'static str,
    },
    /// Nowhere: a create is answered at once and forgotten (reviews, bindings).
    Virtual,
}

/// One subresource of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// Group and version of the body; both empty when they are those of the parent kind.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: &'static [&'static str],
}

/// One built-in kind, described the way discovery presents it.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    pub storage: Storage,
    /// The fields a field selector may name.
    pub selectable: &'static [SelectableField],
    pub unsupported_label: UnsupportedLabel,
    /// The name of the kind's definition in Kubernetes' OpenAPI documents.
    pub definition: &'static str,
}

impl BuiltIn {
    /// `v1` for the core group, `group/version` otherwise: what `apiVersion` of an object says.
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// The kind of a list of these objects.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// The singular name: the kind in lower case for every built-in kind.
    pub fn singular(&self) -> String {
        self.kind.to_ascii_lowercase()
    }

    /// How the names of the kind's objects must look.
    pub fn name_rule(&self) -> NameRule {
        match (self.group, self.kind) {
            ("", "Namespace") => NameRule::Label,
            ("", "Service") => NameRule::Label1035,
            ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// A kind whose `metadata.generation` counts changes of its specification.
    ///
    /// Kubernetes leaves the generation unset on kinds that are only data or that predate the convention.
    pub fn has_generation(&self) -> bool {
        matches!(
            (self.group, self.kind),
            ("apps", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet")
                | ("batch", "Job" | "CronJob")
                | ("policy", "PodDisruptionBudget")
                | ("apiextensions.k8s.io" | "admissionregistration.k8s.io", _)
                | ("scheduling.k8s.io", "PriorityClass")
                | ("", "Pod")
        )
    }
}

/// The built-in kind served at this group, version and plural.
pub fn by_resource(group: &str, version: &str, plural: &str) -> Option<&'static BuiltIn> {
    BUILT_IN
        .iter()
        .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

/// The built-in kind of this group, version and kind.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static BuiltIn> {
    BUILT_IN
        .iter()
        .find(|entry| entry.group == group && entry.version == version && entry.kind == kind)
}

/// The built-in kind that an object's `apiVersion` and `kind` name.
pub fn by_type_meta(api_version: &str, kind: &str) -> Option<&'static BuiltIn> {
    let (group, version) = split_api_version(api_version);
    by_kind(group, version, kind)
}

/// Joins a group and a version the way `apiVersion` writes them.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Splits an `apiVersion` into group and version; the core group is empty.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The hash by which discovery says that two resources share a stored form.
///
/// Clients compare it for equality only, but the value is Kubernetes' own so that both servers agree.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests;
