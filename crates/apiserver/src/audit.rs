//! The audit log: one line per write and per denied request, with user, verb, object and result. It never contains the
//! object itself.

use http::StatusCode;

use crate::auth::{Identity, RequestAttributes};
use crate::registry::ObjectTarget;

pub(crate) fn write(identity: &Identity, verb: &str, target: &ObjectTarget, code: StatusCode) {
    tracing::info!(
        target: "audit",
        user = identity.user,
        impersonated_by = identity.impersonated_by,
        verb,
        group = target.definition.group,
        resource = target.definition.plural,
        subresource = target.subresource,
        namespace = target.namespace,
        name = target.name,
        code = code.as_u16(),
    );
}

/// Records a request that authorization denied, reads included.
pub(crate) fn denied(identity: &Identity, wanted: &RequestAttributes) {
    tracing::info!(
        target: "audit",
        user = identity.user,
        impersonated_by = identity.impersonated_by,
        verb = wanted.verb,
        group = wanted.group,
        resource = wanted.resource,
        subresource = wanted.subresource,
        namespace = wanted.namespace,
        name = wanted.name,
        path = wanted.path,
        code = StatusCode::FORBIDDEN.as_u16(),
    );
}
