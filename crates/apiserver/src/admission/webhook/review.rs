//! `AdmissionReview`: the request to a webhook, and its response.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{Webhook, WebhookKind};
use crate::admission::AdmissionAttributes;
use crate::catalog::ResourceDefinition;
use crate::decode::FieldValidation;
use crate::patch::json::JsonPatch;
use crate::registry::unregistered;

/// What a webhook responded.
#[derive(Debug)]
pub(crate) struct WebhookVerdict {
    pub allowed: bool,
    /// The `Status` of a rejection.
    pub status: Value,
    pub patch: Option<JsonPatch>,
    pub warnings: Vec<String>,
}

/// Returns the review that is sent to a webhook.
pub(crate) fn review(
    webhook: &Webhook,
    attributes: &AdmissionAttributes,
    definition: &ResourceDefinition,
    uid: &str,
) -> Value {
    let mut request = attributes.request(definition);
    let (object, old) = attributes.objects_as(definition);
    request["uid"] = Value::from(uid);
    request["object"] = object;
    request["oldObject"] = old;
    json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("admission.k8s.io/{}", webhook.review_version),
        "request": request,
    })
}

/// Reads the response of a webhook; the error is the reason of Kubernetes' message.
pub(crate) fn read_response(webhook: &Webhook, uid: &str, answer: &Value) -> Result<WebhookVerdict, String> {
    check_type(webhook, answer)?;
    let invalid = |why: &str| format!("received invalid webhook response: {why}");
    let response = &answer["response"];
    if !response.is_object() {
        return Err(invalid("webhook response was absent"));
    }
    let got = response["uid"].as_str().unwrap_or_default();
    // v1beta1 did not require the UID.
    if got != uid && webhook.review_version == "v1" {
        return Err(invalid(&format!("expected response.uid={uid:?}, got {got:?}")));
    }
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(WebhookVerdict {
        allowed: response["allowed"] == true,
        status: response["status"].clone(),
        patch: patch(webhook, response).map_err(|why| invalid(&why))?,
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

fn check_type(webhook: &Webhook, answer: &Value) -> Result<(), String> {
    if !answer.is_object() {
        return Err("failed to call webhook: the response is not an AdmissionReview".to_owned());
    }
    let text = |field: &str| answer[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = format!("admission.k8s.io/{}", webhook.review_version);
    // A review without a type is read as one of the expected version.
    if api_version.is_empty() && kind.is_empty() || api_version == expected && kind == "AdmissionReview" {
        return Ok(());
    }
    if kind == "AdmissionReview" && api_version.starts_with("admission.k8s.io/") {
        let version = api_version.trim_start_matches("admission.k8s.io/");
        let wanted = webhook.review_version;
        return Err(format!(
            "failed to call webhook: converting ({version}.AdmissionReview) to ({wanted}.AdmissionReview): \
             unknown conversion"
        ));
    }
    Err(format!(
        "failed to call webhook: {}",
        unregistered(api_version, kind)
    ))
}

fn patch(webhook: &Webhook, response: &Value) -> Result<Option<JsonPatch>, String> {
    let encoded = response["patch"].as_str().filter(|patch| !patch.is_empty());
    let kind = response["patchType"].as_str().filter(|kind| !kind.is_empty());
    if webhook.kind == WebhookKind::Validating && encoded.is_some() {
        return Err("validating webhook may not return response.patch".to_owned());
    }
    if webhook.kind == WebhookKind::Validating && kind.is_some() {
        return Err("validating webhook may not return response.patchType".to_owned());
    }
    let encoded = match (encoded, kind) {
        (None, None) => return Ok(None),
        (Some(_), None) if webhook.review_version == "v1" => {
            return Err("webhook returned response.patch but not response.patchType".to_owned());
        }
        (None, Some(_)) => {
            return Err("webhook returned response.patchType but not response.patch".to_owned());
        }
        (Some(encoded), _) => encoded,
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|error| format!("response.patch is not base64: {error}"))?;
    let patch = JsonPatch::decode(&bytes, FieldValidation::Ignore).map_err(|error| error.to_string())?;
    if kind.is_some_and(|kind| kind != "JSONPatch") && !patch.is_empty() {
        return Err(format!(
            "unsupported response.patchType {:?}, only JSONPatch is supported",
            kind.unwrap_or_default()
        ));
    }
    Ok((!patch.is_empty()).then_some(patch))
}
