//! Construction of the applied object: merging a configuration, and removing fields.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::field_set::{FieldSet, PathElement};
use super::typed::{FieldOwnership, TypedPosition};

/// Merges a configuration into a live object; the configuration wins.
pub fn merge(live: &Value, config: &Value, typed: TypedPosition<'_>) -> Value {
    let form = typed.form(config);
    match (form, live, config) {
        (FieldOwnership::Map, Value::Object(live), Value::Object(config))
            if !(live.is_empty() && config.is_empty()) =>
        {
            let mut merged = live.clone();
            for (name, value) in config {
                let value = match live.get(name) {
                    Some(existing) => merge(existing, value, typed.member(name)),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (FieldOwnership::Set | FieldOwnership::Keyed(_), Value::Array(live), Value::Array(config))
            if !(live.is_empty() && config.is_empty()) =>
        {
            Value::Array(merge_lists(live, config, form, typed))
        }
        _ => config.clone(),
    }
}

/// Items of the configuration keep their order; items that only the live list has stay where they were relative
/// to the items both have.
fn merge_lists(
    live: &[Value],
    config: &[Value],
    form: FieldOwnership<'_>,
    typed: TypedPosition<'_>,
) -> Vec<Value> {
    let name = |item: &Value| typed.element(form, item).ok();
    let config: Vec<(Option<PathElement>, &Value)> = config.iter().map(|item| (name(item), item)).collect();
    let wanted: BTreeSet<&PathElement> = config
        .iter()
        .filter_map(|(element, _)| element.as_ref())
        .collect();
    let mut existing: BTreeMap<PathElement, Option<&Value>> = BTreeMap::new();
    for item in live {
        if let Some(element) = name(item) {
            // Items without unique keys are not merged.
            existing
                .entry(element)
                .and_modify(|item| *item = None)
                .or_insert(Some(item));
        }
    }
    let merged = |element: Option<&PathElement>, item: &Value| {
        let live = element.and_then(|element| existing.get(element).copied().flatten());
        live.map_or_else(|| item.clone(), |live| merge(live, item, typed.item()))
    };
    let mut pending: VecDeque<(Option<PathElement>, &Value)> = config.iter().cloned().collect();
    let mut shared: VecDeque<&PathElement> = config
        .iter()
        .filter_map(|(element, _)| element.as_ref())
        .filter(|element| existing.contains_key(*element))
        .collect();
    let mut result = Vec::with_capacity(live.len() + config.len());
    for item in live {
        let element = name(item);
        if !element.as_ref().is_some_and(|element| wanted.contains(element)) {
            result.push(item.clone());
        } else if shared.front().copied() == element.as_ref() {
            // This item is next in the configuration's order. New items in front of it go first.
            shared.pop_front();
            while let Some((other, item)) = pending.pop_front() {
                result.push(merged(other.as_ref(), item));
                if other == element {
                    break;
                }
            }
        }
    }
    result.extend(
        pending
            .into_iter()
            .map(|(element, item)| merged(element.as_ref(), item)),
    );
    result
}

/// Removes fields from an object. Objects and lists that are not removed themselves stay, possibly empty.
pub fn remove(value: &Value, doomed: &FieldSet, typed: TypedPosition<'_>) -> Value {
    let form = typed.form(value);
    match (form, value) {
        (FieldOwnership::Map, Value::Object(fields)) => {
            let mut kept = Map::new();
            for (name, member) in fields {
                let element = PathElement::field(name);
                if doomed.has_member(&element) {
                    continue;
                }
                let rest = match doomed.child(&element) {
                    Some(inside) => remove(member, inside, typed.member(name)),
                    None => member.clone(),
                };
                kept.insert(name.clone(), rest);
            }
            Value::Object(kept)
        }
        (FieldOwnership::Set | FieldOwnership::Keyed(_), Value::Array(items)) => {
            let mut kept = Vec::new();
            for item in items {
                let Ok(element) = typed.element(form, item) else {
                    kept.push(item.clone());
                    continue;
                };
                if doomed.has_member(&element) {
                    continue;
                }
                kept.push(match doomed.child(&element) {
                    Some(inside) => remove(item, inside, typed.item()),
                    None => item.clone(),
                });
            }
            Value::Array(kept)
        }
        _ => value.clone(),
    }
}

/// Makes every field that the schema names a member if something inside it is: removing its last content must remove
/// the field too.
pub fn with_named_fields(set: &FieldSet, typed: TypedPosition<'_>) -> FieldSet {
    let mut result = FieldSet::default();
    for member in set.members() {
        result.add_member(member.clone());
    }
    for (element, child) in set.children() {
        if let PathElement::Field(name) = element
            && typed.declares(name)
        {
            result.add_member(element.clone());
        }
        result.add_child(element.clone(), with_named_fields(child, typed.descend(element)));
    }
    result
}
