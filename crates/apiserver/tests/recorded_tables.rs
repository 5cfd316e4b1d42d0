//! Tables equal those of a real kube-apiserver for the same objects.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use jiff::Timestamp;
use mco_apiserver::kinds;
use mco_apiserver::table::{TablePrinter, TableRow};
use serde_json::{Value, json};

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/tables.json")).expect("golden file")
}

/// Ages depend on when the recording was made; the unit tests cover them.
fn without_ages(row: &TableRow, recorded: &Value) -> Value {
    let recorded = recorded["cells"].as_array().expect("cells");
    let cells = row.cells.iter().zip(recorded);
    cells
        .map(|(cell, recorded)| {
            if recorded == "<age>" {
                recorded.clone()
            } else {
                cell.clone()
            }
        })
        .collect()
}

fn check(printer: &TablePrinter, rows: &Value, what: &str) {
    for recorded in rows.as_array().expect("rows") {
        let row = printer.row(&recorded["object"], Timestamp::now());
        let name = &recorded["object"]["metadata"]["name"];
        assert_eq!(without_ages(&row, recorded), recorded["cells"], "{what} {name}");
        assert_eq!(
            Value::from(row.conditions),
            recorded["conditions"],
            "{what} {name}"
        );
    }
}

#[test]
fn built_in_kinds_have_the_recorded_columns_and_cells() {
    for table in golden()["built_in"].as_array().expect("tables") {
        let name = table["kind"].as_str().expect("kind");
        let kind = kinds::BUILT_IN.iter().find(|kind| kind.kind == name).expect(name);
        let printer = TablePrinter::built_in(kind);
        let columns: Value = printer
            .columns()
            .iter()
            .map(|column| json!([column.name, column.kind, column.format, column.priority]))
            .collect();
        assert_eq!(columns, table["columns"], "{name}");
        check(&printer, &table["rows"], name);
    }
}

#[test]
fn custom_resources_have_the_recorded_columns_and_cells() {
    let golden = golden();
    let table = &golden["custom"];
    let printer = TablePrinter::custom(Some(&table["additional"]));
    let definitions = printer.definitions();
    let (ours, theirs) = (
        definitions.as_array().expect("columns"),
        table["definitions"].as_array().expect("columns"),
    );
    assert_eq!(ours[1..], theirs[1..]);
    check(&printer, &table["rows"], "custom");
}
