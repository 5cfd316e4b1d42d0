//! `mco builder plan`

use std::fmt::Write as _;

use anyhow::bail;
use mco_core::config::manifest::Manifest;
use mco_core::generators::os_builds::{Architecture, OfflineBuild, OfflineObjects, plan_offline};
use serde::de::DeserializeOwned;

use crate::cli::BuilderPlan;
use crate::input::{self, count};
use crate::output::{self, CommandOutcome, escape_control_chars};

const OWN: &str = "machineconfiguration.openshift.io/v1";

pub fn run(arguments: &BuilderPlan) -> anyhow::Result<CommandOutcome> {
    let manifests = input::manifests(std::slice::from_ref(&arguments.manifests))?;
    if manifests.unreadable > 0 {
        bail!("{} cannot be used", count(manifests.unreadable, "file"));
    }
    let mut objects = objects(&manifests.read)?;
    if objects.configs.is_empty() {
        bail!(
            "{}: no MachineOSConfig found; is this the right directory?",
            arguments.manifests.display()
        );
    }
    objects.builder_image.clone_from(&arguments.builder_image);
    let planned = plan_offline(&objects, architecture_of_host());
    output::show(arguments.output.as_ref(), &planned, || describe(&planned))?;
    let is_buildable = planned.iter().all(|build| build.error.is_empty());
    Ok(if is_buildable {
        CommandOutcome::Done
    } else {
        CommandOutcome::Refused
    })
}

/// Returns the architecture of images for pools without nodes.
pub fn architecture_of_host() -> Architecture {
    Architecture::from_node(std::env::consts::ARCH).unwrap_or(Architecture::Amd64)
}

/// Sorts manifests by kind. Other kinds are ignored.
pub fn objects(manifests: &[Manifest]) -> anyhow::Result<OfflineObjects> {
    let rendered = manifests.iter().filter(|manifest| {
        manifest.api_version == OWN
            && manifest.kind == "MachineConfig"
            && manifest.name.starts_with("rendered-")
    });
    Ok(OfflineObjects {
        configs: of_kind(manifests, OWN, "MachineOSConfig")?,
        builds: of_kind(manifests, OWN, "MachineOSBuild")?,
        pools: of_kind(manifests, OWN, "MachineConfigPool")?,
        rendered: rendered.map(|manifest| manifest.value.clone()).collect(),
        controller_config: of_kind(manifests, OWN, "ControllerConfig")?
            .into_iter()
            .next()
            .unwrap_or_default(),
        secrets: of_kind(manifests, "v1", "Secret")?,
        config_maps: of_kind(manifests, "v1", "ConfigMap")?,
        nodes: of_kind(manifests, "v1", "Node")?,
        builder_image: None,
    })
}

fn of_kind<K: DeserializeOwned>(
    manifests: &[Manifest],
    api_version: &str,
    kind: &str,
) -> anyhow::Result<Vec<K>> {
    let of_kind = manifests
        .iter()
        .filter(|manifest| manifest.api_version == api_version && manifest.kind == kind);
    Ok(of_kind.map(Manifest::decode).collect::<Result<_, _>>()?)
}

fn describe(builds: &[OfflineBuild]) -> String {
    let mut text = String::new();
    for build in builds {
        text.push_str(&describe_build(build));
        if !build.containerfile.is_empty() {
            let _ = writeln!(text, "  Containerfile:");
            for line in build.containerfile.lines() {
                let _ = writeln!(text, "    {}", escape_control_chars(line));
            }
        }
        for object in &build.objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let kind = object["kind"].as_str().unwrap_or_default();
            let _ = writeln!(text, "  creates {kind} {name}");
        }
    }
    text
}

/// Describes a build without its Containerfile and objects.
pub fn describe_build(build: &OfflineBuild) -> String {
    let mut text = format!("MachineOSConfig {}", build.machine_os_config);
    if build.machine_os_build.is_empty() {
        text.push('\n');
    } else {
        let _ = writeln!(text, " -> MachineOSBuild {}", build.machine_os_build);
        let _ = writeln!(text, "  image     {}", build.image_push_spec);
        let need = if build.requires_build {
            "is built"
        } else {
            "is reused"
        };
        let _ = writeln!(text, "  {need:9} {}", escape_control_chars(&build.reason));
        if !build.reused_image.is_empty() {
            let _ = writeln!(text, "  uses      {}", build.reused_image);
        }
    }
    for warning in &build.warnings {
        let _ = writeln!(text, "  ! {}", escape_control_chars(warning));
    }
    if !build.error.is_empty() {
        let error = escape_control_chars(&build.error);
        let _ = writeln!(text, "  cannot be built: {}", error.replace('\n', "\n  "));
    }
    text
}
