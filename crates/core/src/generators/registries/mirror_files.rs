//! Mirrors on an additive base: `hosts.toml` of containerd, and a drop-in of containers/image for CRI-O.

use std::collections::BTreeMap;

use super::conf::RegistriesConf;
use super::mirrors::{MirrorRule, MirrorRules, OrderedMirrors, ordered};
use super::{RegistryError, RegistryInputs, RegistryProblem, edit};
use crate::config::base_layout::{BaseLayout, REGISTRIES_DROP_INS};
use crate::config::node_versions::{MinorVersion, NodeRuntime, PoolNodes};
use crate::generators::base_refusal::BaseRefusal;
use crate::generators::generated::GeneratedFile;
use crate::generators::generated::toml_text::TomlText;

/// The first containerd that reads registry hosts.
const OLDEST_CONTAINERD: MinorVersion = MinorVersion(1, 5);
/// The first containerd that reads them without being configured to.
const READS_BY_DEFAULT: MinorVersion = MinorVersion(2, 2);
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_SERVER: &str = "registry-1.docker.io";

/// The files of the mirrors for the nodes of a pool, and warnings for the user.
pub fn mirror_files(
    layout: &BaseLayout,
    pool: &PoolNodes<'_>,
    sources: &RegistryInputs<'_>,
) -> Result<(Vec<GeneratedFile>, Vec<String>), RegistryError> {
    let rules = MirrorRules::gather(sources);
    let mut problems = rules.check();
    let refuse = |refusal: BaseRefusal| RegistryProblem::Refused(refusal);
    let (mut files, mut warnings) = (Vec::new(), Vec::new());
    if pool.has_runtime(|runtime| matches!(runtime, NodeRuntime::Containerd(_))) {
        problems.extend(unusable_sources(&rules).map(refuse));
        problems.extend(too_old(pool).map(refuse));
        files.extend(hosts_files(layout, &rules));
        warnings.extend(unread(layout, pool));
    }
    if pool.has_runtime(|runtime| runtime == NodeRuntime::CriO) {
        match crio_drop_in(&rules) {
            Ok(file) => files.extend(file),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok((files, warnings))
    } else {
        Err(RegistryError(problems))
    }
}

/// containerd mirrors a registry as a whole.
fn unusable_sources(rules: &MirrorRules) -> impl Iterator<Item = BaseRefusal> {
    let all = rules.digest.iter().chain(&rules.tag);
    all.filter(|rule| rule.source.contains('/') || rule.source.starts_with('*'))
        .map(|rule| BaseRefusal::MirrorSource {
            object: rule.object.clone(),
            mirrored: rule.source.clone(),
        })
}

fn too_old(pool: &PoolNodes<'_>) -> Option<BaseRefusal> {
    let nodes = older_than(pool, OLDEST_CONTAINERD);
    (!nodes.is_empty()).then(|| BaseRefusal::Runtime {
        pool: pool.pool.to_owned(),
        needs: format!("containerd reads mirrors from files since version {OLDEST_CONTAINERD}"),
        nodes,
    })
}

fn older_than(pool: &PoolNodes<'_>, oldest: MinorVersion) -> Vec<String> {
    pool.named(|node| match node.runtime() {
        Some(NodeRuntime::Containerd(Some(version))) if version < oldest => Some(node.runtime.clone()),
        _ => None,
    })
}

/// Returns a warning about nodes whose containerd reads the files only if its configuration names them. The
/// distributions that generate that configuration name them.
fn unread(layout: &BaseLayout, pool: &PoolNodes<'_>) -> Option<String> {
    let nodes = older_than(pool, READS_BY_DEFAULT);
    if nodes.is_empty() || layout.containerd_drop_ins.is_none() {
        return None;
    }
    Some(format!(
        "pool {}: containerd before {READS_BY_DEFAULT} reads mirrors only if config_path of its registry settings is {:?}: {}",
        pool.pool,
        layout.registry_hosts,
        nodes.join(", ")
    ))
}

/// The mirrors of one registry.
#[derive(Debug, Default)]
struct RegistryHosts<'a> {
    /// Each with whether it serves tags.
    mirrors: Vec<(&'a str, bool)>,
    never_contact_source: bool,
}

fn hosts_files(layout: &BaseLayout, rules: &MirrorRules) -> Vec<GeneratedFile> {
    let of = |rules: &[MirrorRule]| -> Vec<OrderedMirrors> { ordered(rules) };
    let (digest, tag) = (of(&rules.digest), of(&rules.tag));
    let mut by_source: BTreeMap<&str, RegistryHosts<'_>> = BTreeMap::new();
    for (mirrors, serves_tags) in [(&tag, true), (&digest, false)] {
        for source in mirrors {
            let hosts = by_source.entry(&source.source).or_default();
            hosts.never_contact_source |= source.never_contact_source;
            for mirror in &source.mirrors {
                if !hosts.mirrors.iter().any(|(known, _)| known == mirror) {
                    hosts.mirrors.push((mirror, serves_tags));
                }
            }
        }
    }
    let files = by_source.iter().map(|(source, hosts)| {
        let path = format!("{}/{source}/hosts.toml", layout.registry_hosts);
        GeneratedFile::new(path, hosts_toml(source, hosts))
    });
    files.collect()
}

/// Returns the file of one registry. A mirror for digests only must not resolve tags.
fn hosts_toml(source: &str, hosts: &RegistryHosts<'_>) -> String {
    let mut text = TomlText::default();
    let last = hosts.mirrors.last();
    let server = match last.filter(|_| hosts.never_contact_source) {
        // containerd falls back to the server, so that has to be a mirror as well.
        Some((mirror, _)) => url(mirror),
        None if source == DOCKER_HUB => url(DOCKER_HUB_SERVER),
        None => url(source),
    };
    text.string("server", &server);
    for (mirror, serves_tags) in &hosts.mirrors {
        text.table(&["host", &url(mirror)]);
        let capabilities: &[&str] = if *serves_tags {
            &["pull", "resolve"]
        } else {
            &["pull"]
        };
        text.strings("capabilities", capabilities);
        if mirror.contains('/') {
            text.boolean("override_path", true);
        }
    }
    text.finish()
}

/// Returns the address of a registry, or of a repository on it.
fn url(location: &str) -> String {
    match location.split_once('/') {
        Some((host, path)) => format!("https://{host}/v2/{path}"),
        None => format!("https://{location}"),
    }
}

fn crio_drop_in(rules: &MirrorRules) -> Result<Option<GeneratedFile>, RegistryProblem> {
    let mut conf = RegistriesConf::default();
    edit::edit(&mut conf, &[], &[], &rules.digest, &rules.tag).map_err(|problem| rules.explain(problem))?;
    let path = format!("{REGISTRIES_DROP_INS}/99-mco-mirrors.conf");
    let text = conf.write();
    // The settings before the registries are of the whole file, and a drop-in must not override the main file's.
    let start = text.find("[[registry]]");
    Ok(start.map(|start| GeneratedFile::new(path, &text[start..])))
}
