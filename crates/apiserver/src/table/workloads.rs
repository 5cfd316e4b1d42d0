//! Tables of workloads: deployments, daemon sets, replica sets, stateful sets, jobs and controller revisions.

use jiff::Timestamp;
use serde_json::Value;

use super::TableRow;
use super::age::{elapsed, human_duration, parse};
use super::built_in::{NONE, age, labels, name, selector};
use super::pod::{items, number, text};
use crate::selector::LabelSelector;

pub(super) fn deployment(object: &Value, now: Timestamp) -> TableRow {
    let selector = match LabelSelector::from_object(object.pointer("/spec/selector")) {
        Ok(selector) => selector.to_string(),
        Err(_) => "<invalid>".to_owned(),
    };
    let mut cells = vec![
        name(object),
        Value::from(ready_of_desired(object)),
        Value::from(number(object, "/status/updatedReplicas")),
        Value::from(number(object, "/status/availableReplicas")),
        age(object, now),
    ];
    cells.extend(containers(object));
    cells.push(Value::from(selector));
    TableRow::of(cells)
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> TableRow {
    let mut cells = vec![name(object)];
    cells.extend(
        [
            "/status/desiredNumberScheduled",
            "/status/currentNumberScheduled",
            "/status/numberReady",
            "/status/updatedNumberScheduled",
            "/status/numberAvailable",
        ]
        .map(|pointer| Value::from(number(object, pointer))),
    );
    cells.push(Value::from(labels(
        object.pointer("/spec/template/spec/nodeSelector"),
    )));
    cells.push(age(object, now));
    cells.extend(containers(object));
    cells.push(Value::from(selector(object)));
    TableRow::of(cells)
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> TableRow {
    let mut cells = vec![
        name(object),
        Value::from(number(object, "/spec/replicas")),
        Value::from(number(object, "/status/replicas")),
        Value::from(number(object, "/status/readyReplicas")),
        age(object, now),
    ];
    cells.extend(containers(object));
    cells.push(Value::from(selector(object)));
    TableRow::of(cells)
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> TableRow {
    let mut cells = vec![
        name(object),
        Value::from(ready_of_desired(object)),
        age(object, now),
    ];
    cells.extend(containers(object));
    TableRow::of(cells)
}

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> TableRow {
    let owners = items(object, "/metadata/ownerReferences");
    let controller = owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    let shown = controller.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let (group, _) = crate::kinds::split_api_version(text(owner, "/apiVersion"));
            let kind = text(owner, "/kind").to_lowercase();
            let kind = if group.is_empty() {
                kind
            } else {
                format!("{kind}.{group}")
            };
            format!("{kind}/{}", text(owner, "/name"))
        },
    );
    let revision = Value::from(number(object, "/revision"));
    TableRow::of(vec![name(object), Value::from(shown), revision, age(object, now)])
}

pub(super) fn job(object: &Value, now: Timestamp) -> TableRow {
    let succeeded = number(object, "/status/succeeded");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if number(object, "/spec/parallelism") > 1 => {
            format!("{succeeded}/1 of {}", number(object, "/spec/parallelism"))
        }
        None => format!("{succeeded}/1"),
    };
    let duration = parse(text(object, "/status/startTime")).map_or_else(String::new, |start| {
        let end = parse(text(object, "/status/completionTime")).unwrap_or(now);
        human_duration(elapsed(start, end))
    });
    let holds = |kind: &str| {
        items(object, "/status/conditions")
            .iter()
            .any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
    };
    let deleting = object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|moment| !moment.is_null());
    let status = if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if deleting {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| holds(kind))
            .unwrap_or("Running")
    };
    let mut cells = vec![
        name(object),
        Value::from(status),
        Value::from(completions),
        Value::from(duration),
        age(object, now),
    ];
    cells.extend(containers(object));
    cells.push(Value::from(selector(object)));
    TableRow::of(cells)
}

fn ready_of_desired(object: &Value) -> String {
    format!(
        "{}/{}",
        number(object, "/status/readyReplicas"),
        number(object, "/spec/replicas")
    )
}

/// Returns the names and images of the containers in a template.
fn containers(object: &Value) -> [Value; 2] {
    let containers = items(object, "/spec/template/spec/containers");
    ["/name", "/image"].map(|field| {
        let texts: Vec<&str> = containers
            .iter()
            .map(|container| text(container, field))
            .collect();
        Value::from(texts.join(","))
    })
}
