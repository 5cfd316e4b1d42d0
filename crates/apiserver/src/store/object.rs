//! One immutable version of one object, held as the bytes that clients receive.
//!
//! Objects stay serialized: a list is a concatenation, and a watch event is shared by all watchers. The metadata that
//! the server needs without parsing (labels, owners, finalizers) is extracted once, into [`ObjectMetaView`].

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::StoreError;

/// The key of an object: the stored resource (`nodes`, `widgets.example.io`) and the
/// path below it (`name`, or `namespace/name`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub resource: Arc<str>,
    pub path: Arc<str>,
}

impl ObjectKey {
    /// An empty namespace means a cluster-scoped object.
    pub fn new(resource: &Arc<str>, namespace: &str, name: &str) -> Self {
        let path = if namespace.is_empty() {
            Arc::from(name)
        } else {
            Arc::from(format!("{namespace}/{name}"))
        };
        Self {
            resource: Arc::clone(resource),
            path,
        }
    }

    pub fn namespace(&self) -> &str {
        self.path.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.path.split_once('/').map_or(&self.path, |(_, name)| name)
    }

    /// Returns the key as errors of Kubernetes' storage name it.
    pub fn registry_path(&self) -> String {
        format!("/registry/{}/{}", self.resource, self.path)
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: Option<bool>,
    pub block_owner_deletion: Option<bool>,
}

/// The part of `metadata` that the server reads without parsing the object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMetaView {
    pub uid: String,
    #[serde(deserialize_with = "null_as_default")]
    pub labels: Map<String, Value>,
    #[serde(deserialize_with = "null_as_default")]
    pub owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "null_as_default")]
    pub finalizers: Vec<String>,
    pub deletion_timestamp: Option<String>,
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct Wrapped {
    kind: String,
    #[serde(default)]
    metadata: ObjectMetaView,
}

/// The maximum size of an object, which is that of a request to etcd.
const MAX_OBJECT: usize = 3 << 19;
/// The maximum size of an Event; any node can write them.
const MAX_EVENT: usize = 64 << 10;

/// One version of one object.
#[derive(Debug)]
pub struct StoredObject {
    pub key: ObjectKey,
    pub revision: u64,
    pub kind: String,
    pub metadata: ObjectMetaView,
    json: Bytes,
    /// The offset of the first field after `kind` and `apiVersion`.
    body_at: usize,
    metadata_only: OnceLock<Bytes>,
    field_texts: OnceLock<Vec<String>>,
}

impl StoredObject {
    /// Serializes an object with its revision.
    pub fn encode(key: ObjectKey, revision: u64, mut object: Map<String, Value>) -> Result<Self, StoreError> {
        let metadata = object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        let Some(metadata) = metadata.as_object_mut() else {
            return Err(StoreError::NotAnObject {
                path: key.registry_path(),
            });
        };
        metadata.insert("resourceVersion".to_owned(), Value::from(revision.to_string()));
        let head = ObjectMetaView::deserialize(&*metadata).map_err(|source| StoreError::Encode {
            path: key.registry_path(),
            source,
        })?;
        let kind = take_string(&mut object, "kind");
        let api_version = take_string(&mut object, "apiVersion");
        let mut json = Vec::with_capacity(1024);
        write_type_meta(&mut json, &kind, &api_version);
        let body_at = json.len();
        let body = serde_json::to_vec(&object).map_err(|source| StoreError::Encode {
            path: key.registry_path(),
            source,
        })?;
        json.extend_from_slice(&body[1..]);
        Ok(Self {
            key,
            revision,
            kind,
            metadata: head,
            json: Bytes::from(json),
            body_at,
            metadata_only: OnceLock::new(),
            field_texts: OnceLock::new(),
        })
    }

    /// Rejects a version that is too large to be written. One that was written before can still be deleted.
    pub fn check_size(&self) -> Result<(), StoreError> {
        let limit = if &*self.key.resource == "events" {
            MAX_EVENT
        } else {
            MAX_OBJECT
        };
        if self.json.len() <= limit {
            return Ok(());
        }
        Err(StoreError::TooLarge {
            path: self.key.registry_path(),
            bytes: self.json.len(),
            limit,
        })
    }

    /// Decodes the output of [`StoredObject::encode`].
    pub fn decode(key: ObjectKey, revision: u64, json: Bytes) -> Result<Self, StoreError> {
        let wrapped: Wrapped = serde_json::from_slice(&json).map_err(|source| StoreError::Encode {
            path: key.registry_path(),
            source,
        })?;
        let body_at = find_body(&json).ok_or_else(|| StoreError::NotAnObject {
            path: key.registry_path(),
        })?;
        Ok(Self {
            key,
            revision,
            kind: wrapped.kind,
            metadata: wrapped.metadata,
            json,
            body_at,
            metadata_only: OnceLock::new(),
            field_texts: OnceLock::new(),
        })
    }

