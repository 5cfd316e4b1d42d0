//! `mco render`

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::goyaml;
use mco_core::config::render::{RenderIdentity, Size};
use mco_core::pipeline::bootstrap::BootstrapCluster;
use mco_core::pipeline::bootstrap::PoolOutcome;
use serde::Serialize;
use serde_json::Value;

use super::VERSION;
use crate::cli::{OutputFormat, RenderArguments};
use crate::input;
use crate::output::{self, CommandOutcome};

pub fn run(arguments: &RenderArguments) -> anyhow::Result<CommandOutcome> {
    let to_screen = arguments.out == Path::new("-");
    if arguments.output.is_some() && !to_screen {
        bail!("--output goes with --out -; files are always written as YAML");
    }
    let cluster = input::cluster(&arguments.manifests, &arguments.base, &arguments.remote)?;
    let outcomes = cluster.render(RenderIdentity {
        controller_version: VERSION,
        release_version: "",
    });
    if outcomes.is_empty() {
        bail!(
            "{}: no MachineConfigPool, and no MachineConfig for master or worker",
            arguments.manifests.display()
        );
    }
    let mut refused = false;
    let mut results = Vec::new();
    for outcome in &outcomes {
        match finished(&cluster, outcome) {
            Ok(result) => results.push(result),
            Err(error) => {
                output::problem(format!(
                    "Failed to render configuration for pool {}:\n{error}",
                    outcome.name()
                ));
                refused = true;
            }
        }
    }
    if to_screen {
        print(&results, arguments.output.as_ref())?;
    } else {
        write(&results, &cluster, &arguments.out)?;
    }
    Ok(if refused {
        CommandOutcome::Refused
    } else {
        CommandOutcome::Done
    })
}

struct Finished {
    config: MachineConfig,
    pool: MachineConfigPool,
}

fn finished(cluster: &BootstrapCluster, outcome: &PoolOutcome) -> Result<Finished, String> {
    let pool = outcome.result.as_ref().map_err(ToString::to_string)?;
    let rendered = &pool.rendered;
    for warning in &rendered.warnings {
        output::warning(warning.to_string());
    }
    if let Size::NearLimit { bytes } = pool.size {
        output::warning(format!(
            "{} has {bytes} bytes, which is close to what the API server accepts",
            rendered.name()
        ));
    }
    Ok(Finished {
        config: MachineConfig::clone(&rendered.config.object),
        pool: cluster.with_target(&outcome.pool, rendered),
    })
}

fn print(results: &[Finished], format: Option<&OutputFormat>) -> anyhow::Result<()> {
    let mut objects = Vec::new();
    for result in results {
        objects.push(to_value(&result.config)?);
        objects.push(to_value(&result.pool)?);
    }
    match format {
        Some(format) => output::print_as(format, &objects),
        None => output::print(
            &objects
                .iter()
                .map(goyaml::to_string)
                .collect::<Vec<_>>()
                .join("---\n"),
        ),
    }
}

fn write(results: &[Finished], cluster: &BootstrapCluster, out: &Path) -> anyhow::Result<()> {
    let (configs, pools) = (out.join("machine-configs"), out.join("machine-pools"));
    for directory in [&configs, &pools] {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create directory {}", directory.display()))?;
    }
    let mut summary = String::new();
    for result in results {
        write_object(&configs, name(&result.config.metadata), &result.config)?;
        write_object(&pools, name(&result.pool.metadata), &result.pool)?;
        let _ = writeln!(
            summary,
            "{}: {}",
            name(&result.pool.metadata),
            name(&result.config.metadata)
        );
    }
    if let Some(config) = &cluster.controller_config {
        write_single(&out.join("controller-config"), name(&config.metadata), config)?;
        if let Some(api_server) = &cluster.api_server {
            write_single(&out.join("api-server"), "api-server", api_server)?;
        }
    }
    output::print(&summary)
}

fn write_single(directory: &Path, name: &str, object: &impl Serialize) -> anyhow::Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create directory {}", directory.display()))?;
    write_object(directory, name, object)
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

fn write_object(directory: &Path, name: &str, object: &impl Serialize) -> anyhow::Result<()> {
    // Names come from manifests; only valid Kubernetes names are safe file names.
    let safe = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    if !safe || name.starts_with('.') {
        bail!("{name:?} is not a valid object name; use lower-case letters, digits, '-' and '.'");
    }
    let path = directory.join(format!("{name}.yaml"));
    fs::write(&path, goyaml::to_string(&to_value(object)?))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn to_value(object: &impl Serialize) -> anyhow::Result<Value> {
    serde_json::to_value(object).context("cannot represent the object")
}
