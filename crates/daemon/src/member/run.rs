//! The daemon of a machine that has joined: present, provisioned, and then kept like any other.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mco_host::Machine;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::presence::{self, Facts};
use super::provision::provision;
use super::record::Membership;
use crate::agent::{self, AgentError, Failure, Options, OwnNode};

/// A first configuration that cannot be had is tried again after this long: what is in its way is somebody else's to
/// change, here or in the cluster.
const TRY_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub enum MemberError {
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Keeps a machine that has joined until told to stop.
pub async fn run(
    client: Client,
    machine: Arc<Machine>,
    membership: &Membership,
    options: Options,
    stop: CancellationToken,
) -> Result<(), MemberError> {
    // What runs beside us ends with us, however we end.
    let helpers = stop.child_token();
    let _end_of_helpers = helpers.clone().drop_guard();
    let node = membership.node.clone();
    let present = presence::keep(client.clone(), node.clone(), Facts::of(&machine), helpers);
    let present = tokio::spawn(present);
    if let Some(pool) = &membership.pool {
        let provisioned = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            provisioned = first_configuration(&client, &machine, &node, pool) => provisioned,
        };
        if provisioned {
            tracing::info!("the machine boots into its first configuration");
            stop.cancelled().await;
            return Ok(());
        }
    }
    let ended = agent::run(client, machine, node, options, stop).await;
    present.abort();
    Ok(ended?)
}

/// Gives the machine its first configuration, however long that takes, and tells its Node why it does not go. The answer
/// tells whether the machine is going down to boot into it.
async fn first_configuration(client: &Client, machine: &Arc<Machine>, node: &str, pool: &str) -> bool {
    let own_node = OwnNode::new(client.clone(), node.to_owned());
    loop {
        let problem = match provision(client, machine, pool).await {
            Ok(goes_down) => return goes_down,
            Err(problem) => problem.to_string(),
        };
        tracing::error!("the first configuration cannot be applied: {problem}");
        let report = agent::degraded(Failure::Degraded, &problem);
        if let Err(untold) = own_node.write(&report).await {
            tracing::warn!("the node does not say so yet: {untold}");
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
