//! Conversion between `events.k8s.io/v1` and core `v1` events.
//!
//! Events are stored as core events. Both conversions only rename fields, so that a round trip loses nothing.

use serde_json::Value;

const CORE_API_VERSION: &str = "v1";
const EVENTS_API_VERSION: &str = "events.k8s.io/v1";

/// Field names that differ: `(core, events.k8s.io)`.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The reporter in `events.k8s.io/v1`; core events always have both fields.
const REPORTER: [&str; 2] = ["reportingController", "reportingInstance"];

/// Rewrites an `events.k8s.io/v1` event into the core form that is stored.
pub fn to_core(event: &mut Value) {
    rename(event, CORE_API_VERSION, |(core, modern)| (*modern, *core));
}

/// Rewrites a stored core event into its `events.k8s.io/v1` form, which omits an empty reporter.
pub fn from_core(event: &mut Value) {
    rename(event, EVENTS_API_VERSION, |(core, modern)| (*core, *modern));
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|name, value| !(REPORTER.contains(&name.as_str()) && value.as_str() == Some("")));
    }
}

fn rename(
    event: &mut Value,
    api_version: &str,
    direction: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(fields) = event.as_object_mut() else {
        return;
    };
    for pair in RENAMED {
        let (from, to) = direction(pair);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_modern_event_is_stored_under_the_core_names_and_comes_back_unchanged() {
        let modern = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "a.1", "namespace": "default"},
            "regarding": {"kind": "Node", "name": "n"},
            "note": "text",
            "reason": "Rebooted",
            "type": "Normal",
            "action": "Reboot",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "mco",
            "reportingInstance": "mco-0",
            "deprecatedCount": 2,
            "deprecatedSource": {"component": "x"},
        });
        let mut event = modern.clone();
        to_core(&mut event);
        assert_eq!(
            event,
            json!({
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "a.1", "namespace": "default"},
                "involvedObject": {"kind": "Node", "name": "n"},
                "message": "text",
                "reason": "Rebooted",
                "type": "Normal",
                "action": "Reboot",
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingComponent": "mco",
                "reportingInstance": "mco-0",
                "count": 2,
                "source": {"component": "x"},
            })
        );
        from_core(&mut event);
        assert_eq!(event, modern);
    }
}
