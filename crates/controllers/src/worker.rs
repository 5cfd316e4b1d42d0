//! Runs one reconciler over its queue until it is told to stop. The error's class alone decides what happens next.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::error::{Class, Error};
use crate::queue::{Again, Queue};

/// Looks at keys as they come due, at most `at_once` of them together.
pub(crate) async fn run<K, F>(
    name: &'static str,
    queue: Arc<Queue<K>>,
    at_once: usize,
    stop: CancellationToken,
    reconcile: impl Fn(K) -> F + Send + Sync + 'static,
) where
    K: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static,
    F: Future<Output = Result<Again, Error>> + Send + 'static,
{
    let mut looks: JoinSet<(K, Again)> = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            key = queue.next(), if looks.len() < at_once => {
                let look = reconcile(key.clone());
                looks.spawn(async move {
                    // One broken look must not keep its object from ever being looked at again.
                    let again = match AssertUnwindSafe(look).catch_unwind().await {
                        Ok(Ok(again)) => again,
                        Ok(Err(problem)) => after(name, &key, &problem),
                        Err(_) => {
                            error!(controller = name, object = %key, "a look at the object panicked");
                            Again::Failed
                        }
                    };
                    (key, again)
                });
            }
            Some(ended) = looks.join_next() => match ended {
                Ok((key, again)) => queue.done(&key, again),
                Err(problem) => error!(controller = name, "a look at an object ended: {problem}"),
            },
        }
    }
}

fn after<K: Display>(name: &'static str, key: &K, problem: &Error) -> Again {
    match problem.class() {
        Class::Conflict => debug!(controller = name, object = %key, "{problem}; looking again"),
        Class::Transient => warn!(controller = name, object = %key, "{problem}; trying again"),
        Class::Invalid | Class::Fatal => error!(controller = name, object = %key, "{problem}"),
    }
    Again::Failed
}
