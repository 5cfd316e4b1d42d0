//! Correlation of values with their old values in an update.
//!
//! Members of objects are correlated by name, items of a keyed list by their key. Items of other lists have no
//! identity.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::model::{ListType, SchemaNode};

/// Returns the old value of a member.
pub fn old_member<'o>(old: Option<&'o Value>, name: &str) -> Option<&'o Value> {
    old?.as_object()?.get(name)
}

/// The items of a list before an update, by key. Of several items with the same key, the first counts.
pub struct OldItems<'o> {
    by_key: HashMap<Vec<Option<&'o Value>>, &'o Value>,
    keys: &'o [Box<str>],
}

impl<'o> OldItems<'o> {
    pub fn new(old: Option<&'o Value>, list: &'o SchemaNode) -> Self {
        let ListType::Map(keys) = &list.list_type else {
            return Self {
                by_key: HashMap::new(),
                keys: &[],
            };
        };
        let mut by_key = HashMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            if let Some(fields) = item.as_object() {
                by_key.entry(key_of(fields, keys)).or_insert(item);
            }
        }
        Self { by_key, keys }
    }

    /// Returns the old value of an item.
    pub fn of(&self, item: &Value) -> Option<&'o Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key_of(item.as_object()?, self.keys)).copied()
    }
}

/// Returns the key of an item of a keyed list.
pub fn key_of<'v>(item: &'v Map<String, Value>, keys: &[Box<str>]) -> Vec<Option<&'v Value>> {
    keys.iter().map(|key| item.get(key.as_ref())).collect()
}
