//! kube's reflector, for readers that write nothing they read.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The objects of one kind as a watch reports them, without write-through.
#[derive(Debug)]
pub struct Reflected<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    reader: reflector::Store<K>,
}

impl<K> Reflected<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts no task: the objects change when the returned stream is polled. It yields once per event of the watch,
    /// after the event was applied, and the errors between which the watch backs off. `transform` removes from each
    /// object what no reader needs.
    pub fn watch(
        api: Api<K>,
        transform: impl FnMut(&mut K) + Send + 'static,
    ) -> (
        Self,
        impl Stream<Item = Result<(), watcher::Error>> + Send + 'static,
    ) {
        let (reader, writer) = reflector::store();
        let events = watcher(api, watcher::Config::default())
            .default_backoff()
            .modify(transform)
            .reflect(writer)
            .map(|event| event.map(|_| ()));
        (Self { reader }, events)
    }

    /// Returns all objects, in no order; `None` until the first list is complete.
    pub fn listed(&self) -> Option<Vec<Arc<K>>> {
        if !matches!(self.reader.wait_until_ready().now_or_never(), Some(Ok(()))) {
            return None;
        }
        Some(self.reader.state())
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
                "items": [{"metadata": {"name": "a", "uid": "1", "managedFields": [{"manager": "m"}]}}],
            });
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        });
        let api: Api<Node> = Api::all(Client::new(service, "default"));
        let (nodes, events) = Reflected::watch(api, |node: &mut Node| node.metadata.managed_fields = None);
        let mut events = std::pin::pin!(events);
        let mut listed = Vec::new();
        for _ in 0..3 {
            listed.push(nodes.listed().map(|nodes| nodes.len()));
            events.next().await.unwrap().unwrap();
        }
        assert_eq!(listed, [None, None, None], "begin, object, end");
        let nodes = nodes.listed().unwrap();
        assert_eq!(nodes[0].metadata.name.as_deref(), Some("a"));
        assert_eq!(nodes[0].metadata.managed_fields, None);
    }
}
