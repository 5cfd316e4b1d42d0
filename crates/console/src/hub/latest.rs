//! A value that is put together only when somebody asks for it, and then once for all who ask.
//!
//! Hearing of a change costs a counter. However many changes come and however many people look, the value is made at most
//! once in [`SETTLE`], and never while nobody looks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Changes come in groups; four times a second is as fast as a person can read.
pub const SETTLE: Duration = Duration::from_millis(250);
/// Times such as "done in about 3m" go on without any change.
const REFRESH: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Latest<T> {
    /// How many changes there were.
    changes: watch::Sender<u64>,
    kept: Mutex<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    value: Arc<T>,
    /// The changes that went into it.
    of: u64,
    made: Option<Instant>,
}

impl<T> Kept<T> {
    fn is_current(&self, changes: u64) -> bool {
        self.made.is_some_and(|made| {
            let age = made.elapsed();
            age < SETTLE || (self.of == changes && age < REFRESH)
        })
    }
}

impl<T: Default> Default for Latest<T> {
    fn default() -> Self {
        Self {
            changes: watch::Sender::new(0),
            kept: Mutex::new(Kept {
                value: Arc::default(),
                of: 0,
                made: None,
            }),
        }
    }
}

impl<T: PartialEq> Latest<T> {
    /// Something that the value is made from is different now.
    pub fn touch(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The value as it is now or was a moment ago. While it cannot be made, the one before counts.
    pub async fn get(&self, make: impl FnOnce() -> Option<T>) -> Arc<T> {
        self.look(make).await.0
    }

    /// The value, and the changes that went into it.
    async fn look(&self, make: impl FnOnce() -> Option<T>) -> (Arc<T>, u64) {
        // Who waits here gets what the one before has made.
        let mut kept = self.kept.lock().await;
        let changes = *self.changes.borrow();
        if !kept.is_current(changes) {
            // The same value stays the same object, so that followers need not compare it again.
            if let Some(value) = make().filter(|value| *value != *kept.value) {
                kept.value = Arc::new(value);
            }
            kept.of = changes;
            kept.made = Some(Instant::now());
        }
        (Arc::clone(&kept.value), kept.of)
    }

    /// Waits until the value may be made again.
    async fn settled(&self) {
        let made = self.kept.lock().await.made;
        if let Some(made) = made {
            sleep_until(made + SETTLE).await;
        }
    }
}

/// Somebody who wants to know of every new value.
#[derive(Debug)]
pub struct Follower<T> {
    changes: watch::Receiver<u64>,
    seen: Option<Arc<T>>,
}

impl<T: PartialEq> Follower<T> {
    pub fn new(latest: &Latest<T>) -> Self {
        Self {
            changes: latest.changes(),
            seen: None,
        }
    }

    /// Waits for a value that is not the one seen last; the first one comes at once.
    pub async fn next(&mut self, latest: &Latest<T>, make: impl Fn() -> Option<T>) -> Arc<T> {
        loop {
            let (value, of) = latest.look(&make).await;
            let is_known = self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &value));
            if !is_known {
                self.seen = Some(Arc::clone(&value));
                return value;
            }
            tokio::select! {
                _ = self.changes.wait_for(|changes| *changes != of) => {}
                () = sleep(REFRESH) => {}
            }
            latest.settled().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often it is made.
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

        fn change(&self, latest: &Latest<usize>) {
            self.value.fetch_add(1, Ordering::Relaxed);
            latest.touch();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_made_while_nobody_looks() {
        let (latest, maker) = (Latest::default(), Maker::default());
        for _ in 0..1000 {
            maker.change(&latest);
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(maker.made(), 0);
        assert_eq!(*latest.get(|| Some(maker.make())).await, 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_changes_is_made_once_for_everybody_and_then_is_over() {
        let latest = Arc::new(Latest::<usize>::default());
        let maker = Arc::new(Maker::default());
        let followers: Vec<_> = (0..50)
            .map(|_| {
                let (latest, maker) = (Arc::clone(&latest), Arc::clone(&maker));
                tokio::spawn(async move {
                    let mut follower = Follower::new(&latest);
                    let mut heard = 0;
                    while *follower.next(&latest, || Some(maker.make())).await < 1000 {
                        heard += 1;
                    }
                    heard
                })
            })
            .collect();
        // Two seconds of it.
        for _ in 0..1000 {
            sleep(Duration::from_millis(2)).await;
            maker.change(&latest);
        }
        for follower in followers {
            let heard = follower.await.unwrap();
            assert!(
                (4..=9).contains(&heard),
                "each hears of it while it goes on: {heard}"
            );
        }
        let made = maker.made();
        assert!((4..=10).contains(&made), "made {made} times for fifty who look");
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_nothing_is_no_news() {
        let (latest, maker) = (Latest::default(), Maker::default());
        let mut follower = Follower::new(&latest);
        follower.next(&latest, || Some(maker.make())).await;
        let next = follower.next(&latest, || Some(maker.make()));
        let storm = async {
            for _ in 0..10 {
                latest.touch();
                sleep(SETTLE * 2).await;
            }
        };
        tokio::select! {
            value = next => panic!("heard of {value}"),
            () = storm => {}
        }
        assert_eq!(maker.made(), 11, "each was looked at");
        maker.change(&latest);
        assert_eq!(*follower.next(&latest, || Some(maker.make())).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_just_before_somebody_comes_is_not_missed() {
        let (latest, maker) = (Latest::default(), Maker::default());
        latest.get(|| Some(maker.make())).await;
        maker.change(&latest);
        let mut follower = Follower::new(&latest);
        assert_eq!(
            *follower.next(&latest, || Some(maker.make())).await,
            0,
            "as it was a moment ago"
        );
        let asked = Instant::now();
        assert_eq!(*follower.next(&latest, || Some(maker.make())).await, 1);
        assert!(asked.elapsed() <= SETTLE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_made_stays_as_it_was() {
        let latest = Latest::default();
        assert_eq!(*latest.get(|| Some(7)).await, 7);
        latest.touch();
        sleep(SETTLE).await;
        assert_eq!(*latest.get(|| None).await, 7);
    }
}
