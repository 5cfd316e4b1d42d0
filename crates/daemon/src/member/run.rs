//! The daemon of a machine that has joined: sends heartbeats, provisions the machine, then runs the agent.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mco_host::Machine;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::presence::{self, MachineFacts};
use super::provision::provision;
use super::record::MemberRecord;
use crate::agent::{self, AgentError, AgentOptions, NodeFailure, OwnNode};

/// The retry interval for the first config. The cause of a failure is outside this process, on the machine or in the
/// cluster.
const TRY_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub enum MemberError {
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Runs the daemon of a machine that has joined until cancelled.
pub async fn run(
    client: Client,
    machine: Arc<Machine>,
    membership: &MemberRecord,
    options: AgentOptions,
    stop: CancellationToken,
) -> Result<(), MemberError> {
    // Background tasks end with this function, on every path.
    let helpers = stop.child_token();
    let _end_of_helpers = helpers.clone().drop_guard();
    let node = membership.node.clone();
    let present = presence::keep(client.clone(), node.clone(), MachineFacts::of(&machine), helpers);
    let present = tokio::spawn(present);
    if let Some(pool) = &membership.pool {
        let provisioned = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            provisioned = first_configuration(&client, &machine, &node, pool) => provisioned,
        };
        if provisioned {
            tracing::info!("rebooting into the first config");
            stop.cancelled().await;
            return Ok(());
        }
    }
    let ended = agent::run(client, machine, node, options, stop).await;
    present.abort();
    Ok(ended?)
}

/// Applies the first config, retrying until it succeeds, and reports failures on the Node. Returns whether the machine
/// is rebooting into it.
async fn first_configuration(client: &Client, machine: &Arc<Machine>, node: &str, pool: &str) -> bool {
    let own_node = OwnNode::new(client.clone(), node.to_owned());
    loop {
        let problem = match provision(client, machine, pool).await {
            Ok(goes_down) => return goes_down,
            Err(problem) => problem.to_string(),
        };
        tracing::error!("could not apply the first config: {problem}");
        let report = agent::degraded(NodeFailure::Degraded, &problem, &[]);
        if let Err(untold) = own_node.write(&report).await {
            tracing::warn!("could not report the failure on the Node: {untold}");
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
