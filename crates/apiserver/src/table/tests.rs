use serde_json::json;

use super::*;
use crate::kinds;

fn printer(kind: &str) -> TablePrinter {
    TablePrinter::built_in(
        kinds::BUILT_IN
            .iter()
            .find(|entry| entry.kind == kind)
            .expect(kind),
    )
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn every_row_has_a_cell_for_every_column() {
    for kind in kinds::BUILT_IN {
        let printer = TablePrinter::built_in(kind);
        let row = printer.row(&json!({}), at("2026-01-01T00:00:00Z"));
        assert_eq!(row.cells.len(), printer.columns().len(), "{}", kind.kind);
    }
}

#[test]
fn ages_are_counted_from_creation_and_restarts_from_the_last_one() {
    let now = at("2026-01-01T01:00:00Z");
    let pod = json!({"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "a"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 3,
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}}]}});
    let row = printer("Pod").row(&pod, now);
    assert_eq!(row.cells[3], json!("3 (5m ago)"));
    assert_eq!(row.cells[4], json!("60m"));
    assert_eq!(
        printer("Namespace")
            .row(&json!({"metadata": {"name": "n"}}), now)
            .cells[2],
        json!("<unknown>")
    );
}

#[test]
fn events_show_when_they_were_seen_first_and_last() {
    let now = at("2026-01-01T01:00:00Z");
    let cases = [
        (
            json!({"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:50:00Z"}),
            "60m",
            "10m",
        ),
        (
            json!({"firstTimestamp": null, "lastTimestamp": null, "eventTime": "2026-01-01T00:59:00.123456Z"}),
            "59s",
            "59s",
        ),
        (
            json!({"eventTime": "2026-01-01T00:00:00.000000Z",
                "series": {"count": 2, "lastObservedTime": "2026-01-01T00:59:00.000000Z"}}),
            "60m",
            "60s",
        ),
        (json!({}), "<unknown>", "<unknown>"),
    ];
    for (event, first, last) in cases {
        let row = printer("Event").row(&event, now);
        assert_eq!(
            (&row.cells[7], &row.cells[0]),
            (&json!(first), &json!(last)),
            "{event}"
        );
    }
}

#[test]
fn a_custom_resource_without_columns_shows_its_age() {
    let printer = TablePrinter::custom(None);
    let names: Vec<_> = printer
        .columns()
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(names, ["Name", "Age"]);
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(
        printer.row(&object, at("2026-01-01T00:00:05Z")).cells,
        [json!("x"), json!("5s")]
    );
}
