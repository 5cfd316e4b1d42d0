//! The set of fields that a configuration contains.

use super::field_set::{FieldSet, Path, PathElement};
use super::typed::{Form, Typed};
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns every field of a value, as its manager owns it.
pub fn field_set(value: &Value, typed: Typed<'_>) -> FieldSet {
    let mut walk = Walk {
        set: FieldSet::default(),
        path: Vec::new(),
    };
    walk.visit(value, typed);
    walk.set
}

struct Walk {
    set: FieldSet,
    path: Path,
}

impl Walk {
    fn visit(&mut self, value: &Value, typed: Typed<'_>) {
        let form = typed.form(value);
        match (form, value) {
            (Form::Scalar | Form::AtomicList | Form::AtomicMap, _) => self.set.insert(&self.path),
            (Form::Set | Form::Keyed(_), Value::Array(items)) => self.items(items, typed, form),
            (Form::Map, Value::Object(fields)) => {
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
            (Form::Set | Form::Keyed(_) | Form::Map, _) => {}
        }
    }

    fn items(&mut self, items: &[Value], typed: Typed<'_>, form: Form<'_>) {
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
