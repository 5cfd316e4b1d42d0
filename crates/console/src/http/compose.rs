//! View values from the objects of a cluster, computed with the functions of the controllers.

use jiff::Timestamp;
use mco_api::MachineConfig;
use mco_api::vocabulary::annotations;
use mco_client::cluster::{ClusterSources, is_rendered};
use mco_client::explain::explain;
use mco_client::snapshot::Snapshot;
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::problem::InvalidObject;
use mco_core::config::render::{RenderIdentity, Rendered};
use mco_core::pipeline::bootstrap;

use crate::views::config::{self, ConfigKind, ConfigPage, ConfigSubject, InPool};
use crate::views::configs::ListedConfig;
use crate::views::search::Explained;
use crate::views::{Frame, Show};

/// Returns the parts of each pool's config. Pools that cannot be rendered are omitted; their page shows why.
pub fn explain_pools(sources: &ClusterSources, version: &str) -> Vec<Explained> {
    let pools = rendered(sources, version).into_iter();
    let pools = pools.map(|(pool, rendered)| Explained {
        pool,
        rendered: rendered.name().to_owned(),
        parts: explain(&rendered),
    });
    pools.collect()
}

fn rendered(sources: &ClusterSources, version: &str) -> Vec<(String, Rendered)> {
    let Ok(cluster) = bootstrap::adopt(sources.objects.clone()) else {
        return Vec::new();
    };
    let identity = RenderIdentity {
        controller_version: version,
        release_version: "",
    };
    let outcomes = cluster.render(identity).into_iter();
    outcomes
        .filter_map(|outcome| Some((outcome.name().to_owned(), outcome.result.ok()?.rendered)))
        .collect()
}

/// Returns the names of all MachineConfigs.
pub fn config_names(sources: &ClusterSources) -> Vec<String> {
    let configs = sources
        .objects
        .iter()
        .filter(|object| object.kind == "MachineConfig");
    configs.map(|object| object.name.clone()).collect()
}

/// Returns all MachineConfigs that are not rendered.
pub fn listed(sources: &ClusterSources, version: &str) -> Vec<ListedConfig> {
    let pools = rendered(sources, version);
    let configs = sources
        .objects
        .iter()
        .filter(|object| object.kind == "MachineConfig");
    configs
        .map(|object| {
            let part_of = pools
                .iter()
                .filter(|(_, rendered)| rendered.provenance.sources().contains(&object.name));
            let annotations = object.value.pointer("/metadata/annotations");
            ListedConfig {
                name: object.name.clone(),
                generated: annotations
                    .is_some_and(|all| all.get(annotations::GENERATED_BY_CONTROLLER_VERSION).is_some()),
                pools: part_of.map(|(pool, _)| pool.clone()).collect(),
            }
        })
        .collect()
}

/// Returns the page of one MachineConfig.
pub fn config(
    frame: Frame,
    config: MachineConfig,
    sources: &ClusterSources,
    snapshot: &Snapshot,
    version: &str,
    show: Show,
    now: Timestamp,
) -> Result<ConfigPage, InvalidObject> {
    let created = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let generated = config
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|all| all.contains_key(annotations::GENERATED_BY_CONTROLLER_VERSION));
    let owner = owner(&config).map(str::to_owned);
    let is_rendered = is_rendered(&config);
    let entry = ParsedConfig::applicable(config)?;
    let in_pools = if is_rendered {
        Vec::new()
    } else {
        in_pools(entry.name(), sources, version)
    };
    let nodes = || snapshot.pools.iter().flat_map(|pool| &pool.nodes);
    let kind = match (is_rendered, generated) {
        (true, _) => ConfigKind::Rendered {
            pool: owner.as_deref(),
            has: nodes().filter(|node| node.current == entry.name()).count(),
            sent: nodes()
                .filter(|node| node.desired == entry.name() && node.current != entry.name())
                .count(),
        },
        (false, true) => ConfigKind::Generated(&in_pools),
        (false, false) => ConfigKind::Written(&in_pools),
    };
    let subject = ConfigSubject {
        entry: &entry,
        kind,
        created,
    };
    Ok(config::config(frame, &subject, show, now))
}

fn in_pools(name: &str, sources: &ClusterSources, version: &str) -> Vec<InPool> {
    let pools = rendered(sources, version).into_iter();
    pools
        .filter_map(|(pool, rendered)| {
            let sources = rendered.provenance.sources();
            let place = sources.iter().position(|source| source == name)?;
            Some(InPool {
                pool,
                place: (place + 1, sources.len()),
                parts: explain(&rendered),
            })
        })
        .collect()
}

fn owner(config: &MachineConfig) -> Option<&str> {
    let owners = config.metadata.owner_references.as_deref().unwrap_or_default();
    let pool = owners.iter().find(|owner| owner.kind == "MachineConfigPool");
    pool.map(|owner| owner.name.as_str())
}
