//! Field sets in the notation of `metadata.managedFields` (`FieldsV1`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, PathElement};

/// The key for the set itself, as a member of its own node.
const SELF: &str = ".";

/// Encodes a set.
pub fn encode(set: &FieldSet) -> Value {
    Value::Object(encode_node(set))
}

/// Decodes a set; the error names the invalid element.
pub fn decode(fields: &Value) -> Result<FieldSet, String> {
    let mut set = FieldSet::default();
    for (step, inside) in fields.as_object().into_iter().flatten() {
        if step == SELF {
            continue;
        }
        let element = decode_element(step)?;
        let child = decode(inside)?;
        let owns_itself = inside.get(SELF).is_some() || child.is_empty();
        if owns_itself {
            set.add_member(element.clone());
        }
        set.add_child(element, child);
    }
    Ok(set)
}

fn encode_node(set: &FieldSet) -> Map<String, Value> {
    let mut fields = Map::new();
    for member in set.members() {
        fields.insert(encode_element(member), Value::Object(Map::new()));
    }
    for (element, child) in set.children().filter(|(_, child)| !child.is_empty()) {
        let mut inside = encode_node(child);
        if set.has_member(element) {
            inside.insert(SELF.to_owned(), Value::Object(Map::new()));
        }
        fields.insert(encode_element(element), Value::Object(inside));
    }
    fields
}

fn encode_element(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(keys) => {
            let pairs: Vec<_> = keys
                .iter()
                .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
                .collect();
            format!("k:{{{}}}", pairs.join(","))
        }
        PathElement::Value(value) => format!("v:{value}"),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

fn decode_element(step: &str) -> Result<PathElement, String> {
    let malformed = || format!("unable to parse {step:?} as path element");
    let (kind, text) = step.split_once(':').ok_or_else(malformed)?;
    Ok(match kind {
        "f" => PathElement::field(text),
        "k" => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|_| malformed())?;
            PathElement::Key(
                keys.into_iter()
                    .map(|(name, value)| (name, value.to_string()))
                    .collect(),
            )
        }
        "v" => {
            let value: Value = serde_json::from_str(text).map_err(|_| malformed())?;
            PathElement::value(&value)
        }
        "i" => PathElement::Index(text.parse().map_err(|_| malformed())?),
        _ => return Err(malformed()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_kubernetes_writes_is_read_and_written_back_unchanged() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {".": {}, "v:\"a/b\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {},
                "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}},
        });
        assert_eq!(encode(&decode(&fields).expect("decodes")), fields);
    }

    #[test]
    fn a_step_that_makes_no_sense_is_refused() {
        for step in ["spec", "x:spec", "k:{", "v:", "i:x"] {
            assert!(decode(&json!({step: {}})).is_err(), "{step}");
        }
    }
}
