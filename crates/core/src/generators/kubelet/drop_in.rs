//! KubeletConfigs on an additive base: a drop-in with the user's settings alone, which the kubelet merges into the
//! configuration of its distribution.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::KubeletConfig;
use serde_json::{Map, Value, json};

use super::validate::UserKubelet;
use crate::config::base_layout::{BaseLayout, KubeletRole};
use crate::config::goyaml;
use crate::config::node_versions::{MinorVersion, NodeVersions, PoolNodes};
use crate::generators::base_refusal::BaseRefusal;
use crate::generators::generated::{Generated, GeneratedConfigSpec, GeneratedFile};

/// The MachineConfig to generate.
#[derive(Debug)]
pub struct DropInTarget<'a> {
    pub name: String,
    /// The number of the KubeletConfig among those of its pool.
    pub number: u32,
    pub owner: Option<OwnerReference>,
    /// The source revision of the generating controller.
    pub version: &'a str,
}

/// Checks whether the kubelets of a pool can read the drop-in.
pub fn check_drop_in(
    layout: &BaseLayout,
    pool: &PoolNodes<'_>,
    object: &KubeletConfig,
) -> Result<KubeletRole, BaseRefusal> {
    if object.spec.auto_sizing_reserved == Some(true) {
        return Err(BaseRefusal::Field {
            field: "spec.autoSizingReserved",
            base: pool.base,
            hint: "set systemReserved in spec.kubeletConfig",
        });
    }
    let old = pool.named(|node| {
        let version = MinorVersion::parse(&node.kubelet)?;
        (version < layout.oldest_kubelet).then(|| node.kubelet.clone())
    });
    if !old.is_empty() {
        return Err(BaseRefusal::OldKubelet {
            base: pool.base,
            pool: pool.pool.to_owned(),
            oldest: layout.oldest_kubelet,
            nodes: old,
        });
    }
    if layout.server_service.is_none() {
        return Ok(KubeletRole::Agent);
    }
    let (servers, agents): (Vec<&NodeVersions>, Vec<&NodeVersions>) =
        pool.nodes.iter().partition(|node| node.is_control_plane());
    match (servers.is_empty(), agents.is_empty()) {
        (false, false) => Err(BaseRefusal::ServersAndAgents {
            base: pool.base,
            pool: pool.pool.to_owned(),
            servers: servers.iter().map(|node| node.name.clone()).collect(),
        }),
        (false, true) => Ok(KubeletRole::Server),
        (true, _) => Ok(KubeletRole::Agent),
    }
}

/// Generates the MachineConfig of a KubeletConfig for one pool of an additive base.
pub fn for_drop_in(
    layout: &BaseLayout,
    pool: &PoolNodes<'_>,
    object: &KubeletConfig,
    user: &UserKubelet,
    target: DropInTarget<'_>,
) -> Result<Generated, BaseRefusal> {
    let role = check_drop_in(layout, pool, object)?;
    let path = layout.kubelet_drop_in(target.number, role);
    let mut files = vec![GeneratedFile::new(path, contents(object, user))];
    if let Some((path, contents)) = layout.kubelet_unit_drop_in {
        files.push(GeneratedFile::new(path, contents));
    }
    let made_from = format!(
        "KubeletConfig {:?}",
        object.metadata.name.as_deref().unwrap_or_default()
    );
    Ok(GeneratedConfigSpec {
        name: target.name,
        role: pool.pool,
        files,
        version: Some(target.version),
        owner: target.owner,
        made_from,
        ..GeneratedConfigSpec::default()
    }
    .build())
}

/// Returns the drop-in. It has the fields as the user wrote them: the zero values of a decoded configuration would
/// override those of the distribution.
fn contents(object: &KubeletConfig, user: &UserKubelet) -> String {
    let written = object.spec.kubelet_config.as_ref().and_then(Value::as_object);
    let mut all: Map<String, Value> = written.cloned().unwrap_or_default();
    all.retain(|_, value| !value.is_null());
    all.insert("apiVersion".to_owned(), json!("kubelet.config.k8s.io/v1beta1"));
    all.insert("kind".to_owned(), json!("KubeletConfiguration"));
    if let Some(level) = user.log_level {
        let logging = all.entry("logging").or_insert_with(|| json!({}));
        if let Some(logging) = logging.as_object_mut() {
            logging.insert("verbosity".to_owned(), json!(level));
        }
    }
    if let Some(tls) = &user.tls {
        all.insert("tlsMinVersion".to_owned(), json!(tls.min_version));
        all.insert("tlsCipherSuites".to_owned(), json!(tls.cipher_suites));
    }
    goyaml::to_string(&Value::Object(all))
}
