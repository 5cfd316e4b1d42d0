//! Comparison of two objects by field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldPath, FieldSet, PathElement};
use super::typed::{FieldOwnership, TypedPosition};

/// The fields that differ between two objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldComparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

impl FieldComparison {
    /// Returns the comparison without certain fields and everything below them.
    #[must_use]
    pub fn without(self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.without_subtrees(fields),
            modified: self.modified.without_subtrees(fields),
            added: self.added.without_subtrees(fields),
        }
    }

    /// Returns the fields whose value is new or has changed.
    pub fn changed(&self) -> FieldSet {
        self.modified.union(&self.added)
    }
}

/// Compares an object before and after.
pub fn compare(before: &Value, after: &Value, typed: TypedPosition<'_>) -> FieldComparison {
    let mut walk = CompareWalk {
        result: FieldComparison::default(),
        path: Vec::new(),
    };
    walk.visit(Some(before), Some(after), typed);
    walk.result
}

struct CompareWalk {
    result: FieldComparison,
    path: FieldPath,
}

impl CompareWalk {
    fn visit(&mut self, before: Option<&Value>, after: Option<&Value>, typed: TypedPosition<'_>) {
        let forms = (
            before.map(|value| typed.form(value)),
            after.map(|value| typed.form(value)),
        );
        let is_leaf = match forms {
            (None, None) => return,
            (Some(form), None) | (None, Some(form)) => self.visit_as(form, before, after, typed),
            (Some(was), Some(is)) if was == is || before.is_some_and(Value::is_null) => {
                self.visit_as(is, before, after, typed)
            }
            (Some(was), Some(is)) => {
                // The type of the value changed: what was inside is removed, what is inside is added.
                self.visit_as(was, before, after, typed);
                self.visit_as(is, before, after, typed)
            }
        };
        if !is_leaf {
            match (before, after) {
                (None, _) => self.result.added.insert(&self.path),
                (_, None) => self.result.removed.insert(&self.path),
                _ => {}
            }
        }
    }

    /// Returns whether the value was compared as one.
    fn visit_as(
        &mut self,
        form: FieldOwnership<'_>,
        before: Option<&Value>,
        after: Option<&Value>,
        typed: TypedPosition<'_>,
    ) -> bool {
        match form {
            FieldOwnership::Scalar | FieldOwnership::AtomicList | FieldOwnership::AtomicMap => {
                self.leaf(before, after)
            }
            FieldOwnership::Map => {
                let (before_fields, after_fields) = (fields(before), fields(after));
                if before_fields.is_none_or(Map::is_empty) && after_fields.is_none_or(Map::is_empty) {
                    return self.leaf(before, after);
                }
                self.map(before_fields, after_fields, typed);
                false
            }
            FieldOwnership::Set | FieldOwnership::Keyed(_) => {
                let (before_items, after_items) = (items(before), items(after));
                if before_items.is_empty() && after_items.is_empty() {
                    return self.leaf(before, after);
                }
                self.list(before_items, after_items, form, typed);
                false
            }
        }
    }

    fn leaf(&mut self, before: Option<&Value>, after: Option<&Value>) -> bool {
        match (before, after) {
            (None, _) => self.result.added.insert(&self.path),
            (_, None) => self.result.removed.insert(&self.path),
            (before, after) if before != after => self.result.modified.insert(&self.path),
            _ => {}
        }
        true
    }

    fn map(
        &mut self,
        before: Option<&Map<String, Value>>,
        after: Option<&Map<String, Value>>,
        typed: TypedPosition<'_>,
    ) {
        let new_names = after.into_iter().flatten().map(|(name, _)| name);
        let old_names = before.into_iter().flatten().map(|(name, _)| name);
        let gone = old_names.filter(|name| !after.is_some_and(|after| after.contains_key(*name)));
        for name in new_names.chain(gone) {
            self.path.push(PathElement::field(name));
            self.visit(
                before.and_then(|fields| fields.get(name)),
                after.and_then(|fields| fields.get(name)),
                typed.member(name),
            );
            self.path.pop();
        }
    }

    fn list(
        &mut self,
        before: &[Value],
        after: &[Value],
        form: FieldOwnership<'_>,
        typed: TypedPosition<'_>,
    ) {
        let was = by_element(before, form, typed);
        let is = by_element(after, form, typed);
        let elements: std::collections::BTreeSet<&PathElement> = was.keys().chain(is.keys()).collect();
        for element in elements {
            let was = was.get(element).map_or(&[][..], Vec::as_slice);
            let is = is.get(element).map_or(&[][..], Vec::as_slice);
            self.path.push(element.clone());
            match (was.len(), is.len()) {
                (0 | 1, 0 | 1) => self.visit(was.first().copied(), is.first().copied(), typed.item()),
                (0 | 1, _) => {
                    if let Some(item) = was.first() {
                        self.visit(Some(item), None, typed.item());
                    }
                    self.result.added.insert(&self.path);
                }
                (_, 0 | 1) => {
                    if let Some(item) = is.first() {
                        self.visit(None, Some(item), typed.item());
                    }
                    self.result.removed.insert(&self.path);
                }
                _ if was != is => self.result.modified.insert(&self.path),
                _ => {}
            }
            self.path.pop();
        }
    }
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn by_element<'v>(
    items: &'v [Value],
    form: FieldOwnership<'_>,
    typed: TypedPosition<'_>,
) -> BTreeMap<PathElement, Vec<&'v Value>> {
    let mut found: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = typed.element(form, item) {
            found.entry(element).or_default().push(item);
        }
    }
    found
}
