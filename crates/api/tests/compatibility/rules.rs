//! CEL rules: hand-written objects for rules over more than one value or over a change, and texts for rules over one
//! text.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::TEXTS;
use crate::reference::{Pair, schema_pointers};
use crate::verdict::{Judge, can_be_evaluated};

/// An object, or a change of one, and the messages of the rules that it violates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(rename = "crd")]
    pub plural: String,
    pub what: String,
    pub object: Value,
    #[serde(default)]
    pub old: Option<Value>,
    #[serde(default)]
    pub broken: BTreeSet<String>,
}

pub fn cases() -> Vec<Case> {
    serde_saphyr::from_str(include_str!("rules.yaml")).unwrap()
}

/// Texts that no field with a rule accepts.
const BAD_TEXTS: &[&str] = &[
    "-",
    "!",
    "UPPER",
    "//",
    "/a//b",
    "openshift-io-x",
    "spec.!",
    "kubernetes-io",
];

/// Evaluates every text against both schemas, for every string field with rules. Returns the differences, and the
/// messages that occurred.
pub fn texts(pair: &Pair) -> (Vec<String>, BTreeSet<String>) {
    let mut findings = Vec::new();
    let mut messages = BTreeSet::new();
    schema_pointers(&pair.established_judge.schema, "", &mut |pointer| {
        let established = pair.established_judge.schema.pointer(pointer).unwrap();
        let Some(ours) = pair.our_judge.schema.pointer(pointer) else {
            findings.push(format!("{pointer} is missing"));
            return;
        };
        if established["type"] != "string" || established.get("x-kubernetes-validations").is_none() {
            return;
        }
        let (established, ours) = (Judge::new(established.clone()), Judge::new(ours.clone()));
        for text in TEXTS.iter().chain(BAD_TEXTS) {
            let broken = established.broken_rules(&json!(text), None);
            if ours.broken_rules(&json!(text), None) != broken {
                findings.push(format!("{pointer}: {text:?}"));
            }
            messages.extend(broken);
        }
    });
    (findings, messages)
}

/// Returns the messages of all rules in a schema that our evaluator supports.
pub fn messages(schema: &Value) -> BTreeSet<String> {
    let mut messages = BTreeSet::new();
    schema_pointers(schema, "", &mut |pointer| {
        let rules = schema.pointer(pointer).unwrap()["x-kubernetes-validations"].as_array();
        for rule in rules.into_iter().flatten().filter(|rule| can_be_evaluated(rule)) {
            let unnamed = || format!("failed rule: {}", rule["rule"].as_str().unwrap());
            messages.insert(rule["message"].as_str().map_or_else(unnamed, str::to_owned));
        }
    });
    messages
}