    /// Returns the whole object as it was written.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Returns everything after the type, up to and including the closing brace.
    pub fn body(&self) -> &[u8] {
        &self.json[self.body_at..]
    }

    /// Returns everything before [`StoredObject::body`]: the opening brace, `kind` and `apiVersion`.
    pub fn type_meta(&self) -> &[u8] {
        &self.json[..self.body_at]
    }

    /// Returns the object as a JSON map.
    pub fn value(&self) -> Result<Map<String, Value>, StoreError> {
        serde_json::from_slice(&self.json).map_err(|source| StoreError::Encode {
            path: self.key.registry_path(),
            source,
        })
    }

    /// Returns `"metadata":{...}}`, serialized once.
    pub fn metadata_body(&self) -> &Bytes {
        self.metadata_only.get_or_init(|| {
            #[derive(Deserialize)]
            struct Only<'a> {
                #[serde(borrow)]
                metadata: &'a serde_json::value::RawValue,
            }
            let metadata = serde_json::from_slice::<Only<'_>>(&self.json)
                .map_or("{}", |only| only.metadata.get())
                .to_owned();
            Bytes::from(format!("\"metadata\":{metadata}}}"))
        })
    }

    /// Returns the texts for field selectors, read once per version.
    pub fn field_texts(&self, read: impl FnOnce(&Value) -> Vec<String>) -> &[String] {
        self.field_texts.get_or_init(|| {
            let object = serde_json::from_slice::<Value>(&self.json).unwrap_or(Value::Null);
            read(&object)
        })
    }

    /// Returns the object under a later revision, for the event of its removal.
    pub fn at_revision(&self, revision: u64) -> Result<Self, StoreError> {
        Self::encode(self.key.clone(), revision, self.value()?)
    }

    /// Returns a rough size, which bounds the history.
    pub fn weight(&self) -> usize {
        self.json.len() + 512
    }
}

/// Begins an object with its type; the body follows.
pub fn write_type_meta(out: &mut Vec<u8>, kind: &str, api_version: &str) {
    out.extend_from_slice(b"{\"kind\":");
    write_string(out, kind);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(out, api_version);
    out.push(b',');
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(Value::from(text).to_string().as_bytes());
}

fn take_string(object: &mut Map<String, Value>, field: &str) -> String {
    match object.remove(field) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Returns the offset after `{"kind":"...","apiVersion":"...",` in the output of [`StoredObject::encode`].
fn find_body(json: &[u8]) -> Option<usize> {
    let marker = b"\",\"apiVersion\":\"";
    let start = json.windows(marker.len()).position(|window| window == marker)? + marker.len();
    let end = json[start..].iter().position(|byte| *byte == b'"')? + start;
    (json.get(end + 1) == Some(&b',')).then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn encode(object: &Value, revision: u64) -> StoredObject {
        let key = ObjectKey::new(&Arc::from("configmaps"), "default", "a");
        StoredObject::encode(key, revision, object.as_object().cloned().unwrap()).unwrap()
    }

    #[test]
    fn an_object_reads_back_with_its_revision_stamped() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "\"apiVersion\":\""},
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}, "finalizers": null}});
        let stored = encode(&object, 42);
        let again = StoredObject::decode(stored.key.clone(), 42, stored.json().clone()).unwrap();
        assert_eq!(again.body(), stored.body());
        assert_eq!(again.kind, "ConfigMap");
        assert_eq!(again.metadata.labels["x"], "y");
        let value = Value::Object(again.value().unwrap());
        assert_eq!(value["metadata"]["resourceVersion"], "42");
        assert_eq!(value["data"], object["data"]);
    }

    #[test]
    fn metadata_alone_is_cut_out_of_the_whole() {
        let stored = encode(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {}, "metadata": {"name": "a"}}),
            7,
        );
        assert_eq!(
            &stored.metadata_body()[..],
            br#""metadata":{"name":"a","resourceVersion":"7"}}"#
        );
    }

    #[test]
    fn keys_name_their_namespace() {
        let resource = Arc::from("pods");
        assert_eq!(ObjectKey::new(&resource, "ns", "p").namespace(), "ns");
        assert_eq!(ObjectKey::new(&resource, "ns", "p").name(), "p");
        assert_eq!(ObjectKey::new(&resource, "", "n").namespace(), "");
        assert_eq!(ObjectKey::new(&resource, "", "n").name(), "n");
    }
}
