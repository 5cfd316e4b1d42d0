//! Admission of machine config objects, inside the embedded API server.

use std::sync::Arc;

use mco_apiserver::admission::{Admission, AdmissionOperation, AdmissionRequest, Rejection};
use mco_apiserver::meta::JsonObject;
use mco_core::pipeline::admission::{self as core, CONFIG_GROUP, OPERATOR_GROUP, OWN_GROUP, PLAIN_GROUP};
use mco_operator::admission::InUseIndex;
use serde_json::Value;

/// Validates objects with the same function as the webhook of a real cluster.
#[derive(Debug)]
pub struct MachineConfigAdmission {
    in_use: Arc<InUseIndex>,
}

impl MachineConfigAdmission {
    pub fn new(in_use: Arc<InUseIndex>) -> Self {
        Self { in_use }
    }
}

impl Admission for MachineConfigAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<JsonObject>, Rejection> {
        let definition = request.definition;
        let ours = matches!(
            definition.group.as_str(),
            OWN_GROUP | OPERATOR_GROUP | CONFIG_GROUP | PLAIN_GROUP
        );
        if !ours || !request.subresource.is_empty() {
            return Ok(None);
        }
        let value = |object: &JsonObject| Value::Object(object.clone());
        let (object, old) = (request.object.map(value), request.old.map(value));
        let reviewed = self.in_use.review(&core::AdmissionWrite {
            operation: match request.operation {
                AdmissionOperation::Create => core::WriteOperation::Create,
                AdmissionOperation::Update => core::WriteOperation::Update,
                AdmissionOperation::Delete => core::WriteOperation::Delete,
            },
            group: &definition.group,
            kind: &definition.kind,
            name: request.name,
            object: object.as_ref(),
            old: old.as_ref(),
        });
        match reviewed {
            // Admission plugins cannot return warnings.
            Ok(_) => Ok(None),
            Err(message) => Err(Rejection::new(message)),
        }
    }
}
