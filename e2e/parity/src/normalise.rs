//! Makes responses comparable: values that may differ between two correct servers are replaced by placeholders.
//!
//! The second UID of an object named `a` becomes `<uid-2 of a>` wherever it appears again, and its third revision
//! `<rv-3 of a>`, so that "unchanged" and "changed" stay distinct while one extra object does not shift all that
//! follows. Nothing else is changed: a field that is missing, extra or of another type stays visible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

use crate::transcript::View;

/// Times closer to now than this were made by the server or by this run; others come from a transcript.
const NEAR: SignedDuration = SignedDuration::from_hours(48);

macro_rules! pattern {
    ($text:literal) => {
        LazyLock::new(|| compile($text))
    };
}

#[derive(Debug)]
pub struct Normaliser {
    run: String,
    now: Timestamp,
    uids: Numbering,
    revisions: Numbering,
    /// Names that the server completed, with their placeholders.
    generated: BTreeMap<String, String>,
}

impl Normaliser {
    pub fn new(run: &str, now: Timestamp) -> Self {
        Self {
            run: run.to_owned(),
            now,
            uids: Numbering::new("uid"),
            revisions: Numbering::new("rv"),
            generated: BTreeMap::new(),
        }
    }

    /// Returns the comparable form of one JSON document of a response.
    pub fn document(&mut self, document: &Value, view: &View) -> Value {
        let mut document = document.clone();
        self.learn_generated_names(&document);
        self.value(&mut document, "");
        narrow(document, view)
    }

    /// Returns the comparable form of the output of a command.
    pub fn output(&mut self, text: &str) -> String {
        let text = self.text(text);
        let text = REVISION_IN_TEXT.replace_all(&text, "$1<rv>");
        let text = DATE_IN_TEXT.replace_all(&text, "<date>");
        let text = AGE_IN_TEXT.replace_all(&text, "${1}<age>");
        let lines: Vec<String> = text.lines().map(one_space_between_columns).collect();
        lines.join("\n")
    }

