//! A work queue: a set of keys with due times.
//!
//! Several enqueues of one key in quick succession are debounced into one reconcile, a single enqueue is not delayed
//! for long, and a key is never reconciled twice at the same time. Due times use tokio's clock, which tests can
//! pause.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// When an enqueued key is reconciled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Debounce {
    /// A key is due when it was not enqueued for this long.
    pub quiet_period: Duration,
    /// It is due this long after it was first enqueued, even if it is enqueued all the time.
    pub max_delay: Duration,
    /// The minimum time between the starts of two reconciles of a key.
    pub min_interval: Duration,
}

impl Debounce {
    /// Due at once, but enqueues of the same moment are one reconcile.
    pub const fn immediate() -> Self {
        Self::new(Duration::from_millis(2), Duration::from_millis(20))
    }

    /// Debounces without a minimum interval.
    pub const fn new(quiet_period: Duration, max_delay: Duration) -> Self {
        Self {
            quiet_period,
            max_delay,
            min_interval: Duration::ZERO,
        }
    }

    /// The same with a minimum interval.
    #[must_use]
    pub const fn with_min_interval(self, min_interval: Duration) -> Self {
        Self { min_interval, ..self }
    }
}

/// What a reconcile asks the queue to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Reconcile when the key is enqueued again.
    OnChange,
    /// Reconcile after this long, or earlier when the key is enqueued.
    After(Duration),
    /// The reconcile could do nothing yet, so it does not count for [`Debounce::min_interval`] and [`Queue::has_seen`].
    /// Reconcile when the key is enqueued, or after this long.
    NotReady(Option<Duration>),
    /// Retry with exponential backoff.
    WithBackoff,
}

/// The delay of the first retry; it doubles with every further one.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The upper limit of the delay.
const MAX_RETRY: Duration = Duration::from_mins(1);

/// The keys that wait to be reconciled and those that are being reconciled.
#[derive(Debug)]
pub struct Queue<K> {
    debounce: Debounce,
    state: Mutex<QueueState<K>>,
    changed: Notify,
    enqueued_while_running: Notify,
}

#[derive(Debug)]
struct QueueState<K> {
    entries: HashMap<K, QueuedKey>,
    due: BTreeSet<(Instant, K)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct QueuedKey {
    /// When the key was first enqueued since its last reconcile began.
    enqueued: Option<Instant>,
    due: Option<Instant>,
    /// The first enqueue that no completed or running reconcile covers.
    unseen: Option<Instant>,
    /// The first enqueue that the running reconcile covers.
    in_progress: Option<Instant>,
    running: bool,
    last_start: Option<Instant>,
    previous_start: Option<Instant>,
    failures: u32,
}

impl<K: Clone + Ord + Hash + Debug> Queue<K> {
    /// Creates an empty queue.
    pub fn new(debounce: Debounce) -> Self {
        Self {
            debounce,
            state: Mutex::new(QueueState {
                entries: HashMap::new(),
                due: BTreeSet::new(),
            }),
            changed: Notify::new(),
            enqueued_while_running: Notify::new(),
        }
    }

    /// Adds a key, because something that its reconcile reads has changed.
    pub fn enqueue(&self, key: impl Into<K>) {
        let now = Instant::now();
        let key = key.into();
        let mut state = self.state.lock();
        let entry = state.entries.entry(key.clone()).or_default();
        let first = *entry.enqueued.get_or_insert(now);
        entry.unseen.get_or_insert(now);
        if entry.running {
            drop(state);
            self.enqueued_while_running.notify_waiters();
            return;
        }
        let due = self.due(entry, first, now);
        state.schedule(key, due);
        drop(state);
        self.changed.notify_one();
    }

    /// Returns true if a reconcile of this key is due or running. One that only waits for its retry is neither.
    pub fn is_pending<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let state = self.state.lock();
        state.entries.get(key).is_some_and(|entry| {
            entry.running || entry.enqueued.is_some() || (entry.due.is_some() && entry.failures == 0)
        })
    }

