//! Runs a reconciler over its queue.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::error::ErrorClass;
use crate::queue::{Queue, Requeue};

/// An error that a reconciler returns.
pub trait ReconcileError: Display {
    fn class(&self) -> ErrorClass;
}

/// Reconciles keys as they come due, at most `concurrency` of them at a time, until `stop` is cancelled. A key whose
/// reconcile fails or panics is retried with exponential backoff.
pub async fn run_worker<K, F, E>(
    controller: &'static str,
    queue: Arc<Queue<K>>,
    concurrency: usize,
    stop: CancellationToken,
    reconcile: impl Fn(K) -> F + Send + Sync + 'static,
) where
    K: Clone + Ord + Hash + Debug + Send + Sync + 'static,
    F: Future<Output = Result<Requeue, E>> + Send + 'static,
    E: ReconcileError,
{
    mco_telemetry::export_panics_of(controller);
    let reconcile = Arc::new(reconcile);
    let mut running: JoinSet<(K, Requeue)> = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            key = queue.next(), if running.len() < concurrency => {
                let reconcile = Arc::clone(&reconcile);
                running.spawn(async move {
                    let reconciling = async { reconcile(key.clone()).await };
                    // Without this the key would stay marked as running, and never be reconciled again.
                    let requeue = match AssertUnwindSafe(reconciling).catch_unwind().await {
                        Ok(Ok(requeue)) => requeue,
                        Ok(Err(problem)) => log_failure(controller, &key, &problem),
                        Err(_) => {
                            mco_telemetry::count_panic(controller);
                            error!(controller, ?key, "reconcile panicked; retrying with backoff");
                            Requeue::WithBackoff
                        }
                    };
                    (key, requeue)
                });
            }
            Some(ended) = running.join_next() => match ended {
                Ok((key, requeue)) => queue.done(&key, requeue),
                Err(problem) => error!(controller, "reconcile ended: {problem}"),
            },
        }
    }
}

fn log_failure(controller: &'static str, key: &impl Debug, problem: &impl ReconcileError) -> Requeue {
    match problem.class() {
        ErrorClass::Conflict => debug!(controller, ?key, "{problem}; retrying"),
        ErrorClass::Transient => warn!(controller, ?key, "{problem}; retrying with backoff"),
        ErrorClass::Invalid | ErrorClass::Fatal => error!(controller, ?key, "{problem}"),
    }
    Requeue::WithBackoff
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::queue::Debounce;

    impl ReconcileError for Infallible {
        fn class(&self) -> ErrorClass {
            match *self {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_panics_is_retried_and_keeps_no_other_key_from_being_reconciled() {
        let queue: Arc<Queue<String>> = Arc::new(Queue::new(Debounce::immediate()));
        queue.enqueue("bad");
        queue.enqueue("good");
        let stop = CancellationToken::new();
        let panics = Arc::new(AtomicUsize::new(0));
        let (stopping, counted) = (stop.clone(), Arc::clone(&panics));
        let reconcile = move |key: String| {
            let (stop, panics) = (stopping.clone(), Arc::clone(&counted));
            async move {
                assert!(
                    key != "bad" || panics.fetch_add(1, Ordering::Relaxed) > 1,
                    "broken"
                );
                if key == "bad" {
                    stop.cancel();
                }
                Ok::<_, Infallible>(Requeue::OnChange)
            }
        };
        let worker = run_worker("test", Arc::clone(&queue), 1, stop, reconcile);
        tokio::time::timeout(std::time::Duration::from_mins(1), worker)
            .await
            .expect("it stops when the third attempt succeeds");
        assert_eq!(panics.load(Ordering::Relaxed), 3);
        assert_eq!(mco_telemetry::panics_of("test"), 2, "panics are counted");
        assert!(!queue.is_pending("good"));
    }
}
