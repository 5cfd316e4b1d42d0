//! Server-side tables: what `kubectl get` prints.
//!
//! A [`Printer`] knows the columns of a kind and turns an object into the cells of a row. Objects are taken in
//! their stored form, time is handed in; putting rows, list metadata and objects together is the caller's
//! business.

mod age;
mod built_in;
mod custom;
mod json_path;
mod pod;

pub use age::human_duration;
pub use json_path::{JsonPath, JsonPathError};

use crate::kinds::BuiltIn;
use custom::CustomColumn;
use jiff::Timestamp;
use serde_json::{Value, json};

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
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
pub struct Row {
    pub cells: Vec<Value>,
    /// Tells clients that hide what is over, such as pods that have completed.
    pub conditions: Vec<Value>,
}

/// The columns of one kind.
#[derive(Clone, Debug)]
pub struct Printer {
    columns: Vec<Column>,
    cells: Cells,
}

#[derive(Clone, Debug)]
enum Cells {
    BuiltIn(built_in::Cells),
    Custom(Vec<CustomColumn>),
}

impl Printer {
    /// The printer of a built-in kind.
    pub fn built_in(kind: &BuiltIn) -> Self {
        let (columns, cells) = built_in::layout(kind);
        Self {
            columns,
            cells: Cells::BuiltIn(cells),
        }
    }

    /// The printer of a custom resource, by the `additionalPrinterColumns` of its version; without any, its age.
    ///
    /// A column whose path makes no sense stays empty; the CRD was refused or has been told.
    pub fn custom(additional: Option<&Value>) -> Self {
        let (columns, cells) = custom::layout(additional);
        Self {
            columns,
            cells: Cells::Custom(cells),
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The `columnDefinitions` of a table.
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

    /// The row of one object as seen now.
    pub fn row(&self, object: &Value, now: Timestamp) -> Row {
        match &self.cells {
            Cells::BuiltIn(cells) => cells(object, now),
            Cells::Custom(columns) => custom::row(columns, object, now),
        }
    }
}

impl Row {
    fn of(cells: Vec<Value>) -> Self {
        Self {
            cells,
            conditions: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
