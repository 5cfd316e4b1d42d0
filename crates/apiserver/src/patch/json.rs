//! JSON patch (RFC 6902), with the deviations of Kubernetes.
//!
//! `replace` sets a member that does not exist, negative indices count from the end, and `null` equals absence
//! in `test`. Clients rely on these, so both servers must agree on them.

use serde_json::{Map, Value};

use super::PatchError;
use crate::cpu;
use crate::decode::{self, FieldValidation};
use crate::go_text;

/// The maximum number of operations in one request, which bounds the work that a small body can cause.
const MAX_OPERATIONS: usize = 10_000;

/// The maximum number of bytes that copies may add to an object. Each can double it, so that few could exhaust memory.
const MAX_COPIED: usize = 3 << 20;

/// The maximum nesting of a value that a patch writes. Copies into themselves double the depth, which would overflow the
/// stack of each recursion over the object; below 128, so that the stored object can be parsed again.
const MAX_DEPTH: usize = 100;

/// A decoded JSON patch.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    operations: Vec<PatchOperation>,
    /// The strict decoding errors; none if field validation is off.
    pub strict_errors: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct PatchOperation {
    kind: String,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

impl JsonPatch {
    /// Decodes the body of a request.
    pub fn decode(body: &[u8], validation: FieldValidation) -> Result<Self, PatchError> {
        let strict = validation != FieldValidation::Ignore;
        let prefix = if strict { "error decoding patch: " } else { "" };
        let decoded =
            decode::decode(body, None).map_err(|error| PatchError::Malformed(format!("{prefix}{error}")))?;
        let Value::Array(entries) = decoded.value else {
            let wanted = if strict {
                "[]handlers.jsonPatchOp"
            } else {
                "jsonpatch.Patch"
            };
            return Err(wrong_type(prefix, &decoded.value, wanted));
        };
        if entries.len() > MAX_OPERATIONS {
            return Err(PatchError::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                entries.len()
            )));
        }
        let mut strict_errors: Vec<String> = Vec::new();
        if strict {
            strict_errors.extend(
                decoded
                    .strict_errors
                    .iter()
                    .map(|text| format!("json patch {text}")),
            );
        }
        let mut operations = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let Value::Object(fields) = entry else {
                let wanted = if strict {
                    "handlers.jsonPatchOp"
                } else {
                    "jsonpatch.Operation"
                };
                return Err(wrong_type(prefix, &entry, wanted));
            };
            if strict {
                strict_errors.extend(unknown_members(index, &fields));
            }
            operations.push(PatchOperation::read(fields));
        }
        Ok(Self {
            operations,
            strict_errors,
        })
    }

    /// Returns whether the patch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Applies every operation in turn. After an error the document is half-way changed and must be discarded.
    pub fn apply(&self, document: &mut Value) -> Result<(), PatchError> {
        let mut copied = 0;
        for operation in &self.operations {
            // An operation in front of a long list moves all of its items.
            cpu::check()?;
            operation
                .apply(document, &mut copied)
                .map_err(PatchError::DoesNotApply)?;
        }
        Ok(())
    }
}

