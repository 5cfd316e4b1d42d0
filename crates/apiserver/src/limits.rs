//! Limits on the requests of a client and on all requests together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::{COMPONENTS, Identity, MASTERS};
use crate::error::ApiError;

/// Kubernetes' own limit for request bodies.
const BODY_BYTES: usize = 3 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests in flight of nodes and users. Watches do not count: they mostly wait.
const IN_FLIGHT: usize = 300;
/// Requests in flight of one node or user, so that one cannot use all slots with slow bodies.
const IN_FLIGHT_PER_CALLER: usize = 100;
/// Slots reserved for administrators and the components of the embedding program, which write for thousands of nodes.
const IN_FLIGHT_RESERVED: usize = 400;
/// Open watches of nodes and users: several for each node of the largest supported fleet.
const WATCHES: usize = 40_000;
/// Open watches of one node or user; a daemon has fewer than ten.
const WATCHES_PER_CALLER: usize = 100;
/// Open watches reserved for administrators and components.
const WATCHES_RESERVED: usize = 5_000;
/// The Events that a node creates at once, and in the hour after which they expire. Every 4 KiB of an Event count like
/// another one, so that the quota limits memory as well.
const EVENTS_PER_NODE: f64 = 500.0;
const EVENTS_PER_SECOND: f64 = EVENTS_PER_NODE / 3600.0;
const BYTES_PER_EVENT: f64 = 4096.0;
/// Unauthenticated requests in flight, to the few routes that authenticate on their own.
const IN_FLIGHT_OPEN: usize = 8;
const OPEN_BODY_BYTES: usize = 4 << 10;
const OPEN_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request waits for a free slot before it is answered with 429.
const SLOT_TIMEOUT: Duration = Duration::from_secs(10);
/// When a client with too many watches retries.
const WATCH_RETRY_SECONDS: u32 = 5;
/// A caller's rate: enough for a controller at full speed, too little for a runaway loop to starve other callers.
const RATE_PER_SECOND: f64 = 1000.0;
const BURST: f64 = 5000.0;
/// The number of callers after which idle ones are evicted.
const MAX_CALLERS: usize = 10_000;

#[derive(Debug)]
pub struct RequestLimits {
    pub body_bytes: usize,
    pub body_timeout: Duration,
    /// The limits of a request without credentials.
    pub open_body_bytes: usize,
    pub open_body_timeout: Duration,
    in_flight: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    open: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    reserved_watches: Arc<Semaphore>,
    budgets: Mutex<HashMap<String, CallerBudget>>,
}

#[derive(Clone, Debug)]
struct CallerBudget {
    rate: TokenBucket,
    in_flight: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

impl CallerBudget {
    fn new(now: Instant) -> Self {
        Self {
            rate: TokenBucket::full(BURST, now),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_PER_CALLER)),
            watches: Arc::new(Semaphore::new(WATCHES_PER_CALLER)),
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.in_flight.available_permits() == IN_FLIGHT_PER_CALLER
            && self.watches.available_permits() == WATCHES_PER_CALLER
            && self.rate.is_full(RATE_PER_SECOND, BURST, now)
    }
}

/// A budget that is refilled at a constant rate.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    left: f64,
    at: Instant,
}

impl TokenBucket {
    fn full(capacity: f64, now: Instant) -> Self {
        Self {
            left: capacity,
            at: now,
        }
    }

    fn available(&self, per_second: f64, capacity: f64, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * per_second;
        (self.left + earned).min(capacity)
    }

    fn is_full(&self, per_second: f64, capacity: f64, now: Instant) -> bool {
        self.available(per_second, capacity, now) >= capacity
    }

    /// Takes one token and returns whether there was one.
    fn spend(&mut self, per_second: f64, capacity: f64, now: Instant) -> bool {
        self.spend_many(1.0, per_second, capacity, now)
    }

    /// Takes tokens and returns whether there were as many; otherwise none is taken.
    fn spend_many(&mut self, tokens: f64, per_second: f64, capacity: f64, now: Instant) -> bool {
        self.left = self.available(per_second, capacity, now);
        self.at = now;
        if self.left < tokens {
            return false;
        }
        self.left -= tokens;
        true
    }
}

/// One token bucket for each key.
#[derive(Debug)]
pub(crate) struct KeyedBuckets {
    per_second: f64,
    capacity: f64,
    by_key: Mutex<HashMap<String, TokenBucket>>,
}

impl KeyedBuckets {
    pub fn new(per_second: f64, capacity: f64) -> Self {
        Self {
            per_second,
            capacity,
            by_key: Mutex::default(),
        }
    }

