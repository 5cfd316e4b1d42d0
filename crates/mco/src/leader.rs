//! Of several equal processes, one works: the one that holds the lease.

use std::time::Duration;

use clap::Args;
use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Giving the lease back is a courtesy; nobody waits for it longer.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct Election {
    /// How long a leader that says nothing still counts as one.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(4..=3600))]
    pub lease_seconds: u64,
    /// Work without asking whether somebody else does.
    #[arg(long)]
    pub no_leader_election: bool,
}

/// Waits for the lease, works while it is held, and gives it back. Ends with the work, when `stop` is given, or when the
/// lease is lost: then somebody else works already, and this process had better start over.
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
    let Some(manager) = manager(client, namespace, lease, election, &stop).await else {
        return Ok(());
    };
    let (mut leads, keeping) = manager.watch().await;
    info!("waiting for the lease {namespace}/{lease}");
    let acquired = tokio::select! {
        () = stop.cancelled() => false,
        acquired = leads.wait_for(|leads| *leads) => acquired.is_ok(),
    };
    let mut result = Ok(());
    if acquired {
        info!("leading: holding the lease {namespace}/{lease}");
        let working = stop.child_token();
        let work = work(working.clone());
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => result = ended,
            _ = leads.wait_for(|leads| !*leads) => {
                warn!("lost the lease {namespace}/{lease}; stopping");
                working.cancel();
                result = work.await;
            }
        }
    }
    drop(leads);
    if tokio::time::timeout(RELEASE_WITHIN, keeping).await.is_err() {
        warn!("the lease {namespace}/{lease} could not be given back in time and will expire");
    }
    result
}

/// The lease, as soon as the cluster can be asked for it; none when `stop` comes first.
async fn manager(
    client: Client,
    namespace: &str,
    lease: &str,
    election: &Election,
    stop: &CancellationToken,
) -> Option<LeaseManager> {
    let mut pause = FIRST_RETRY;
    loop {
        // Renewed when two thirds of it are left, so that two failures in a row are survived.
        let built = LeaseManagerBuilder::new(client.clone(), lease)
            .with_namespace(namespace)
            .with_identity(identity())
            .with_duration(election.lease_seconds)
            .with_grace(election.lease_seconds * 2 / 3)
            .build();
        tokio::select! {
            () = stop.cancelled() => return None,
            built = built => match built {
                Ok(manager) => return Some(manager),
                Err(error) => warn!("cannot ask for the lease {namespace}/{lease}: {error}"),
            },
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_RETRY),
        }
    }
}

/// Tells this process from every other, on this machine and on others.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{}_{}-{started}", host.trim(), std::process::id())
}
