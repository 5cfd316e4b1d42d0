//! Contents of the kubelet's configuration files.

use serde_json::{Value, json};

use super::error::KubeletError;
use super::node::latency;
use super::tree::KubeletConfiguration;
use super::validate::UserKubelet;
use super::{KubeletBase, Latency};
use crate::config::goyaml;
use crate::config::manifest;

const SYSTEM_RESERVED: [&str; 2] = ["system-reserved", "system-reserved-compressible"];
const DEFAULT_MEMORY: &str = "1Gi";
const DEFAULT_CPU: &str = "500m";
const DEFAULT_STORAGE: &str = "1Gi";

/// Resources that the user reserved for the system, which are therefore not sized automatically.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reserved {
    memory: Option<String>,
    cpu: Option<String>,
    storage: Option<String>,
}

/// Returns the template's configuration with the feature gates and the latency profile applied.
pub(super) fn base(base: KubeletBase<'_>) -> Result<KubeletConfiguration, KubeletError> {
    let value = manifest::value(base.kubelet_conf).map_err(KubeletError::Base)?;
    let mut configuration =
        KubeletConfiguration::decode(&value).map_err(|error| KubeletError::Base(error.to_string()))?;
    let mut gates = configuration
        .remove("featureGates")
        .and_then(|gates| gates.as_object().cloned())
        .unwrap_or_default();
    gates.extend(
        base.feature_gates
            .iter()
            .map(|(name, on)| (name.to_owned(), Value::Bool(on))),
    );
    if !gates.is_empty() {
        configuration.set("featureGates", Value::Object(gates));
    }
    let profile = base
        .node
        .map_or("", |node| node.spec.worker_latency_profile.as_str());
    if base.latency == Latency::FollowsProfile
        && let Some(frequency) = latency(profile)
    {
        configuration.set("nodeStatusUpdateFrequency", json!(frequency));
    }
    Ok(configuration)
}

/// Removes and returns the settings that belong into the sizing file instead of the kubelet's.
pub(super) fn take_reserved(user: &mut UserKubelet) -> Option<Reserved> {
    let configuration = user.configuration.as_mut()?;
    let mut take = |key| {
        let value = configuration.remove_entry("systemReserved", key)?;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let reserved = Reserved {
        memory: take("memory"),
        cpu: take("cpu"),
        storage: take("ephemeral-storage"),
    };
    (reserved != Reserved::default()).then_some(reserved)
}

/// Returns the environment file of the unit that computes reservations.
pub(super) fn node_sizing(auto: Option<bool>, reserved: Option<&Reserved>) -> String {
    let enabled = reserved.is_none() && auto == Some(true);
    let or = |given: fn(&Reserved) -> &Option<String>, default: &str| {
        reserved
            .and_then(|reserved| given(reserved).clone())
            .unwrap_or_else(|| default.to_owned())
    };
    format!(
        "NODE_SIZING_ENABLED={enabled}\nSYSTEM_RESERVED_MEMORY={}\nSYSTEM_RESERVED_CPU={}\nSYSTEM_RESERVED_ES={}\n",
        or(|r| &r.memory, DEFAULT_MEMORY),
        or(|r| &r.cpu, DEFAULT_CPU),
        or(|r| &r.storage, DEFAULT_STORAGE),
    )
}

/// Returns the base with the user's settings applied.
pub(super) fn with_user(
    mut merged: KubeletConfiguration,
    user: &UserKubelet,
) -> Result<KubeletConfiguration, KubeletError> {
    if let Some(tls) = &user.tls {
        merged.set("tlsMinVersion", json!(tls.min_version));
        merged.set("tlsCipherSuites", json!(tls.cipher_suites));
    }
    let Some(given) = &user.configuration else {
        return Ok(merged);
    };
    if user.unprotected_kernel {
        merged.remove("protectKernelDefaults");
    }
    merged.merge(given);
    settle_system_cgroup(&mut merged, given);
    check_cgroups(&merged)?;
    Ok(merged)
}

/// Prevents the kubelet from enforcing a reservation on a cgroup that has none.
fn settle_system_cgroup(merged: &mut KubeletConfiguration, given: &KubeletConfiguration) {
    let enforced = given.texts("enforceNodeAllocatable");
    let system_enforced = enforced.iter().any(|item| SYSTEM_RESERVED.contains(item));
    if !enforced.is_empty() && !system_enforced && given.text("systemReservedCgroup").is_empty() {
        merged.remove("systemReservedCgroup");
    }
    if merged.text("reservedSystemCPUs").is_empty() {
        return;
    }
    merged.remove("systemReservedCgroup");
    let mut enforced: Vec<String> = merged
        .texts("enforceNodeAllocatable")
        .into_iter()
        .filter(|item| !SYSTEM_RESERVED.contains(item))
        .map(str::to_owned)
        .collect();
    if !enforced.iter().any(|item| item == "pods") {
        enforced.insert(0, "pods".to_owned());
    }
    merged.set("enforceNodeAllocatable", json!(enforced));
}

fn check_cgroups(merged: &KubeletConfiguration) -> Result<(), KubeletError> {
    let (reserved, system) = (merged.text("systemReservedCgroup"), merged.text("systemCgroups"));
    if reserved.is_empty() || system.is_empty() || reserved == system {
        return Ok(());
    }
    Err(KubeletError::MergedCgroupsDiffer {
        reserved: reserved.to_owned(),
        system: system.to_owned(),
    })
}

/// Serializes the configuration to the text of the file.
pub(super) fn text(configuration: &KubeletConfiguration) -> String {
    goyaml::to_string(&configuration.encode())
}
