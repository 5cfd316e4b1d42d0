//! The state that readers see: the durable current objects, recent history and the index of owners.
//!
//! Only the writer's thread changes it, one whole batch at a time. Readers always see a complete revision that is on
//! disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::history::{EventChange, EventHistory, ExpiredRevision, Retention, StoreEvent};
use super::object::{ObjectKey, StoredObject};

#[derive(Debug)]
pub(super) struct StoreState {
    pub revision: u64,
    /// The start of the history of a resource without writes since the start.
    floor: u64,
    resources: HashMap<Arc<str>, ResourceState>,
    dependents: HashMap<String, BTreeSet<ObjectKey>>,
    uids: HashMap<String, ObjectKey>,
    retention: Retention,
    tip: watch::Sender<u64>,
    /// Candidates of garbage collection: objects whose owners, dependents or finalizers changed. At most one entry per
    /// object.
    gc_candidates: BTreeSet<ObjectKey>,
    /// The newest revision by time, for compaction by age.
    ages: VecDeque<(Instant, u64)>,
    compacted: u64,
}

#[derive(Debug)]
struct ResourceState {
    objects: BTreeMap<Arc<str>, Arc<StoredObject>>,
    history: EventHistory,
    tip: watch::Sender<u64>,
}

/// A part of a list: objects in key order at one revision.
#[derive(Debug)]
pub struct ObjectPage {
    pub revision: u64,
    pub objects: Vec<Arc<StoredObject>>,
}

/// Events of a resource.
#[derive(Debug)]
pub struct EventBatch {
    pub events: Vec<Arc<StoreEvent>>,
    /// The resource has no other events up to this revision.
    pub read_to: u64,
}

impl StoreState {
    pub fn load(revision: u64, objects: Vec<StoredObject>, retention: Retention) -> Self {
        let mut state = Self {
            revision,
            floor: revision,
            resources: HashMap::new(),
            dependents: HashMap::new(),
            uids: HashMap::new(),
            retention,
            tip: watch::Sender::new(revision),
            gc_candidates: BTreeSet::new(),
            ages: VecDeque::new(),
            compacted: 0,
        };
        for stored in objects {
            let stored = Arc::new(stored);
            state.index(&stored);
            state.add_gc_candidate(&stored);
            let resource = state.resource(&stored.key.resource);
            resource.objects.insert(Arc::clone(&stored.key.path), stored);
        }
        state
    }

    fn resource(&mut self, name: &Arc<str>) -> &mut ResourceState {
        let (floor, compacted) = (self.floor, self.compacted);
        self.resources
            .entry(Arc::clone(name))
            .or_insert_with(|| ResourceState {
                objects: BTreeMap::new(),
                history: EventHistory::starting_at(floor, compacted),
                tip: watch::Sender::new(floor),
            })
    }

    /// Makes a durable batch visible.
    pub fn publish(&mut self, events: Vec<Arc<StoreEvent>>) {
        let mut touched: HashMap<Arc<str>, u64> = HashMap::new();
        for event in events {
            let stored = Arc::clone(event.object());
            if let Some(previous) = &event.previous {
                self.unindex(previous);
            }
            let retention = self.retention;
            let removed = matches!(event.change, EventChange::Removed(_));
            if removed {
                self.add_related_gc_candidates(&stored);
            } else {
                self.index(&stored);
                self.add_gc_candidate(&stored);
            }
            self.revision = event.revision;
            touched.insert(Arc::clone(&stored.key.resource), event.revision);
            let resource = self.resource(&stored.key.resource);
            if removed {
                resource.objects.remove(&stored.key.path);
            } else {
                resource.objects.insert(Arc::clone(&stored.key.path), stored);
            }
            resource.history.push(event, &retention);
        }
        for (name, revision) in touched {
            self.resource(&name).tip.send_replace(revision);
        }
        self.tip.send_replace(self.revision);
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        self.resources.get(&key.resource)?.objects.get(&key.path).cloned()
    }

    pub fn by_uid(&self, uid: &str) -> Option<Arc<StoredObject>> {
        self.get(self.uids.get(uid)?)
    }

    pub fn dependents(&self, uid: &str) -> Vec<Arc<StoredObject>> {
        let keys = self.dependents.get(uid);
        keys.into_iter()
            .flatten()
            .filter_map(|key| self.get(key))
            .collect()
    }

    pub fn resource_names(&self) -> Vec<Arc<str>> {
        let filled = self
            .resources
            .iter()
            .filter(|(_, resource)| !resource.objects.is_empty());
        filled.map(|(name, _)| Arc::clone(name)).collect()
    }

    pub fn count(&self, resource: &str) -> usize {
        self.resources
            .get(resource)
            .map_or(0, |resource| resource.objects.len())
    }

    /// Returns the current objects of one resource, all or of one namespace.
    pub fn list(&self, resource: &str, namespace: &str) -> ObjectPage {
        let objects = match self.resources.get(resource) {
            None => Vec::new(),
            Some(resource) => in_namespace(&resource.objects, namespace, None)
                .map(|(_, stored)| Arc::clone(stored))
                .collect(),
        };
        ObjectPage {
            revision: self.revision,
            objects,
        }
    }

