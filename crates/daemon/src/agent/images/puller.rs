//! The reconcile loop for pinned images around [`crate::images`]: compares desired with present images, pulls what is
//! missing, and reports the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mco_core::rollout::pinned_images_on_node::ImageSet;
use mco_host::Machine;
use mco_runtime::{BlockingWorkFailed, catch_panic};
use thiserror::Error;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::facts::NodeFacts;
use super::report::StatusWrite;
use super::sources::Sources;
use super::status::PinnedImageStatus;
use crate::PANIC_COMPONENT;
use crate::agent::decide::retry_delay;
use crate::images::{self, ImagesError, Survey, Terms};

/// Retry interval while the controllers have not created the `MachineConfigNode` yet. This loop does not watch it.
const STATUS_OBJECT_RETRY: Duration = Duration::from_mins(1);

pub(in crate::agent) struct Keeper {
    machine: Arc<Machine>,
    pinned_status: PinnedImageStatus,
    facts: watch::Receiver<Option<NodeFacts>>,
    sources: Sources,
    /// The image sets that are pulled, pinned and reported.
    settled: Option<Vec<ImageSet>>,
    /// The last task that failed. The same task is retried only after its backoff.
    tried: Option<Task>,
    failures: u32,
}

/// The desired image sets and the properties of the node they are for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    wanted: Vec<ImageSet>,
    facts: NodeFacts,
}

/// Why an attempt ended without a result.
#[derive(Debug, Error)]
enum AttemptError {
    #[error("could not start a thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error("the work was interrupted")]
    Cut(#[from] oneshot::error::RecvError),
    #[error(transparent)]
    Panicked(#[from] BlockingWorkFailed),
}

/// What to do after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PullFollowUp {
    Settled,
    /// The desired state has changed in the meantime.
    Superseded,
    /// Wait for a change of the Node's conditions.
    AwaitNode,
    Retry,
    /// All images are pulled and pinned, but the report could not be written.
    RetryStatus,
}

impl Keeper {
    pub fn new(
        client: kube::Client,
        machine: Arc<Machine>,
        node: String,
        facts: watch::Receiver<Option<NodeFacts>>,
    ) -> Self {
        Self {
            machine,
            pinned_status: PinnedImageStatus::new(client.clone(), node),
            facts,
            sources: Sources::new(client),
            settled: None,
            tried: None,
            failures: 0,
        }
    }

