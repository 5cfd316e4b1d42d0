//! Requests that need much CPU time: threads of their own, and a time limit.
//!
//! A large patch or a slow validation must not block the threads that accept connections, answer health checks and send
//! watch events. Such requests run on a small runtime of their own. The limit is cooperative: loops whose length a
//! client decides call [`check`] or [`is_out_of_time`] and return early. A request whose client has gone away counts as
//! out of time, so that its work is abandoned.

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::auth::{COMPONENTS, Identity, MASTERS};
use crate::error::ApiError;

/// The time of a request on these threads, including the time it waits for a thread. The largest valid request needs a
/// fraction of a second.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Requests of one node or user on these threads. Its further ones wait, and do not delay those of other callers.
const PER_CALLER: usize = 2;

/// The time limit of the request was reached, or its client has gone away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Timeout: the request needs more processing time than the {} s that a request has; send a smaller object or \
         patch, or fewer items at once", TIME_LIMIT.as_secs())]
pub struct OutOfTime;

impl From<OutOfTime> for ApiError {
    fn from(error: OutOfTime) -> Self {
        Self::timeout(&error.to_string())
    }
}

tokio::task_local! {
    static LIMIT: Arc<TimeLimit>;
}

/// Returns an error if the current request is out of time. Work elsewhere has no limit.
pub fn check() -> Result<(), OutOfTime> {
    if is_out_of_time() { Err(OutOfTime) } else { Ok(()) }
}

/// Returns whether the current request is out of time. Once true, it stays true: a function may return an incomplete
/// result if one of its callers ends in [`check`].
pub fn is_out_of_time() -> bool {
    LIMIT.try_with(|limit| limit.is_reached()).unwrap_or(false)
}

/// The time limit of one request.
#[derive(Debug)]
struct TimeLimit {
    at: Instant,
    reached: AtomicBool,
}

impl TimeLimit {
    fn new(limit: Duration) -> Self {
        Self {
            at: Instant::now() + limit,
            reached: AtomicBool::new(false),
        }
    }

    fn is_reached(&self) -> bool {
        if self.reached.load(Ordering::Relaxed) {
            return true;
        }
        let reached = Instant::now() >= self.at;
        if reached {
            self.end();
        }
        reached
    }

    fn end(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }
}

/// Threads for requests that need much CPU time.
#[derive(Debug)]
pub struct CpuThreads {
    time_limit: Duration,
    /// The work runs in the task of its request instead.
    is_inline: bool,
    shared: Lane,
    /// For administrators and components, so that the requests of nodes do not delay them.
    reserved: Lane,
    callers: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for CpuThreads {
    fn default() -> Self {
        Self::with_time_limit(TIME_LIMIT)
    }
}

impl CpuThreads {
    /// Returns an instance without threads and without a limit: the work runs in the task of its request.
    pub fn inline() -> Self {
        Self {
            is_inline: true,
            ..Self::default()
        }
    }

    fn with_time_limit(time_limit: Duration) -> Self {
        Self {
            time_limit,
            is_inline: false,
            shared: Lane::new("api-cpu"),
            reserved: Lane::new("api-cpu-reserved"),
            callers: Mutex::default(),
        }
    }

    /// Runs the work of a request on these threads, and returns 504 when it is out of time.
    ///
    /// As after any timeout, a write that has already reached the store can still become durable.
    pub async fn run<F, T>(&self, identity: &Identity, work: F) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>> + Send + 'static,
        T: Send + 'static,
    {
        if self.is_inline {
            return work.await;
        }
        let is_privileged = identity.is_in(MASTERS) || identity.is_in(COMPONENTS);
        let lane = if is_privileged {
            &self.reserved
        } else {
            &self.shared
        };
        let handle = lane.handle()?;
        let limit = Arc::new(TimeLimit::new(self.time_limit));
        let running = async {
            let _slot = if is_privileged {
                None
            } else {
                Some(self.slot(&identity.user).await)
            };
            let task = handle.spawn(LIMIT.scope(Arc::clone(&limit), async move {
                check()?;
                work.await
            }));
            let _abandon = AbandonOnDrop {
                limit: Arc::clone(&limit),
                task: task.abort_handle(),
            };
            match task.await {
                Ok(outcome) => outcome,
                // The panic belongs to this request, whose connection reports and counts it.
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                Err(_) => Err(OutOfTime.into()),
            }
        };
        tokio::time::timeout(self.time_limit, running)
            .await
            .unwrap_or_else(|_| Err(OutOfTime.into()))
    }

