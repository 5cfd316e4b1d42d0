//! Events, in the core form in which they are stored. The group that a client writes through determines the rules.

use serde_json::Value;

use crate::field_error::FieldError;
use crate::names;

const TYPES: [&str; 2] = ["Normal", "Warning"];

/// The fields that are immutable once an event was reported through `events.k8s.io/v1`.
const IMMUTABLE: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// The rules of the core group.
pub(super) fn core(new: &Value) -> Vec<FieldError> {
    common(new, "reportingComponent")
}

/// The rules of `events.k8s.io/v1`.
pub(super) fn modern(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = common(new, "reportingController");
    match old {
        None => {
            errors.extend(series(new));
            errors.extend(first_report(new));
        }
        Some(old) => {
            if new["series"] != old["series"] {
                errors.extend(series(new));
            }
            let changed = IMMUTABLE.iter().filter(|field| new[**field] != old[**field]);
            errors.extend(changed.map(|field| {
                let shown = if *field == "reportingComponent" {
                    "reportingController"
                } else {
                    field
                };
                FieldError::invalid(shown, &new[*field], "field is immutable")
            }));
        }
    }
    errors
}

/// The rules of both groups. Only events with an `eventTime` must have a reporter and an action.
fn common(event: &Value, reporter: &str) -> Vec<FieldError> {
    let own = text(&event["metadata"]["namespace"]);
    let about = text(&event["involvedObject"]["namespace"]);
    let is_modern = !event["eventTime"].is_null();
    let belongs = match (about, is_modern) {
        ("", false) => matches!(own, "" | "default"),
        ("", true) => matches!(own, "default" | "kube-system"),
        (about, false) => about == own,
        (_, true) => true,
    };
    let mut errors = Vec::new();
    if !belongs {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &Value::from(about),
            "does not match event.namespace",
        ));
    }
    if !is_modern {
        return errors;
    }
    let controller = text(&event["reportingComponent"]);
    if controller.is_empty() {
        errors.push(FieldError::required(reporter, ""));
    }
    let problems = names::label_key(controller);
    errors.extend(
        problems
            .iter()
            .map(|problem| FieldError::invalid(reporter, &Value::from(controller), problem)),
    );
    for (field, longest, required) in [
        ("reportingInstance", 128, true),
        ("action", 128, true),
        ("reason", 128, true),
        ("message", 1024, false),
    ] {
        let length = text(&event[field]).len();
        if required && length == 0 {
            errors.push(FieldError::required(field, ""));
        }
        if length > longest {
            let why = format!("can have at most {longest} characters");
            errors.push(FieldError::invalid(field, &Value::from(""), &why));
        }
    }
    errors
}

fn first_report(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if event["eventTime"].is_null() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(&event["type"]);
    if !TYPES.contains(&kind) {
        let why = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid("type", &Value::from(""), &why));
    }
    let source = &event["source"];
    let deprecated = [
        ("firstTimestamp", !event["firstTimestamp"].is_null()),
        ("lastTimestamp", !event["lastTimestamp"].is_null()),
        ("count", event["count"].as_i64().unwrap_or_default() != 0),
        (
            "source",
            !text(&source["component"]).is_empty() || !text(&source["host"]).is_empty(),
        ),
    ];
    let set = deprecated.iter().filter(|(_, is_set)| *is_set);
    errors.extend(set.map(|(field, _)| FieldError::invalid(*field, &Value::from(""), "needs to be unset")));
    errors
}

fn series(event: &Value) -> Vec<FieldError> {
    let series = &event["series"];
    let mut errors = Vec::new();
    if series.is_null() {
        return errors;
    }
    if series["count"].as_i64().unwrap_or_default() < 2 {
        errors.push(FieldError::invalid(
            "series.count",
            &Value::from(""),
            "should be at least 2",
        ));
    }
    if series["lastObservedTime"].is_null() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
    errors
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Value {
        json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"}, "type": "Normal",
            "eventTime": "2001-02-03T04:05:06.000007Z", "action": "Reboot", "reason": "Rebooting",
            "reportingComponent": "example.com/daemon", "reportingInstance": "daemon-1"})
    }

    fn with(field: &str, value: Value) -> Value {
        let mut event = event();
        event[field] = value;
        event
    }

    #[test]
    fn a_first_report_through_the_modern_group_is_complete_and_uses_no_deprecated_field() {
        let cases = [
            (event(), ""),
            (with("action", json!("")), "action: Required value"),
            (
                with("type", json!("Loud")),
                "type: Invalid value: \"\": has invalid value: Loud",
            ),
            (
                with("message", json!("x".repeat(1025))),
                "message: Invalid value: \"\": can have at most 1024 characters",
            ),
            (
                with("count", json!(1)),
                "count: Invalid value: \"\": needs to be unset",
            ),
            (
                with(
                    "series",
                    json!({"count": 1, "lastObservedTime": "2001-02-03T04:05:06.000007Z"}),
                ),
                "series.count: Invalid value: \"\": should be at least 2",
            ),
            (
                with("involvedObject", json!({})),
                "involvedObject.namespace: Invalid value: \"\": does not match event.namespace",
            ),
        ];
        for (event, expected) in cases {
            let errors: Vec<String> = modern(&event, None).iter().map(ToString::to_string).collect();
            assert_eq!(errors.join("; "), expected);
        }
    }

    #[test]
    fn a_reported_event_changes_only_its_series_through_the_modern_group() {
        let series = json!({"count": 2, "lastObservedTime": "2001-02-03T04:05:06.000007Z"});
        assert!(modern(&with("series", series), Some(&event())).is_empty());
        let errors = modern(&with("reportingComponent", json!("other")), Some(&event()));
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["reportingController"]);
        assert!(core(&with("reason", json!("Other"))).is_empty());
    }
}