    /// Takes the tokens of an Event that a node creates or enlarges by this many bytes, and returns whether there were as
    /// many.
    pub fn spend_event(&self, node: &str, is_new: bool, bytes: usize, now: Instant) -> bool {
        let size = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / BYTES_PER_EVENT;
        let tokens = size + if is_new { 1.0 } else { 0.0 };
        tokens == 0.0 || self.spend_many(node, tokens, now)
    }

    /// Returns the buckets that limit the Events of each node.
    pub fn events_of_nodes() -> Self {
        Self::new(EVENTS_PER_SECOND, EVENTS_PER_NODE)
    }

    /// Takes one token of a key and returns whether there was one.
    pub fn spend(&self, key: &str, now: Instant) -> bool {
        self.spend_many(key, 1.0, now)
    }

    /// Takes tokens of a key and returns whether there were as many; otherwise none is taken.
    pub fn spend_many(&self, key: &str, tokens: f64, now: Instant) -> bool {
        let mut by_key = self.by_key.lock();
        if by_key.len() > MAX_CALLERS {
            by_key.retain(|_, bucket| !bucket.is_full(self.per_second, self.capacity, now));
        }
        by_key
            .entry(key.to_owned())
            .or_insert_with(|| TokenBucket::full(self.capacity, now))
            .spend_many(tokens, self.per_second, self.capacity, now)
    }
}

/// The slots of one request, free again when this is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    _slots: Vec<OwnedSemaphorePermit>,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body_bytes: BODY_BYTES,
            body_timeout: BODY_TIMEOUT,
            open_body_bytes: OPEN_BODY_BYTES,
            open_body_timeout: OPEN_BODY_TIMEOUT,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
            reserved: Arc::new(Semaphore::new(IN_FLIGHT_RESERVED)),
            open: Arc::new(Semaphore::new(IN_FLIGHT_OPEN)),
            watches: Arc::new(Semaphore::new(WATCHES)),
            reserved_watches: Arc::new(Semaphore::new(WATCHES_RESERVED)),
            budgets: Mutex::new(HashMap::new()),
        }
    }
}

impl RequestLimits {
    /// Waits for a free slot. The permit is held until the request is done.
    pub async fn admit(&self, identity: &Identity, watch: bool) -> Result<Option<RequestPermit>, ApiError> {
        let is_privileged = identity.is_in(MASTERS) || identity.is_in(COMPONENTS);
        if !identity.is_in(MASTERS) && !self.spend(&identity.user, Instant::now()) {
            return Err(busy());
        }
        if watch {
            return Ok(None);
        }
        let slots = if is_privileged {
            vec![Arc::clone(&self.reserved)]
        } else {
            // The caller's own slots first, so that its waiting requests hold none of the shared ones.
            vec![self.slots_of(&identity.user), Arc::clone(&self.in_flight)]
        };
        acquire(slots).await.map(Some)
    }

    /// Admits an unauthenticated request. It does not wait: legitimate clients of these routes retry.
    pub fn admit_open(&self) -> Result<RequestPermit, ApiError> {
        let slot = Arc::clone(&self.open).try_acquire_owned().map_err(|_| busy())?;
        Ok(RequestPermit { _slots: vec![slot] })
    }

    /// Admits a watch. The permit is held until it ends. It does not wait: watches last long.
    pub fn admit_watch(&self, identity: &Identity) -> Result<RequestPermit, ApiError> {
        let slots = if identity.is_in(MASTERS) || identity.is_in(COMPONENTS) {
            vec![Arc::clone(&self.reserved_watches)]
        } else {
            let of_caller = self.with_budget(&identity.user, Instant::now(), |budget| {
                Arc::clone(&budget.watches)
            });
            vec![of_caller, Arc::clone(&self.watches)]
        };
        let acquired: Result<Vec<_>, _> = slots.into_iter().map(Semaphore::try_acquire_owned).collect();
        match acquired {
            Ok(slots) => Ok(RequestPermit { _slots: slots }),
            Err(_) => Err(ApiError::too_many_requests(
                format!(
                    "Too many open watches of {:?}, please try again later.",
                    identity.user
                ),
                WATCH_RETRY_SECONDS,
            )),
        }
    }

    fn slots_of(&self, user: &str) -> Arc<Semaphore> {
        self.with_budget(user, Instant::now(), |budget| Arc::clone(&budget.in_flight))
    }

    fn with_budget<R>(&self, user: &str, now: Instant, read: impl FnOnce(&mut CallerBudget) -> R) -> R {
        let mut budgets = self.budgets.lock();
        if budgets.len() > MAX_CALLERS {
            budgets.retain(|_, budget| !budget.is_idle(now));
        }
        let budget = budgets
            .entry(user.to_owned())
            .or_insert_with(|| CallerBudget::new(now));
        read(budget)
    }

