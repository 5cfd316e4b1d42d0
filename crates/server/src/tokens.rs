//! Bearer tokens for the configuration of a pool.
//!
//! The file holds hashes only. A token belongs to one pool, expires, and is revoked by removing its record.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mco_http::client_network;

pub use mco_http::pool_tokens::{PoolTokens, TokenDenial, TokenRecord};
pub use mco_http::tokens::generate;

/// More failures than this from one address within [`WINDOW`] are no mistake.
const FAILURES_ALLOWED: u32 = 10;
const WINDOW: Duration = Duration::from_mins(1);
/// Addresses tracked at once. Beyond it the oldest are evicted, so that an attacker cannot exhaust the memory.
const ADDRESSES: usize = 4096;

/// Limits failed attempts per address, so that tokens cannot be guessed by trying.
#[derive(Debug, Default)]
pub struct FailureLimiter {
    addresses: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl FailureLimiter {
    /// Whether this address has failed too often within the window.
    pub fn is_blocked(&self, address: IpAddr, now: Instant) -> bool {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses
            .get(&client_network(address))
            .is_some_and(|(since, count)| now.duration_since(*since) < WINDOW && *count >= FAILURES_ALLOWED)
    }

    pub fn record(&self, address: IpAddr, now: Instant) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let address = client_network(address);
        if addresses.len() >= ADDRESSES && !addresses.contains_key(&address) {
            evict_oldest(&mut addresses, now);
        }
        let entry = addresses.entry(address).or_insert((now, 0));
        if now.duration_since(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }
}

/// Evicts half of the addresses, so that evictions are rare even if many addresses fail.
fn evict_oldest(addresses: &mut HashMap<IpAddr, (Instant, u32)>, now: Instant) {
    addresses.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
    if addresses.len() > ADDRESSES / 2 {
        let mut by_age: Vec<_> = addresses.drain().collect();
        by_age.sort_unstable_by_key(|(_, (since, _))| std::cmp::Reverse(*since));
        by_age.truncate(ADDRESSES / 2);
        addresses.extend(by_age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_keeps_failing_is_blocked_for_a_while() {
        let failures = FailureLimiter::default();
        let (attacker, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let start = Instant::now();
        for _ in 0..FAILURES_ALLOWED {
            assert!(!failures.is_blocked(attacker, start));
            failures.record(attacker, start);
        }
        assert!(failures.is_blocked(attacker, start));
        assert!(!failures.is_blocked(other, start));
        assert!(!failures.is_blocked(attacker, start + WINDOW));
        for host in 0..u32::try_from(2 * ADDRESSES).unwrap() {
            failures.record(IpAddr::V4(host.into()), start);
        }
        assert!(failures.addresses.lock().unwrap().len() <= ADDRESSES);
    }
}
