//! ContainerRuntimeConfigs on an additive base: drop-ins of containerd or CRI-O, whichever the nodes report.

use mco_api::container_runtime_config::ContainerRuntimeConfiguration;

use super::{DROPINS, size};
use crate::config::base_layout::BaseLayout;
use crate::config::node_versions::{NodeRuntime, PoolNodes};
use crate::generators::base_refusal::BaseRefusal;
use crate::generators::generated::GeneratedFile;
use crate::generators::generated::toml_text::TomlText;

const NO_EQUIVALENT: &str = "write the setting in a MachineConfig, in a file that the node's runtime reads";

/// Returns the files of a ContainerRuntimeConfig, or why the nodes of the pool cannot take it.
pub fn drop_in_files(
    layout: &BaseLayout,
    pool: &PoolNodes<'_>,
    wishes: &ContainerRuntimeConfiguration,
    number: u32,
) -> Result<Vec<GeneratedFile>, BaseRefusal> {
    let refused = |field, hint| {
        Err(BaseRefusal::Field {
            field,
            base: pool.base,
            hint,
        })
    };
    if size(wishes.overlay_size.as_ref()).is_some() {
        return refused("spec.containerRuntimeConfig.overlaySize", NO_EQUIVALENT);
    }
    let stores = wishes.additional_layer_stores.len()
        + wishes.additional_image_stores.len()
        + wishes.additional_artifact_stores.len();
    if stores > 0 {
        return refused("spec.containerRuntimeConfig.additional*Stores", NO_EQUIVALENT);
    }
    let mut files = Vec::new();
    if pool.has_runtime(|runtime| matches!(runtime, NodeRuntime::Containerd(_))) {
        files.extend(containerd(layout, pool, wishes, number)?);
    }
    if pool.has_runtime(|runtime| runtime == NodeRuntime::CriO) {
        files.extend(crio(wishes));
    }
    Ok(files)
}

fn containerd(
    layout: &BaseLayout,
    pool: &PoolNodes<'_>,
    wishes: &ContainerRuntimeConfiguration,
    number: u32,
) -> Result<Option<GeneratedFile>, BaseRefusal> {
    let refused = |field, hint| {
        Err(BaseRefusal::Field {
            field,
            base: pool.base,
            hint,
        })
    };
    if wishes.pids_limit.is_some() {
        return refused(
            "spec.containerRuntimeConfig.pidsLimit",
            "set podPidsLimit in a KubeletConfig",
        );
    }
    if size(wishes.log_size_max.as_ref()).is_some() {
        return refused(
            "spec.containerRuntimeConfig.logSizeMax",
            "set containerLogMaxSize in a KubeletConfig",
        );
    }
    if !wishes.default_runtime.is_empty() {
        return refused("spec.containerRuntimeConfig.defaultRuntime", NO_EQUIVALENT);
    }
    if wishes.log_level.is_empty() {
        return Ok(None);
    }
    let Some((directory, oldest)) = layout.containerd_drop_ins else {
        return refused(
            "spec.containerRuntimeConfig.logLevel",
            "the distribution generates containerd's configuration; set its own option in a MachineConfig",
        );
    };
    let old = pool.named(|node| match node.runtime() {
        Some(NodeRuntime::Containerd(Some(version))) if version < oldest => Some(node.runtime.clone()),
        _ => None,
    });
    if !old.is_empty() {
        return Err(BaseRefusal::Runtime {
            pool: pool.pool.to_owned(),
            needs: format!("containerd reads drop-ins of {directory} since version {oldest}"),
            nodes: old,
        });
    }
    // A drop-in of a newer version than the main file would keep that from being migrated, so it is the oldest one.
    let mut text = TomlText::default();
    text.integer("version", 2);
    text.table(&["debug"]);
    text.string("level", &wishes.log_level);
    let path = format!("{directory}/90-mco-{number:02}.toml");
    Ok(Some(GeneratedFile::new(path, text.finish())))
}

fn crio(wishes: &ContainerRuntimeConfiguration) -> Vec<GeneratedFile> {
    let mut files = Vec::new();
    let mut drop_in = |name: &str, write: &dyn Fn(&mut TomlText)| {
        let mut text = TomlText::default();
        text.table(&["crio"]);
        text.table(&["crio", "runtime"]);
        write(&mut text);
        files.push(GeneratedFile::new(
            format!("{DROPINS}/90-mco-{name}.conf"),
            text.finish(),
        ));
    };
    if !wishes.log_level.is_empty() {
        drop_in("log-level", &|text| text.string("log_level", &wishes.log_level));
    }
    if let Some(limit) = wishes.pids_limit {
        drop_in("pids-limit", &|text| text.integer("pids_limit", limit.into()));
    }
    if let Some(size) = size(wishes.log_size_max.as_ref()) {
        drop_in("log-size-max", &|text| text.integer("log_size_max", size.value()));
    }
    if !wishes.default_runtime.is_empty() {
        drop_in("default-runtime", &|text| {
            text.string("default_runtime", &wishes.default_runtime);
        });
    }
    files
}
