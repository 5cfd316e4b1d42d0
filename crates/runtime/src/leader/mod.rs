//! Leader election: of several replicas, the one that holds a Lease works.

mod lease;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::jitter::random_number;
use lease::Candidate;

/// Releasing the lease is a courtesy to the next leader; the process does not wait longer for it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The Lease that replicas compete for.
#[derive(Debug, Clone, Copy)]
pub struct LeaderElection<'a> {
    pub namespace: &'a str,
    pub lease: &'a str,
    /// How long other replicas wait for a leader that does not renew the lease. A leader that cannot renew it stops
    /// after two thirds of it.
    pub duration: Duration,
}

/// Waits for the lease, works while it is held, and releases it. Returns when the work ends, when `stop` is
/// cancelled, or when the lease is lost: then another replica leads soon, and this process must start over.
pub async fn lead<Work, E>(
    client: Client,
    election: LeaderElection<'_>,
    stop: CancellationToken,
    work: impl FnOnce(CancellationToken) -> Work,
) -> Result<(), E>
where
    Work: Future<Output = Result<(), E>>,
{
    let LeaderElection {
        namespace,
        lease,
        duration,
    } = election;
    let mut candidate = Candidate::new(client, namespace, lease, identity(Timestamp::now()), duration);
    info!("waiting for the lease {namespace}/{lease}");
    let held = tokio::select! {
        () = stop.cancelled() => {
            // A request that was in flight may have acquired it.
            release(&mut candidate).await;
            return Ok(());
        }
        held = candidate.acquire() => held,
    };
    info!("leading: holding the lease {namespace}/{lease}");
    let working = stop.child_token();
    let work = work(working.clone());
    tokio::pin!(work);
    let result = tokio::select! {
        ended = &mut work => ended,
        why = candidate.keep(held) => {
            warn!("lost the lease {namespace}/{lease}: {why}; stopping");
            working.cancel();
            work.await
        }
    };
    release(&mut candidate).await;
    result
}

async fn release(candidate: &mut Candidate) {
    let released = tokio::time::timeout(RELEASE_TIMEOUT, candidate.release());
    if released.await.is_err() {
        warn!("the lease could not be released in time and will expire");
    }
}

/// Returns an identity that no other candidate has. Host, process and start are for the administrator who reads the
/// lease; they are the same for two candidates that one process starts at once.
fn identity(started: Timestamp) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (process, started) = (std::process::id(), started.as_microsecond());
    format!("{}_{process}-{started}-{:016x}", host.trim(), random_number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_candidates_of_one_process_that_start_at_the_same_instant_are_different() {
        let started = Timestamp::now();
        let identities: std::collections::BTreeSet<String> = (0..100).map(|_| identity(started)).collect();
        assert_eq!(
            identities.len(),
            100,
            "each would take the lease of the other for its own"
        );
    }
}
