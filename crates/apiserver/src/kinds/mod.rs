//! The kinds that are served without a CRD.
//!
//! This module holds names, scopes, verbs and selectable fields. It is static data: storage and serving are elsewhere.

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

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

use crate::object_meta::NameRule;

/// The scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindScope {
    Namespaced,
    Cluster,
}

/// Where the objects of a kind are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindStorage {
    /// Under the kind's own group and plural.
    Own,
    /// Under another kind, with conversion on read and write; `events.k8s.io` shares core events.
    SharedWith {
        group: &'static str,
        plural: &'static str,
    },
    /// Not stored: a create is answered at once (reviews, bindings).
    Virtual,
}

/// One subresource of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSubresource {
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
    pub scope: KindScope,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [KindSubresource],
    pub storage: KindStorage,
    /// The fields that field selectors support.
    pub selectable: &'static [SelectableField],
    pub unsupported_label: UnsupportedLabel,
    /// The name of the kind's definition in Kubernetes' OpenAPI documents.
    pub definition: &'static str,
}

impl BuiltIn {
    /// Returns the `apiVersion`: `v1` for the core group, `group/version` otherwise.
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// Returns the kind of a list of these objects.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Returns the singular name: the kind in lower case for every built-in kind.
    pub fn singular(&self) -> String {
        self.kind.to_ascii_lowercase()
    }

    /// Returns the rule for the names of the kind's objects.
    pub fn name_rule(&self) -> NameRule {
        match (self.group, self.kind) {
            ("", "Namespace") => NameRule::Label,
            ("", "Service") => NameRule::Label1035,
            ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == KindScope::Namespaced
    }

    pub fn subresource(&self, name: &str) -> Option<&'static KindSubresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Returns whether `metadata.generation` counts changes of the spec.
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

/// Returns the built-in kind served at this group, version and plural.
pub fn by_resource(group: &str, version: &str, plural: &str) -> Option<&'static BuiltIn> {
    BUILT_IN
        .iter()
        .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

/// Returns the built-in kind of this group, version and kind.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static BuiltIn> {
    BUILT_IN
        .iter()
        .find(|entry| entry.group == group && entry.version == version && entry.kind == kind)
}

/// Returns the built-in kind of an object's `apiVersion` and `kind`.
pub fn by_type_meta(api_version: &str, kind: &str) -> Option<&'static BuiltIn> {
    let (group, version) = split_api_version(api_version);
    by_kind(group, version, kind)
}

/// Joins a group and a version into an `apiVersion`.
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

/// Returns the hash in discovery that is equal for resources with the same stored form.
///
/// Clients only compare it, but the value is Kubernetes' own so that both servers agree.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests;
