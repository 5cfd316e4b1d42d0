//! The decision which requests run on the threads for CPU-heavy work.

use super::resources::ResourceRequest;
use crate::catalog::DefinitionSource;
use crate::crd;

/// The size up to which a body or a stored object is handled inline. A change between threads costs tens of
/// microseconds, about as much as decoding and validating an object of this size.
const INLINE_BYTES: usize = 16 << 10;
/// The number of objects up to which a list is built inline.
const INLINE_OBJECTS: usize = 100;

/// Returns whether a request can need more than a fraction of a millisecond of CPU time.
///
/// A watch never counts: it encodes one object at a time, and its timers belong to the runtime of its connection.
pub(super) fn is_heavy(request: &ResourceRequest<'_>) -> bool {
    let store = &request.api.registry.store;
    let definition = &request.target.definition;
    match request.verb {
        "watch" => false,
        "list" => store.count(&definition.storage) > INLINE_OBJECTS,
        // One write per object, which mostly waits for the disk, and may take longer than the limit of these threads.
        "deletecollection" => request.call.body.len() > INLINE_BYTES,
        "get" => is_large(request),
        // A small object can have expensive rules, and a small definition an expensive schema.
        _ => {
            has_rules(request)
                || &*definition.storage == crd::RESOURCE
                || request.call.body.len() > INLINE_BYTES
                || is_large(request)
        }
    }
}

fn is_large(request: &ResourceRequest<'_>) -> bool {
    let stored = request.api.registry.store.latest(&request.target.key());
    stored.is_some_and(|stored| stored.json().len() > INLINE_BYTES)
}

fn has_rules(request: &ResourceRequest<'_>) -> bool {
    match &request.target.definition.source {
        DefinitionSource::Custom(version) => version.schema.has_rules(),
        DefinitionSource::BuiltIn(_) => false,
    }
}