    /// Returns the objects of one resource at a revision, from a path on.
    pub fn list_at(
        &self,
        resource: &str,
        namespace: &str,
        revision: u64,
        from: Option<&str>,
    ) -> Result<ObjectPage, ExpiredRevision> {
        let Some(resource) = self.resources.get(resource) else {
            let oldest = self.floor.max(self.compacted);
            if revision < oldest {
                return Err(ExpiredRevision {
                    asked: revision,
                    oldest,
                });
            }
            return Ok(ObjectPage {
                revision,
                objects: Vec::new(),
            });
        };
        let mut undo = resource.history.undo(revision)?;
        let mut objects: Vec<Arc<StoredObject>> = in_namespace(&resource.objects, namespace, from)
            .filter_map(|(_, stored)| {
                undo.remove(&stored.key)
                    .unwrap_or_else(|| Some(Arc::clone(stored)))
            })
            .collect();
        // The rest of `undo` has no current object, or one outside the range.
        let vanished = undo.into_values().flatten().filter(|stored| {
            (namespace.is_empty() || stored.key.namespace() == namespace)
                && from.is_none_or(|from| &*stored.key.path >= from)
        });
        let before = objects.len();
        objects.extend(vanished);
        if objects.len() > before {
            objects.sort_by(|left, right| left.key.path.cmp(&right.key.path));
            objects.dedup_by(|left, right| left.key.path == right.key.path);
        }
        Ok(ObjectPage { revision, objects })
    }

    pub fn events_after(
        &self,
        resource: &str,
        revision: u64,
        limit: usize,
    ) -> Result<EventBatch, ExpiredRevision> {
        let events = match self.resources.get(resource) {
            Some(resource) => resource.history.after(revision, limit)?,
            None if revision < self.floor => {
                return Err(ExpiredRevision {
                    asked: revision,
                    oldest: self.floor,
                });
            }
            None => Vec::new(),
        };
        let read_to = match events.last() {
            Some(last) if events.len() == limit => last.revision,
            _ => self.revision.max(revision),
        };
        Ok(EventBatch { events, read_to })
    }

    /// Returns a channel that changes with every revision.
    pub fn tip(&self) -> watch::Receiver<u64> {
        self.tip.subscribe()
    }

    pub fn subscribe(&mut self, resource: &Arc<str>) -> watch::Receiver<u64> {
        self.resource(resource).tip.subscribe()
    }

    /// Removes history older than the retention; revisions of that age count as compacted.
    pub fn expire(&mut self, now: Instant) {
        let retention = self.retention;
        self.ages.push_back((now, self.revision));
        let mut old_enough = None;
        while let Some((at, revision)) = self.ages.front()
            && now.duration_since(*at) >= retention.age
        {
            old_enough = Some(*revision);
            self.ages.pop_front();
        }
        if let Some(revision) = old_enough {
            self.compact(revision);
        }
        for resource in self.resources.values_mut() {
            resource.history.expire(&retention, now);
        }
    }

    /// Returns the newest compacted revision.
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    pub fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
        for resource in self.resources.values_mut() {
            resource.history.compact(revision);
        }
    }

    /// Takes the candidates of garbage collection.
    pub fn take_gc_candidates(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.gc_candidates)
    }

    pub fn add_gc_candidate_again(&mut self, key: ObjectKey) {
        self.gc_candidates.insert(key);
    }

    fn add_gc_candidate(&mut self, stored: &StoredObject) {
        let head = &stored.metadata;
        let leaving = head.deletion_timestamp.is_some() && !head.finalizers.is_empty();
        if leaving || !head.owner_references.is_empty() {
            self.gc_candidates.insert(stored.key.clone());
        }
    }

    /// Adds candidates after a removal: dependents of the object, and owners that waited for it.
    fn add_related_gc_candidates(&mut self, gone: &StoredObject) {
        if let Some(dependents) = self.dependents.get(&gone.metadata.uid) {
            self.gc_candidates.extend(dependents.iter().cloned());
        }
        for owner in &gone.metadata.owner_references {
            if let Some(key) = self.uids.get(&owner.uid) {
                self.gc_candidates.insert(key.clone());
            }
        }
    }

    fn index(&mut self, stored: &Arc<StoredObject>) {
        self.uids.insert(stored.metadata.uid.clone(), stored.key.clone());
        for owner in &stored.metadata.owner_references {
            let dependents = self.dependents.entry(owner.uid.clone()).or_default();
            dependents.insert(stored.key.clone());
        }
    }

    fn unindex(&mut self, stored: &Arc<StoredObject>) {
        self.uids.remove(&stored.metadata.uid);
        for owner in &stored.metadata.owner_references {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&stored.key);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }
}

fn in_namespace<'a>(
    objects: &'a BTreeMap<Arc<str>, Arc<StoredObject>>,
    namespace: &str,
    from: Option<&str>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<StoredObject>)> {
    let prefix = if namespace.is_empty() {
        String::new()
    } else {
        format!("{namespace}/")
    };
    let start = match from {
        Some(from) if from > prefix.as_str() => from.to_owned(),
        _ => prefix.clone(),
    };
    objects
        .range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded))
        .take_while(move |(path, _)| path.starts_with(&prefix))
}
