//! The objects that equal their manifests, so that a step whose inputs did not change needs no request.
//!
//! An object is compared with its manifest once. The result is kept until the manifest differs or a watch reports a
//! change of the object. Without a complete list and a running watch of its kind nothing is kept.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde_json::Value;

/// A kind, in one namespace or cluster-wide: the extent of one watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WatchScope {
    /// The group and version, for example `apps/v1`.
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
}

/// What a writer of the status does not change. Only kinds with a status have a generation.
#[derive(Debug, PartialEq, Eq)]
enum ObjectRevision {
    Generation {
        generation: i64,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
    },
    ResourceVersion(Option<String>),
}

impl ObjectRevision {
    fn of(metadata: &ObjectMeta) -> Self {
        match metadata.generation {
            Some(generation) => Self::Generation {
                generation,
                labels: metadata.labels.clone(),
                annotations: metadata.annotations.clone(),
            },
            None => Self::ResourceVersion(metadata.resource_version.clone()),
        }
    }
}

#[derive(Debug)]
struct AppliedObject {
    manifest: u64,
    revision: ObjectRevision,
}

#[derive(Debug, Default)]
struct ScopeState {
    /// The watch has a complete list and reports changes.
    is_watched: bool,
    /// Incremented by every event after which an answer that is under way may be outdated.
    events: u64,
    objects: HashMap<String, AppliedObject>,
}

/// Limits a comparison to the events that were known when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparisonStart(u64);

/// The results of comparisons.
#[derive(Debug, Default)]
pub(crate) struct AppliedObjects {
    scopes: Mutex<HashMap<WatchScope, ScopeState>>,
}

impl AppliedObjects {
    /// Returns the scopes of all objects that were compared, which have to be watched.
    pub fn scopes(&self) -> Vec<WatchScope> {
        let mut scopes: Vec<WatchScope> = self.scopes.lock().keys().cloned().collect();
        scopes.sort();
        scopes
    }

    /// Returns whether the object equals this manifest and has not changed since.
    pub fn is_unchanged(&self, scope: &WatchScope, name: &str, manifest: &Value) -> bool {
        let scopes = self.scopes.lock();
        let Some(state) = scopes.get(scope).filter(|state| state.is_watched) else {
            return false;
        };
        let object = state.objects.get(name);
        object.is_some_and(|object| object.manifest == fingerprint(manifest))
    }

    /// Begins a comparison, before the object is read.
    pub fn begin(&self, scope: &WatchScope) -> ComparisonStart {
        let mut scopes = self.scopes.lock();
        ComparisonStart(scopes.entry(scope.clone()).or_default().events)
    }

    /// Records that the object equals the manifest, unless a watch has reported a change since the comparison began.
    pub fn record(
        &self,
        scope: &WatchScope,
        start: ComparisonStart,
        name: &str,
        manifest: &Value,
        metadata: &ObjectMeta,
    ) {
        let mut scopes = self.scopes.lock();
        let state = scopes.entry(scope.clone()).or_default();
        if state.is_watched && state.events == start.0 {
            let object = AppliedObject {
                manifest: fingerprint(manifest),
                revision: ObjectRevision::of(metadata),
            };
            state.objects.insert(name.to_owned(), object);
        }
    }

    /// Applies an event of the scope's watch. Returns whether an object has to be compared again.
    pub fn observe<K>(&self, scope: &WatchScope, event: &Event<PartialObjectMeta<K>>) -> bool {
        let mut scopes = self.scopes.lock();
        let state = scopes.entry(scope.clone()).or_default();
        match event {
            // Changes between two lists have no events.
            Event::Init | Event::InitDone => {
                state.is_watched = matches!(event, Event::InitDone);
                state.events += 1;
                state.objects.clear();
                state.is_watched
            }
            Event::InitApply(_) => false,
            Event::Apply(object) => {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let revision = ObjectRevision::of(&object.metadata);
                let known = state.objects.get(name);
                if known.is_some_and(|known| known.revision == revision) {
                    return false;
                }
                state.events += 1;
                state.objects.remove(name).is_some()
            }
            Event::Delete(object) => {
                state.events += 1;
                let name = object.metadata.name.as_deref().unwrap_or_default();
                state.objects.remove(name).is_some()
            }
        }
    }