    /// Reconciles pinned images until cancelled. A pull in progress is then left to the runtime.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        let mut retry_at: Option<Instant> = None;
        loop {
            let retry = async {
                match retry_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.sources.changed() => {}
                changed = self.facts.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if self.facts.borrow().is_none() {
                        // A release unpins them.
                        (self.settled, self.tried) = (None, None);
                    }
                }
                () = retry => self.tried = None,
            }
            while let Some(task) = self.task() {
                let after = self.attempt(&task).await.unwrap_or_else(|error| {
                    tracing::warn!(node = self.pinned_status.node(), %error, "could not reconcile pinned images");
                    PullFollowUp::Retry
                });
                retry_at = self.note(after, task);
            }
        }
    }

    /// Returns the desired state, unless it is already reached or has failed before under the same conditions.
    fn task(&self) -> Option<Task> {
        let facts = self.facts.borrow().clone()?;
        let wanted = self.sources.wanted(&facts)?;
        let task = Task { wanted, facts };
        let settled = self.settled.as_ref() == Some(&task.wanted);
        (!settled && self.tried.as_ref() != Some(&task)).then_some(task)
    }

    /// Records the result of an attempt and returns when to retry it if nothing changes.
    fn note(&mut self, after: PullFollowUp, task: Task) -> Option<Instant> {
        if after == PullFollowUp::Settled {
            self.failures = 0;
            self.settled = Some(task.wanted);
            return None;
        }
        self.settled = None;
        self.tried = Some(task);
        let delay = match after {
            PullFollowUp::Settled | PullFollowUp::Superseded | PullFollowUp::AwaitNode => return None,
            PullFollowUp::RetryStatus => STATUS_OBJECT_RETRY,
            PullFollowUp::Retry => {
                self.failures += 1;
                retry_delay(self.failures)
            }
        };
        Some(Instant::now() + delay)
    }

    async fn attempt(&mut self, Task { wanted, facts }: &Task) -> Result<PullFollowUp, AttemptError> {
        let survey = match self::survey(&self.machine, wanted).await? {
            Ok(survey) => survey,
            Err(error) => return fail(&self.pinned_status, wanted, &error).await,
        };
        let (mut present, mut failures) = (survey.present, BTreeMap::new());
        if !survey.missing.is_empty() {
            if !facts.ready {
                self.pinned_status.awaiting_node(wanted, &present).await;
                return Ok(PullFollowUp::AwaitNode);
            }
            if facts.disk_pressure {
                let text = "the node has DiskPressure; images are pulled once it has passed";
                self.pinned_status
                    .failed(wanted, &present, |_| text.to_owned())
                    .await;
                return Ok(PullFollowUp::Retry);
            }
            let missing = survey.missing;
            self.pinned_status
                .prefetching(wanted, &present, missing.len())
                .await;
            let Some(fetched) = self.fetch(wanted, missing.clone(), facts).await? else {
                return Ok(PullFollowUp::Superseded);
            };
            failures = match fetched {
                Ok(fetched) => fetched.failures,
                // Nothing was pulled, and sets that are complete stay reported as complete.
                Err(error) => missing
                    .into_iter()
                    .map(|image| (image, error.to_string()))
                    .collect(),
            };
            present = match self::survey(&self.machine, wanted).await? {
                Ok(survey) => survey.present,
                Err(error) => return fail(&self.pinned_status, wanted, &error).await,
            };
        }
        let pinned = present.clone();
        let pinned = on_own_thread(&self.machine, move |machine| images::pin(machine, &pinned)).await?;
        if let Err(error) = pinned {
            return fail(&self.pinned_status, wanted, &error).await;
        }
        if !wanted.iter().all(|set| set.images.is_subset(&present)) {
            let why = |image: &str| failures.get(image).map_or("not pulled yet", String::as_str);
            let observed = self
                .pinned_status
                .failed(wanted, &present, |image| why(image).to_owned());
            observed.await;
            return Ok(PullFollowUp::Retry);
        }
        Ok(match self.pinned_status.kept(wanted).await {
            StatusWrite::No => PullFollowUp::Retry,
            StatusWrite::NoObject if !wanted.is_empty() => PullFollowUp::RetryStatus,
            StatusWrite::Yes | StatusWrite::NoObject => PullFollowUp::Settled,
        })
    }

    /// Pulls images; returns `None` if the desired state changes before all are pulled.
    async fn fetch(
        &mut self,
        wanted: &[ImageSet],
        missing: BTreeSet<String>,
        facts: &NodeFacts,
    ) -> Result<Option<Result<images::FetchResult, ImagesError>>, AttemptError> {
        let terms = Terms {
            allocatable: facts.allocatable,
            at_once: facts.at_once(),
        };
        // Dropping this future drops the guard, which cancels all pulls that have not begun.
        let given_up = GivenUp::default();
        let flag = Arc::clone(&given_up.0);
        let fetching = on_own_thread(&self.machine, move |machine| {
            images::fetch(machine, &missing, terms, &flag)
        });
        tokio::pin!(fetching);
        let mut superseded = false;
        loop {
            tokio::select! {
                fetched = &mut fetching => {
                    let fetched = fetched?;
                    return Ok((!superseded).then_some(fetched));
                }
                () = self.sources.changed() => {}
                Ok(()) = self.facts.changed() => {}
            }
            let now = self.facts.borrow().clone();
            let still = now.and_then(|facts| self.sources.wanted(&facts));
            if still.is_some_and(|still| still != wanted) {
                superseded = true;
                given_up.0.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Cancellation flag for pulls, set at the latest when it is dropped.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs blocking work on a thread of its own. The agent's other blocking work has a single thread, which updates need.
fn on_own_thread<T, W>(
    machine: &Arc<Machine>,
    work: W,
) -> impl Future<Output = Result<T, AttemptError>> + Send + use<T, W>
where
    T: Send + 'static,
    W: FnOnce(&Machine) -> T + Send + 'static,
{
    let machine = Arc::clone(machine);
    let (sender, receiver) = oneshot::channel();
    let started = thread::Builder::new().name("images".to_owned()).spawn(move || {
        let outcome = catch_panic(PANIC_COMPONENT, "the pinned images", || work(&machine));
        // The receiver is gone only when the daemon is shutting down.
        let _ = sender.send(outcome);
    });
    async move {
        started?;
        Ok(receiver.await??)
    }
}

async fn survey(
    machine: &Arc<Machine>,
    wanted: &[ImageSet],
) -> Result<Result<Survey, ImagesError>, AttemptError> {
    let sets = wanted.to_vec();
    on_own_thread(machine, move |machine| images::survey(machine, &sets)).await
}

async fn fail(
    pinned_status: &PinnedImageStatus,
    wanted: &[ImageSet],
    error: &ImagesError,
) -> Result<PullFollowUp, AttemptError> {
    pinned_status.failed_altogether(wanted, error).await;
    Ok(PullFollowUp::Retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_the_thread_of_images_was_not_counted() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Arc::new(Machine::directory(directory.path()).unwrap());
        let panicked = on_own_thread(&machine, |_| panic!("broken")).await;
        let panicked: Result<(), AttemptError> = panicked;
        assert_eq!(
            panicked.unwrap_err().to_string(),
            "daemon of the pinned images panicked; the log contains the cause"
        );
    }
}
