//! Admission webhooks: where to call them, the call over HTTPS, and the review that is exchanged.

mod client;
mod endpoint;
mod review;
mod trust;

use std::time::Duration;

use serde_json::Value;

pub(super) use client::WebhookClient;
pub(super) use review::{WebhookVerdict, read_response, review};

use super::expression::CompiledExpression;
use super::matching::AdmissionMatch;
use super::{condition_declarations, policy};
use endpoint::WebhookEndpoint;
use trust::TrustedRoots;

/// The timeout of a webhook that sets none.
const DEFAULT_TIMEOUT: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WebhookKind {
    Mutating,
    Validating,
}

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    pub name: String,
    pub kind: WebhookKind,
    pub matching: AdmissionMatch,
    pub conditions: Vec<CompiledExpression>,
    /// A failed call is ignored (`failurePolicy: Ignore`).
    pub fails_open: bool,
    /// The webhook is called again after a later one has changed the object.
    pub reinvoked: bool,
    pub supports_dry_run: bool,
    /// `v1` or `v1beta1`.
    review_version: &'static str,
    timeout: Duration,
    endpoint: Result<WebhookEndpoint, String>,
    roots: TrustedRoots,
}

impl Webhook {
    pub fn read(webhook: &Value, kind: WebhookKind) -> Self {
        let versions = webhook["admissionReviewVersions"]
            .as_array()
            .into_iter()
            .flatten();
        let review_version = versions
            .filter_map(Value::as_str)
            .find_map(|version| match version {
                "v1" => Some("v1"),
                "v1beta1" => Some("v1beta1"),
                _ => None,
            });
        let client = &webhook["clientConfig"];
        Self {
            name: webhook["name"].as_str().unwrap_or_default().to_owned(),
            kind,
            matching: AdmissionMatch::of_webhook(webhook),
            conditions: policy::compile_conditions(&condition_declarations(), &webhook["matchConditions"]),
            fails_open: webhook["failurePolicy"] == "Ignore",
            reinvoked: webhook["reinvocationPolicy"] == "IfNeeded",
            supports_dry_run: webhook["sideEffects"] == "None" || webhook["sideEffects"] == "NoneOnDryRun",
            review_version: review_version.unwrap_or("v1"),
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT)),
            endpoint: WebhookEndpoint::read(client),
            roots: TrustedRoots::read(client["caBundle"].as_str().unwrap_or_default()),
        }
    }
}
