//! `mco node NODE --logs`

use anyhow::bail;
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt as _};
use mco_api::vocabulary::names;

use crate::cli::NodeArguments;
use crate::connection::to_cli_error;
use crate::output::{self, CommandOutcome};

/// The label and the container of the daemon's pods, the same in both implementations.
const DAEMON: &str = "machine-config-daemon";

/// Prints the log of the pod in which a node's daemon runs.
pub async fn print(client: &Client, arguments: &NodeArguments) -> anyhow::Result<CommandOutcome> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), names::NAMESPACE);
    let on_node = ListParams::default()
        .labels(&format!("k8s-app={DAEMON}"))
        .fields(&format!("spec.nodeName={}", arguments.name));
    let found = to_cli_error(pods.list(&on_node).await, "list the pods of the daemon")?;
    // During an update of the DaemonSet there may be two; the newer one is the current one.
    let newest = found
        .items
        .into_iter()
        .max_by_key(kube::ResourceExt::creation_timestamp);
    let Some(pod) = newest else {
        bail!(
            "no pod of {DAEMON} runs on node {}; under mco up all daemons log to mco.log in its data directory, and a \
             machine that joined it logs to the journal: journalctl --unit mco-daemon",
            arguments.name
        );
    };
    let parameters = LogParams {
        container: Some(DAEMON.to_owned()),
        follow: arguments.follow,
        previous: arguments.previous,
        tail_lines: arguments.tail,
        ..LogParams::default()
    };
    let attempt = format!("read the log of pod {}", pod.name_any());
    let stream = to_cli_error(pods.log_stream(&pod.name_any(), &parameters).await, &attempt)?;
    let mut lines = stream.lines();
    while let Some(line) = lines.try_next().await? {
        output::print(&format!("{}\n", output::escape_control_chars(&line)))?;
    }
    Ok(CommandOutcome::Done)
}
