//! `mco switch back` and `mco switch release`

use std::path::Path;

use anyhow::{Context as _, bail};
use mco_api::MachineConfig;
use mco_api::machine_configuration::LogLevel;
use mco_api::vocabulary::names::component;
use mco_client::switch;
use mco_core::config::manifest;
use mco_core::config::semantic;
use mco_operator::IgnitionTokens;
use mco_operator::manifests::{self, ManifestSettings};
use mco_operator::profile::ClusterProfile;
use serde_json::Value;

use super::cluster::SwitchCluster;
use super::steps::{self, SwitchStep};
use crate::cli::{SwitchBack, SwitchRelease};
use crate::input;
use crate::output::{self, CommandOutcome};

pub async fn run(arguments: &SwitchBack) -> anyhow::Result<CommandOutcome> {
    let cluster = SwitchCluster::new(arguments.connection.client().await?);
    let steps = plan(&cluster, arguments).await?;
    steps::carry_out(&cluster, &steps, &arguments.steps).await
}

pub async fn release(arguments: &SwitchRelease) -> anyhow::Result<CommandOutcome> {
    let cluster = SwitchCluster::new(arguments.connection.client().await?);
    if arguments.dry_run {
        let held = steps::held_configs(&cluster).await?;
        for config in &held {
            let name = config.metadata.name.as_deref().unwrap_or_default();
            output::print(&format!("MachineConfig {}\n", output::escape_control_chars(name)))?;
        }
        return Ok(if held.is_empty() {
            CommandOutcome::Done
        } else {
            CommandOutcome::Changes
        });
    }
    if let Some(leader) = cluster.leader().await? {
        bail!(
            "the controller {leader} still holds its Lease and would restore the finalizers; stop it first"
        );
    }
    let released = steps::release_configs(&cluster).await?;
    output::print(&format!("{} released\n", input::count(released, "MachineConfig")))?;
    Ok(CommandOutcome::Done)
}

async fn plan(cluster: &SwitchCluster, arguments: &SwitchBack) -> anyhow::Result<Vec<SwitchStep>> {
    let restore = arguments.restore.as_deref().map(saved).transpose()?;
    let configs = cluster.metadata_of::<MachineConfig>("MachineConfigs").await?;
    let bound = switch::not_portable(configs.iter().map(|config| &config.metadata));
    if !bound.is_empty() {
        bail!(
            "another implementation would write the placeholders of MachineConfigs with values of the node or of Secrets: \
             delete {} first, or remove their annotations mco.dev/node-values and mco.dev/secret-files",
            output::escape_control_chars(&bound.join(", "))
        );
    }
    let pools = cluster.pools().await?;
    let nodes = cluster.nodes().await?;
    let ours = ours(cluster).await?;
    let held = steps::held_configs(cluster).await?.len();
    let leads = cluster.leader().await?.is_some();
    let runs = leads || !ours.is_empty();
    let waits = runs && !arguments.steps.no_wait;
    let name = |pool: &mco_api::MachineConfigPool| pool.metadata.name.clone();
    let mut plan = Vec::new();
    let mut resume: Vec<String> = pools
        .iter()
        .filter(|pool| switch::resume(pool).is_some())
        .filter_map(name)
        .collect();
    if waits {
        let running = pools.iter().filter(|pool| switch::pause(pool).is_some());
        let running: Vec<String> = running.filter_map(name).collect();
        plan.extend(running.iter().cloned().map(SwitchStep::Pause));
        resume.extend(running);
        plan.push(SwitchStep::WaitForNodes);
    }
    plan.extend(ours.into_iter().map(SwitchStep::Delete));
    if leads {
        plan.push(SwitchStep::WaitForControllers);
    }
    if held > 0 {
        plan.push(SwitchStep::ReleaseConfigs(held));
    }
    let records = nodes.iter().filter(|node| switch::clear_drain(node).is_some());
    match records.count() {
        0 => {}
        count => plan.push(SwitchStep::ForgetDrains(count)),
    }
    if let Some(version) = cluster.find(&steps::cluster_version()).await? {
        plan.extend(switch::remove_overrides(&version).map(SwitchStep::RemoveOverrides));
    }
    plan.extend(restore.map(SwitchStep::Restore));
    resume.sort_unstable();
    plan.extend(resume.into_iter().map(SwitchStep::Resume));
    Ok(plan)
}

/// Returns the objects in a file that `mco switch prepare` saved.
fn saved(file: &Path) -> anyhow::Result<Vec<Value>> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let objects = manifest::read(&file.display().to_string(), &bytes)?;
    Ok(objects.into_iter().map(|object| object.value).collect())
}

/// Returns our objects in the cluster that run, route to or register our workloads, in deletion order.
async fn ours(cluster: &SwitchCluster) -> anyhow::Result<Vec<Value>> {
    let mut ours = Vec::new();
    for object in manifests::removal(&any_settings()) {
        if !is_removed(&object) {
            continue;
        }
        if let Some(found) = cluster.find(&object).await?
            && is_ours(&found, &object)
        {
            ours.push(object);
        }
    }
    Ok(ours)
}

/// Returns settings for manifests of which only the identity is used.
pub fn any_settings() -> ManifestSettings {
    ManifestSettings {
        image: String::new(),
        templates_image: String::new(),
        builder_image: String::new(),
        keep_builds: None,
        api_server_url: String::new(),
        ignition_tokens: IgnitionTokens::Required,
        log_level: LogLevel::default(),
        profile: ClusterProfile::default(),
        chosen_base: None,
        tls: None,
    }
}

/// Returns whether an object of our installation is deleted when switching back. Roles and network policies stay,
/// because the original uses the same names and its operator restores its own contents.
fn is_removed(object: &Value) -> bool {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match text("/kind") {
        "Deployment" | "DaemonSet" | "Service" | "ValidatingWebhookConfiguration" => true,
        // The others, which guard network policies, also exist in the original.
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => {
            text("/metadata/name").starts_with(component::DAEMON)
        }
        _ => false,
    }
}

/// Returns whether an object with one of our names is ours: other implementations use the same names with other
/// commands and ports.
pub fn is_ours(found: &Value, manifest: &Value) -> bool {
    let at = |object: &Value, pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
    let same = |pointer: &str| {
        semantic::contains(
            &at(found, pointer),
            &at(manifest, pointer),
            semantic::Blank::Empty,
        )
    };
    match manifest["kind"].as_str().unwrap_or_default() {
        "Deployment" | "DaemonSet" => same("/spec/template/spec/containers/0/command"),
        "Service" => same("/spec/ports"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_originals_workloads_are_not_deleted() {
        let workload = |command: &str| json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"command": [command]}]}}}});
        let service =
            |port: u16| json!({"kind": "Service", "spec": {"ports": [{"name": "metrics", "port": port}]}});
        for (found, manifest, expected) in [
            (workload("/usr/bin/mco"), workload("/usr/bin/mco"), true),
            (
                workload("/usr/bin/machine-config-operator"),
                workload("/usr/bin/mco"),
                false,
            ),
            (service(9001), service(9101), false),
            (service(9101), service(9101), true),
        ] {
            assert_eq!(is_ours(&found, &manifest), expected, "{found}");
        }
    }
}