    /// Returns the comparable form of a message or of any other string.
    pub fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.run, "RUN");
        for (name, placeholder) in &self.generated {
            text = text.replace(name.as_str(), placeholder);
        }
        let text = UID.replace_all(&text, |found: &Captures<'_>| self.uids.name(&found[0], ""));
        let text = TIME.replace_all(&text, |found: &Captures<'_>| self.time(&found[0]));
        let text = TOO_OLD.replace_all(&text, "too old resource version: <rv> (<rv>)");
        let text = CURRENT.replace_all(&text, "current: <rv>");
        text.into_owned()
    }

    fn time(&self, text: &str) -> String {
        match text.parse::<Timestamp>() {
            Ok(time) if time.duration_since(self.now).abs() < NEAR => {
                if text.contains('.') {
                    "<micro-time>".into()
                } else {
                    "<time>".into()
                }
            }
            _ => text.to_owned(),
        }
    }

    fn learn_generated_names(&mut self, document: &Value) {
        if let Some(metadata) = document.get("metadata") {
            let prefix = metadata
                .get("generateName")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
            if !prefix.is_empty() && name.starts_with(prefix) && name.len() > prefix.len() {
                let shown = format!(
                    "{}<{} generated>",
                    prefix.replace(&self.run, "RUN"),
                    name.len() - prefix.len()
                );
                self.generated.insert(name.replace(&self.run, "RUN"), shown);
            }
        }
        for key in ["items", "object"] {
            match document.get(key) {
                Some(Value::Array(items)) => items.iter().for_each(|item| self.learn_generated_names(item)),
                Some(object @ Value::Object(_)) => self.learn_generated_names(object),
                _ => {}
            }
        }
    }

    fn value(&mut self, value: &mut Value, key: &str) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => self.array(items, key),
            Value::Object(fields) => self.object(fields, key),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn array(&mut self, items: &mut Vec<Value>, key: &str) {
        for item in items.iter_mut() {
            self.value(item, key);
        }
        match key {
            // Servers order entries of one kind by their time in whole seconds, so the order depends on the clock.
            "managedFields" => items.sort_by_cached_key(owner_of),
            // Some validations of a real server run twice, which duplicates causes.
            "causes" => {
                let mut seen = BTreeSet::new();
                items.retain(|cause| seen.insert(cause.to_string()));
            }
            "cells" => items.iter_mut().for_each(hide_age),
            _ => {}
        }
    }

    fn metadata(&mut self, fields: &mut Map<String, Value>) {
        let owner = fields
            .get("name")
            .and_then(Value::as_str)
            .map(|name| self.text(name))
            .unwrap_or_default();
        let uid = fields
            .get("uid")
            .and_then(Value::as_str)
            .map(|uid| self.uids.name(uid, &owner));
        if let Some(Value::String(revision)) = fields.get_mut("resourceVersion") {
            // The revision of a list changes with every write; only an object's is comparable.
            *revision = match revision.as_str() {
                "" | "0" => revision.clone(),
                _ if uid.is_some() => self.revisions.name(revision, &owner),
                _ => "<rv>".to_owned(),
            };
        }
        if let Some(Value::String(token)) = fields.get_mut("continue")
            && !token.is_empty()
        {
            "<continue>".clone_into(token);
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, key: &str) {
        if key == "metadata" {
            self.metadata(fields);
        }
        let entries = std::mem::take(fields);
        for (name, mut value) in entries {
            self.value(&mut value, &name);
            // Keys can carry names too, as in the owned fields of an apply.
            fields.insert(self.text(&name), value);
        }
    }
}

/// Numbers the distinct values of an object in order of appearance.
#[derive(Debug)]
struct Numbering {
    prefix: &'static str,
    names: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
}

impl Numbering {
    fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            names: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Returns the placeholder of the value; `owner` is used only when the value is seen for the first time.
    fn name(&mut self, value: &str, owner: &str) -> String {
        if let Some(name) = self.names.get(value) {
            return name.clone();
        }
        let count = self.counts.entry(owner.to_owned()).or_default();
        *count += 1;
        let of = if owner.is_empty() {
            String::new()
        } else {
            format!(" of {owner}")
        };
        let name = format!("<{}-{count}{of}>", self.prefix);
        self.names.insert(value.to_owned(), name.clone());
        name
    }
}

fn owner_of(entry: &Value) -> [String; 4] {
    ["operation", "manager", "subresource", "apiVersion"].map(|key| {
        entry
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    })
}

fn hide_age(cell: &mut Value) {
    if let Value::String(text) = cell
        && AGE.is_match(text)
    {
        "<age>".clone_into(text);
    }
}

fn one_space_between_columns(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let (indent, rest) = line.split_at(indent);
    format!("{indent}{}", COLUMN_GAP.replace_all(rest.trim_end(), "  "))
}

fn narrow(mut document: Value, view: &View) -> Value {
    for (pointer, wanted) in &view.keep {
        for (key, values) in wanted {
            if let Some(Value::Array(items)) = document.pointer_mut(pointer) {
                items.retain(|item| {
                    item.pointer(key)
                        .and_then(Value::as_str)
                        .is_some_and(|name| values.iter().any(|v| v == name))
                });
            }
        }
    }
    for pointer in &view.sort {
        if let Some(Value::Array(items)) = document.pointer_mut(pointer) {
            items.sort_by_cached_key(ToString::to_string);
        }
    }
    for pointer in &view.ignore {
        let path: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
        remove(&mut document, &path);
    }
    if view.only.is_empty() {
        return document;
    }
    view.only
        .iter()
        .map(|pointer| {
            (
                pointer.clone(),
                document.pointer(pointer).cloned().unwrap_or(Value::Null),
            )
        })
        .collect()
}

fn remove(value: &mut Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let key = first.replace("~1", "/").replace("~0", "~");
    match value {
        Value::Object(fields) if rest.is_empty() => {
            if key == "*" {
                fields.clear();
            } else {
                fields.remove(&key);
            }
        }
        Value::Object(fields) if key == "*" => fields.values_mut().for_each(|field| remove(field, rest)),
        Value::Object(fields) => {
            if let Some(field) = fields.get_mut(&key) {
                remove(field, rest);
            }
        }
        Value::Array(items) if key == "*" => items.iter_mut().for_each(|item| remove(item, rest)),
        Value::Array(items) => {
            if let Some(item) = key.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                remove(item, rest);
            }
        }
        _ => {}
    }
}

