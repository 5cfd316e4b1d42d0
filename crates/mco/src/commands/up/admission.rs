//! Refuses bad objects when they are written to the embedded API.

use std::sync::Arc;

use mco_apiserver::admission::{Admission, AdmissionRequest, Operation, Rejection};
use mco_apiserver::meta::Object;
use mco_core::admission;
use mco_operator::admission::InUse;
use serde_json::Value;

/// The rules of `mco validate`, asked at every write.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub in_use: Arc<InUse>,
}

impl Admission for Rules {
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<Object>, Rejection> {
        let group = request.definition.group.as_str();
        let ours = [admission::OWN_GROUP, admission::OPERATOR_GROUP].contains(&group);
        if !ours || !request.subresource.is_empty() {
            return Ok(None);
        }
        let value = |object: Option<&Object>| object.map(|object| Value::Object(object.clone()));
        let (object, old) = (value(request.object), value(request.old));
        let asked = admission::Request {
            operation: match request.operation {
                Operation::Create => admission::Operation::Create,
                Operation::Update => admission::Operation::Update,
                Operation::Delete => admission::Operation::Delete,
            },
            group,
            kind: &request.definition.kind,
            name: request.name,
            object: object.as_ref(),
            old: old.as_ref(),
        };
        self.in_use.review(&asked).map(|_| None).map_err(Rejection::new)
    }
}
