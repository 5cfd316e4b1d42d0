//! Decoding of lists and watches object by object: one that cannot be decoded does not fail the others.

use std::borrow::Cow;
use std::fmt::{self, Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, ObjectList};
use kube::{Api, Resource};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

use crate::store::object_key;

/// An object of a list or watch, or what is known of one that cannot be decoded.
#[derive(Debug, Clone)]
pub struct Lenient<K>(pub Result<K, UnreadableObject>);

/// An object that cannot be decoded.
#[derive(Debug, Clone)]
pub struct UnreadableObject {
    pub kind: String,
    /// Name, namespace, UID and resource version only.
    pub metadata: ObjectMeta,
    /// The field and what is wrong with it, without its value.
    pub reason: String,
}

impl UnreadableObject {
    /// Returns `namespace/name`, or the name of a cluster-scoped object.
    pub fn key(&self) -> String {
        crate::store::key_of(&self.metadata)
    }
}

impl fmt::Display for UnreadableObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:?} cannot be read: {}",
            self.kind,
            self.key(),
            self.reason
        )
    }
}

impl<K> From<K> for Lenient<K> {
    fn from(object: K) -> Self {
        Self(Ok(object))
    }
}

impl<'de, K> Deserialize<'de> for Lenient<K>
where
    K: DeserializeOwned + Resource,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Self(K::deserialize(&value).map_err(|_| unreadable::<K>(&value))))
    }
}

/// Describes an object that cannot be decoded. It is decoded once more, to find the field.
fn unreadable<K: DeserializeOwned>(value: &Value) -> UnreadableObject {
    let reason = match serde_path_to_error::deserialize::<_, K>(value) {
        Ok(_) => String::new(),
        Err(error) => format!("{}: {}", error.path(), without_values(&error.inner().to_string())),
    };
    let text = |name: &str| {
        let found = value.pointer(name).and_then(Value::as_str);
        found.map(str::to_owned)
    };
    UnreadableObject {
        kind: text("/kind").unwrap_or_else(|| crate::store::kind::<K>().to_owned()),
        metadata: ObjectMeta {
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            ..ObjectMeta::default()
        },
        reason,
    }
}

/// Removes the quoted value from an error of serde; it may be a secret.
fn without_values(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(start), Some(end)) if start < end => {
            let (before, after) = (message.get(..start), message.get(end + 1..));
            format!("{}...{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        _ => message.to_owned(),
    }
}

impl<K: Resource> Resource for Lenient<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

/// The objects of a list, without those that cannot be decoded.
#[derive(Debug, Clone)]
pub struct LenientList<K> {
    pub items: Vec<K>,
    pub unreadable: Vec<UnreadableObject>,
}

impl<K> Default for LenientList<K> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            unreadable: Vec::new(),
        }
    }
}

impl<K: Clone> From<ObjectList<Lenient<K>>> for LenientList<K> {
    fn from(list: ObjectList<Lenient<K>>) -> Self {
        let mut all = Self::default();
        for object in list.items {
            match object.0 {
                Ok(object) => all.items.push(object),
                Err(unreadable) => all.unreadable.push(unreadable),
            }
        }
        all
    }
}

impl<K> LenientList<K> {
    /// Returns the objects, after logging those that cannot be decoded.
    pub fn logged(self) -> Vec<K> {
        for unreadable in &self.unreadable {
            tracing::warn!("{unreadable}");
        }
        self.items
    }
}

/// Lists objects and decodes them one by one.
pub async fn list_lenient<K>(api: &Api<Lenient<K>>, params: &ListParams) -> kube::Result<LenientList<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    api.list(params).await.map(LenientList::from)
}

/// The objects of one reader that cannot be decoded, by key. They are part of the process's metrics.
#[derive(Debug, Default)]
pub(crate) struct UnreadableObjects {
    by_key: std::collections::BTreeMap<String, (UnreadableObject, mco_telemetry::UnreadableReport)>,
}

impl UnreadableObjects {
    pub fn insert(&mut self, object: UnreadableObject) {
        let key = object.key();
        let report = mco_telemetry::report_unreadable(&object.kind, &key, &object.reason);
        self.by_key.insert(key, (object, report));
    }

    pub fn remove(&mut self, object: &impl Resource) {
        if !self.by_key.is_empty() {
            self.by_key.remove(&object_key(object));
        }
    }

    /// Replaces all objects. Those that were reported before are not reported as new.
    pub fn replace(&mut self, objects: Vec<UnreadableObject>) {
        let mut replaced = Self::default();
        for object in objects {
            replaced.insert(object);
        }
        *self = replaced;
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub fn all(&self) -> Vec<UnreadableObject> {
        self.by_key.values().map(|(object, _)| object.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Secret};
    use serde_json::json;

    use super::*;

    #[test]
    fn one_object_that_cannot_be_decoded_does_not_fail_the_list() {
        let list = json!({
            "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"},
            "items": [
                {"metadata": {"name": "a"}},
                {"metadata": {"name": "b", "resourceVersion": "5"}, "status": {"addresses": [null]}},
                {"metadata": {"name": "c", "labels": ["not", "a", "map"]}},
                {"metadata": {"name": "d"}, "status": {"addresses": [{"address": "x", "type": "InternalIP"}]}},
            ],
        });
        let list: ObjectList<Lenient<Node>> = serde_json::from_value(list).unwrap();
        let list = LenientList::from(list);
        let names: Vec<_> = list.items.iter().map(object_key).collect();
        assert_eq!(names, ["a", "d"]);
        let unreadable: Vec<_> = list.unreadable.iter().map(ToString::to_string).collect();
        assert!(
            unreadable[0].starts_with("Node \"b\" cannot be read: status.addresses[0]: invalid type: null"),
            "{unreadable:?}"
        );
        assert!(
            unreadable[1].starts_with("Node \"c\" cannot be read"),
            "{unreadable:?}"
        );
        assert_eq!(list.unreadable[0].metadata.resource_version.as_deref(), Some("5"));
    }

    #[test]
    fn the_reason_does_not_contain_the_value() {
        let secret =
            json!({"kind": "Secret", "metadata": {"name": "a", "namespace": "n"}, "data": "hunter\"2"});
        let secret: Lenient<Secret> = serde_json::from_value(secret).unwrap();
        let unreadable = secret.0.unwrap_err().to_string();
        assert!(unreadable.starts_with("Secret \"n/a\""), "{unreadable}");
        assert!(!unreadable.contains("hunter"), "{unreadable}");
    }
}
