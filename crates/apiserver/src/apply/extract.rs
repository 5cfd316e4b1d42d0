//! The set of fields that a configuration contains.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field_set::{FieldPath, FieldSet, PathElement};
use super::typed::{FieldOwnership, TypedPosition};

/// Returns every field of a value, as its manager owns it.
pub fn field_set(value: &Value, typed: TypedPosition<'_>) -> FieldSet {
    let mut walk = ExtractWalk {
        set: FieldSet::default(),
        path: Vec::new(),
    };
    walk.visit(value, typed);
    walk.set
}

struct ExtractWalk {
    set: FieldSet,
    path: FieldPath,
}

impl ExtractWalk {
    fn visit(&mut self, value: &Value, typed: TypedPosition<'_>) {
        let form = typed.form(value);
        match (form, value) {
            (FieldOwnership::Scalar | FieldOwnership::AtomicList | FieldOwnership::AtomicMap, _) => {
                self.set.insert(&self.path)
            }
            (FieldOwnership::Set | FieldOwnership::Keyed(_), Value::Array(items)) => {
                self.items(items, typed, form)
            }
            (FieldOwnership::Map, Value::Object(fields)) => {
                for (name, member) in fields {
                    self.path.push(PathElement::field(name));
                    self.visit(member, typed.member(name));
                    let is_empty =
                        member.is_null() || member.as_object().is_some_and(serde_json::Map::is_empty);
                    if is_empty || !typed.declares(name) {
                        self.set.insert(&self.path);
                    }
                    self.path.pop();
                }
            }
            (FieldOwnership::Set | FieldOwnership::Keyed(_) | FieldOwnership::Map, _) => {}
        }
    }

    fn items(&mut self, items: &[Value], typed: TypedPosition<'_>, form: FieldOwnership<'_>) {
        let mut seen = BTreeSet::new();
        let mut repeated = BTreeSet::new();
        for element in items.iter().filter_map(|item| typed.element(form, item).ok()) {
            if !seen.insert(element.clone()) {
                repeated.insert(element);
            }
        }
        for item in items {
            let Ok(element) = typed.element(form, item) else {
                continue;
            };
            let is_repeated = repeated.contains(&element);
            self.path.push(element);
            // Items without unique keys are owned as one.
            if !is_repeated {
                self.visit(item, typed.item());
            }
            self.set.insert(&self.path);
            self.path.pop();
        }
    }
}
