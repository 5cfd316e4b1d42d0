//! Merging of keyed lists, and their order.
//!
//! Items are found by an index of their merge keys: a list that a client made long must not cost the square of its
//! length.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::{
    DIRECTIVE, PatchFields, PatchShape, SET_ELEMENT_ORDER, StrategicMerger, as_new, malformed,
    unknown_directive,
};
use crate::cpu;
use crate::go_text;
use crate::patch::PatchError;
use crate::schema::{PatchRule, PatchStrategy};

/// The maximum number of items of a list that is merged item by item: far more than any list of a real object, and few
/// enough that a decoded list takes megabytes.
const MAX_MERGED_ITEMS: usize = 50_000;

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
            cpu::check()?;
            let Some(order) = patch.remove(&directive) else {
                continue;
            };
            let name = directive.trim_start_matches(SET_ELEMENT_ORDER).to_owned();
            if name.is_empty() {
                return Err(malformed("invalid patch format of setElementOrder list"));
            }
            let order = as_list(order)?;
            check_length(order.len())?;
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
        check_length(original.len() + patch.len())?;
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
        let mut index = KeyIndex::new(&merged, key);
        for item in &patch {
            cpu::check()?;
            let identity = identity_of(item, key)?;
            let position = index.position(identity);
            match (position.and_then(|at| merged.get_mut(at)), item) {
                (Some(Value::Object(existing)), Value::Object(members)) => {
                    *existing = self.map(std::mem::take(existing), members.clone(), self.items(list))?;
                    index.moved(identity, existing.get(key), position);
                }
                _ => {
                    if let Some(added) = as_new(item.clone()) {
                        index.add(added.get(key), merged.len());
                        merged.push(added);
                    }
                }
            }
        }
        in_order(merged, &patch, &server_order, rule)
    }
}

/// The positions of the items of a list by merge key.
struct KeyIndex {
    positions: HashMap<Value, BTreeSet<usize>>,
}

impl KeyIndex {
    fn new(items: &[Value], key: &str) -> Self {
        let mut index = Self {
            positions: HashMap::with_capacity(items.len()),
        };
        for (at, item) in items.iter().enumerate() {
            index.add(item.get(key), at);
        }
        index
    }

    /// Returns the first position of an identity.
    fn position(&self, identity: &Value) -> Option<usize> {
        self.positions
            .get(identity)
            .and_then(|positions| positions.first().copied())
    }

    fn add(&mut self, identity: Option<&Value>, at: usize) {
        if let Some(identity) = identity {
            self.positions.entry(identity.clone()).or_default().insert(at);
        }
    }

    /// Records the identity of an item after it was merged. An identity that is null or an object can change.
    fn moved(&mut self, from: &Value, to: Option<&Value>, at: Option<usize>) {
        let Some(at) = at.filter(|_| to != Some(from)) else {
            return;
        };
        if let Some(positions) = self.positions.get_mut(from) {
            positions.remove(&at);
        }
        self.add(to, at);
    }
}

fn check_length(items: usize) -> Result<(), PatchError> {
    if items <= MAX_MERGED_ITEMS {
        return Ok(());
    }
    Err(PatchError::TooLarge(format!(
        "the merged list has up to {items} items, and at most {MAX_MERGED_ITEMS} are merged"
    )))
}

/// Removes items with `$patch` from the patch and applies them to the original.
fn follow_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                deleted.insert(identity_of(&item, key)?.clone());
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
    original.retain(|existing| {
        existing
            .get(key)
            .is_none_or(|identity| !deleted.contains(identity))
    });
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
    let (patch_ranks, server_ranks) = (Ranks::new(patch_order, key), Ranks::new(server_order, key));
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| patch_ranks.of(item).is_some());
    patched.sort_by_cached_key(|item| patch_ranks.of(item));
    others.sort_by_cached_key(|item| server_ranks.of(item));
    let mut patched = patched.into_iter().peekable();
    let mut result = Vec::new();
    for other in others {
        // An item of the patch goes first unless the server has both and this one in front.
        while let Some(next) = patched.peek() {
            let server_first = matches!(
                (server_ranks.of(&other), server_ranks.of(next)),
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

/// The first position of every item of a list, by merge key or by value.
struct Ranks<'v> {
    key: Option<&'v str>,
    positions: HashMap<&'v Value, usize>,
}

impl<'v> Ranks<'v> {
    fn new(order: &'v [Value], key: Option<&'v str>) -> Self {
        let mut positions = HashMap::with_capacity(order.len());
        for (at, item) in order.iter().enumerate() {
            let identity = key.map_or(Some(item), |key| item.get(key));
            if let Some(identity) = identity {
                positions.entry(identity).or_insert(at);
            }
        }
        Self { key, positions }
    }

    fn of(&self, item: &Value) -> Option<usize> {
        let identity = self.key.map_or(Some(item), |key| item.get(key))?;
        self.positions.get(identity).copied()
    }
}

/// The items of a patch must be in the order of the directive beside it.
pub(super) fn check_order(patch: &[Value], order: &[Value], rule: &PatchRule) -> Result<(), PatchError> {
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
pub(super) fn of_objects(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
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

pub(super) fn identity_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, PatchError> {
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

pub(super) fn as_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(PatchError::Contradictory(format!(
            "expected a []interface {{}}, but received a {}",
            go_text::type_name(&other)
        ))),
    }
}

fn without_repetition(items: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(items.len());
    let first: Vec<bool> = items.iter().map(|item| seen.insert(item)).collect();
    items
        .into_iter()
        .zip(first)
        .filter_map(|(item, first)| first.then_some(item))
        .collect()
}