static UID: LazyLock<Regex> = pattern!(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");
static TIME: LazyLock<Regex> = pattern!(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)");
static TOO_OLD: LazyLock<Regex> = pattern!(r"too old resource version: \d+ \(\d+\)");
static CURRENT: LazyLock<Regex> = pattern!(r"current: \d+");
static AGE: LazyLock<Regex> = pattern!(r"^(<unknown>|<invalid>|\d+[smhd]|\d+[mhd]\d+[smh])$");
static AGE_IN_TEXT: LazyLock<Regex> = pattern!(r"(?m)(^|[ (])(\d+m)?\d+s\b");
static REVISION_IN_TEXT: LazyLock<Regex> = pattern!(r#"((?:resourceVersion"?: ?"|Resource Version: +))\d+"#);
static DATE_IN_TEXT: LazyLock<Regex> =
    pattern!(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}");
static COLUMN_GAP: LazyLock<Regex> = pattern!(r" {2,}");

#[allow(
    clippy::expect_used,
    reason = "the patterns are literals that the tests below compile"
)]
fn compile(pattern: &'static str) -> Regex {
    Regex::new(pattern).expect("a valid pattern")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn normaliser() -> Normaliser {
        Normaliser::new("x7k2", "2030-01-02T03:04:05Z".parse().unwrap())
    }

    #[test]
    fn identities_are_numbered_by_first_appearance_and_stay_equal() {
        let mut normaliser = normaliser();
        let seen = |normaliser: &mut Normaliser, revision: &str| {
            let uid = "0c3e0b3a-0000-4000-8000-000000000001";
            let object = json!({"metadata": {"name": "a-x7k2", "uid": uid, "resourceVersion": revision,
                "creationTimestamp": "2030-01-02T03:04:01Z"}});
            normaliser.document(&object, &View::default())["metadata"].clone()
        };
        let named = |revision: &str| json!({"name": "a-RUN", "uid": "<uid-1 of a-RUN>", "resourceVersion": revision, "creationTimestamp": "<time>"});
        assert_eq!(seen(&mut normaliser, "41"), named("<rv-1 of a-RUN>"));
        assert_eq!(seen(&mut normaliser, "42"), named("<rv-2 of a-RUN>"));
        assert_eq!(seen(&mut normaliser, "41"), named("<rv-1 of a-RUN>"));
    }

    #[test]
    fn an_identity_is_recognised_in_a_message_and_an_unknown_one_is_numbered() {
        let mut normaliser = normaliser();
        let uid = "0c3e0b3a-0000-4000-8000-000000000001";
        normaliser.document(&json!({"metadata": {"name": "a", "uid": uid}}), &View::default());
        assert_eq!(normaliser.text(&format!("not {uid}")), "not <uid-1 of a>");
        assert_eq!(
            normaliser.text("not 0c3e0b3a-0000-4000-8000-000000000002"),
            "not <uid-1>"
        );
    }

    #[test]
    fn a_duplicate_cause_counts_once() {
        let status = json!({"details": {"causes": [{"field": "a"}, {"field": "b"}, {"field": "a"}]}});
        assert_eq!(
            normaliser().document(&status, &View::default()),
            json!({"details": {"causes": [{"field": "a"}, {"field": "b"}]}})
        );
    }

    #[test]
    fn times_that_a_transcript_chose_stay_visible() {
        let mut normaliser = normaliser();
        assert_eq!(normaliser.text("2001-02-03T04:05:06Z"), "2001-02-03T04:05:06Z");
        assert_eq!(
            normaliser.text("at 2030-01-02T03:04:05.123456Z"),
            "at <micro-time>"
        );
    }

    #[test]
    fn the_revision_of_a_list_and_its_continue_token_are_hidden() {
        let list = json!({"metadata": {"resourceVersion": "99", "continue": "abc", "remainingItemCount": 2}});
        assert_eq!(
            normaliser().document(&list, &View::default()),
            json!({"metadata": {"resourceVersion": "<rv>", "continue": "<continue>", "remainingItemCount": 2}})
        );
    }

    #[test]
    fn generated_names_are_shown_with_their_length_and_recognised_later() {
        let mut normaliser = normaliser();
        let object = json!({"metadata": {"generateName": "job-", "name": "job-4fz9q"}});
        let seen = normaliser.document(&object, &View::default());
        assert_eq!(seen["metadata"]["name"], "job-<5 generated>");
        assert_eq!(
            normaliser.text("pods \"job-4fz9q\" not found"),
            "pods \"job-<5 generated>\" not found"
        );
    }

    #[test]
    fn a_view_ignores_keeps_and_selects() {
        let document =
            json!({"resources": [{"name": "pods", "x": 1}, {"name": "secrets", "x": 2}], "other": 3});
        let mut view = View {
            ignore: vec!["/resources/*/x".into()],
            ..View::default()
        };
        view.keep.insert(
            "/resources".into(),
            [("/name".to_owned(), vec!["pods".to_owned()])].into(),
        );
        assert_eq!(
            normaliser().document(&document, &view),
            json!({"resources": [{"name": "pods"}], "other": 3})
        );
        let view = View {
            only: vec!["/other".into(), "/missing".into()],
            ..View::default()
        };
        assert_eq!(
            normaliser().document(&document, &view),
            json!({"/other": 3, "/missing": null})
        );
    }

    #[test]
    fn columns_and_ages_of_printed_tables_do_not_depend_on_the_clock() {
        let text = "NAME    STATUS   AGE\na-x7k2  Ready    12s\n  indented:   yes";
        assert_eq!(
            normaliser().output(text),
            "NAME  STATUS  AGE\na-RUN  Ready  <age>\n  indented:  yes"
        );
    }
}
