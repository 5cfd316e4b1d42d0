//! CustomResourceDefinitions: their status, and the resources they add to the catalog.
//!
//! Names are accepted or rejected in the write itself, so that a definition is established and its resource served
//! before the client gets the response.

mod status;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use status::{default_names, establish, prepare, set_condition, terminate};

use crate::catalog::{Catalog, CustomDefinition};
use crate::registry::ObjectRegistry;

/// The resource under which definitions are stored.
pub(crate) const RESOURCE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The finalizer that keeps a definition until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Rebuilds the catalog from the stored definitions.
pub(crate) fn reload(registry: &ObjectRegistry) {
    registry.replace_catalog(|store, compiled| {
        let mut definitions = Vec::new();
        for stored in store.list(RESOURCE, "").objects {
            let Ok(crd) = stored.value() else {
                continue;
            };
            let crd = Value::Object(crd);
            if status::is_established(&crd)
                && let Some(definition) = CustomDefinition::read(&crd, compiled)
            {
                definitions.push(definition);
            }
        }
        Arc::new(Catalog::with(&definitions))
    });
}
