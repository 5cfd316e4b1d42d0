//! What has to be looked at, and when: a set of keys with due times.
//!
//! A burst of wake-ups for one key becomes one look at it, a single wake-up is not delayed for long, and a key is never
//! looked at twice at once. The clock is tokio's, so that tests can stop it.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How patient a queue is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience {
    /// A key is looked at when nothing has happened to it for this long.
    pub settle: Duration,
    /// But not later than this after the first thing happened.
    pub longest: Duration,
    /// And not sooner than this after the last look began.
    pub spacing: Duration,
}

impl Patience {
    /// At once, but everything that happens in the same moment together.
    pub const fn at_once() -> Self {
        Self::settling(Duration::from_millis(2), Duration::from_millis(20))
    }

    pub const fn settling(settle: Duration, longest: Duration) -> Self {
        Self {
            settle,
            longest,
            spacing: Duration::ZERO,
        }
    }

    pub const fn spaced(self, spacing: Duration) -> Self {
        Self { spacing, ..self }
    }
}

/// After a look at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// When something happens.
    OnChange,
    /// After this long, if nothing happens before.
    After(Duration),
    /// Nothing could be done yet, so this was no look that others have to keep a distance from. When something happens,
    /// or after this long.
    NotYet(Option<Duration>),
    /// It failed: with growing distance.
    Failed,
}

/// The first distance after a failure.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Queue<K> {
    patience: Patience,
    state: Mutex<State<K>>,
    changed: Notify,
    woken_while_running: Notify,
}

