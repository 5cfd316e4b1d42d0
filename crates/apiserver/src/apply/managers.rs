//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::fields_v1;

/// The operation by which a manager owns its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManagerOperation {
    Apply,
    Update,
}

impl ManagerOperation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of an entry. An applier has the same identity in all versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerId {
    pub manager: String,
    pub operation: ManagerOperation,
    /// Empty for appliers.
    pub api_version: String,
    pub subresource: String,
}

/// The fields of one manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedEntry {
    pub set: FieldSet,
    pub api_version: String,
    /// RFC 3339, as read or as it will be written.
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers {
    entries: BTreeMap<ManagerId, ManagedEntry>,
}

/// The manager of entries without a name.
const UNKNOWN: &str = "unknown";

/// Update entries beyond this number are merged into one, so that their number is bounded.
const MAX_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// Longer names are cut, as the parameter that sets them is limited to the same length.
const MAX_NAME_BYTES: usize = 128;

/// Returns the manager of a request: the one it names, otherwise the program in its user agent.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in program.chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > MAX_NAME_BYTES {
            break;
        }
        name.push(c);
    }
    name
}

impl ManagerId {
    pub fn new(manager: &str, operation: ManagerOperation, api_version: &str, subresource: &str) -> Self {
        let api_version = if operation == ManagerOperation::Apply {
            ""
        } else {
            api_version
        };
        let manager = if manager.is_empty() { UNKNOWN } else { manager };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// Returns the name in conflict messages.
    pub fn shown(&self) -> String {
        let mut text = crate::go_text::quote(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&crate::go_text::quote(&self.subresource));
        }
        if self.operation == ManagerOperation::Update {
            text.push_str(" using ");
            text.push_str(&self.api_version);
        }
        text
    }
}

impl Managers {
    /// Decodes the entries of an object; the error describes what is invalid.
    pub fn decode(object: &Value) -> Result<Self, String> {
        let mut managers = Self::default();
        let entries = object
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array);
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => ManagerOperation::Apply,
                "Update" => ManagerOperation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => {
                    return Err(format!(
                        "invalid fieldsType {other:?} in managed fields entry {index}"
                    ));
                }
            }
            let set = fields_v1::decode(entry.get("fieldsV1").unwrap_or(&Value::Null))?;
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managers.entries.insert(
                ManagerId {
                    manager: text("manager").to_owned(),
                    ..ManagerId::new(UNKNOWN, operation, api_version, text("subresource"))
                },
                ManagedEntry {
                    set,
                    api_version: api_version.to_owned(),
                    time,
                },
            );
        }
        Ok(managers)
    }

    /// Writes the entries into an object, or removes the field if there are none.
    pub fn encode_into(&self, object: &mut Value) {
        let mut entries: Vec<(&ManagerId, &ManagedEntry)> = self.entries.iter().collect();
        entries.sort_by(|(a, x), (b, y)| {
            let key = |id: &ManagerId, managed: &ManagedEntry| {
                (
                    id.operation,
                    managed.time.clone().unwrap_or_default(),
                    id.manager.clone(),
                    managed.api_version.clone(),
                    id.subresource.clone(),
                )
            };
            key(a, x).cmp(&key(b, y))
        });
        let encoded: Vec<Value> = entries
            .into_iter()
            .map(|(id, managed)| encode(id, managed))
            .collect();
        let Some(metadata) = metadata_mut(object) else {
            return;
        };
        if encoded.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(encoded));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, id: &ManagerId) -> Option<&ManagedEntry> {
        self.entries.get(id)
    }

    pub fn insert(&mut self, id: ManagerId, managed: ManagedEntry) {
        self.entries.insert(id, managed);
    }

    pub fn remove(&mut self, id: &ManagerId) -> Option<ManagedEntry> {
        self.entries.remove(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ManagerId, &ManagedEntry)> {
        self.entries.iter()
    }

    /// Transforms each set; managers without fields are removed.
    pub fn update_sets(&mut self, update: impl Fn(&ManagerId, &FieldSet) -> FieldSet) {
        self.entries.retain(|id, managed| {
            managed.set = update(id, &managed.set);
            !managed.set.is_empty()
        });
    }

    /// Removes managers whose version is no longer served.
    pub fn retain_versions(&mut self, is_served: impl Fn(&str) -> bool) {
        self.entries.retain(|_, managed| is_served(&managed.api_version));
    }

    /// Merges the oldest update entries if there are too many.
    pub fn cap_updaters(&mut self) {
        let mut updaters: Vec<(String, ManagerId)> = self
            .entries
            .iter()
            .filter(|(id, _)| id.operation == ManagerOperation::Update)
            .map(|(id, managed)| (managed.time.clone().unwrap_or_default(), id.clone()))
            .collect();
        updaters.sort();
        let mut count = updaters.len();
        let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (_, id) in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let Some(first) = first_of_version.get(&id.api_version).cloned() else {
                first_of_version.insert(id.api_version.clone(), id);
                continue;
            };
            let bucket = ManagerId::new(ANCIENT, ManagerOperation::Update, &id.api_version, "");
            if !self.entries.contains_key(&bucket)
                && let Some(managed) = self.entries.remove(&first)
            {
                self.entries.insert(bucket.clone(), managed);
            }
            if let Some(older) = self.entries.remove(&id) {
                if let Some(managed) = self.entries.get_mut(&bucket) {
                    managed.set = managed.set.union(&older.set);
                    managed.time = older.time;
                }
                count -= 1;
            }
        }
    }
}

fn encode(id: &ManagerId, managed: &ManagedEntry) -> Value {
    let mut entry = Map::new();
    entry.insert("manager".to_owned(), Value::from(id.manager.as_str()));
    entry.insert("operation".to_owned(), Value::from(id.operation.name()));
    entry.insert("apiVersion".to_owned(), Value::from(managed.api_version.as_str()));
    if let Some(time) = &managed.time {
        entry.insert("time".to_owned(), Value::from(time.as_str()));
    }
    entry.insert("fieldsType".to_owned(), Value::from("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), fields_v1::encode(&managed.set));
    if !id.subresource.is_empty() {
        entry.insert("subresource".to_owned(), Value::from(id.subresource.as_str()));
    }
    Value::Object(entry)
}

pub(super) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let fields = object.as_object_mut()?;
    let metadata = fields
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    metadata.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_named_by_the_request_or_by_its_program() {
        for (parameter, agent, expected) in [
            ("mco", "kubectl/v1.36", "mco"),
            ("", "kubectl/v1.36 (linux)", "kubectl"),
            ("", "curl", "curl"),
            ("", "a\u{7}b/1", "ab"),
            ("", "", ""),
        ] {
            assert_eq!(manager_name(parameter, agent), expected, "{parameter} {agent}");
        }
        assert_eq!(manager_name("", &"x".repeat(200)).len(), 128);
        let unnamed = ManagerId::new("", ManagerOperation::Update, "v1", "");
        assert_eq!(unnamed.shown(), "\"unknown\" using v1");
    }
}
