//! `mco install`

mod check;

use mco_api::machine_configuration::LogLevel;
use mco_operator::manifests::{self, ManifestSettings};
use serde_json::{Value, json};

use crate::cli::InstallArguments;
use crate::output::{self, CommandOutcome};
use crate::runtime;

pub fn run(arguments: &InstallArguments) -> anyhow::Result<CommandOutcome> {
    let objects = objects(arguments);
    if arguments.check {
        return runtime::block_on(Box::pin(check::run(arguments, items(arguments, objects)?)));
    }
    if let Some(format) = arguments.output {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items(arguments, objects)?});
        output::print_as(format, &list)?;
        return Ok(CommandOutcome::Done);
    }
    let mut text = String::new();
    if prints_definitions(arguments) {
        text = mco_api::crds_yaml()? + "---\n";
    }
    output::print(&(text + &manifests::to_yaml(&objects)?))?;
    Ok(CommandOutcome::Done)
}

/// Returns the objects of the installation, or of its removal, without CRDs.
fn objects(arguments: &InstallArguments) -> Vec<Value> {
    let settings = ManifestSettings {
        image: arguments.image.clone(),
        templates_image: arguments.templates_image.clone().unwrap_or_default(),
        builder_image: arguments.builder_image.clone().unwrap_or_default(),
        api_server_url: arguments.apiserver_url.clone().unwrap_or_default(),
        ignition_tokens: arguments.ignition_tokens.into(),
        log_level: LogLevel::default(),
    };
    let mut objects = if arguments.removal {
        output::aside(
            "nodes and finalizers are not cleaned up this way; mco uninstall does all of it, also with nodes that are down",
        );
        manifests::removal(&settings)
    } else if arguments.with_operands {
        output::aside("for review: the operator applies everything but its own objects itself");
        manifests::installation(&settings)
    } else {
        manifests::operator_installation(&settings)
    };
    if arguments.alerts {
        objects.extend(manifests::alerts());
    }
    if arguments.dashboard {
        objects.push(manifests::dashboard());
    }
    objects
}

/// CRDs are kept on uninstall, because deleting them deletes all MachineConfigs.
fn prints_definitions(arguments: &InstallArguments) -> bool {
    !arguments.without_crds && !arguments.removal
}

/// Returns the objects with the CRDs before them, in the order of application.
fn items(arguments: &InstallArguments, objects: Vec<Value>) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    if prints_definitions(arguments) {
        for definition in mco_api::crds() {
            items.push(serde_json::to_value(definition)?);
        }
    }
    items.extend(objects);
    Ok(items)
}
