//! Server-side tables, as `kubectl get` prints them.
//!
//! A [`TablePrinter`] has the columns of a kind and turns an object in its stored form into a row. The caller supplies the
//! time, and adds list metadata and objects.

mod age;
mod built_in;
mod custom;
mod json_path;
mod pod;
mod workloads;

pub use age::human_duration;
pub use json_path::{JsonPath, JsonPathError};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::BuiltIn;
use custom::CustomColumn;

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    /// The JSON type of its cells, or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    /// Columns with a priority above 0 are shown only with `-o wide`.
    pub priority: i64,
}

/// The cells of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRow {
    pub cells: Vec<Value>,
    /// Marks objects that have completed, such as pods, which clients may hide.
    pub conditions: Vec<Value>,
}

/// The columns of one kind.
#[derive(Clone, Debug)]
pub struct TablePrinter {
    columns: Vec<TableColumn>,
    cells: CellSource,
}

#[derive(Clone, Debug)]
enum CellSource {
    BuiltIn(built_in::RowFunction),
    Custom(Vec<CustomColumn>),
}

impl TablePrinter {
    /// Returns the printer of a built-in kind.
    pub fn built_in(kind: &BuiltIn) -> Self {
        let (columns, cells) = built_in::layout(kind);
        Self {
            columns,
            cells: CellSource::BuiltIn(cells),
        }
    }

    /// Returns the printer of a custom resource, by the `additionalPrinterColumns` of its version; without any, its
    /// age.
    ///
    /// A column with an invalid path stays empty.
    pub fn custom(additional: Option<&Value>) -> Self {
        let (columns, cells) = custom::layout(additional);
        Self {
            columns,
            cells: CellSource::Custom(cells),
        }
    }

    pub fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    /// Returns the `columnDefinitions` of a table.
    pub fn definitions(&self) -> Value {
        self.columns
            .iter()
            .map(|column| {
                json!({
                    "name": column.name,
                    "type": column.kind,
                    "format": column.format,
                    "description": column.description,
                    "priority": column.priority,
                })
            })
            .collect()
    }

    /// Returns the row of one object at a time.
    pub fn row(&self, object: &Value, now: Timestamp) -> TableRow {
        match &self.cells {
            CellSource::BuiltIn(cells) => cells(object, now),
            CellSource::Custom(columns) => custom::row(columns, object, now),
        }
    }
}

impl TableRow {
    fn of(cells: Vec<Value>) -> Self {
        Self {
            cells,
            conditions: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