    /// Returns true once every enqueue of this key up to `until` has been reconciled, successfully or not.
    pub fn has_seen<Q>(&self, key: &Q, until: Instant) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let state = self.state.lock();
        let Some(entry) = state.entries.get(key) else {
            return true;
        };
        let mut waiting = [entry.unseen, entry.in_progress].into_iter().flatten();
        waiting.all(|enqueued| enqueued > until)
    }

    /// Completes when a key is enqueued while it is being reconciled, counted from this call. For reconciles that last
    /// long; the key may be another one.
    pub fn enqueued_during_reconcile(&self) -> impl Future<Output = ()> {
        self.enqueued_while_running.notified()
    }

    /// Waits for the next key that is due and marks it as running.
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let next = {
                let mut state = self.state.lock();
                match state.due.first().map(|(due, _)| *due) {
                    Some(due) if due <= Instant::now() => {
                        if let Some((_, key)) = state.due.pop_first() {
                            let entry = state.entries.entry(key.clone()).or_default();
                            *entry = QueuedKey {
                                enqueued: None,
                                due: None,
                                unseen: None,
                                in_progress: entry.unseen,
                                running: true,
                                last_start: Some(Instant::now()),
                                previous_start: entry.last_start,
                                failures: entry.failures,
                            };
                            return key;
                        }
                        continue;
                    }
                    next => next,
                }
            };
            match next {
                Some(due) => {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Ends the reconcile of a key that [`Queue::next`] returned.
    pub fn done(&self, key: &K, requeue: Requeue) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(key) else {
            return;
        };
        entry.running = false;
        let in_progress = entry.in_progress.take();
        let retry = match requeue {
            Requeue::OnChange => {
                entry.failures = 0;
                None
            }
            Requeue::After(delay) => {
                entry.failures = 0;
                Some(now + delay)
            }
            Requeue::NotReady(delay) => {
                entry.failures = 0;
                entry.last_start = entry.previous_start;
                entry.unseen = in_progress.or(entry.unseen);
                delay.map(|delay| now + delay)
            }
            Requeue::WithBackoff => {
                entry.failures = entry.failures.saturating_add(1);
                Some(now + retry_delay(entry.failures))
            }
        };
        let entry = *entry;
        let enqueued = entry.enqueued.map(|first| self.due(&entry, first, now));
        match [retry, enqueued].into_iter().flatten().min() {
            Some(due) => state.schedule(key.clone(), due),
            // The start of the last reconcile is needed as long as there is a minimum interval.
            None if self.debounce.min_interval.is_zero() => {
                state.entries.remove(key);
            }
            None => {}
        }
        drop(state);
        self.changed.notify_one();
    }

    fn due(&self, entry: &QueuedKey, first: Instant, now: Instant) -> Instant {
        let settled = (now + self.debounce.quiet_period).min(first + self.debounce.max_delay);
        let earliest = entry.last_start.map(|start| start + self.debounce.min_interval);
        earliest.map_or(settled, |earliest| settled.max(earliest))
    }
}

impl<K: Clone + Ord + Hash> QueueState<K> {
    fn schedule(&mut self, key: K, due: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(old) = entry.due.replace(due) {
            self.due.remove(&(old, key.clone()));
        }
        self.due.insert((due, key));
    }
}

