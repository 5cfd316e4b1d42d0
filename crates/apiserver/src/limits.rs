//! Limits on the requests of a client and on all requests together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::{Identity, MASTERS};
use crate::error::ApiError;

/// Kubernetes' own limit for request bodies.
const BODY_BYTES: usize = 3 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests in flight. Watches do not count: they mostly wait.
const IN_FLIGHT: usize = 400;
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
    in_flight: Arc<Semaphore>,
    budgets: Mutex<HashMap<String, CallerBudget>>,
}

#[derive(Clone, Copy, Debug)]
struct CallerBudget {
    left: f64,
    at: Instant,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body_bytes: BODY_BYTES,
            body_timeout: BODY_TIMEOUT,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
            budgets: Mutex::new(HashMap::new()),
        }
    }
}

impl RequestLimits {
    /// Waits for a free slot. The permit is held until the request is done.
    pub async fn admit(
        &self,
        identity: &Identity,
        watch: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        if !identity.is_in(MASTERS) && !self.spend(&identity.user, Instant::now()) {
            return Err(busy());
        }
        if watch {
            return Ok(None);
        }
        let turn = Arc::clone(&self.in_flight).acquire_owned();
        match tokio::time::timeout(SLOT_TIMEOUT, turn).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            Ok(Err(_)) | Err(_) => Err(busy()),
        }
    }

    fn spend(&self, user: &str, now: Instant) -> bool {
        let mut budgets = self.budgets.lock();
        if budgets.len() > MAX_CALLERS {
            budgets.retain(|_, budget| now.duration_since(budget.at).as_secs_f64() * RATE_PER_SECOND < BURST);
        }
        let budget = budgets
            .entry(user.to_owned())
            .or_insert(CallerBudget { left: BURST, at: now });
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

fn busy() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

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
