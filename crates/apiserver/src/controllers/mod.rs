//! The built-in controllers that the API's semantics depend on.
//!
//! Each reconciles the current state of the store after a relevant change. There is no queue, and a restart loses
//! nothing.

mod budgets;
mod collector;
mod definitions;
mod events;
pub(crate) mod namespace_content;
mod namespaces;
mod policies;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::catalog::ResourceDefinition;
use crate::registry::{ObjectRegistry, ObjectTarget};
use crate::store::ObjectKey;

/// An incomplete reconcile is retried after this time.
const RETRY: Duration = Duration::from_millis(500);

/// Starts the controllers that a kube-apiserver runs itself, without a controller manager.
pub(crate) fn start_own(
    registry: &Arc<ObjectRegistry>,
    stopped: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) {
    tasks.spawn(definitions::run(Arc::clone(registry), stopped.clone()));
    tasks.spawn(events::run(Arc::clone(registry), stopped.clone()));
}

/// Starts the controllers of a controller manager. With a bundle, namespaces get the certificates in it.
pub(crate) fn start(
    registry: &Arc<ObjectRegistry>,
    bundle: Option<&str>,
    stopped: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) {
    tasks.spawn(collector::run(Arc::clone(registry), stopped.clone()));
    if let Some(bundle) = bundle {
        tasks.spawn(namespace_content::run(
            Arc::clone(registry),
            Arc::from(bundle),
            stopped.clone(),
        ));
    }
    tasks.spawn(namespaces::run(Arc::clone(registry), stopped.clone()));
    tasks.spawn(budgets::run(Arc::clone(registry), stopped.clone()));
    tasks.spawn(policies::run(Arc::clone(registry), stopped.clone()));
}

/// Whether a reconcile must be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    Done,
    Retry,
}

/// Waits for a change on any of the channels, for the retry of an incomplete reconcile, or for the stop (`false`).
async fn wait_for_change(
    changes: &mut [watch::Receiver<u64>],
    result: ReconcileResult,
    stopped: &mut watch::Receiver<bool>,
) -> bool {
    let changed = futures::future::select_all(changes.iter_mut().map(|channel| Box::pin(channel.changed())));
    let retry = async {
        match result {
            ReconcileResult::Retry => tokio::time::sleep(RETRY).await,
            ReconcileResult::Done => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = stopped.wait_for(|stop| *stop) => false,
        (outcome, _, _) = changed => outcome.is_ok(),
        () = retry => true,
    }
}

fn target(registry: &ObjectRegistry, key: &ObjectKey, subresource: &str) -> Option<ObjectTarget> {
    let catalog = registry.catalog();
    let definition: &Arc<ResourceDefinition> = catalog.stored(&key.resource)?;
    Some(ObjectTarget {
        definition: Arc::clone(definition),
        namespace: key.namespace().to_owned(),
        name: key.name().to_owned(),
        subresource: subresource.to_owned(),
    })
}
