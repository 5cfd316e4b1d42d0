//! The loop around [`crate::images`]: what shall be kept, is it there, what is missing, what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mco_core::rollout::kept_images::ImageSet;
use mco_host::Machine;
use thiserror::Error;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::facts::NodeFacts;
use super::report::Told;
use super::sources::Sources;
use super::voice::Voice;
use crate::agent::decide::retry_delay;
use crate::images::{self, ImagesError, Survey, Terms};

/// A `MachineConfigNode` that does not exist yet is made by a controller; nobody tells us when.
const LOOK_FOR_LISTENER: Duration = Duration::from_mins(1);

pub(in crate::agent) struct Keeper {
    machine: Arc<Machine>,
    voice: Voice,
    facts: watch::Receiver<Option<NodeFacts>>,
    sources: Sources,
    /// What is kept, and was told.
    settled: Option<Vec<ImageSet>>,
    /// What was tried last without success; the same again has to wait for its time.
    tried: Option<Task>,
    failures: u32,
}

/// What to keep, and on what kind of node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    wanted: Vec<ImageSet>,
    facts: NodeFacts,
}

/// Why an attempt ended without a result.
#[derive(Debug, Error)]
enum AttemptError {
    #[error("no thread could be started: {0}")]
    Thread(#[from] std::io::Error),
    #[error("the work was cut off")]
    Cut(#[from] oneshot::error::RecvError),
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Settled,
    /// Something else is wanted meanwhile.
    Superseded,
    /// The Node will tell when it makes sense to go on.
    AwaitNode,
    Retry,
    /// Everything is kept, and nobody could be told.
    TellLater,
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
            voice: Voice::new(client.clone(), node),
            facts,
            sources: Sources::new(client),
            settled: None,
            tried: None,
            failures: 0,
        }
    }

    /// Keeps images until told to stop. A pull under way is left to the runtime then.
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
                () = self.sources.news() => {}
                changed = self.facts.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = retry => self.tried = None,
            }
            while let Some(task) = self.task() {
                let after = self.attempt(&task).await.unwrap_or_else(|error| {
                    tracing::warn!(node = self.voice.node(), %error, "images could not be looked after");
                    After::Retry
                });
                retry_at = self.note(after, task);
            }
        }
    }

    /// What is wanted, and neither kept nor tried before under the same circumstances.
    fn task(&self) -> Option<Task> {
        let facts = self.facts.borrow().clone()?;
        let wanted = self.sources.wanted(&facts)?;
        let task = Task { wanted, facts };
        let settled = self.settled.as_ref() == Some(&task.wanted);
        (!settled && self.tried.as_ref() != Some(&task)).then_some(task)
    }

    /// When to try again, if nothing happens before.
    fn note(&mut self, after: After, task: Task) -> Option<Instant> {
        if after == After::Settled {
            self.failures = 0;
            self.settled = Some(task.wanted);
            return None;
        }
        self.settled = None;
        self.tried = Some(task);
        let delay = match after {
            After::Settled | After::Superseded | After::AwaitNode => return None,
            After::TellLater => LOOK_FOR_LISTENER,
            After::Retry => {
                self.failures += 1;
                retry_delay(self.failures)
            }
        };
        Some(Instant::now() + delay)
    }

    async fn attempt(&mut self, Task { wanted, facts }: &Task) -> Result<After, AttemptError> {
        let survey = match self::survey(&self.machine, wanted).await? {
            Ok(survey) => survey,
            Err(error) => return fail(&self.voice, wanted, &error).await,
        };
        let (mut present, mut failures) = (survey.present, BTreeMap::new());
        if !survey.missing.is_empty() {
            if !facts.ready {
                self.voice.awaiting_node(wanted, &present).await;
                return Ok(After::AwaitNode);
            }
            if facts.disk_pressure {
                let text = "the node has DiskPressure; images are pulled when it is over";
                self.voice.failed(wanted, &present, |_| text.to_owned()).await;
                return Ok(After::Retry);
            }
            let missing = survey.missing;
            self.voice.prefetching(wanted, &present, missing.len()).await;
            let Some(fetched) = self.fetch(wanted, missing.clone(), facts).await? else {
                return Ok(After::Superseded);
            };
            failures = match fetched {
                Ok(fetched) => fetched.failures,
                // Nothing was begun, and sets that are complete are none the worse for it.
                Err(error) => missing
                    .into_iter()
                    .map(|image| (image, error.to_string()))
                    .collect(),
            };
            present = match self::survey(&self.machine, wanted).await? {
                Ok(survey) => survey.present,
                Err(error) => return fail(&self.voice, wanted, &error).await,
            };
        }
        let pinned = present.clone();
        let pinned = on_own_thread(&self.machine, move |machine| images::pin(machine, &pinned)).await?;
        if let Err(error) = pinned {
            return fail(&self.voice, wanted, &error).await;
        }
        if !wanted.iter().all(|set| set.images.is_subset(&present)) {
            let why = |image: &str| failures.get(image).map_or("it is not there yet", String::as_str);
            let told = self.voice.failed(wanted, &present, |image| why(image).to_owned());
            told.await;
            return Ok(After::Retry);
        }
        Ok(match self.voice.kept(wanted).await {
            Told::No => After::Retry,
            Told::NobodyListens if !wanted.is_empty() => After::TellLater,
            Told::Yes | Told::NobodyListens => After::Settled,
        })
    }

    /// Pulls; none if something else was wanted before everything was there.
    async fn fetch(
        &mut self,
        wanted: &[ImageSet],
        missing: BTreeSet<String>,
        facts: &NodeFacts,
    ) -> Result<Option<Result<images::Fetched, ImagesError>>, AttemptError> {
        let terms = Terms {
            allocatable: facts.allocatable,
            at_once: facts.at_once(),
        };
        // Whoever drops this future, and with it the guard, wants nothing more to be pulled.
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
                () = self.sources.news() => {}
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

/// Says that nothing more is to be begun, at the latest when it goes away.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs work that may take long. The daemon's own blocking work has one thread, and updates need it.
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
        // Nobody waits any more only if the daemon is going away.
        let _ = sender.send(work(&machine));
    });
    async move {
        started?;
        Ok(receiver.await?)
    }
}

async fn survey(
    machine: &Arc<Machine>,
    wanted: &[ImageSet],
) -> Result<Result<Survey, ImagesError>, AttemptError> {
    let sets = wanted.to_vec();
    on_own_thread(machine, move |machine| images::survey(machine, &sets)).await
}

async fn fail(voice: &Voice, wanted: &[ImageSet], error: &ImagesError) -> Result<After, AttemptError> {
    voice.failed_altogether(wanted, error).await;
    Ok(After::Retry)
}
