//! `mco switch check`

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::names;
use mco_client::comparison::{self, ConfigComparison};
use mco_client::switch::{self, UnsettledNode};
use mco_core::config::manifest::Manifest;
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::rules::AdministratorRules;
use mco_core::pipeline::bootstrap::{self, PoolOutcome};
use serde::Serialize;
use serde_json::Value;

use super::cluster::SwitchCluster;
use super::steps;
use crate::cli::{BaseArguments, StageArgument, SwitchCheck};
use crate::commands::diff::text;
use crate::commands::plan;
use crate::connection::{describe_error, to_cli_error};
use crate::input::{BaseInputs, count};
use crate::output::{self, CommandOutcome};
use crate::table::Table;

/// The result of the check, and the reasons against a switch.
#[derive(Debug, Serialize)]
struct SwitchReport {
    safe: bool,
    pools: Vec<CheckedPool>,
    /// Nodes in the middle of an update.
    nodes: Vec<UnsettledNode>,
    /// Features that the cluster uses and we do not support.
    unsupported: Vec<String>,
}

/// The current config of a pool and the one we would render.
#[derive(Debug, Serialize)]
struct CheckedPool {
    pool: String,
    config: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rendered: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<ConfigComparison>,
    #[serde(skip)]
    texts: BTreeMap<String, String>,
}

impl CheckedPool {
    fn is_same(&self) -> bool {
        self.rendered.as_ref() == Some(&self.config)
    }
}

pub async fn run(arguments: &SwitchCheck) -> anyhow::Result<CommandOutcome> {
    let client = arguments.connection.client().await?;
    let cluster = SwitchCluster::new(client.clone());
    let sources = plan::cluster::sources(&client).await.map_err(describe_error)?;
    let pull_secret = match &arguments.pull_secret {
        Some(_) => None,
        None => pull_secret(&client, &sources.objects).await?,
    };
    let unsupported = unsupported(&sources.objects);
    let outcomes = rendered(sources.objects, arguments, pull_secret.as_deref())?;
    let checked = outcomes
        .into_iter()
        .map(|outcome| checked(outcome, &sources.current, arguments.show_contents));
    let pools: Vec<CheckedPool> = checked.collect();
    let nodes = switch::unsettled(&cluster.nodes().await?);
    let report = SwitchReport {
        safe: pools.iter().all(CheckedPool::is_same) && nodes.is_empty() && unsupported.is_empty(),
        pools,
        nodes,
        unsupported,
    };
    output::show(arguments.output.format.as_ref(), &report, || describe(&report))?;
    Ok(if report.safe {
        CommandOutcome::Done
    } else {
        CommandOutcome::Changes
    })
}

/// Renders every pool from user-written objects only: generated ones are generated again.
fn rendered(
    objects: Vec<Manifest>,
    arguments: &SwitchCheck,
    pull_secret: Option<&str>,
) -> anyhow::Result<Vec<PoolOutcome>> {
    let inputs = BaseInputs::read(&BaseArguments {
        templates: Some(arguments.templates.clone()),
        pull_secret: arguments.pull_secret.clone(),
        payload_version: arguments.payload_version.clone(),
        stage: Some(StageArgument::Cluster),
        base: None,
    })?;
    let mut settings = inputs.settings();
    settings.pull_secret = settings.pull_secret.or(pull_secret);
    let cluster = plan::assembled(bootstrap::assemble(objects, &settings))?;
    for warning in &cluster.warnings {
        output::warning(warning);
    }
    Ok(cluster.render(plan::IDENTITY))
}

