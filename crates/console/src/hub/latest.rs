//! A value that is computed on demand, once for all readers.
//!
//! A change only increments a counter. Independent of the number of changes and readers, the value is computed at most
//! once in [`MIN_INTERVAL`], and never without a reader.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Changes come in bursts; four times a second is as fast as a user can read.
pub const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// Relative times such as "done in about 3m" change without an event.
const REFRESH: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct LatestValue<T> {
    /// The number of changes.
    changes: watch::Sender<u64>,
    cached: Mutex<Cached<T>>,
}

#[derive(Debug)]
struct Cached<T> {
    value: Arc<T>,
    /// The number of changes when it was computed.
    changes: u64,
    computed: Option<Instant>,
}

impl<T> Cached<T> {
    fn is_current(&self, changes: u64) -> bool {
        self.computed.is_some_and(|computed| {
            let age = computed.elapsed();
            age < MIN_INTERVAL || (self.changes == changes && age < REFRESH)
        })
    }
}

impl<T: Default> Default for LatestValue<T> {
    fn default() -> Self {
        Self {
            changes: watch::Sender::new(0),
            cached: Mutex::new(Cached {
                value: Arc::default(),
                changes: 0,
                computed: None,
            }),
        }
    }
}

impl<T: PartialEq> LatestValue<T> {
    /// Records a change of the inputs.
    pub fn touch(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the current value, at most [`MIN_INTERVAL`] old. If `compute` returns `None`, the previous one is kept.
    pub async fn get(&self, compute: impl FnOnce() -> Option<T>) -> Arc<T> {
        self.read(compute).await.0
    }

    /// Returns the value and the number of changes it includes.
    async fn read(&self, compute: impl FnOnce() -> Option<T>) -> (Arc<T>, u64) {
        // Readers that wait here get the value of the one before.
        let mut cached = self.cached.lock().await;
        let changes = *self.changes.borrow();
        if !cached.is_current(changes) {
            // An equal value stays the same object, so that followers compare pointers only.
            if let Some(value) = compute().filter(|value| *value != *cached.value) {
                cached.value = Arc::new(value);
            }
            cached.changes = changes;
            cached.computed = Some(Instant::now());
        }
        (Arc::clone(&cached.value), cached.changes)
    }

    /// Waits until the value may be computed again.
    async fn may_compute(&self) {
        let computed = self.cached.lock().await.computed;
        if let Some(computed) = computed {
            sleep_until(computed + MIN_INTERVAL).await;
        }
    }
}

/// A reader that waits for new values.
#[derive(Debug)]
pub struct ValueFollower<T> {
    changes: watch::Receiver<u64>,
    seen: Option<Arc<T>>,
}

impl<T: PartialEq> ValueFollower<T> {
    pub fn new(latest: &LatestValue<T>) -> Self {
        Self {
            changes: latest.changes(),
            seen: None,
        }
    }

    /// Waits for a value other than the last one seen; the first one is returned at once.
    pub async fn next(&mut self, latest: &LatestValue<T>, compute: impl Fn() -> Option<T>) -> Arc<T> {
        loop {
            let (value, included) = latest.read(&compute).await;
            let is_seen = self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &value));
            if !is_seen {
                self.seen = Some(Arc::clone(&value));
                return value;
            }
            tokio::select! {
                _ = self.changes.wait_for(|changes| *changes != included) => {}
                () = sleep(REFRESH) => {}
            }
            latest.may_compute().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often it is computed.
    #[derive(Default)]
    struct Maker {
        made: AtomicUsize,
        value: AtomicUsize,
    }

    impl Maker {
        fn make(&self) -> usize {
            self.made.fetch_add(1, Ordering::Relaxed);
            self.value.load(Ordering::Relaxed)
        }

        fn made(&self) -> usize {
            self.made.load(Ordering::Relaxed)
        }

        fn change(&self, latest: &LatestValue<usize>) {
            self.value.fetch_add(1, Ordering::Relaxed);
            latest.touch();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_computed_without_a_reader() {
        let (latest, maker) = (LatestValue::default(), Maker::default());
        for _ in 0..1000 {
            maker.change(&latest);
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(maker.made(), 0);
        assert_eq!(*latest.get(|| Some(maker.make())).await, 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_changes_is_computed_once_for_all_readers() {
        let latest = Arc::new(LatestValue::<usize>::default());
        let maker = Arc::new(Maker::default());
        let followers: Vec<_> = (0..50)
            .map(|_| {
                let (latest, maker) = (Arc::clone(&latest), Arc::clone(&maker));
                tokio::spawn(async move {
                    let mut follower = ValueFollower::new(&latest);
                    let mut received = 0;
                    while *follower.next(&latest, || Some(maker.make())).await < 1000 {
                        received += 1;
                    }
                    received
                })
            })
            .collect();
        // Two seconds of changes.
        for _ in 0..1000 {
            sleep(Duration::from_millis(2)).await;
            maker.change(&latest);
        }
        for follower in followers {
            let received = follower.await.unwrap();
            assert!(
                (4..=9).contains(&received),
                "each receives values during the burst: {received}"
            );
        }
        let made = maker.made();
        assert!(
            (4..=10).contains(&made),
            "computed {made} times for fifty readers"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_equal_value_is_no_change() {
        let (latest, maker) = (LatestValue::default(), Maker::default());
        let mut follower = ValueFollower::new(&latest);
        follower.next(&latest, || Some(maker.make())).await;
        let next = follower.next(&latest, || Some(maker.make()));
        let storm = async {
            for _ in 0..10 {
                latest.touch();
                sleep(MIN_INTERVAL * 2).await;
            }
        };
        tokio::select! {
            value = next => panic!("received {value}"),
            () = storm => {}
        }
        assert_eq!(maker.made(), 11, "each change was checked");
        maker.change(&latest);
        assert_eq!(*follower.next(&latest, || Some(maker.make())).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_just_before_a_reader_subscribes_is_not_missed() {
        let (latest, maker) = (LatestValue::default(), Maker::default());
        latest.get(|| Some(maker.make())).await;
        maker.change(&latest);
        let mut follower = ValueFollower::new(&latest);
        assert_eq!(
            *follower.next(&latest, || Some(maker.make())).await,
            0,
            "the value before the change"
        );
        let asked = Instant::now();
        assert_eq!(*follower.next(&latest, || Some(maker.make())).await, 1);
        assert!(asked.elapsed() <= MIN_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_cannot_be_computed_is_kept() {
        let latest = LatestValue::default();
        assert_eq!(*latest.get(|| Some(7)).await, 7);
        latest.touch();
        sleep(MIN_INTERVAL).await;
        assert_eq!(*latest.get(|| None).await, 7);
    }
}