    fn spend(&self, user: &str, now: Instant) -> bool {
        self.with_budget(user, now, |budget| budget.rate.spend(RATE_PER_SECOND, BURST, now))
    }
}

async fn acquire(slots: Vec<Arc<Semaphore>>) -> Result<RequestPermit, ApiError> {
    let acquiring = async {
        let mut acquired = Vec::with_capacity(slots.len());
        for slot in slots {
            acquired.push(slot.acquire_owned().await.map_err(|_| busy())?);
        }
        Ok(RequestPermit { _slots: acquired })
    };
    let acquired = tokio::time::timeout(SLOT_TIMEOUT, acquiring).await;
    acquired.unwrap_or_else(|_| Err(busy()))
}

fn busy() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_sent_requests_of_one_caller_starved_all_others() {
        let limits = RequestLimits::default();
        let node = Identity::node("slow");
        let mut held = Vec::new();
        for _ in 0..IN_FLIGHT_PER_CALLER {
            held.push(limits.admit(&node, false).await.unwrap());
        }
        assert!(
            limits.admit(&node, false).await.is_err(),
            "the caller has used its slots"
        );
        assert!(limits.admit(&Identity::node("other"), false).await.is_ok());
        held.clear();
        assert!(limits.admit(&node, false).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn components_and_administrators_have_slots_of_their_own() {
        let limits = RequestLimits::default();
        let mut held = Vec::new();
        for caller in 0..3 {
            for _ in 0..IN_FLIGHT_PER_CALLER {
                held.push(
                    limits
                        .admit(&Identity::node(&caller.to_string()), false)
                        .await
                        .unwrap(),
                );
            }
        }
        assert!(limits.admit(&Identity::node("one-more"), false).await.is_err());
        assert!(limits.admit(&Identity::admin(), false).await.is_ok());
        assert!(
            limits
                .admit(&Identity::component("operator"), false)
                .await
                .is_ok()
        );
    }

    #[test]
    fn unauthenticated_requests_used_the_slots_of_everything_else() {
        let limits = RequestLimits::default();
        let held: Vec<_> = (0..IN_FLIGHT_OPEN)
            .map(|_| limits.admit_open().unwrap())
            .collect();
        assert!(limits.admit_open().is_err());
        drop(held);
        assert!(limits.admit_open().is_ok());
    }

    #[test]
    fn one_caller_opened_any_number_of_watches() {
        let limits = RequestLimits::default();
        let node = Identity::node("greedy");
        let mut held: Vec<_> = (0..WATCHES_PER_CALLER)
            .map(|_| limits.admit_watch(&node).unwrap())
            .collect();
        let rejected = limits.admit_watch(&node).unwrap_err();
        assert_eq!(rejected.code, http::StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(rejected.retry_after, Some(WATCH_RETRY_SECONDS));
        assert!(limits.admit_watch(&Identity::node("other")).is_ok());
        held.pop();
        assert!(limits.admit_watch(&node).is_ok());
    }

    #[test]
    fn components_and_administrators_have_watches_of_their_own() {
        let limits = RequestLimits::default();
        let held: Vec<_> = (0..WATCHES / WATCHES_PER_CALLER)
            .flat_map(|caller| {
                let node = Identity::node(&caller.to_string());
                (0..WATCHES_PER_CALLER)
                    .map(|_| limits.admit_watch(&node).unwrap())
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(held.len(), WATCHES);
        assert!(limits.admit_watch(&Identity::node("one-more")).is_err());
        assert!(limits.admit_watch(&Identity::admin()).is_ok());
        assert!(limits.admit_watch(&Identity::component("operator")).is_ok());
    }

    #[test]
    fn the_events_of_a_node_are_limited_in_number_and_size() {
        let start = Instant::now();
        let quota = KeyedBuckets::events_of_nodes();
        let small = (0..1000)
            .filter(|_| quota.spend_event("a", true, 500, start))
            .count();
        assert!((400..500).contains(&small), "{small}");
        let large = (0..1000)
            .filter(|_| quota.spend_event("b", true, 60_000, start))
            .count();
        assert!(large * 60_000 < 3 << 20, "{large} Events of 60 kB");
        // A patch that changes a counter is free; one that enlarges an Event is not.
        assert!(quota.spend_event("b", false, 0, start));
        assert!(!quota.spend_event("b", false, 1 << 20, start));
    }

    #[test]
    fn a_caller_that_asks_too_often_is_slowed_and_then_served_again() {
        let limits = RequestLimits::default();
        let start = Instant::now();
        let served = (0..6000).filter(|_| limits.spend("loop", start)).count();
        assert_eq!(served, 5000);
        assert!(limits.spend("other", start));
        assert!(limits.spend("loop", start + Duration::from_secs(1)));
    }
}
