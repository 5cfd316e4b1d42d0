//! A reflector for readers that write nothing they read.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;

use crate::lenient::{Lenient, UnreadableObject, UnreadableObjects};
use crate::store::object_key;
use crate::watch_backoff::with_backoff;

/// The objects of one kind as a watch reports them, without write-through. Clones share them.
#[derive(Debug)]
pub struct Reflected<K> {
    state: Arc<RwLock<ReflectedState<K>>>,
}

impl<K> Clone for Reflected<K> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

#[derive(Debug)]
struct ReflectedState<K> {
    objects: HashMap<String, Arc<K>>,
    unreadable: UnreadableObjects,
    is_listed: bool,
    /// A list that is being received.
    listed: HashMap<String, Arc<K>>,
    listed_unreadable: Vec<UnreadableObject>,
}

impl<K> Reflected<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts no task: the objects change when the returned stream is polled. It yields once per event of the watch,
    /// after the event was applied, and the errors between which the watch backs off. `transform` removes from each
    /// object what no reader needs. An object that cannot be decoded is reported, and left out until it can be.
    pub fn watch(
        api: Api<Lenient<K>>,
        mut transform: impl FnMut(&mut K) + Send + 'static,
    ) -> (
        Self,
        impl Stream<Item = Result<(), watcher::Error>> + Send + 'static,
    ) {
        let reflected = Self {
            state: Arc::new(RwLock::new(ReflectedState::new())),
        };
        let state = Arc::clone(&reflected.state);
        let events = with_backoff(watcher(api, watcher::Config::default())).map(move |event| {
            let mut event = event?;
            if let Event::Apply(Lenient(Ok(object))) | Event::InitApply(Lenient(Ok(object))) = &mut event {
                transform(object);
            }
            state.write().apply(event);
            Ok(())
        });
        (reflected, events)
    }

    /// Returns all objects, in no order; `None` until the first list is complete.
    pub fn listed(&self) -> Option<Vec<Arc<K>>> {
        let state = self.state.read();
        state.is_listed.then(|| state.objects.values().cloned().collect())
    }

    /// Returns true once the first list is complete.
    pub fn is_listed(&self) -> bool {
        self.state.read().is_listed
    }

    /// Returns the objects that are left out, because they cannot be decoded.
    pub fn unreadable(&self) -> Vec<UnreadableObject> {
        self.state.read().unreadable.all()
    }
}

impl<K: Resource> ReflectedState<K> {
    fn new() -> Self {
        Self {
            objects: HashMap::new(),
            unreadable: UnreadableObjects::default(),
            is_listed: false,
            listed: HashMap::new(),
            listed_unreadable: Vec::new(),
        }
    }

    fn apply(&mut self, event: Event<Lenient<K>>) {
        match event {
            Event::Init => {
                self.listed.clear();
                self.listed_unreadable.clear();
            }
            Event::InitApply(object) => match object.0 {
                Ok(object) => {
                    self.listed.insert(object_key(&object), Arc::new(object));
                }
                Err(unreadable) => self.listed_unreadable.push(unreadable),
            },
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.listed);
                self.unreadable
                    .replace(std::mem::take(&mut self.listed_unreadable));
                self.is_listed = true;
            }
            Event::Apply(object) => match object.0 {
                Ok(object) => {
                    self.unreadable.remove(&object);
                    self.objects.insert(object_key(&object), Arc::new(object));
                }
                Err(unreadable) => {
                    self.objects.remove(&unreadable.key());
                    self.unreadable.insert(unreadable);
                }
            },
            Event::Delete(object) => {
                self.unreadable.remove(&object);
                self.objects.remove(&object_key(&object));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Node;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn objects_are_listed_only_when_the_first_list_is_complete() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            if request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch="))
            {
                std::future::pending::<()>().await;
            }
            let list = json!({
                "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"},
                "items": [
                    {"metadata": {"name": "a", "uid": "1", "managedFields": [{"manager": "m"}]}},
                    {"metadata": {"name": "b", "uid": "2"}, "status": {"addresses": [null]}},
                ],
            });
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        });
        let api: Api<Lenient<Node>> = Api::all(Client::new(service, "default"));
        let (nodes, events) = Reflected::watch(api, |node: &mut Node| node.metadata.managed_fields = None);
        let mut events = std::pin::pin!(events);
        let mut listed = Vec::new();
        for _ in 0..4 {
            listed.push(nodes.listed().map(|nodes| nodes.len()));
            events.next().await.unwrap().unwrap();
        }
        assert_eq!(listed, [None, None, None, None], "begin, two objects, end");
        let unreadable: Vec<_> = nodes.unreadable().iter().map(UnreadableObject::key).collect();
        assert_eq!(unreadable, ["b"]);
        let nodes = nodes.listed().unwrap();
        assert_eq!(nodes.len(), 1);
        assert_eq!(nodes[0].metadata.name.as_deref(), Some("a"));
        assert_eq!(nodes[0].metadata.managed_fields, None);
    }
}
