//! Renders a pool's MachineConfigs into the one immutable config of its nodes. The name depends only on the content.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::annotations;
use mco_api::{MachineConfig, MachineConfigPool};
use md5::{Digest, Md5};
use thiserror::Error;

use crate::config::goyaml;
use crate::config::guarded::Allowance;
use crate::config::hex;
use crate::config::merge::{self, DefaultImages, MergeError, MergedConfig, SourcedProblem};
use crate::config::node_files;
use crate::config::parsed_config::ParsedConfig;
use crate::config::provenance::Provenance;

/// Maximum size of an object; the API server rejects larger ones.
pub const LARGEST_OBJECT: usize = 1_572_864;
/// From this percentage of the limit on, users are warned.
const WARN_AT_PERCENT: usize = 80;

/// Prefix of the hashed content. The names of rendered configs and of image builds of all clusters depend on it.
pub(crate) const SALT: [u8; 80] = [
    0x10, 0x7c, 0xce, 0xe4, 0x8b, 0x38, 0xaf, 0xaf, 0x4f, 0xe5, 0x86, 0x76, 0x9d, 0x9a, 0xd3, 0x6e, 0x19,
    0x5d, 0x2f, 0xfd, 0xac, 0x6a, 0x25, 0x07, 0xae, 0x0d, 0xa0, 0xb9, 0x6e, 0x11, 0x57, 0x34, 0xdb, 0x83,
    0x0c, 0xce, 0xda, 0x8d, 0x74, 0x87, 0xbc, 0xb5, 0xc0, 0x97, 0xe9, 0x3e, 0x7e, 0xa5, 0x40, 0x53, 0xb3,
    0x77, 0x0f, 0xa8, 0xd0, 0xc5, 0x92, 0x6b, 0x3a, 0xe3, 0x85, 0xbc, 0xee, 0x1a, 0x21, 0x1a, 0xeb, 0xca,
    0x20, 0xad, 0x1f, 0xea, 0x29, 0x90, 0x94, 0x4f, 0x06, 0xce, 0x17, 0x16,
];

/// The identity of the renderer, for the annotations of the result. It is not part of the hashed name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenderIdentity<'a> {
    /// The source revision of the controller.
    pub controller_version: &'a str,
    /// The release version of the ControllerConfig.
    pub release_version: &'a str,
}

/// A rendered config with its provenance.
#[derive(Debug, Clone)]
pub struct Rendered {
    pub config: ParsedConfig,
    pub provenance: Provenance,
    pub warnings: Vec<SourcedProblem>,
    /// Conflicts between its sources, because of which every node rejects it; see
    /// [`crate::config::transition::check`].
    pub contradictions: Vec<SourcedProblem>,
}

impl Rendered {
    pub fn name(&self) -> &str {
        self.config.name()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RenderError {
    #[error(transparent)]
    Merge(#[from] MergeError),
    #[error(
        "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously \
         (osImageURL is set by MachineConfig {source_name:?})"
    )]
    ImageAndStream { source_name: String },
    /// Conflicts between sources. Fatal only with a user-provided OS image: the Go implementation then parses the
    /// merged config again, to check whether that image has the requested container runtime.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Contradiction(Vec<SourcedProblem>),
    /// Files with Secrets or per-node values that are defined more than once.
    #[error("{}; remove all but one of them", .0.join("\n"))]
    NodeFiles(Vec<String>),
    #[error(
        "rendered MachineConfig {name} is too large ({size} bytes, max {LARGEST_OBJECT} bytes). This will exceed etcd's \
         size limit. The largest parts: {largest}"
    )]
    TooLarge {
        name: String,
        size: usize,
        largest: String,
    },
}

/// Renders the config of a pool from the configs it selects, in any order.
pub fn render(
    pool: &MachineConfigPool,
    configs: &[&ParsedConfig],
    images: DefaultImages<'_>,
    identity: RenderIdentity<'_>,
) -> Result<Rendered, RenderError> {
    finish(pool, configs, merge::merge(configs, images)?, images, identity)
}

/// Renders the config of a pool without any MachineConfig, which changes nothing on its nodes.
pub fn render_empty(pool: &MachineConfigPool, identity: RenderIdentity<'_>) -> Result<Rendered, RenderError> {
    finish(pool, &[], merge::nothing()?, DefaultImages::default(), identity)
}

fn finish(
    pool: &MachineConfigPool,
    configs: &[&ParsedConfig],
    merged: MergedConfig,
    images: DefaultImages<'_>,
    identity: RenderIdentity<'_>,
) -> Result<Rendered, RenderError> {
    let MergedConfig {
        spec,
        ignition,
        provenance,
        warnings,
        contradictions,
    } = merged;
    let overridden = spec.os_image_url != images.os;
    if overridden && pool.spec.os_image_stream.is_some() {
        let sources = provenance.sources_of_field(crate::config::provenance::SpecField::OsImageUrl);
        return Err(RenderError::ImageAndStream {
            source_name: sources.last().copied().unwrap_or_default().to_owned(),
        });
    }
    if overridden && !contradictions.is_empty() {
        return Err(RenderError::Contradiction(contradictions));
    }
    let conflicts = node_files::conflicts(&ignition);
    if !conflicts.is_empty() {
        return Err(RenderError::NodeFiles(conflicts));
    }
    let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(name(pool_name, &spec)),
        annotations: Some(result_annotations(pool, configs, identity, overridden)),
        owner_references: Some(vec![owner(pool)]),
        ..ObjectMeta::default()
    };
    let config = ParsedConfig {
        object: Arc::new(MachineConfig { metadata, spec }),
        ignition,
        warnings: Vec::new(),
    };
    Ok(Rendered {
        config,
        provenance,
        warnings,
        contradictions,
    })
}

