//! `mco rollout restart`: reboots the nodes of a pool as a rollout, by a MachineConfig of its own.

use std::collections::BTreeMap;

use anyhow::bail;
use jiff::Timestamp;
use kube::api::{ListParams, Patch};
use kube::{Api, ResourceExt as _};
use mco_api::vocabulary::labels;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_client::forecast::Edit;
use mco_core::config::manifest::{Manifest, ManifestOrigin};
use mco_core::config::selector::Selector;
use serde_json::{Value, json};

use crate::cli::{BaseArguments, RestartArguments};
use crate::commands::plan;
use crate::connection::{FIELD_MANAGER, to_cli_error};
use crate::output::{self, CommandOutcome};

/// No disruption policy of the product covers this file, so a change of it reboots.
const FILE: &str = "/etc/mco-restarted-at";

pub async fn run(arguments: &RestartArguments) -> anyhow::Result<CommandOutcome> {
    let client = arguments.connection.client().await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let read = pools.get(&arguments.pool).await;
    let pool = to_cli_error(read, &format!("read pool {}", arguments.pool))?;
    let config = machine_config(&pool, &arguments.pool, Timestamp::now())?;
    let others = other_pools(
        &to_cli_error(pools.list(&ListParams::default()).await, "list the pools")?.items,
        &arguments.pool,
        &config["metadata"]["labels"],
    )?;
    if !others.is_empty() && !arguments.with_inheriting {
        bail!(
            "pool {} shares its MachineConfigs with {}, whose nodes would restart too; add --with-inheriting to restart \
             all of them",
            arguments.pool,
            others.join(", ")
        );
    }
    let name = config["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let edit = Edit::Apply(Manifest {
        origin: ManifestOrigin {
            file: "mco rollout restart".to_owned(),
            line: 0,
        },
        api_version: "machineconfiguration.openshift.io/v1".to_owned(),
        kind: "MachineConfig".to_owned(),
        name: name.clone(),
        value: config.clone(),
    });
    let report = plan::plan_cluster(&client, &[edit], &BaseArguments::default()).await?;
    output::print(&format!(
        "apply MachineConfig {name}\n\n{}",
        plan::text::describe(&report, false)
    ))?;
    if arguments.dry_run {
        return Ok(CommandOutcome::Changes);
    }
    if !arguments.yes && !crate::input::confirmed()? {
        output::print("nothing was changed\n")?;
        return Ok(CommandOutcome::Refused);
    }
    let configs: Api<MachineConfig> = Api::all(client);
    let parameters = FIELD_MANAGER.patch_params().force();
    let applied = configs.patch(&name, &parameters, &Patch::Apply(&config)).await;
    to_cli_error(applied, &format!("apply MachineConfig {name}"))?;
    output::print(&format!(
        "\npool {0} restarts; follow it with: mco rollout status {0}\n",
        arguments.pool
    ))?;
    Ok(CommandOutcome::Done)
}

/// Returns the MachineConfig whose only file changes with every restart.
fn machine_config(pool: &MachineConfigPool, name: &str, now: Timestamp) -> anyhow::Result<Value> {
    let mut selected = pool
        .spec
        .machine_config_selector
        .as_ref()
        .and_then(|selector| selector.match_labels.clone())
        .unwrap_or_default();
    selected
        .entry(labels::ROLE.to_owned())
        .or_insert_with(|| name.to_owned());
    if let Some(selector) = &pool.spec.machine_config_selector
        && !Selector::parse(selector)?.matches(Some(&selected))
    {
        bail!(
            "pool {name} does not select MachineConfigs with the label {}={name}; write one that it selects, with a file \
             that changes, and apply it",
            labels::ROLE
        );
    }
    Ok(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": format!("99-{name}-restart"), "labels": selected},
        "spec": {"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [{
                "path": FILE,
                "mode": 0o644,
                "overwrite": true,
                "contents": {"source": format!("data:,{now:.0}%0A")},
            }]},
        }},
    }))
}

/// Returns the other pools that select a MachineConfig with these labels, and have nodes.
fn other_pools(
    pools: &[MachineConfigPool],
    restarted: &str,
    config_labels: &Value,
) -> anyhow::Result<Vec<String>> {
    let config_labels: BTreeMap<String, String> = serde_json::from_value(config_labels.clone())?;
    let mut others = Vec::new();
    for pool in pools.iter().filter(|pool| pool.name_any() != restarted) {
        let Some(selector) = &pool.spec.machine_config_selector else {
            continue;
        };
        let has_nodes = pool
            .status
            .as_ref()
            .is_some_and(|status| status.machine_count > 0);
        if has_nodes && Selector::parse(selector)?.matches(Some(&config_labels)) {
            others.push(pool.name_any());
        }
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_of_worker_restarted_the_pools_that_inherit_from_it_too() {
        let pool = |name: &str, roles: &[&str], nodes: i32| -> MachineConfigPool {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"machineConfigSelector": {"matchExpressions": [
                    {"key": labels::ROLE, "operator": "In", "values": roles}]}},
                "status": {"machineCount": nodes},
            }))
            .unwrap()
        };
        let pools = [
            pool("worker", &["worker"], 3),
            pool("infra", &["worker", "infra"], 2),
            pool("empty", &["worker", "empty"], 0),
            pool("master", &["master"], 3),
        ];
        let labels_of = |role: &str| json!({labels::ROLE: role});
        assert_eq!(
            other_pools(&pools, "worker", &labels_of("worker")).unwrap(),
            ["infra"]
        );
        assert!(
            other_pools(&pools, "infra", &labels_of("infra"))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_restart_is_for_the_nodes_of_its_pool() {
        let pool = |selector: Value| -> MachineConfigPool {
            serde_json::from_value(
                json!({"metadata": {"name": "infra"}, "spec": {"machineConfigSelector": selector}}),
            )
            .unwrap()
        };
        let role = "machineconfiguration.openshift.io/role";
        let inherits = pool(json!({"matchExpressions": [
            {"key": role, "operator": "In", "values": ["worker", "infra"]}]}));
        let config = machine_config(&inherits, "infra", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(config["metadata"]["name"], "99-infra-restart");
        assert_eq!(config["metadata"]["labels"][role], "infra");
        let source = &config["spec"]["config"]["storage"]["files"][0]["contents"]["source"];
        assert_eq!(source, "data:,1970-01-01T00:00:00Z%0A");

        let labelled = pool(json!({"matchLabels": {"team": "a"}}));
        let config = machine_config(&labelled, "infra", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(config["metadata"]["labels"]["team"], "a");

        let unusual = pool(json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}));
        let error = machine_config(&unusual, "infra", Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(error.to_string().contains("does not select"), "{error}");
    }
}
