//! `mco switch prepare`

use std::path::Path;

use mco_api::vocabulary::names::{self, component};
use mco_client::switch;
use serde_json::{Value, json};

use super::cluster::SwitchCluster;
use super::steps::{self, SwitchStep};
use crate::cli::SwitchPrepare;
use crate::output::{self, CommandOutcome};

const NEXT: &str = "\
Next, delete the original's workloads, the operator first, and install:
  oc delete deployment/machine-config-operator -n openshift-machine-config-operator --cascade=foreground
  oc delete deployment/machine-config-controller daemonset/machine-config-server daemonset/machine-config-daemon \\
    -n openshift-machine-config-operator --cascade=foreground --ignore-not-found
";

const TOKENS: &str = "\
With optional tokens, machines are created as before: their user data has no token. Later, repeat the
installation with --ignition-tokens required; see \"New machines\" in docs/install.md.
";

pub async fn run(arguments: &SwitchPrepare) -> anyhow::Result<CommandOutcome> {
    let cluster = SwitchCluster::new(arguments.connection.client().await?);
    let workloads = workloads(&cluster).await?;
    let steps = plan(&cluster, arguments, &workloads).await?;
    let outcome = steps::carry_out(&cluster, &steps, &arguments.steps).await?;
    if outcome == CommandOutcome::Done && !workloads.is_empty() {
        output::print(&next(&workloads))?;
    }
    Ok(outcome)
}

async fn plan(
    cluster: &SwitchCluster,
    arguments: &SwitchPrepare,
    workloads: &[Value],
) -> anyhow::Result<Vec<SwitchStep>> {
    let mut plan = Vec::new();
    plan.extend(saved(&arguments.save, workloads));
    let pools = cluster.pools().await?;
    let to_pause = pools.iter().filter(|pool| switch::pause(pool).is_some());
    plan.extend(to_pause.filter_map(|pool| Some(SwitchStep::Pause(pool.metadata.name.clone()?))));
    let unsettled = switch::unsettled(&cluster.nodes().await?);
    if !arguments.steps.no_wait && (!plan.is_empty() || !unsettled.is_empty()) {
        plan.push(SwitchStep::WaitForNodes);
    }
    if let Some(version) = cluster.find(&steps::cluster_version()).await? {
        plan.extend(switch::add_overrides(&version).map(SwitchStep::AddOverrides));
    }
    Ok(plan)
}

/// Returns the step that saves the workloads, unless the file exists: it may hold the original from an earlier run,
/// when the workloads are ours by now.
fn saved(file: &Path, workloads: &[Value]) -> Option<SwitchStep> {
    if workloads.is_empty() {
        return None;
    }
    if file.exists() {
        output::warning(format!("{} exists and is kept as it is", file.display()));
        return None;
    }
    Some(SwitchStep::Save {
        file: file.to_owned(),
        objects: workloads.iter().map(switch::portable).collect(),
    })
}

/// Returns the workloads of the original that exist.
async fn workloads(cluster: &SwitchCluster) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for (kind, name) in [
        ("Deployment", component::OPERATOR),
        ("Deployment", component::CONTROLLER),
        ("DaemonSet", component::SERVER),
        ("DaemonSet", component::DAEMON),
    ] {
        let metadata = json!({"name": name, "namespace": names::NAMESPACE});
        let workload = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata});
        found.extend(cluster.find(&workload).await?);
    }
    Ok(found)
}

fn next(workloads: &[Value]) -> String {
    let operator = workloads
        .iter()
        .find(|workload| workload["metadata"]["name"] == component::OPERATOR);
    let image = operator.and_then(|workload| {
        workload
            .pointer("/spec/template/spec/containers/0/image")?
            .as_str()
    });
    let image = output::escape_control_chars(image.unwrap_or("IMAGE"));
    format!(
        "\n{NEXT}  mco install --image MCO_IMAGE --templates-image {image} --without-crds \\\n    \
         --ignition-tokens optional | kubectl apply --server-side --force-conflicts -f -\n{TOKENS}"
    )
}
