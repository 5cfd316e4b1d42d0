//! Validation of KubeletConfigs, in general and for a pool.

use mco_api::vocabulary::{labels, names};
use mco_api::{KubeletConfig, MachineConfigPool};
use serde_json::Value;

use super::error::KubeletError;
use super::tree::KubeletConfiguration;
use crate::generators::tls_profile::{self, TlsSettings};

/// A KubeletConfig that passed validation.
#[derive(Debug, Clone, PartialEq)]
pub struct UserKubelet {
    pub(super) configuration: Option<KubeletConfiguration>,
    pub(super) auto_sizing: Option<bool>,
    pub(super) log_level: Option<i32>,
    pub(super) tls: Option<TlsSettings>,
    /// `protectKernelDefaults: false` is the one zero that overrides.
    pub(super) unprotected_kernel: bool,
    /// `staticPodPath` as written, even if empty.
    static_pod_path: Option<String>,
}

/// Validates everything that does not depend on a pool. Returns the first error.
pub fn validate(object: &KubeletConfig) -> Result<UserKubelet, KubeletError> {
    let spec = &object.spec;
    if let Some(level) = spec.log_level.filter(|level| !(0..=10).contains(level)) {
        return Err(KubeletError::LogLevel(level));
    }
    let mut user = UserKubelet {
        configuration: None,
        auto_sizing: spec.auto_sizing_reserved,
        log_level: spec.log_level,
        tls: spec
            .tls_security_profile
            .as_ref()
            .map(|profile| tls_profile::settings(Some(profile))),
        unprotected_kernel: false,
        static_pod_path: None,
    };
    if let Some(raw) = &spec.kubelet_config {
        let configuration = KubeletConfiguration::decode(raw).map_err(KubeletError::Undecodable)?;
        check_fields(&configuration, spec.auto_sizing_reserved)?;
        user.unprotected_kernel = raw.get("protectKernelDefaults") == Some(&Value::Bool(false));
        user.static_pod_path = raw
            .get("staticPodPath")
            .map(|path| path.as_str().unwrap_or_default().to_owned());
        user.configuration = Some(configuration);
    }
    Ok(user)
}

/// Validates what depends on the pool: static pods are reserved for the control plane.
pub fn check_for_pool(user: &UserKubelet, pool: &MachineConfigPool) -> Result<(), KubeletError> {
    let Some(path) = &user.static_pod_path else {
        return Ok(());
    };
    let name = pool.metadata.name.clone().unwrap_or_default();
    if is_control_plane(pool) {
        return Err(KubeletError::StaticPodsOnControlPlane { pool: name });
    }
    if path.is_empty() {
        Ok(())
    } else {
        Err(KubeletError::StaticPods {
            pool: name,
            found: path.clone(),
        })
    }
}

fn is_control_plane(pool: &MachineConfigPool) -> bool {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if matches!(name, names::pool::MASTER | names::pool::ARBITER) {
        return true;
    }
    let Some(selector) = &pool.spec.node_selector else {
        return false;
    };
    let is_key = |key: &String| {
        matches!(
            key.as_str(),
            labels::node::ROLE_MASTER | labels::node::ROLE_CONTROL_PLANE
        )
    };
    let by_label = selector
        .match_labels
        .iter()
        .any(|labels| labels.keys().any(is_key));
    let mut expressions = selector.match_expressions.iter().flatten();
    by_label || expressions.any(|e| is_key(&e.key) && matches!(e.operator.as_str(), "Exists" | "In"))
}

/// Rejects fields that are managed by the cluster.
fn check_fields(given: &KubeletConfiguration, auto_sizing: Option<bool>) -> Result<(), KubeletError> {
    let forbid = |field: &'static str, found: &Value| {
        Err(KubeletError::Forbidden {
            field,
            found: go_text(found),
        })
    };
    for field in [
        "cgroupDriver",
        "clusterDNS",
        "clusterDomain",
        "featureGates",
        "failSwapOn",
    ] {
        if let Some(found) = given.get(field) {
            return forbid(field, found);
        }
    }
    if let Some(found) = given.get("memorySwap").and_then(|swap| swap.get("swapBehavior")) {
        return forbid("swapBehavior", found);
    }
    if given.get("systemReserved").is_some() && auto_sizing == Some(true) {
        return Err(KubeletError::SizingTwice);
    }
    let (reserved, system) = (given.text("systemReservedCgroup"), given.text("systemCgroups"));
    if !reserved.is_empty() && !system.is_empty() && reserved != system {
        return Err(KubeletError::CgroupsDiffer {
            reserved: reserved.to_owned(),
            system: system.to_owned(),
        });
    }
    Ok(())
}

/// Formats a value as Go prints it: `[a b]`, `map[k:v]`.
fn go_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let mut entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_text(value)))
                .collect();
            entries.sort_unstable();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}
