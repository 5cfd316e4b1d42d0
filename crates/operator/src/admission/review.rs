//! Request and response of the webhook: `AdmissionReview` of `admission.k8s.io/v1`.

use mco_core::config::problem::Problem;
use mco_core::pipeline::admission::{AdmissionWrite, WriteOperation};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
struct Review {
    request: ReviewRequest,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest {
    uid: String,
    kind: ReviewKind,
    #[serde(default)]
    name: String,
    #[serde(default)]
    sub_resource: String,
    operation: String,
    #[serde(default)]
    object: Option<Value>,
    #[serde(default)]
    old_object: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ReviewKind {
    group: String,
    kind: String,
}

/// Returns the response to an AdmissionReview, or `None` if the body is not one. `review` decides about the write.
pub fn review_response(
    body: &[u8],
    review: impl FnOnce(&AdmissionWrite<'_>) -> Result<Vec<Problem>, String>,
) -> Option<Value> {
    let Review { request } = serde_json::from_slice(body).ok()?;
    let response = match decide(&request, review) {
        Ok(warnings) => json!({"uid": request.uid, "allowed": true, "warnings": warnings}),
        Err(message) => json!({
            "uid": request.uid,
            "allowed": false,
            "status": {"code": 403, "reason": "Forbidden", "message": message},
        }),
    };
    Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

fn decide(
    question: &ReviewRequest,
    review: impl FnOnce(&AdmissionWrite<'_>) -> Result<Vec<Problem>, String>,
) -> Result<Vec<String>, String> {
    let operation = match question.operation.as_str() {
        "CREATE" => WriteOperation::Create,
        "UPDATE" => WriteOperation::Update,
        "DELETE" => WriteOperation::Delete,
        _ => return Ok(Vec::new()),
    };
    if !question.sub_resource.is_empty() {
        return Ok(Vec::new());
    }
    let request = AdmissionWrite {
        operation,
        group: &question.kind.group,
        kind: &question.kind.kind,
        name: &question.name,
        object: question.object.as_ref().filter(|object| !object.is_null()),
        old: question.old_object.as_ref().filter(|object| !object.is_null()),
    };
    let warnings = review(&request)?;
    Ok(warnings.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use mco_core::pipeline::admission::{AdmissionContext, ConfigInUse, Users, review_on};

    use super::*;

    fn review(operation: &str, name: &str, mode: i64) -> Value {
        let object = json!({
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/x", "mode": mode, "contents": {"source": "data:,"}}]}}},
        });
        let (new, old) = if operation == "DELETE" {
            (Value::Null, object)
        } else {
            (object, Value::Null)
        };
        let body = json!({"kind": "AdmissionReview", "request": {
            "uid": "u", "operation": operation, "name": name,
            "kind": {"group": "machineconfiguration.openshift.io", "version": "v1", "kind": "MachineConfig"},
            "object": new, "oldObject": old,
        }});
        let users = |_: &str| {
            let nodes = ["worker-1".to_owned()];
            ConfigInUse::By(Users {
                nodes: nodes.into(),
                ..Users::default()
            })
        };
        let body = body.to_string();
        let answer = review_response(body.as_bytes(), |request| {
            review_on(AdmissionContext::default, request, users, Vec::new)
        });
        answer.unwrap()["response"].clone()
    }

    #[test]
    fn the_answer_carries_the_question_and_the_reason() {
        assert_eq!(
            review("CREATE", "50-x", 0o644),
            json!({"uid": "u", "allowed": true, "warnings": []})
        );
        let refused = review("CREATE", "50-x", 0o4755);
        assert_eq!(refused["allowed"], false);
        let message = refused["status"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("MachineConfig \"50-x\": spec.config.storage.files[0].mode"),
            "{message}"
        );
        let refused = review("DELETE", "rendered-worker-1", 0o644);
        assert!(
            refused["status"]["message"]
                .as_str()
                .unwrap()
                .contains("node worker-1")
        );
        assert_eq!(review("CONNECT", "50-x", 0o4755)["allowed"], true);
        let unread = review_response(b"{}", |_| Ok(Vec::new()));
        assert_eq!(unread, None);
    }
}