    /// Waits for one of the caller's slots.
    async fn slot(&self, user: &str) -> CallerSlot<'_> {
        let slots = Arc::clone(
            self.callers
                .lock()
                .entry(user.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(PER_CALLER))),
        );
        // Created before the wait, so that an abandoned wait is cleaned up too.
        let mut slot = CallerSlot {
            threads: self,
            user: user.to_owned(),
            slots: Arc::clone(&slots),
            permit: None,
        };
        // The semaphore is never closed.
        slot.permit = slots.acquire_owned().await.ok();
        slot
    }
}

/// A slot of a caller. The last one removes the caller.
struct CallerSlot<'a> {
    threads: &'a CpuThreads,
    user: String,
    slots: Arc<Semaphore>,
    permit: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Drop for CallerSlot<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut callers = self.threads.callers.lock();
        // One reference is in the map and one is here; more means that other requests hold or await a slot.
        if Arc::strong_count(&self.slots) <= 2 {
            callers.remove(&self.user);
        }
    }
}

/// Ends the work of a request that is dropped: its time is over, or its client has gone away.
struct AbandonOnDrop {
    limit: Arc<TimeLimit>,
    task: AbortHandle,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.limit.end();
        self.task.abort();
    }
}

/// A runtime that starts with the first request for it.
#[derive(Debug)]
struct Lane {
    name: &'static str,
    runtime: OnceLock<Runtime>,
}

impl Lane {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            runtime: OnceLock::new(),
        }
    }

    fn handle(&self) -> Result<&Handle, ApiError> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime.handle());
        }
        // At least two, so that one slow request does not delay all others.
        let threads = available_parallelism().map_or(2, NonZero::get).clamp(2, 4);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(self.name)
            .enable_all()
            .build()
            .map_err(|error| ApiError::internal(format!("starting the threads {}: {error}", self.name)))?;
        if let Err(surplus) = self.runtime.set(runtime) {
            // Another request was faster.
            surplus.shutdown_background();
        }
        self.runtime
            .get()
            .map(Runtime::handle)
            .ok_or_else(|| ApiError::internal("the threads for large requests have stopped"))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime may not be dropped in asynchronous code, which is where a server is dropped.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Blocks its thread until the request is out of time, as a loop does that checks for it.
    fn busy(ended: &mpsc::Sender<()>) {
        while !is_out_of_time() {
            std::thread::yield_now();
        }
        ended.send(()).unwrap();
    }

    #[tokio::test]
    async fn work_without_end_is_answered_with_504_and_ends() {
        let threads = CpuThreads::with_time_limit(Duration::from_millis(50));
        let (ended, has_ended) = mpsc::channel();
        let outcome = threads
            .run(&Identity::node("a"), async move {
                busy(&ended);
                check()?;
                Ok(())
            })
            .await;
        let error = outcome.unwrap_err();
        assert_eq!((error.code.as_u16(), error.reason.as_ref()), (504, "Timeout"));
        has_ended.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[tokio::test]
    async fn the_work_of_a_client_that_left_went_on() {
        let threads = CpuThreads::with_time_limit(Duration::from_hours(1));
        let (ended, has_ended) = mpsc::channel();
        let (started, has_started) = tokio::sync::oneshot::channel();
        let identity = Identity::node("a");
        let request = threads.run(&identity, async move {
            started.send(()).unwrap();
            busy(&ended);
            Ok(())
        });
        tokio::select! {
            _ = request => panic!("the work ended on its own"),
            started = has_started => started.unwrap(),
        }
        has_ended.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[tokio::test]
    async fn one_caller_does_not_occupy_all_threads() {
        let threads = Arc::new(CpuThreads::default());
        let release = Arc::new(Semaphore::new(0));
        let waiting = (0..10).map(|_| {
            let (threads, release) = (Arc::clone(&threads), Arc::clone(&release));
            tokio::spawn(async move {
                let work = async move { release.acquire().await.map(|_| ()).map_err(ApiError::internal) };
                threads.run(&Identity::node("busy"), work).await
            })
        });
        let waiting: Vec<_> = waiting.collect();
        threads
            .run(&Identity::node("other"), async { Ok(()) })
            .await
            .unwrap();
        release.add_permits(10);
        for outcome in futures::future::join_all(waiting).await {
            outcome.unwrap().unwrap();
        }
        assert!(threads.callers.lock().is_empty(), "callers are removed");
    }

    #[tokio::test]
    async fn a_panic_of_the_work_reaches_its_request_only() {
        let threads = Arc::new(CpuThreads::default());
        let failing = Arc::clone(&threads);
        let outcome = tokio::spawn(async move {
            failing
                .run(&Identity::node("a"), async {
                    panic!("as planned") as Result<(), ApiError>
                })
                .await
        });
        assert!(outcome.await.unwrap_err().is_panic());
        threads.run(&Identity::node("a"), async { Ok(()) }).await.unwrap();
    }

    #[test]
    fn work_elsewhere_has_no_limit() {
        assert!(!is_out_of_time());
    }
}