#[derive(Debug)]
struct State<K> {
    entries: HashMap<K, Entry>,
    due: BTreeSet<(Instant, K)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Entry {
    /// When the first thing happened that was not looked at yet.
    since: Option<Instant>,
    due: Option<Instant>,
    /// When the first thing happened that no look has dealt with.
    unseen: Option<Instant>,
    /// The same, of what the look under way deals with.
    in_sight: Option<Instant>,
    running: bool,
    last_start: Option<Instant>,
    /// The one before that.
    start_before: Option<Instant>,
    failures: u32,
}

impl<K: Clone + Ord + Hash + Debug> Queue<K> {
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            state: Mutex::new(State {
                entries: HashMap::new(),
                due: BTreeSet::new(),
            }),
            changed: Notify::new(),
            woken_while_running: Notify::new(),
        }
    }

    /// Something happened to this key.
    pub fn wake(&self, key: impl Into<K>) {
        let now = Instant::now();
        let key = key.into();
        let mut state = self.state.lock();
        let entry = state.entries.entry(key.clone()).or_default();
        let since = *entry.since.get_or_insert(now);
        entry.unseen.get_or_insert(now);
        if entry.running {
            drop(state);
            self.woken_while_running.notify_waiters();
            return;
        }
        let due = self.due(entry, since, now);
        state.schedule(key, due);
        drop(state);
        self.changed.notify_one();
    }

    /// Whether a look at this key is due or under way. One that only waits to be tried again after a failure is neither.
    pub fn is_pending<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let state = self.state.lock();
        state.entries.get(key).is_some_and(|entry| {
            entry.running || entry.since.is_some() || (entry.due.is_some() && entry.failures == 0)
        })
    }

    /// Whether whatever happened to this key until then was looked at, be it in vain.
    pub fn has_seen<Q>(&self, key: &Q, until: Instant) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let state = self.state.lock();
        let Some(entry) = state.entries.get(key) else {
            return true;
        };
        let mut waiting = [entry.unseen, entry.in_sight].into_iter().flatten();
        waiting.all(|happened| happened > until)
    }

    /// For looks that last long: ends when something happens to a key that is being looked at, perhaps another one,
    /// counted from this call.
    pub fn woken_during_a_look(&self) -> impl Future<Output = ()> {
        self.woken_while_running.notified()
    }

    /// The next key that is due, as soon as it is.
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let next = {
                let mut state = self.state.lock();
                match state.due.first().map(|(due, _)| *due) {
                    Some(due) if due <= Instant::now() => {
                        if let Some((_, key)) = state.due.pop_first() {
                            let entry = state.entries.entry(key.clone()).or_default();
                            *entry = Entry {
                                since: None,
                                due: None,
                                unseen: None,
                                in_sight: entry.unseen,
                                running: true,
                                last_start: Some(Instant::now()),
                                start_before: entry.last_start,
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

    /// The look at a key is over.
    pub fn done(&self, key: &K, again: Again) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(key) else {
            return;
        };
        entry.running = false;
        let in_sight = entry.in_sight.take();
        let retry = match again {
            Again::OnChange => {
                entry.failures = 0;
                None
            }
            Again::After(delay) => {
                entry.failures = 0;
                Some(now + delay)
            }
            Again::NotYet(delay) => {
                entry.failures = 0;
                entry.last_start = entry.start_before;
                entry.unseen = in_sight.or(entry.unseen);
                delay.map(|delay| now + delay)
            }
            Again::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                Some(now + retry_delay(entry.failures))
            }
        };
        let entry = *entry;
        let woken = entry.since.map(|since| self.due(&entry, since, now));
        match [retry, woken].into_iter().flatten().min() {
            Some(due) => state.schedule(key.clone(), due),
            // What may not be looked at again for a while must be remembered.
            None if self.patience.spacing.is_zero() => {
                state.entries.remove(key);
            }
            None => {}
        }
        drop(state);
        self.changed.notify_one();
    }

    fn due(&self, entry: &Entry, since: Instant, now: Instant) -> Instant {
        let settled = (now + self.patience.settle).min(since + self.patience.longest);
        let spaced = entry.last_start.map(|start| start + self.patience.spacing);
        spaced.map_or(settled, |spaced| settled.max(spaced))
    }
}

impl<K: Clone + Ord + Hash> State<K> {
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
    FIRST_RETRY.saturating_mul(factor).min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{RENDER_SPACING, render_patience};

    const RENDER: Patience = render_patience(RENDER_SPACING);

    fn milliseconds(start: Instant) -> u128 {
        start.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_came_too_early_delays_no_other() {
        let queue: Queue<String> = Queue::new(RENDER);
        queue.wake("worker");
        let key = queue.next().await;
        queue.done(&key, Again::OnChange);
        let start = Instant::now();
        queue.wake("worker");
        let key = queue.next().await;
        assert_eq!(milliseconds(start), 2_000, "the distance to a real look");
        queue.done(&key, Again::NotYet(None));
        queue.wake("worker");
        let key = queue.next().await;
        assert_eq!(milliseconds(start), 2_150);
        queue.done(&key, Again::NotYet(Some(Duration::from_millis(20))));
        let key = queue.next().await;
        assert_eq!(milliseconds(start), 2_170);
        queue.done(&key, Again::OnChange);
        queue.wake("worker");
        queue.next().await;
        assert_eq!(milliseconds(start), 4_170, "and to the next real one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_is_looked_at_soon() {
        let queue: Queue<String> = Queue::new(RENDER);
        let start = Instant::now();
        queue.wake("worker");
        assert_eq!(queue.next().await, "worker");
        assert_eq!(milliseconds(start), 150);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_becomes_one_look() {
        let queue: Queue<String> = Queue::new(RENDER);
        let start = Instant::now();
        for _ in 0..10 {
            queue.wake("worker");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(queue.next().await, "worker");
        assert_eq!(milliseconds(start), 600);
        queue.done(&"worker".to_owned(), Again::OnChange);
        let more = tokio::time::timeout(Duration::from_mins(1), queue.next()).await;
        assert!(more.is_err(), "nothing more happened");
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_looked_at_every_two_seconds() {
        let queue: std::sync::Arc<Queue<String>> = Queue::new(RENDER).into();
        let storm = std::sync::Arc::clone(&queue);
        let storm = tokio::spawn(async move {
            loop {
                storm.wake("worker");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let start = Instant::now();
        let mut looks = Vec::new();
        for _ in 0..4 {
            let key = queue.next().await;
            looks.push(milliseconds(start));
            queue.done(&key, Again::OnChange);
        }
        storm.abort();
        assert_eq!(looks.first(), Some(&2_000));
        for pair in looks.windows(2) {
            assert!((2_000..2_200).contains(&(pair[1] - pair[0])), "{looks:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_during_a_look_is_looked_at_afterwards() {
        let queue: Queue<String> = Queue::new(Patience::at_once());
        queue.wake("a");
        let key = queue.next().await;
        queue.wake("a");
        let early = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(early.is_err(), "a key is not looked at twice at once");
        queue.done(&key, Again::OnChange);
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_tried_again_with_growing_distance_and_changes_at_once() {
        let queue: Queue<String> = Queue::new(Patience::at_once());
        queue.wake("a");
        let mut delays = Vec::new();
        for _ in 0..12 {
            let start = Instant::now();
            let key = queue.next().await;
            delays.push(milliseconds(start));
            queue.done(&key, Again::Failed);
        }
        assert_eq!(
            delays,
            [
                2, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000
            ]
        );
        let start = Instant::now();
        queue.wake("a");
        queue.next().await;
        assert_eq!(milliseconds(start), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_pending_from_when_it_is_woken_until_it_was_looked_at_and_not_after_a_failure() {
        let queue: Queue<String> = Queue::new(Patience::at_once());
        assert!(!queue.is_pending("a"));
        queue.wake("a");
        assert!(queue.is_pending("a") && !queue.is_pending("b"));
        let key = queue.next().await;
        assert!(queue.is_pending("a"), "it is being looked at");
        queue.done(&key, Again::NotYet(Some(Duration::from_secs(1))));
        assert!(queue.is_pending("a"), "it was too early");
        let key = queue.next().await;
        queue.done(&key, Again::Failed);
        assert!(!queue.is_pending("a"), "that may take long");
        queue.wake("a");
        assert!(queue.is_pending("a"), "and is tried at once");
        let key = queue.next().await;
        queue.done(&key, Again::OnChange);
        assert!(!queue.is_pending("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_happened_is_seen_when_a_look_is_over_that_began_later() {
        let queue: Queue<String> = Queue::new(Patience::at_once());
        let pass = || tokio::time::advance(Duration::from_millis(1));
        assert!(queue.has_seen("a", Instant::now()));
        queue.wake("a");
        let first = Instant::now();
        assert!(!queue.has_seen("a", first));
        let key = queue.next().await;
        assert!(!queue.has_seen("a", first), "it is being looked at");
        pass().await;
        queue.wake("a");
        let second = Instant::now();
        queue.done(&key, Again::NotYet(Some(Duration::from_millis(1))));
        assert!(!queue.has_seen("a", first), "it was too early");
        let key = queue.next().await;
        pass().await;
        queue.wake("a");
        queue.done(&key, Again::OnChange);
        assert!(queue.has_seen("a", second));
        assert!(!queue.has_seen("a", Instant::now()), "more has happened since");
        let key = queue.next().await;
        queue.done(&key, Again::Failed);
        assert!(
            queue.has_seen("a", Instant::now()),
            "nobody waits for the next attempt"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn keys_do_not_wait_for_each_other() {
        let queue: Queue<String> = Queue::new(Patience::at_once());
        queue.wake("a");
        queue.wake("b");
        let mut both = [queue.next().await, queue.next().await];
        both.sort();
        assert_eq!(both, ["a", "b"]);
        queue.done(&"a".to_owned(), Again::After(Duration::from_secs(5)));
        assert_eq!(queue.next().await, "a");
    }
}