fn retry_delay(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_RETRY.saturating_mul(factor).min(MAX_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Debounce = Debounce::new(Duration::from_millis(150), Duration::from_secs(2))
        .with_min_interval(Duration::from_secs(2));

    fn milliseconds(start: Instant) -> u128 {
        start.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_was_not_ready_does_not_count_for_the_interval() {
        let queue: Queue<String> = Queue::new(SLOW);
        queue.enqueue("worker");
        let key = queue.next().await;
        queue.done(&key, Requeue::OnChange);
        let start = Instant::now();
        queue.enqueue("worker");
        let key = queue.next().await;
        assert_eq!(milliseconds(start), 2_000, "the minimum interval");
        queue.done(&key, Requeue::NotReady(None));
        queue.enqueue("worker");
        let key = queue.next().await;
        assert_eq!(milliseconds(start), 2_150);
        queue.done(&key, Requeue::NotReady(Some(Duration::from_millis(20))));
        let key = queue.next().await;
        assert_eq!(milliseconds(start), 2_170);
        queue.done(&key, Requeue::OnChange);
        queue.enqueue("worker");
        queue.next().await;
        assert_eq!(milliseconds(start), 4_170, "and the next one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_is_reconciled_after_the_quiet_period() {
        let queue: Queue<String> = Queue::new(SLOW);
        let start = Instant::now();
        queue.enqueue("worker");
        assert_eq!(queue.next().await, "worker");
        assert_eq!(milliseconds(start), 150);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_becomes_one_reconcile() {
        let queue: Queue<String> = Queue::new(SLOW);
        let start = Instant::now();
        for _ in 0..10 {
            queue.enqueue("worker");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(queue.next().await, "worker");
        assert_eq!(milliseconds(start), 600);
        queue.done(&"worker".to_owned(), Requeue::OnChange);
        let more = tokio::time::timeout(Duration::from_mins(1), queue.next()).await;
        assert!(more.is_err(), "nothing more happened");
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_reconciled_once_per_interval() {
        let queue: std::sync::Arc<Queue<String>> = Queue::new(SLOW).into();
        let storm = std::sync::Arc::clone(&queue);
        let storm = tokio::spawn(async move {
            loop {
                storm.enqueue("worker");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let start = Instant::now();
        let mut starts = Vec::new();
        for _ in 0..4 {
            let key = queue.next().await;
            starts.push(milliseconds(start));
            queue.done(&key, Requeue::OnChange);
        }
        storm.abort();
        assert_eq!(starts.first(), Some(&2_000));
        for pair in starts.windows(2) {
            assert!((2_000..2_200).contains(&(pair[1] - pair[0])), "{starts:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_enqueued_while_it_is_reconciled_is_reconciled_again_afterwards() {
        let queue: Queue<String> = Queue::new(Debounce::immediate());
        queue.enqueue("a");
        let key = queue.next().await;
        queue.enqueue("a");
        let early = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(early.is_err(), "a key is not reconciled twice at the same time");
        queue.done(&key, Requeue::OnChange);
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_retried_with_backoff_and_changes_at_once() {
        let queue: Queue<String> = Queue::new(Debounce::immediate());
        queue.enqueue("a");
        let mut delays = Vec::new();
        for _ in 0..12 {
            let start = Instant::now();
            let key = queue.next().await;
            delays.push(milliseconds(start));
            queue.done(&key, Requeue::WithBackoff);
        }
        assert_eq!(
            delays,
            [
                2, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000
            ]
        );
        let start = Instant::now();
        queue.enqueue("a");
        queue.next().await;
        assert_eq!(milliseconds(start), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_pending_until_it_is_reconciled_and_not_while_it_backs_off() {
        let queue: Queue<String> = Queue::new(Debounce::immediate());
        assert!(!queue.is_pending("a"));
        queue.enqueue("a");
        assert!(queue.is_pending("a") && !queue.is_pending("b"));
        let key = queue.next().await;
        assert!(queue.is_pending("a"), "it is being reconciled");
        queue.done(&key, Requeue::NotReady(Some(Duration::from_secs(1))));
        assert!(queue.is_pending("a"), "it was not ready");
        let key = queue.next().await;
        queue.done(&key, Requeue::WithBackoff);
        assert!(!queue.is_pending("a"), "it backs off");
        queue.enqueue("a");
        assert!(queue.is_pending("a"), "a change is reconciled at once");
        let key = queue.next().await;
        queue.done(&key, Requeue::OnChange);
        assert!(!queue.is_pending("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_enqueue_is_seen_when_a_reconcile_ends_that_began_after_it() {
        let queue: Queue<String> = Queue::new(Debounce::immediate());
        let pass = || tokio::time::advance(Duration::from_millis(1));
        assert!(queue.has_seen("a", Instant::now()));
        queue.enqueue("a");
        let first = Instant::now();
        assert!(!queue.has_seen("a", first));
        let key = queue.next().await;
        assert!(!queue.has_seen("a", first), "it is being reconciled");
        pass().await;
        queue.enqueue("a");
        let second = Instant::now();
        queue.done(&key, Requeue::NotReady(Some(Duration::from_millis(1))));
        assert!(!queue.has_seen("a", first), "it was not ready");
        let key = queue.next().await;
        pass().await;
        queue.enqueue("a");
        queue.done(&key, Requeue::OnChange);
        assert!(queue.has_seen("a", second));
        assert!(
            !queue.has_seen("a", Instant::now()),
            "it was enqueued again since"
        );
        let key = queue.next().await;
        queue.done(&key, Requeue::WithBackoff);
        assert!(queue.has_seen("a", Instant::now()), "a failed attempt counts");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_do_not_wait_for_each_other() {
        let queue: Queue<String> = Queue::new(Debounce::immediate());
        queue.enqueue("a");
        queue.enqueue("b");
        let mut both = [queue.next().await, queue.next().await];
        both.sort();
        assert_eq!(both, ["a", "b"]);
        queue.done(&"a".to_owned(), Requeue::After(Duration::from_secs(5)));
        assert_eq!(queue.next().await, "a");
    }
}
