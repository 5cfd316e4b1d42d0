//! Merging of keyed lists without an index: slow and simple, to compare the results of [`super::list`] with.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::list::{as_list, check_order, identity_of, of_objects};
use super::{
    DIRECTIVE, PatchFields, PatchShape, SET_ELEMENT_ORDER, StrategicMerger, as_new, malformed,
    unknown_directive,
};
use crate::kinds;
use crate::patch::PatchError;
use crate::schema::{PatchRule, PatchStrategy};

struct Quadratic<'m, 's>(&'m StrategicMerger<'s>);

impl<'s> Quadratic<'_, 's> {
    /// Handles every `$setElementOrder/<list>` of a patch together with its list, and removes both from the patch.
    fn ordered_lists(
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
            let (child, rule) = self.0.lookup(shape, &name);
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
    fn list(
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
                    *existing = self
                        .0
                        .map(std::mem::take(existing), members.clone(), self.0.items(list))?;
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

fn without_repetition(items: Vec<Value>) -> Vec<Value> {
    let mut distinct: Vec<Value> = Vec::with_capacity(items.len());
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// Values of merge keys: few, so that they repeat, and of every type.
fn identity() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => "[a-e]".prop_map(Value::from),
        1 => Just(json!(1)),
        1 => Just(json!(1.0)),
        1 => Just(Value::Null),
        1 => Just(json!({"x": null})),
        1 => Just(json!({})),
    ]
}

fn item() -> impl Strategy<Value = Value> {
    let extra = prop_oneof![
        6 => Just(json!({})),
        2 => (0..3).prop_map(|value| json!({"value": value})),
        1 => Just(json!({"$patch": "delete"})),
        1 => Just(json!({"valueFrom": {"fieldRef": null}})),
    ];
    let replace = Just(json!({"$patch": "replace"}));
    let keyless = Just(json!({"value": "x"}));
    let keyed = (identity(), extra).prop_map(|(name, mut item)| {
        item["name"] = name;
        item
    });
    prop_oneof![60 => keyed, 1 => replace, 1 => keyless, 1 => Just(json!("scalar"))]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![8 => "[a-f]".prop_map(Value::from), 1 => (0..3).prop_map(Value::from)]
}

/// Original, patch and order of a list with a merge key, or of a list of scalars.
fn lists() -> impl Strategy<Value = (bool, [Vec<Value>; 3])> {
    fn three<S: Strategy<Value = Value>>(item: fn() -> S) -> impl Strategy<Value = [Vec<Value>; 3]> {
        let list = |longest| prop::collection::vec(item(), 0..longest);
        (list(8), list(6), list(10)).prop_map(|(original, patch, order)| [original, patch, order])
    }
    prop_oneof![
        3 => three(item).prop_map(|lists| (true, lists)),
        1 => three(scalar).prop_map(|lists| (false, lists)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_index_merges_and_orders_as_the_quadratic_search_did((is_keyed, [original, patch, order]) in lists()) {
        let kind = if is_keyed { "Container" } else { "ObjectMeta" };
        let name = if is_keyed { "env" } else { "finalizers" };
        let pod = kinds::BUILT_IN.iter().find(|entry| entry.kind == "Pod").unwrap();
        let schema = kinds::schema_of(pod.definition).unwrap();
        let merger = StrategicMerger { schema: &schema };
        let shape = shape_of(&merger, kind);
        let (child, rule) = merger.lookup(shape, name);
        prop_assert_eq!(rule.strategy, PatchStrategy::Merge);
        prop_assert_eq!(rule.merge_key.is_some(), is_keyed);
        prop_assert_eq!(
            merger.list(original.clone(), patch.clone(), child, &rule),
            Quadratic(&merger).list(original.clone(), patch.clone(), child, &rule)
        );
        let object = |items: &[Value]| json!({name: items}).as_object().cloned().unwrap();
        for patched in [Some(patch), None] {
            let mut patch = patched.map(|patch| object(&patch)).unwrap_or_default();
            patch.insert(format!("{SET_ELEMENT_ORDER}{name}"), Value::from(order.clone()));
            let (mut indexed, mut searched) = (object(&original), object(&original));
            let outcomes = (
                merger.ordered_lists(&mut indexed, &mut patch.clone(), shape),
                Quadratic(&merger).ordered_lists(&mut searched, &mut patch, shape),
            );
            prop_assert_eq!(outcomes.0, outcomes.1);
            prop_assert_eq!(indexed, searched);
        }
    }
}

fn shape_of<'s>(merger: &StrategicMerger<'s>, kind: &str) -> PatchShape<'s> {
    let root = PatchShape::Node(merger.schema.root());
    if kind == "ObjectMeta" {
        return merger.lookup(root, "metadata").0;
    }
    let spec = merger.lookup(root, "spec").0;
    merger.items(merger.lookup(spec, "containers").0)
}