    /// Forgets all results, so that the next sync compares everything.
    pub fn clear(&self) {
        for state in self.scopes.lock().values_mut() {
            state.objects.clear();
        }
    }
}

fn fingerprint(manifest: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    manifest.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;

    type Metadata = PartialObjectMeta<DynamicObject>;

    fn metadata(generation: Option<i64>, resource_version: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some("a".to_owned()),
            generation,
            resource_version: Some(resource_version.to_owned()),
            ..ObjectMeta::default()
        }
    }

    fn object(generation: Option<i64>, resource_version: &str) -> Metadata {
        PartialObjectMeta {
            types: None,
            metadata: metadata(generation, resource_version),
            _phantom: std::marker::PhantomData,
        }
    }

    fn scope() -> WatchScope {
        WatchScope {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("b".to_owned()),
        }
    }

    /// Returns the results after a complete list and a comparison of an object with this revision.
    fn compared(generation: Option<i64>, resource_version: &str) -> AppliedObjects {
        let applied = AppliedObjects::default();
        applied.observe(&scope(), &Event::<Metadata>::InitDone);
        let start = applied.begin(&scope());
        let metadata = metadata(generation, resource_version);
        applied.record(&scope(), start, "a", &json!({"data": 1}), &metadata);
        applied
    }

    fn is_unchanged(applied: &AppliedObjects) -> bool {
        applied.is_unchanged(&scope(), "a", &json!({"data": 1}))
    }

    #[test]
    fn an_object_is_compared_again_when_it_or_its_manifest_changed() {
        for (name, event, expected) in [
            ("our own write", Event::Apply(object(None, "5")), true),
            ("another write", Event::Apply(object(None, "6")), false),
            ("it is deleted", Event::Delete(object(None, "6")), false),
            ("the watch starts again", Event::Init, false),
            ("a list", Event::InitDone, false),
        ] {
            let applied = compared(None, "5");
            assert!(is_unchanged(&applied), "{name}");
            applied.observe(&scope(), &event);
            assert_eq!(is_unchanged(&applied), expected, "{name}");
        }
        assert!(!compared(None, "5").is_unchanged(&scope(), "a", &json!({"data": 2})));
        assert!(!compared(None, "5").is_unchanged(&scope(), "c", &json!({"data": 1})));
    }

    #[test]
    fn a_status_is_no_change_of_what_was_applied() {
        let applied = compared(Some(1), "5");
        assert!(!applied.observe(&scope(), &Event::Apply(object(Some(1), "6"))));
        assert!(is_unchanged(&applied));
        assert!(applied.observe(&scope(), &Event::Apply(object(Some(2), "7"))));
        assert!(!is_unchanged(&applied));
    }

    #[test]
    fn a_change_during_a_comparison_is_not_missed() {
        let applied = AppliedObjects::default();
        applied.observe(&scope(), &Event::<Metadata>::InitDone);
        let start = applied.begin(&scope());
        applied.observe(&scope(), &Event::Delete(object(None, "6")));
        applied.record(&scope(), start, "a", &json!({"data": 1}), &metadata(None, "5"));
        assert!(!is_unchanged(&applied));
    }

    #[test]
    fn nothing_is_kept_without_a_watch() {
        let applied = AppliedObjects::default();
        let start = applied.begin(&scope());
        applied.record(&scope(), start, "a", &json!({"data": 1}), &metadata(None, "5"));
        assert!(!is_unchanged(&applied));
        assert_eq!(applied.scopes(), [scope()], "so that it will be watched");
    }
}
