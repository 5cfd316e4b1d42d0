//! Fields that a write at an endpoint cannot change, so that it does not own them.

use crate::kinds::BuiltIn;

const STATUS: &[&[&str]] = &[&["status"]];
const SPEC: &[&[&str]] = &[&["spec"]];
const SPEC_AND_METADATA: &[&[&str]] = &[&["spec"], &["metadata"]];

/// Returns the reset fields of a built-in kind at an endpoint.
pub fn reset_fields(kind: &BuiltIn, subresource: &str) -> &'static [&'static [&'static str]] {
    match (kind.kind, subresource) {
        ("Pod", "status") => &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ],
        ("Deployment", "status") => &[&["spec"], &["metadata", "labels"]],
        ("ValidatingAdmissionPolicy", "status") => SPEC_AND_METADATA,
        (_, "status") => SPEC,
        ("Namespace", "finalize") => STATUS,
        _ if kind.subresource("status").is_some() => STATUS,
        _ => &[],
    }
}

/// Returns the reset fields of a custom resource at an endpoint.
pub fn custom_reset_fields(has_status: bool, subresource: &str) -> &'static [&'static [&'static str]] {
    match (has_status, subresource) {
        (true, "status") => SPEC_AND_METADATA,
        (true, _) => STATUS,
        (false, _) => &[],
    }
}