/// Returns the name of a rendered config: the pool and a hash of only the content, so that equal content has the same
/// hash in every pool.
pub fn name(pool: &str, spec: &MachineConfigSpec) -> String {
    let value = serde_json::to_value(spec).unwrap_or_default();
    let mut hash = Md5::new();
    hash.update(SALT);
    hash.update(goyaml::to_string(&value));
    format!("rendered-{pool}-{}", hex::encode(&hash.finalize()))
}

/// An object's size relative to the limit of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Fits,
    /// Fits, but close to the limit.
    NearLimit {
        bytes: usize,
    },
}

/// Rejects a rendered config that is too large to be stored, and names its largest items.
pub fn check_size(rendered: &Rendered) -> Result<Size, RenderError> {
    let bytes = serde_json::to_vec(&*rendered.config.object).map_or(0, |json| json.len());
    if bytes > LARGEST_OBJECT {
        return Err(RenderError::TooLarge {
            name: rendered.name().to_owned(),
            size: bytes,
            largest: largest_parts(rendered),
        });
    }
    let near = bytes * 100 > LARGEST_OBJECT * WARN_AT_PERCENT;
    Ok(if near {
        Size::NearLimit { bytes }
    } else {
        Size::Fits
    })
}

fn largest_parts(rendered: &Rendered) -> String {
    let mut files: Vec<(usize, &str)> = rendered
        .config
        .ignition
        .storage
        .files
        .iter()
        .map(|file| {
            (
                file.contents.source.as_ref().map_or(0, String::len),
                file.path.as_str(),
            )
        })
        .collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    let largest = files.iter().take(3).map(|(size, path)| {
        let by = rendered
            .provenance
            .contributors(&mco_ignition::MergedItem::File((*path).to_owned()));
        format!(
            "{path} ({size} bytes from MachineConfig {:?})",
            by.last().copied().unwrap_or_default()
        )
    });
    largest.collect::<Vec<_>>().join(", ")
}

/// Returns the annotations of a rendered config. They are not part of its name.
fn result_annotations(
    pool: &MachineConfigPool,
    configs: &[&ParsedConfig],
    identity: RenderIdentity<'_>,
    overridden: bool,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        (
            annotations::GENERATED_BY_CONTROLLER_VERSION.to_owned(),
            identity.controller_version.to_owned(),
        ),
        (
            annotations::RELEASE_IMAGE_VERSION.to_owned(),
            identity.release_version.to_owned(),
        ),
    ]);
    if overridden {
        all.insert(annotations::OS_IMAGE_URL_OVERRIDDEN.to_owned(), "true".to_owned());
    }
    let sources = configs
        .iter()
        .map(|config| (&config.ignition, config.object.metadata.annotations.as_ref()));
    if let Some(allowed) = Allowance::rendered(sources) {
        all.insert(annotations::ALLOW_GUARDED_PATHS.to_owned(), allowed);
    }
    let of_pool = pool.metadata.annotations.as_ref();
    if let Some(user) = of_pool.and_then(|all| all.get(annotations::SSH_USER)) {
        all.insert(annotations::SSH_USER.to_owned(), user.clone());
    }
    all
}

fn owner(pool: &MachineConfigPool) -> OwnerReference {
    OwnerReference {
        api_version: "machineconfiguration.openshift.io/v1".to_owned(),
        kind: "MachineConfigPool".to_owned(),
        name: pool.metadata.name.clone().unwrap_or_default(),
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::validate;

    /// Renders one config with a large file and a small one.
    fn with_file_of(bytes: usize) -> Rendered {
        let config: MachineConfig = serde_json::from_value(json!({
            "metadata": {"name": "50-large", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/large", "contents": {"source": format!("data:,{}", "x".repeat(bytes))}},
                {"path": "/etc/small", "contents": {"source": "data:,y"}},
            ]}}},
        }))
        .unwrap();
        let parsed = validate::check(&Arc::new(config)).unwrap();
        let pool = MachineConfigPool::new(
            "worker",
            mco_api::machine_config_pool::MachineConfigPoolSpec::default(),
        );
        let identity = RenderIdentity {
            controller_version: "v",
            release_version: "",
        };
        render(&pool, &[&parsed], DefaultImages::default(), identity).unwrap()
    }

    #[test]
    fn the_size_guard_warns_at_80_percent_and_names_the_largest_file() {
        let without = serde_json::to_vec(&*with_file_of(0).config.object).unwrap().len();
        let fill = |bytes: usize| with_file_of(bytes - without);
        let warns_above = LARGEST_OBJECT * WARN_AT_PERCENT / 100;
        assert_eq!((LARGEST_OBJECT, warns_above), (1_572_864, 1_258_291));
        assert_eq!(check_size(&fill(warns_above)).unwrap(), Size::Fits);
        assert_eq!(
            check_size(&fill(warns_above + 1)).unwrap(),
            Size::NearLimit {
                bytes: warns_above + 1
            }
        );
        let largest = Size::NearLimit {
            bytes: LARGEST_OBJECT,
        };
        assert_eq!(check_size(&fill(LARGEST_OBJECT)).unwrap(), largest);
        let error = check_size(&fill(LARGEST_OBJECT + 1)).unwrap_err().to_string();
        let file = LARGEST_OBJECT + 1 - without + "data:,".len();
        let culprit = format!("/etc/large ({file} bytes from MachineConfig \"50-large\")");
        assert!(error.contains(&culprit) && error.contains("1572865"), "{error}");
    }
}
