//! Pods, workloads and disruption budgets.

use serde_json::{Map, Value, json};

use super::items;
use crate::field_error::FieldError;
use crate::selector::LabelSelector;

const LAST_PORT: i64 = 65_535;
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

pub(super) fn pod(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = containers(new, "/spec", "spec");
    if let Some(old) = old
        && errors.is_empty()
        && fixed_part(new) != fixed_part(old)
    {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

/// Returns a pod's spec without its mutable fields.
fn fixed_part(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    for containers in ["containers", "initContainers"] {
        let list = spec.get_mut(containers).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        // Binding sets the node, and checks it itself.
        for movable in [
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
            "nodeName",
        ] {
            spec.remove(movable);
        }
    }
    spec
}

fn containers(object: &Value, pointer: &str, path: &str) -> Vec<FieldError> {
    let list = object
        .pointer(&format!("{pointer}/containers"))
        .and_then(Value::as_array);
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        return vec![FieldError::required(format!("{path}.containers"), "")];
    };
    let mut errors = Vec::new();
    for (index, container) in list.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(
                    format!("{path}.containers[{index}].{field}"),
                    "",
                ));
            }
        }
    }
    errors
}

/// Deployments, daemon sets, replica sets and stateful sets.
pub(super) fn set(kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let labels = new
        .pointer("/spec/template/metadata/labels")
        .cloned()
        .unwrap_or(Value::Null);
    let selector = new.pointer("/spec/selector");
    if selector.is_none_or(Value::is_null) {
        errors.push(FieldError::required("spec.selector", ""));
    } else if let Ok(selector) = LabelSelector::from_object(selector)
        && !selector.matches(labels.as_object())
    {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", &labels, why));
    }
    let policy = new
        .pointer("/spec/template/spec/restartPolicy")
        .and_then(Value::as_str);
    if let Some(policy) = policy.filter(|policy| *policy != "Always") {
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(
            field,
            &Value::from(policy),
            &["Always"],
        ));
    }
    errors.extend(containers(new, "/spec/template/spec", "spec.template.spec"));
    if let Some(old) = old
        && kind != "StatefulSet"
        && old.pointer("/spec/selector") != new.pointer("/spec/selector")
    {
        let shown = selector.cloned().unwrap_or_default();
        errors.push(FieldError::invalid("spec.selector", &shown, "field is immutable"));
    }
    errors
}

pub(super) fn service(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, port) in items(new, "/spec/ports") {
        for field in ["port", "targetPort"] {
            let number = port[field].as_i64();
            if number.is_some_and(|number| !(1..=LAST_PORT).contains(&number)) {
                errors.push(FieldError::invalid(
                    format!("spec.ports[{index}].{field}"),
                    &port[field],
                    PORT_RANGE,
                ));
            }
        }
    }
    errors
}

pub(super) fn budget(new: &Value) -> Vec<FieldError> {
    let spec = &new["spec"];
    if spec["minAvailable"].is_null() || spec["maxUnavailable"].is_null() {
        return Vec::new();
    }
    // The message contains the fields under their names in Go, in Go's order.
    let mut shown = Map::new();
    for (name, field) in [
        ("MinAvailable", "minAvailable"),
        ("Selector", "selector"),
        ("MaxUnavailable", "maxUnavailable"),
        ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy"),
    ] {
        shown.insert(name.to_owned(), spec[field].clone());
    }
    let text: Vec<String> = [
        "MinAvailable",
        "Selector",
        "MaxUnavailable",
        "UnhealthyPodEvictionPolicy",
    ]
    .iter()
    .map(|name| format!("{}:{}", json!(name), shown[*name]))
    .collect();
    let mut error = FieldError::invalid(
        "spec",
        &Value::Null,
        "minAvailable and maxUnavailable cannot be both set",
    );
    error.body = error.body.replacen("null", &format!("{{{}}}", text.join(",")), 1);
    vec![error]
}
