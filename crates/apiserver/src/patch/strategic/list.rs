//! Merging of keyed lists, and their order.

use serde_json::Value;

use super::{
    DIRECTIVE, PatchFields, PatchShape, SET_ELEMENT_ORDER, StrategicMerger, as_new, malformed,
    unknown_directive,
};
use crate::go_text;
use crate::patch::PatchError;
use crate::schema::{PatchRule, PatchStrategy};

impl<'s> StrategicMerger<'s> {
    /// Handles every `$setElementOrder/<list>` of a patch together with its list, and removes both from the patch.
    pub(super) fn ordered_lists(
        &self,
        original: &mut PatchFields,
        patch: &mut PatchFields,
        shape: PatchShape<'s>,
    ) -> Result<(), PatchError> {
        let directives: Vec<String> = patch
            .keys()
            .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
            .cloned()
            .collect();
        for directive in directives {
            let Some(order) = patch.remove(&directive) else {
                continue;
            };
            let name = directive.trim_start_matches(SET_ELEMENT_ORDER).to_owned();
            if name.is_empty() {
                return Err(malformed("invalid patch format of setElementOrder list"));
            }
            let order = as_list(order)?;
            let (child, rule) = self.lookup(shape, &name);
            let existing = original.get(&name).cloned().map(as_list).transpose()?;
            let patched = patch.remove(&name).map(as_list).transpose()?;
            if let Some(patched) = &patched {
                check_order(patched, &order, &rule)?;
            }
            let merged = match (existing.clone(), patched) {
                (None, None) => continue,
                (Some(existing), None) => existing,
                (None, Some(patched)) => patched.into_iter().filter_map(as_new).collect(),
                (Some(existing), Some(patched)) if rule.strategy == PatchStrategy::Merge => {
                    self.list(existing, patched, child, &rule)?
                }
                (Some(_), Some(patched)) => patched,
            };
            let server_order = existing.unwrap_or_default();
            let ordered = in_order(merged, &order, &server_order, &rule)?;
            original.insert(name, Value::Array(ordered));
        }
        Ok(())
    }

    /// Merges a list item by item.
    pub(super) fn list(
        &self,
        original: Vec<Value>,
        patch: Vec<Value>,
        list: PatchShape<'s>,
        rule: &PatchRule,
    ) -> Result<Vec<Value>, PatchError> {
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        if !of_objects(&original, &patch)? {
            let mut merged = original.clone();
            merged.extend(patch.iter().cloned());
            return in_order(without_repetition(merged), &patch, &original, rule);
        }
        let Some(key) = rule.merge_key.as_deref() else {
            return Err(PatchError::Contradictory(
                "cannot merge lists without merge key for v1.List".to_owned(),
            ));
        };
        let (original, patch) = follow_item_directives(original, patch, key)?;
        let server_order = original.clone();
        let mut merged = original;
        for item in &patch {
            let identity = identity_of(item, key)?;
            let position = merged
                .iter()
                .position(|existing| existing.get(key) == Some(identity));
            match (position.and_then(|at| merged.get_mut(at)), item) {
                (Some(Value::Object(existing)), Value::Object(members)) => {
                    *existing = self.map(std::mem::take(existing), members.clone(), self.items(list))?;
                }
                _ => merged.extend(as_new(item.clone())),
            }
        }
        in_order(merged, &patch, &server_order, rule)
    }
}

/// Removes items with `$patch` from the patch and applies them to the original.
fn follow_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let identity = identity_of(&item, key)?;
                original.retain(|existing| existing.get(key) != Some(identity));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Contradictory(message.to_owned()));
            }
            _ => {
                let fields = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(directive, &fields));
            }
        }
    }
    Ok(if replace {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

/// Returns the items of the patch in its order, and the others at their relative position on the server.
fn in_order(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    rule: &PatchRule,
) -> Result<Vec<Value>, PatchError> {
    let key = rule.merge_key.as_deref();
    if let Some(key) = key {
        for item in merged.iter().chain(patch_order) {
            identity_of(item, key)?;
        }
    }
    let rank = |order: &[Value], item: &Value| {
        order.iter().position(|other| match key {
            Some(key) => other.get(key) == item.get(key),
            None => other == item,
        })
    };
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| rank(patch_order, item).is_some());
    patched.sort_by_key(|item| rank(patch_order, item));
    others.sort_by_key(|item| rank(server_order, item));
    let mut patched = patched.into_iter().peekable();
    let mut result = Vec::new();
    for other in others {
        // An item of the patch goes first unless the server has both and this one in front.
        while let Some(next) = patched.peek() {
            let server_first = matches!(
                (rank(server_order, &other), rank(server_order, next)),
                (Some(left), Some(right)) if left < right
            );
            if server_first {
                break;
            }
            result.extend(patched.next());
        }
        result.push(other);
    }
    result.extend(patched);
    Ok(result)
}

/// The items of a patch must be in the order of the directive beside it.
fn check_order(patch: &[Value], order: &[Value], rule: &PatchRule) -> Result<(), PatchError> {
    if order.is_empty() {
        return Ok(());
    }
    let key = rule.merge_key.as_deref();
    let mut remaining = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let found = match key {
            Some(key) => {
                let identity = identity_of(item, key)?;
                remaining.any(|other| other.get(key) == Some(identity))
            }
            None => remaining.any(|other| other == item),
        };
        if !found {
            let show = |items: &[Value]| go_text::plain(&Value::Array(items.to_vec()));
            return Err(PatchError::Contradictory(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                show(patch),
                show(order)
            )));
        }
    }
    Ok(())
}

/// Returns whether two lists hold objects; both must hold the same type.
fn of_objects(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut kinds = original.iter().chain(patch).map(go_text::type_name);
    let Some(first) = kinds.next() else {
        return Ok(false);
    };
    if first == "[]interface {}" {
        return Err(PatchError::DoesNotApply(
            "lists of lists are not supported".to_owned(),
        ));
    }
    if kinds.any(|kind| kind != first) {
        let lists = Value::from(vec![Value::from(original.to_vec()), Value::from(patch.to_vec())]);
        return Err(PatchError::Contradictory(format!(
            "list element types are not identical: {}",
            go_text::plain(&lists)
        )));
    }
    Ok(first == "map[string]interface {}")
}

fn identity_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, PatchError> {
    let Value::Object(fields) = item else {
        return Err(PatchError::Contradictory(format!(
            "expected a map[string]interface {{}}, but received a {}",
            go_text::type_name(item)
        )));
    };
    fields.get(key).ok_or_else(|| {
        PatchError::Contradictory(format!(
            "map: {} does not contain declared merge key: {key}",
            go_text::plain(item)
        ))
    })
}

fn as_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(PatchError::Contradictory(format!(
            "expected a []interface {{}}, but received a {}",
            go_text::type_name(&other)
        ))),
    }
}

fn without_repetition(items: Vec<Value>) -> Vec<Value> {
    let mut distinct: Vec<Value> = Vec::with_capacity(items.len());
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}
