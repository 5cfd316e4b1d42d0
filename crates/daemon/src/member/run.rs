//! The daemon of a machine that has joined: present, provisioned, and then kept like any other.

use std::sync::Arc;

use kube::Client;
use mco_host::Machine;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::presence::{self, Facts};
use super::provision::{ProvisionError, provision};
use super::record::Membership;
use crate::agent::{self, AgentError, Options};

#[derive(Debug, Error)]
pub enum MemberError {
    #[error(transparent)]
    Provision(#[from] ProvisionError),
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
            provisioned = provision(&client, &machine, pool) => provisioned?,
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
