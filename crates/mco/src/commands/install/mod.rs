//! `mco install`

mod check;
mod package;

use mco_api::crd::{self, CompanionKinds};
use mco_api::machine_configuration::LogLevel;
use mco_operator::manifests::{self, ManifestSettings};
use mco_operator::profile::{self, BaseEvidence, ClusterProfile};
use serde_json::{Value, json};

use crate::cli::InstallArguments;
use crate::connection::Connection;
use crate::output::{self, CommandOutcome};
use crate::runtime;

pub fn run(arguments: &InstallArguments) -> anyhow::Result<CommandOutcome> {
    let profile = if arguments.removal {
        // Everything that any profile installs.
        ClusterProfile::default()
    } else {
        profile(arguments)?
    };
    let kinds = profile.kinds;
    if kinds == CompanionKinds::OpenShift && !profile.base.is_openshift() {
        output::warning(
            "config.openshift.io and operator.openshift.io are installed: other operators and charts may conclude that this \
             cluster is OpenShift, and change their behaviour",
        );
    }
    let settings = settings(arguments, profile);
    if let Some(directory) = &arguments.helm {
        package::write_chart(directory, &settings)?;
        return Ok(CommandOutcome::Done);
    }
    if let Some(directory) = &arguments.kustomize {
        package::write_base(directory, &settings)?;
        return Ok(CommandOutcome::Done);
    }
    let objects = objects(arguments, &settings);
    if arguments.check {
        let items = items(arguments, kinds, objects)?;
        return runtime::block_on(Box::pin(check::run(arguments, items)));
    }
    if let Some(format) = &arguments.output {
        let items = items(arguments, kinds, objects)?;
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        output::print_as(format, &list)?;
        return Ok(CommandOutcome::Done);
    }
    let mut text = String::new();
    if prints_definitions(arguments) {
        text = crd::crds_yaml_with(kinds)? + "---\n";
    }
    output::print(&(text + &manifests::to_yaml(&objects)?))?;
    Ok(CommandOutcome::Done)
}

fn settings(arguments: &InstallArguments, profile: ClusterProfile) -> ManifestSettings {
    ManifestSettings {
        image: arguments.image.clone().unwrap_or_default(),
        templates_image: arguments.templates_image.clone().unwrap_or_default(),
        builder_image: arguments.builder_image.clone().unwrap_or_default(),
        keep_builds: arguments.keep_builds,
        api_server_url: arguments.apiserver_url.clone().unwrap_or_default(),
        ignition_tokens: arguments.ignition_tokens.into(),
        log_level: LogLevel::default(),
        profile,
        chosen_base: arguments.profile.base,
        tls: None,
    }
}

/// Returns the objects of the installation, or of its removal, without CRDs.
fn objects(arguments: &InstallArguments, settings: &ManifestSettings) -> Vec<Value> {
    let mut objects = if arguments.removal {
        output::aside(
            "nodes and finalizers are not cleaned up this way; mco uninstall does all of it, also with nodes that are down",
        );
        manifests::removal(settings)
    } else if arguments.with_operands {
        output::aside("for review: the operator applies everything but its own objects itself");
        manifests::installation(settings)
    } else {
        manifests::operator_installation(settings)
    };
    if arguments.alerts {
        objects.extend(manifests::alerts());
    }
    if arguments.dashboard {
        objects.extend(manifests::dashboards());
    }
    objects
}

/// Returns what is installed: as chosen, or as the cluster of the kubeconfig is.
fn profile(arguments: &InstallArguments) -> anyhow::Result<ClusterProfile> {
    let options = arguments.profile.options();
    let evidence = match options.base {
        Some(_) => BaseEvidence::default(),
        None => match runtime::block_on(evidence(&arguments.connection)) {
            Ok(evidence) => evidence,
            Err(error) => {
                output::aside(format!(
                    "no cluster answers ({error}), so this is for one that is not OpenShift; choose with --base"
                ));
                BaseEvidence::default()
            }
        },
    };
    let decided = profile::decide(&evidence, &options)?;
    if options.base.is_none() {
        output::aside(format!("the base of this cluster is {}", decided.base));
    }
    Ok(decided)
}

async fn evidence(connection: &Connection) -> anyhow::Result<BaseEvidence> {
    Ok(profile::evidence(connection.client().await?).await?)
}

/// CRDs are kept on uninstall, because deleting them deletes all MachineConfigs.
fn prints_definitions(arguments: &InstallArguments) -> bool {
    !arguments.without_crds && !arguments.removal
}

/// Returns the objects with the CRDs before them, in the order of application.
fn items(
    arguments: &InstallArguments,
    kinds: CompanionKinds,
    objects: Vec<Value>,
) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    if prints_definitions(arguments) {
        for definition in crd::crds_with(kinds) {
            items.push(serde_json::to_value(definition)?);
        }
    }
    items.extend(objects);
    Ok(items)
}
