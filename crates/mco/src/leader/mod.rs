//! Of several equal processes, one works: the one that holds the lease.

mod lease;

use std::time::Duration;

use clap::Args;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use lease::Candidate;

/// Giving the lease back is a courtesy; nobody waits for it longer.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct Election {
    /// How long a leader that says nothing still counts as one. It stops when it could not say anything for two thirds of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(4..=3600))]
    pub lease_seconds: u64,
    /// Work without asking whether somebody else does.
    #[arg(long)]
    pub no_leader_election: bool,
}

/// Waits for the lease, works while it is held, and gives it back. Ends with the work, when `stop` is given, or when the
/// lease is lost: then somebody else works soon, and this process had better start over.
pub async fn lead<Work>(
    client: Client,
    namespace: &str,
    lease: &str,
    election: &Election,
    stop: CancellationToken,
    work: impl FnOnce(CancellationToken) -> Work,
) -> anyhow::Result<()>
where
    Work: Future<Output = anyhow::Result<()>>,
{
    if election.no_leader_election {
        return work(stop).await;
    }
    let duration = Duration::from_secs(election.lease_seconds);
    let mut candidate = Candidate::new(client, namespace, lease, identity(), duration);
    info!("waiting for the lease {namespace}/{lease}");
    let held = tokio::select! {
        () = stop.cancelled() => {
            // A request that was under way may have got it.
            give_back(&mut candidate).await;
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
    give_back(&mut candidate).await;
    result
}

async fn give_back(candidate: &mut Candidate) {
    let released = tokio::time::timeout(RELEASE_WITHIN, candidate.release());
    if released.await.is_err() {
        warn!("the lease could not be given back in time and will expire");
    }
}

/// Tells this process from every other, on this machine and on others.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{}_{}-{started}", host.trim(), std::process::id())
}
