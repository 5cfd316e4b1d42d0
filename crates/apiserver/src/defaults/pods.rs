//! Defaults of pods and of pod templates.

use serde_json::{Value, json};

use super::{each, set, within};

/// `0644`, the mode of files from secrets and config maps.
const FILE_MODE: i64 = 420;

pub(super) fn pod(object: &mut Value) {
    set(object, "spec", json!({}));
    within(object, "status", |status| {
        let address = status
            .get("podIP")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if !address.is_empty() {
            set(status, "podIPs", json!([{"ip": address}]));
        }
    });
    within(object, "spec", |pod| {
        spec(pod);
        set(pod, "enableServiceLinks", json!(true));
        if pod["hostNetwork"] == true {
            for containers in ["containers", "initContainers"] {
                each(pod, containers, host_ports);
            }
        }
    });
}

pub(super) fn spec(spec: &mut Value) {
    set(spec, "dnsPolicy", json!("ClusterFirst"));
    set(spec, "restartPolicy", json!("Always"));
    set(spec, "schedulerName", json!("default-scheduler"));
    set(spec, "securityContext", json!({}));
    set(spec, "terminationGracePeriodSeconds", json!(30));
    for containers in ["containers", "initContainers"] {
        each(spec, containers, container);
    }
    each(spec, "volumes", volume);
}

fn container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default().to_owned();
    set(container, "imagePullPolicy", json!(pull_policy(&image)));
    set(container, "terminationMessagePath", json!("/dev/termination-log"));
    set(container, "terminationMessagePolicy", json!("File"));
    set(container, "resources", json!({}));
    each(container, "ports", |port| set(port, "protocol", json!("TCP")));
    each(container, "env", |variable| {
        within(variable, "valueFrom", |source| {
            within(source, "fieldRef", |field| set(field, "apiVersion", json!("v1")));
        });
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        within(container, name, probe);
    }
    within(container, "resources", requests_from_limits);
}

/// Sets requests to limits where only limits are set.
fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    set(resources, "requests", json!({}));
    within(resources, "requests", |requests| {
        for (name, amount) in limits {
            set(requests, &name, amount);
        }
    });
}

fn probe(probe: &mut Value) {
    set(probe, "timeoutSeconds", json!(1));
    set(probe, "periodSeconds", json!(10));
    set(probe, "successThreshold", json!(1));
    set(probe, "failureThreshold", json!(3));
    within(probe, "httpGet", |get| {
        set(get, "scheme", json!("HTTP"));
        set(get, "path", json!("/"));
    });
}

fn host_ports(container: &mut Value) {
    each(container, "ports", |port| {
        let number = port["containerPort"].clone();
        set(port, "hostPort", number);
    });
}

fn volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|fields| fields.keys().any(|field| field != "name"));
    if !has_source {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        within(volume, source, |source| {
            set(source, "defaultMode", json!(FILE_MODE));
        });
    }
    within(volume, "hostPath", |path| set(path, "type", json!("")));
}

/// Images with a mutable tag are always pulled.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let fixed = name.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if fixed { "IfNotPresent" } else { "Always" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_with_a_fixed_tag_are_not_pulled_again() {
        let cases = [
            ("img", "Always"),
            ("img:latest", "Always"),
            ("img:1", "IfNotPresent"),
            ("host:5000/img", "Always"),
            ("host:5000/img@sha256:abc", "IfNotPresent"),
        ];
        for (image, expected) in cases {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }
}
