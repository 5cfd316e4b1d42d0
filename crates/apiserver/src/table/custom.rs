//! Tables of custom resources, by the columns of their CRD.

use jiff::Timestamp;
use serde_json::Value;

use super::age::{elapsed, human_duration, parse};
use super::json_path::JsonPath;
use super::{TableColumn, TableRow};
use crate::go_text;

/// A column of a CRD and the path of its cells.
#[derive(Clone, Debug)]
pub(super) struct CustomColumn {
    kind: String,
    path: Option<JsonPath>,
}

pub(super) fn layout(additional: Option<&Value>) -> (Vec<TableColumn>, Vec<CustomColumn>) {
    let mut columns = vec![name_column()];
    let mut cells = Vec::new();
    let declared = additional
        .and_then(Value::as_array)
        .filter(|declared| !declared.is_empty());
    let Some(declared) = declared else {
        columns.push(TableColumn {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: "When the object was created.".to_owned(),
            priority: 0,
        });
        cells.push(CustomColumn {
            kind: "date".to_owned(),
            path: JsonPath::parse(".metadata.creationTimestamp").ok(),
        });
        return (columns, cells);
    };
    for column in declared {
        let text = |field: &str| column.get(field).and_then(Value::as_str).unwrap_or_default();
        let description = match text("description") {
            "" => format!(
                "Custom resource definition column (in JSONPath format): {}",
                text("jsonPath")
            ),
            given => given.to_owned(),
        };
        columns.push(TableColumn {
            name: text("name").to_owned(),
            kind: text("type").to_owned(),
            format: text("format").to_owned(),
            description,
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
        });
        cells.push(CustomColumn {
            kind: text("type").to_owned(),
            path: JsonPath::parse(text("jsonPath")).ok(),
        });
    }
    (columns, cells)
}

pub(super) fn row(columns: &[CustomColumn], object: &Value, now: Timestamp) -> TableRow {
    let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
    let mut cells = vec![name];
    cells.extend(columns.iter().map(|column| column.cell(object, now)));
    TableRow::of(cells)
}

pub(super) fn name_column() -> TableColumn {
    TableColumn {
        name: "Name".to_owned(),
        kind: "string".to_owned(),
        format: "name".to_owned(),
        description: "The name of the object, unique in its namespace.".to_owned(),
        priority: 0,
    }
}

impl CustomColumn {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.as_ref().and_then(|path| path.first(object));
        let Some(value) = found else { return Value::Null };
        match (self.kind.as_str(), value) {
            ("string", Value::Null) => Value::from("<no value>"),
            ("string", Value::Object(_) | Value::Array(_)) => Value::from(go_text::json(value)),
            ("string", scalar) => Value::from(go_text::plain(scalar)),
            ("integer", Value::Number(number)) => truncated(number),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => Value::from(age(text, now)),
            _ => Value::Null,
        }
    }
}

fn truncated(number: &serde_json::Number) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "a table shows the integral part")]
    number
        .as_i64()
        .or_else(|| number.as_f64().map(|float| float as i64))
        .map_or(Value::Null, Value::from)
}

fn age(text: &str, now: Timestamp) -> String {
    if text.is_empty() {
        return "<unknown>".to_owned();
    }
    parse(text).map_or_else(
        || "<invalid>".to_owned(),
        |moment| human_duration(elapsed(moment, now)),
    )
}
