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
/// Unauthenticated requests in flight, to the few routes that authenticate on their own.
const IN_FLIGHT_OPEN: usize = 8;
const OPEN_BODY_BYTES: usize = 4 << 10;
const OPEN_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request waits for a free slot before it is answered with 429.
const SLOT_TIMEOUT: Duration = Duration::from_secs(10);
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
    budgets: Mutex<HashMap<String, CallerBudget>>,
}

#[derive(Clone, Debug)]
struct CallerBudget {
    left: f64,
    at: Instant,
    in_flight: Arc<Semaphore>,
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

    fn slots_of(&self, user: &str) -> Arc<Semaphore> {
        let budgets = self.budgets.lock();
        let budget = budgets.get(user).map(|budget| Arc::clone(&budget.in_flight));
        budget.unwrap_or_else(|| Arc::new(Semaphore::new(IN_FLIGHT_PER_CALLER)))
    }

    fn spend(&self, user: &str, now: Instant) -> bool {
        let mut budgets = self.budgets.lock();
        if budgets.len() > MAX_CALLERS {
            budgets.retain(|_, budget| {
                let is_idle = budget.in_flight.available_permits() == IN_FLIGHT_PER_CALLER;
                !is_idle || now.duration_since(budget.at).as_secs_f64() * RATE_PER_SECOND < BURST
            });
        }
        let budget = budgets.entry(user.to_owned()).or_insert_with(|| CallerBudget {
            left: BURST,
            at: now,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_PER_CALLER)),
        });
        let earned = now.duration_since(budget.at).as_secs_f64() * RATE_PER_SECOND;
        budget.left = (budget.left + earned).min(BURST);
        budget.at = now;
        if budget.left < 1.0 {
            return false;
        }
        budget.left -= 1.0;
        true
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
    fn a_caller_that_asks_too_often_is_slowed_and_then_served_again() {
        let limits = RequestLimits::default();
        let start = Instant::now();
        let served = (0..6000).filter(|_| limits.spend("loop", start)).count();
        assert_eq!(served, 5000);
        assert!(limits.spend("other", start));
        assert!(limits.spend("loop", start + Duration::from_secs(1)));
    }
}