fn wrong_type(prefix: &str, found: &Value, wanted: &str) -> PatchError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    PatchError::Malformed(format!(
        "{prefix}json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

fn unknown_members(index: usize, fields: &Map<String, Value>) -> Vec<String> {
    fields
        .keys()
        .filter(|name| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
        .map(|name| {
            format!(
                "json patch unknown field {}",
                go_text::quote(&format!("[{index}].{name}"))
            )
        })
        .collect()
}

impl PatchOperation {
    fn read(mut fields: Map<String, Value>) -> Self {
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let kind = text("op").unwrap_or_else(|| "unknown".to_owned());
        let path = text("path");
        let from = text("from");
        Self {
            kind,
            path,
            from,
            value: fields.remove("value").unwrap_or(Value::Null),
        }
    }

    /// `copied` is the number of bytes that the copies of this patch have added so far.
    fn apply(&self, document: &mut Value, copied: &mut usize) -> Result<(), String> {
        match self.kind.as_str() {
            "add" => self.add(document),
            "remove" => self.remove(document),
            "replace" => self.replace(document),
            "move" => self.relocate(document),
            "copy" => self.copy(document, copied),
            "test" => self.test(document),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn path(&self) -> Result<&str, String> {
        let missing = || format!("{} operation failed to decode path: missing value", self.kind);
        self.path.as_deref().ok_or_else(missing)
    }

    fn from(&self) -> Result<&str, String> {
        let missing = || {
            format!(
                "{} operation failed to decode from: operation, missing from field: missing value",
                self.kind
            )
        };
        self.from.as_deref().ok_or_else(missing)
    }

    fn add(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        let (parent, key) = find_parent(document, path).ok_or_else(|| {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        check_depth(path, &self.value)?;
        insert(parent, &key, self.value.clone())
            .map_err(|error| format!("error in add for path: '{path}': {error}"))
    }

    fn remove(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        let (parent, key) = find_parent(document, path).ok_or_else(|| {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        take(parent, &key)
            .map(drop)
            .map_err(|error| format!("error in remove for path: '{path}': {error}"))
    }

    fn replace(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        if path.is_empty() {
            if !(self.value.is_object() || self.value.is_array()) {
                return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
            }
            *document = self.value.clone();
            return Ok(());
        }
        check_depth(path, &self.value)?;
        let (parent, key) = find_parent(document, path).ok_or_else(|| {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        })?;
        match parent {
            Value::Object(fields) => {
                fields.insert(key, self.value.clone());
            }
            Value::Array(items) => {
                let missing =
                    || format!("replace operation does not apply: doc is missing key: {path}: missing value");
                let index = index_within(&key, items.len()).map_err(|_| missing())?;
                *items.get_mut(index).ok_or_else(missing)? = self.value.clone();
            }
            _ => {}
        }
        Ok(())
    }

    fn relocate(&self, document: &mut Value) -> Result<(), String> {
        let from = self.from()?;
        let (parent, key) = find_parent(document, from).ok_or_else(|| {
            format!("move operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        let value =
            take(parent, &key).map_err(|error| format!("error in move for path: '{key}': {error}"))?;
        let path = self.path()?;
        let (parent, key) = find_parent(document, path).ok_or_else(|| {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        check_depth(path, &value)?;
        insert(parent, &key, value).map_err(|error| format!("error in move for path: '{path}': {error}"))
    }

    fn copy(&self, document: &mut Value, copied: &mut usize) -> Result<(), String> {
        let from = self.from()?;
        let (parent, key) = find_parent(document, from).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        let found =
            get(parent, &key).map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
        *copied += found.map_or(0, |value| value.to_string().len());
        if *copied > MAX_COPIED {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
            ));
        }
        let value = found.cloned().unwrap_or(Value::Null);
        let path = self.path()?;
        let (parent, key) = find_parent(document, path).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        check_depth(path, &value)?;
        insert(parent, &key, value).map_err(|error| format!("error while adding value during copy: {error}"))
    }

    fn test(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        let failed = || format!("testing value {path} failed: test failed");
        if path.is_empty() {
            return if *document == self.value {
                Ok(())
            } else {
                Err(failed())
            };
        }
        let (parent, key) = find_parent(document, path).ok_or_else(|| {
            format!("test operation does not apply: is missing path: {path}: missing value")
        })?;
        let found =
            get(parent, &key).map_err(|error| format!("error in test for path: '{path}': {error}"))?;
        if found.unwrap_or(&Value::Null) == &self.value {
            Ok(())
        } else {
            Err(failed())
        }
    }
}

/// Returns the container of a path's last segment, and that segment.
/// Rejects a value that would be nested too deeply at `path`.
fn check_depth(path: &str, value: &Value) -> Result<(), String> {
    let depth = path.matches('/').count() + depth(value);
    if depth > MAX_DEPTH {
        return Err(format!(
            "the value at a path that starts with {:?} would be nested {depth} levels deep, exceeding the limit {MAX_DEPTH}",
            path.chars().take(40).collect::<String>()
        ));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn find_parent<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let mut steps: Vec<&str> = path.split('/').collect();
    if steps.len() < 2 {
        return None;
    }
    let last = steps.pop()?;
    let mut at = document;
    for step in steps.into_iter().skip(1) {
        let step = unescape(step);
        at = match at {
            Value::Object(fields) => fields.get_mut(&step)?,
            Value::Array(items) => {
                let index = index_within(&step, items.len()).ok()?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    matches!(at, Value::Object(_) | Value::Array(_)).then(|| (at, unescape(last)))
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn get<'v>(parent: &'v Value, key: &str) -> Result<Option<&'v Value>, String> {
    match parent {
        Value::Object(fields) => Ok(fields.get(key)),
        Value::Array(items) => {
            let index = index_within(key, items.len())?;
            Ok(items.get(index))
        }
        _ => Ok(None),
    }
}

fn insert(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            // One past the end is a valid position to insert at, so the array counts as one longer.
            let index = index_within(key, items.len() + 1).map_err(|error| {
                if key.parse::<i64>().is_err() {
                    format!("value was not a proper array index: '{key}': {error}")
                } else {
                    error
                }
            })?;
            items.insert(index, value);
        }
        _ => {}
    }
    Ok(())
}

fn take(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Object(fields) => fields
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(items) => {
            let index = index_within(key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Ok(Value::Null),
    }
}

/// Returns an index below `length`; negative ones count from the end.
fn index_within(key: &str, length: usize) -> Result<usize, String> {
    let index: i64 = key
        .parse()
        .map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", go_text::quote(key)))?;
    let outside = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let length_signed = i64::try_from(length).map_err(|_| outside())?;
    let from_start = if index < 0 { index + length_signed } else { index };
    usize::try_from(from_start)
        .ok()
        .filter(|index| *index < length)
        .ok_or_else(outside)
}

#[cfg(test)]
mod tests;
