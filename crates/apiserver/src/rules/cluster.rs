//! Nodes and leases.

use serde_json::Value;

use super::items;
use crate::field_error::FieldError;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn node(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, taint) in items(new, "/spec/taints") {
        let effect = taint["effect"].as_str().unwrap_or_default();
        // Kubernetes reports `metadata` here, though taints are in the spec.
        let field = format!("metadata.taints[{index}].effect");
        if effect.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(field, &taint["effect"], &EFFECTS));
        }
    }
    errors
}

pub(super) fn lease(new: &Value) -> Vec<FieldError> {
    let seconds = &new["spec"]["leaseDurationSeconds"];
    match seconds.as_i64() {
        Some(number) if number <= 0 => {
            vec![FieldError::invalid(
                "spec.leaseDurationSeconds",
                seconds,
                "must be greater than 0",
            )]
        }
        _ => Vec::new(),
    }
}
