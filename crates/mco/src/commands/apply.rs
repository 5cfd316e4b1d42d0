//! `mco apply`

use anyhow::{anyhow, bail};
use kube::api::{DynamicObject, Patch};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use mco_core::config::goyaml;
use mco_core::config::manifest::Manifest;
use mco_core::pipeline::admission::{self, AdmissionContext};
use serde_json::{Value, json};

use crate::cli::Apply;
use crate::connection::{FIELD_MANAGER, to_cli_error};
use crate::input::{self, count};
use crate::output::{self, CommandOutcome};
use crate::runtime;

pub fn run(arguments: &Apply) -> anyhow::Result<CommandOutcome> {
    let manifests = input::manifests(&arguments.files)?;
    let invalid = manifests.unreadable + manifests.read.iter().filter(|one| !is_valid(one)).count();
    if invalid > 0 {
        bail!(
            "{} cannot be applied; nothing was changed",
            count(invalid, "object")
        );
    }
    if manifests.read.is_empty() {
        bail!("nothing to apply: no object found");
    }
    if arguments.dry_run {
        print_objects(&manifests.read, arguments)?;
        return Ok(CommandOutcome::Done);
    }
    runtime::block_on(async {
        let client = arguments.connection.client().await?;
        for (done, manifest) in manifests.read.iter().enumerate() {
            apply(&client, manifest, arguments.force_conflicts)
                .await
                .map_err(|error| match done {
                    0 => error,
                    done => anyhow!("{error:#}; {} before it applied", count(done, "object")),
                })?;
        }
        Ok(CommandOutcome::Done)
    })
}

/// Reports the problems of an object; returns whether there are none. Kinds that are not ours are left to the cluster.
fn is_valid(manifest: &Manifest) -> bool {
    let (group, _) = manifest.api_version.split_once('/').unwrap_or_default();
    let checked = admission::check_on(AdmissionContext::default, group, &manifest.kind, &manifest.value);
    match checked {
        None => true,
        Some(Ok(warnings)) => {
            for problem in warnings {
                output::warning(format!(
                    "{}: {} {:?}: {problem}",
                    manifest.origin, manifest.kind, manifest.name
                ));
            }
            true
        }
        Some(Err(problems)) => {
            for problem in problems {
                output::problem(format!(
                    "{}: {} {:?}: {problem}",
                    manifest.origin, manifest.kind, manifest.name
                ));
            }
            false
        }
    }
}

fn print_objects(manifests: &[Manifest], arguments: &Apply) -> anyhow::Result<()> {
    let values: Vec<&Value> = manifests.iter().map(|manifest| &manifest.value).collect();
    match &arguments.output {
        None => {
            let documents: Vec<String> = values.iter().map(|value| goyaml::to_string(value)).collect();
            output::print(&documents.join("---\n"))
        }
        Some(format) => match values.as_slice() {
            [only] => output::print_as(format, only),
            several => {
                let list = json!({"apiVersion": "v1", "kind": "List", "items": several});
                output::print_as(format, &list)
            }
        },
    }
}

async fn apply(client: &Client, manifest: &Manifest, force: bool) -> anyhow::Result<()> {
    let (group, version) = manifest
        .api_version
        .split_once('/')
        .unwrap_or(("", &manifest.api_version));
    let kind = GroupVersionKind::gvk(group, version, &manifest.kind);
    let known = discovery::pinned_kind(client, &kind).await;
    let what = format!("{} {}", manifest.kind, manifest.name);
    let (resource, capabilities) =
        to_cli_error(known, &format!("apply {what}: find its kind in the cluster"))?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = manifest
                .value
                .pointer("/metadata/namespace")
                .and_then(Value::as_str);
            let namespace = namespace.unwrap_or_else(|| client.default_namespace());
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let mut parameters = FIELD_MANAGER.patch_params();
    if force {
        parameters = parameters.force();
    }
    let applied = api
        .patch(&manifest.name, &parameters, &Patch::Apply(&manifest.value))
        .await;
    to_cli_error(applied, &format!("apply {what}"))?;
    let group = if group.is_empty() {
        String::new()
    } else {
        format!(".{group}")
    };
    output::print(&format!(
        "{}{group}/{} serverside-applied\n",
        manifest.kind.to_lowercase(),
        manifest.name
    ))
}
