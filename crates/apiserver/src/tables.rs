//! Server-side tables: what `kubectl get` prints.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::present::{IncludeObject, ListMeta, Presenter};
use crate::store::Stored;

/// A `meta.k8s.io/v1` Table of these objects.
pub(crate) fn render(
    presenter: &Presenter,
    objects: &[&Stored],
    include: IncludeObject,
    meta: Option<&ListMeta>,
) -> Result<Value, ApiError> {
    let mut rows = Vec::with_capacity(objects.len());
    for stored in objects {
        let object = Value::Object(stored.value()?);
        let shown = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}),
            IncludeObject::Object => presenter.value(&object),
        };
        let cells = json!([
            object["metadata"]["name"],
            object["metadata"]["creationTimestamp"]
        ]);
        rows.push(json!({"cells": cells, "object": shown}));
    }
    Ok(json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": Presenter::table_meta(objects, meta),
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0},
        ],
        "rows": rows,
    }))
}
