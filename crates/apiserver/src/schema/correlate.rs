//! Correlation of values with their old values in an update.
//!
//! Members of objects are correlated by name, items of a keyed list by their key. Items of other lists have no
//! identity.

use serde_json::{Map, Value};

use super::model::{ListType, SchemaNode};

/// Returns the old value of a member.
pub fn old_member<'o>(old: Option<&'o Value>, name: &str) -> Option<&'o Value> {
    old?.as_object()?.get(name)
}

/// Returns the old value of a list item.
pub fn old_item<'o>(old: Option<&'o Value>, list: &SchemaNode, item: &Value) -> Option<&'o Value> {
    let ListType::Map(keys) = &list.list_type else {
        return None;
    };
    let wanted = key_of(item.as_object()?, keys);
    let mut matches = old?
        .as_array()?
        .iter()
        .filter(|old| old.as_object().is_some_and(|old| key_of(old, keys) == wanted));
    matches.next()
}

/// Returns the key of an item of a keyed list.
pub fn key_of<'v>(item: &'v Map<String, Value>, keys: &[Box<str>]) -> Vec<Option<&'v Value>> {
    keys.iter().map(|key| item.get(key.as_ref())).collect()
}