fn checked(
    outcome: PoolOutcome,
    current: &BTreeMap<String, ParsedConfig>,
    show_contents: bool,
) -> CheckedPool {
    let pool = outcome.name().to_owned();
    let config = outcome.pool.target_name().to_owned();
    let mut checked = CheckedPool {
        pool,
        config,
        rendered: None,
        error: None,
        difference: None,
        texts: BTreeMap::new(),
    };
    match outcome.result {
        Err(error) => checked.error = Some(error.to_string()),
        Ok(pool) => {
            let new = pool.rendered.config;
            checked.rendered = Some(new.name().to_owned());
            if !checked.is_same() {
                let nothing = ParsedConfig::default();
                let old = current.get(&checked.pool).unwrap_or(&nothing);
                let difference = comparison::compare(old, &new, &AdministratorRules::default());
                if show_contents {
                    checked.texts = text::unified(&difference, old, &new);
                }
                checked.difference = Some(difference);
            }
        }
    }
    checked
}

/// Returns the registry credentials that the ControllerConfig references, as compact JSON. They are never printed.
async fn pull_secret(client: &Client, objects: &[Manifest]) -> anyhow::Result<Option<String>> {
    let config = objects
        .iter()
        .find(|object| object.kind == "ControllerConfig" && object.name == CONTROLLER_CONFIG_NAME);
    let Some(reference) = config.and_then(|config| config.value.pointer("/spec/pullSecret")) else {
        return Ok(None);
    };
    let text = |key: &str| reference.get(key).and_then(Value::as_str);
    let Some(name) = text("name") else {
        return Ok(None);
    };
    let namespace = text("namespace").unwrap_or(names::CONFIG_NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let read = secrets.get(name).await;
    let mut secret = to_cli_error(
        read,
        &format!("read Secret {namespace}/{name} (or set it with --pull-secret)"),
    )
    .and_then(|secret| serde_json::to_value(secret).context("cannot represent the Secret"))?;
    secret["apiVersion"] = "v1".into();
    secret["kind"] = "Secret".into();
    let credentials = bootstrap::pull_secret("the cluster", secret.to_string().as_bytes())?;
    Ok(Some(credentials))
}

fn unsupported(objects: &[Manifest]) -> Vec<String> {
    let builds = objects.iter().filter(|object| object.kind == "MachineOSConfig");
    builds
        .map(|object| format!("MachineOSConfig {}: OS images are not built yet", object.name))
        .collect()
}

fn describe(report: &SwitchReport) -> String {
    let mut table = Table::new(["POOL", "CONFIG", "RENDERED", "RESULT"]);
    for pool in &report.pools {
        let rendered = pool.rendered.clone().unwrap_or_default();
        let result = match (&pool.error, pool.is_same()) {
            (Some(_), _) => "cannot be rendered",
            (None, true) => "same",
            (None, false) => "differs",
        };
        table.row([
            pool.pool.clone(),
            pool.config.clone(),
            rendered,
            result.to_owned(),
        ]);
    }
    let mut text = table.to_string();
    for pool in &report.pools {
        if let Some(error) = &pool.error {
            let _ = writeln!(
                text,
                "\npool {}: {}",
                pool.pool,
                output::escape_control_chars(error)
            );
        }
        if let Some(difference) = &pool.difference {
            let _ = write!(
                text,
                "\n{}",
                text::describe(Some(&pool.pool), difference, &pool.texts)
            );
        }
    }
    if !report.nodes.is_empty() {
        let _ = write!(text, "\n{}", steps::waiting(&report.nodes));
    }
    for unsupported in &report.unsupported {
        let _ = writeln!(text, "\n{}", output::escape_control_chars(unsupported));
    }
    let _ = writeln!(text, "\n{}", verdict(report));
    text
}

fn verdict(report: &SwitchReport) -> String {
    if report.safe {
        return "Safe to switch: every pool keeps its config, and no node is being updated.".to_owned();
    }
    let mut reasons = Vec::new();
    let different = report.pools.iter().filter(|pool| !pool.is_same()).count();
    if different > 0 {
        reasons.push(format!("{} would not keep the config", count(different, "pool")));
    }
    if !report.nodes.is_empty() {
        reasons.push(format!("{} not settled", count(report.nodes.len(), "node")));
    }
    if !report.unsupported.is_empty() {
        reasons.push(format!(
            "{} not supported",
            count(report.unsupported.len(), "object")
        ));
    }
    format!("Not safe to switch: {}.", reasons.join(", "))
}
