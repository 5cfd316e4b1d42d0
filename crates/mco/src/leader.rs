//! The options of leader election.

use std::time::Duration;

use clap::Args;
use kube::Client;
use mco_runtime::leader::{self, LeaderElection};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct Election {
    /// Lease duration. Other replicas take over this long after the last renewal; the leader stops when it could not renew
    /// the lease for two thirds of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(4..=3600))]
    pub lease_seconds: u64,
    /// Run without leader election; only one replica may run.
    #[arg(long)]
    pub no_leader_election: bool,
}

/// Works while this process holds the lease, or at once without leader election; see [`leader::lead`].
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
    let election = LeaderElection {
        namespace,
        lease,
        duration: Duration::from_secs(election.lease_seconds),
    };
    leader::lead(client, election, stop, work).await
}
