//! Generates a pool's kubelet configuration: the template's base, overlaid with the cluster's feature gates and node
//! settings and with the user's KubeletConfigs.
//!
//! Objects and base texts in, MachineConfigs out. The caller decides which KubeletConfig applies to a pool, and under
//! which name, with [`crate::generators::generated::suffix`]; this module neither reads a cluster nor writes a
//! status.

mod conf;
mod drop_in;
mod error;
mod node;
pub mod profile;
mod schema;
mod tree;
mod validate;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::foreign::node::Node;
use mco_api::vocabulary::names;
use mco_api::{KubeletConfig, MachineConfigPool};

use crate::config::feature_gates::FeatureGates;
use crate::config::pools;
use crate::generators::generated::suffix::{Family, has_written_for};
use crate::generators::generated::{Generated, GeneratedConfigSpec, GeneratedFile};
use crate::generators::templates::{TemplateConfig, base_file};

pub use drop_in::{DropInTarget, check_drop_in, for_drop_in};
pub use error::KubeletError;
pub use node::{kernel_arguments, latency};
pub use tree::{KubeletConfiguration, KubeletDecodeError};
pub use validate::{UserKubelet, check_for_pool, validate};

pub const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";
pub const NODE_SIZING: &str = "/etc/node-sizing-enabled.env";
pub const LOGGING_DROPIN: &str = "/etc/systemd/system/kubelet.service.d/20-logging.conf";

/// Annotation of a custom pool, with the value "true", that makes it inherit the KubeletConfig and the latency profile
/// of the worker pool. Specific to this implementation; without it a custom pool does not inherit, as in the reference.
pub const INHERIT_FROM_WORKER: &str = "machineconfiguration.openshift.io/inherit-worker-kubelet";

/// Whether a pool inherits the worker pool's kubelet settings.
pub fn inherits_from_worker(pool: &MachineConfigPool) -> bool {
    let all = pool.metadata.annotations.as_ref();
    all.and_then(|all| all.get(INHERIT_FROM_WORKER))
        .is_some_and(|value| value == "true")
}

/// Whether the cluster's latency profile applies to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latency {
    FollowsProfile,
    AsInBase,
}

/// The inputs common to all generated kubelet configurations of a pool.
#[derive(Debug, Clone, Copy)]
pub struct KubeletBase<'a> {
    /// The pool.
    pub role: &'a str,
    /// The template's kubelet.conf for the pool's role.
    pub kubelet_conf: &'a str,
    pub feature_gates: &'a FeatureGates,
    pub node: Option<&'a Node>,
    pub latency: Latency,
    /// The source revision of the generating controller.
    pub version: &'a str,
}

impl<'a> KubeletBase<'a> {
    /// Returns the inputs for the kubelet configuration of this pool.
    pub fn of_pool(
        pool: &'a MachineConfigPool,
        templates: &'a [TemplateConfig],
        feature_gates: &'a FeatureGates,
        node: Option<&'a Node>,
        version: &'a str,
    ) -> Result<Self, KubeletError> {
        let role = role_of(pool);
        let kubelet_conf = base_file(templates, role, KUBELET_CONF)
            .ok_or_else(|| KubeletError::Base(format!("the templates have no {KUBELET_CONF}")))?;
        Ok(Self {
            role,
            kubelet_conf,
            feature_gates,
            node,
            latency: if role == names::pool::WORKER || inherits_from_worker(pool) {
                Latency::FollowsProfile
            } else {
                Latency::AsInBase
            },
            version,
        })
    }
}

fn role_of(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the pools that inherit the worker pool's KubeletConfig: they request it, and no other one selects them. A
/// KubeletConfig with an invalid selector keeps the pools that it already wrote for.
pub fn inheriting<'p>(
    pools: impl IntoIterator<Item = &'p MachineConfigPool>,
    objects: &[&KubeletConfig],
) -> Vec<&'p MachineConfigPool> {
    let directly = |pool: &MachineConfigPool| {
        objects.iter().any(|object| {
            let selector = object.spec.machine_config_pool_selector.as_ref();
            pools::selected([pool], selector).map_or_else(
                |_| has_written_for(Family::Kubelet, role_of(pool), &object.metadata),
                |selected| !selected.is_empty(),
            )
        })
    };
    pools
        .into_iter()
        .filter(|pool| inherits_from_worker(pool) && !directly(pool))
        .collect()
}

/// Generates the MachineConfig of a KubeletConfig for one pool.
pub fn for_kubelet_config(
    base: KubeletBase<'_>,
    object: &KubeletConfig,
    user: &UserKubelet,
    name: String,
    owner: Option<OwnerReference>,
) -> Result<Generated, KubeletError> {
    let mut user = user.clone();
    let reserved = conf::take_reserved(&mut user);
    let mut files = Vec::new();
    if reserved.is_some() || user.auto_sizing.is_some() {
        let contents = conf::node_sizing(user.auto_sizing, reserved.as_ref());
        files.push(GeneratedFile::new(NODE_SIZING, contents));
    }
    if let Some(level) = user.log_level {
        let contents = format!("[Service]\nEnvironment=\"KUBELET_LOG_LEVEL={level}\"\n");
        files.push(GeneratedFile::new(LOGGING_DROPIN, contents));
    }
    let merged = conf::with_user(conf::base(base)?, &user)?;
    files.push(GeneratedFile::new(KUBELET_CONF, conf::text(&merged)));
    let made_from = format!(
        "KubeletConfig {:?}",
        object.metadata.name.as_deref().unwrap_or_default()
    );
    Ok(GeneratedConfigSpec {
        name,
        role: base.role,
        files,
        version: Some(base.version),
        owner,
        made_from,
        ..GeneratedConfigSpec::default()
    }
    .build())
}

/// Generates the MachineConfig with the cluster's feature gates for the kubelets of one pool.
pub fn for_feature_gates(base: KubeletBase<'_>) -> Result<Generated, KubeletError> {
    let name = names::generated_feature_kubelet(base.role);
    plain(base, name, Vec::new(), "FeatureGate \"cluster\"")
}

/// Generates the MachineConfig with the cluster's node settings for one pool.
pub fn for_node(base: KubeletBase<'_>, kernel_arguments: Vec<String>) -> Result<Generated, KubeletError> {
    if let Some(node) = base.node {
        node::check_latency(node)?;
    }
    let name = names::generated_node_kubelet(base.role);
    plain(
        base,
        name,
        kernel_arguments,
        "Node \"cluster\" (config.openshift.io)",
    )
}

fn plain(
    base: KubeletBase<'_>,
    name: String,
    kernel_arguments: Vec<String>,
    made_from: &str,
) -> Result<Generated, KubeletError> {
    let contents = conf::text(&conf::base(base)?);
    Ok(GeneratedConfigSpec {
        name,
        role: base.role,
        files: vec![GeneratedFile::new(KUBELET_CONF, contents)],
        kernel_arguments,
        version: Some(base.version),
        made_from: made_from.to_owned(),
        ..GeneratedConfigSpec::default()
    }
    .build())
}
