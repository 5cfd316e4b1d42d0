//! The audit log: one line per write with user, verb, object and result. It never contains the object itself.

use http::StatusCode;

use crate::registry::ObjectTarget;

pub(crate) fn write(user: &str, verb: &str, target: &ObjectTarget, code: StatusCode) {
    tracing::info!(
        target: "audit",
        user,
        verb,
        group = target.definition.group,
        resource = target.definition.plural,
        subresource = target.subresource,
        namespace = target.namespace,
        name = target.name,
        code = code.as_u16(),
    );
}
