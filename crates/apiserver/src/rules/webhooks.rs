//! Webhook configurations.

use serde_json::Value;

use super::admission_match::{conditions, one_of, resource_rule, selector, text, texts};
use super::items;
use crate::admission::condition_declarations;
use crate::field_error::FieldError;
use crate::names;

const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const URL_FORMAT: &str = "desired format: https://host[/path]";
const LONGEST_TIMEOUT: i64 = 30;

pub(super) fn configuration(kind: &str, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, webhook) in items(new, "/webhooks") {
        let path = format!("webhooks[{index}]");
        check(webhook, &path, &mut errors);
        if kind == "MutatingWebhookConfiguration" {
            one_of(
                webhook,
                &path,
                "reinvocationPolicy",
                &["IfNeeded", "Never"],
                &mut errors,
            );
        }
        if !seen.insert(text(webhook, "name")) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &webhook["name"]));
        }
    }
    errors
}

fn check(webhook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    name(webhook, path, errors);
    review_versions(webhook, path, errors);
    for (index, rule) in items(webhook, "/rules") {
        resource_rule(rule, &format!("{path}.rules[{index}]"), errors);
    }
    one_of(webhook, path, "failurePolicy", &["Fail", "Ignore"], errors);
    one_of(webhook, path, "matchPolicy", &["Equivalent", "Exact"], errors);
    let side_effects = text(webhook, "sideEffects");
    if side_effects.is_empty() {
        let detail = "must specify one of None, NoneOnDryRun";
        errors.push(FieldError::required(format!("{path}.sideEffects"), detail));
    } else {
        one_of(webhook, path, "sideEffects", &["None", "NoneOnDryRun"], errors);
    }
    if let Some(seconds) = webhook["timeoutSeconds"].as_i64()
        && !(1..=LONGEST_TIMEOUT).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(
            format!("{path}.timeoutSeconds"),
            &webhook["timeoutSeconds"],
            detail,
        ));
    }
    selector(
        &webhook["namespaceSelector"],
        &format!("{path}.namespaceSelector"),
        errors,
    );
    selector(
        &webhook["objectSelector"],
        &format!("{path}.objectSelector"),
        errors,
    );
    client(&webhook["clientConfig"], &format!("{path}.clientConfig"), errors);
    conditions(webhook, path, &condition_declarations(), errors);
}

fn name(webhook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (field, name) = (format!("{path}.name"), text(webhook, "name"));
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(field, &webhook["name"], &problems.join(",")));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(field, &webhook["name"], detail));
    }
}

fn review_versions(webhook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.admissionReviewVersions");
    let list = &webhook["admissionReviewVersions"];
    let versions = texts(list);
    if versions.is_empty() {
        errors.push(FieldError::required(field, "must specify one of v1, v1beta1"));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let at = format!("{field}[{index}]");
        for problem in names::dns1035_label(version) {
            errors.push(FieldError::invalid(at.as_str(), &Value::from(*version), &problem));
        }
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(
                at,
                &Value::from(*version),
                "duplicate version",
            ));
        }
    }
    if !versions.iter().any(|version| VERSIONS.contains(version)) {
        errors.push(FieldError::invalid(
            field,
            list,
            "must include at least one of v1, v1beta1",
        ));
    }
}

fn client(client: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match (client["url"].as_str(), client["service"].is_object()) {
        (Some(address), false) => url(address, &format!("{path}.url"), errors),
        (None, true) => service(&client["service"], &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(
            path,
            "exactly one of url or service is required",
        )),
    }
}

fn url(address: &str, path: &str, errors: &mut Vec<FieldError>) {
    let mut invalid = |value: &str, detail: &str| {
        errors.push(FieldError::invalid(path, &Value::from(value), detail));
    };
    let Some((scheme, rest)) = address.split_once("://") else {
        invalid(
            "",
            &format!("'https' is the only allowed URL scheme; {URL_FORMAT}"),
        );
        return;
    };
    if scheme != "https" {
        invalid(
            scheme,
            &format!("'https' is the only allowed URL scheme; {URL_FORMAT}"),
        );
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        invalid("", &format!("host must be specified; {URL_FORMAT}"));
    } else if http::Uri::try_from(format!("https://{host}")).is_err() {
        invalid(address, &format!("url must be a valid URL; {URL_FORMAT}"));
    }
    if !user.is_empty() {
        invalid(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        invalid(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        invalid(query, "query parameters are not permitted in the URL");
    }
}

fn service(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for field in ["name", "namespace"] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    }
    if let Some(port) = service["port"].as_i64()
        && !(1..=65535).contains(&port)
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(
            format!("{path}.port"),
            &service["port"],
            detail,
        ));
    }
    let Some(called) = service["path"].as_str().filter(|called| *called != "/") else {
        return;
    };
    let mut invalid = |detail: &str| {
        errors.push(FieldError::invalid(
            format!("{path}.path"),
            &service["path"],
            detail,
        ));
    };
    if !called.starts_with('/') {
        invalid("must start with a '/'");
    }
    // The first segment of a relative path is reported as well, as Kubernetes does.
    let inner = called.get(1..).unwrap_or_default();
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for (index, segment) in inner.split('/').enumerate() {
        if segment.is_empty() {
            invalid(&format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::dns1123_subdomain(segment) {
            invalid(&format!("segment[{index}]: {problem}"));
        }
    }
}
