//! What a cluster does by itself: the few controllers without which the API's promises would stay promises.
//!
//! Each looks at the store's current state whenever something it cares about has changed, so nothing is lost by a
//! restart and nothing queues up.

mod budgets;
mod collector;
mod definitions;
mod namespaces;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::catalog::Definition;
use crate::registry::{Registry, Target};
use crate::store::Key;

/// A pass that could not finish is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// What a kube-apiserver does itself, without a controller manager beside it.
pub(crate) fn start_own(registry: &Arc<Registry>, stopped: &watch::Receiver<bool>, tasks: &mut JoinSet<()>) {
    tasks.spawn(definitions::run(Arc::clone(registry), stopped.clone()));
}

/// What a controller manager adds.
pub(crate) fn start(registry: &Arc<Registry>, stopped: &watch::Receiver<bool>, tasks: &mut JoinSet<()>) {
    tasks.spawn(collector::run(Arc::clone(registry), stopped.clone()));
    tasks.spawn(namespaces::run(Arc::clone(registry), stopped.clone()));
    tasks.spawn(budgets::run(Arc::clone(registry), stopped.clone()));
}

/// Whether a pass left something to come back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Done,
    Again,
}

/// Waits for news on any of the channels, for the retry of an unfinished pass, or for the end (`false`).
async fn woken(news: &mut [watch::Receiver<u64>], pass: Pass, stopped: &mut watch::Receiver<bool>) -> bool {
    let changed = futures::future::select_all(news.iter_mut().map(|channel| Box::pin(channel.changed())));
    let retry = async {
        match pass {
            Pass::Again => tokio::time::sleep(RETRY).await,
            Pass::Done => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = stopped.wait_for(|stop| *stop) => false,
        (outcome, _, _) = changed => outcome.is_ok(),
        () = retry => true,
    }
}

fn target(registry: &Registry, key: &Key, subresource: &str) -> Option<Target> {
    let catalog = registry.catalog();
    let definition: &Arc<Definition> = catalog.stored(&key.resource)?;
    Some(Target {
        definition: Arc::clone(definition),
        namespace: key.namespace().to_owned(),
        name: key.name().to_owned(),
        subresource: subresource.to_owned(),
    })
}
