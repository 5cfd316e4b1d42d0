//! Tables with their metadata: the rows of a printer, the objects and the metadata of the list.

use serde_json::{Value, json};

use crate::catalog::DefinitionSource;
use crate::error::ApiError;
use crate::present::{IncludeObject, ListMeta, Presenter};
use crate::store::StoredObject;
use crate::table::TablePrinter;

/// Returns a `meta.k8s.io/v1` Table of these objects.
pub(crate) fn render(
    presenter: &Presenter,
    objects: &[&StoredObject],
    include: IncludeObject,
    meta: Option<&ListMeta>,
) -> Result<Value, ApiError> {
    let printer = match &presenter.definition.source {
        DefinitionSource::BuiltIn(kind) => TablePrinter::built_in(kind),
        DefinitionSource::Custom(version) => {
            TablePrinter::custom(Some(&Value::Array(version.columns.clone())))
        }
    };
    let mut rows = Vec::with_capacity(objects.len());
    for stored in objects {
        let object = Value::Object(stored.value()?);
        let shown = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}),
            IncludeObject::Object => presenter.value(&object),
        };
        let line = printer.row(&object, presenter.now());
        let mut row = json!({"cells": line.cells, "object": shown});
        if !line.conditions.is_empty() {
            row["conditions"] = Value::Array(line.conditions);
        }
        rows.push(row);
    }
    Ok(json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": Presenter::table_meta(objects, meta),
        "columnDefinitions": printer.definitions(),
        "rows": rows,
    }))
}
