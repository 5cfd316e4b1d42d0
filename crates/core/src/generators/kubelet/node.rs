//! Applies the cluster's node settings (`nodes.config.openshift.io/cluster`) to kubelets and kernel arguments.

use mco_api::foreign::node::Node;

use super::error::KubeletError;

/// Kernel arguments of cgroups version 1, which are always removed.
const CGROUP_V1: [&str; 2] = [
    "systemd.unified_cgroup_hierarchy=0",
    "systemd.legacy_systemd_cgroup_controller=1",
];
/// The quotes are part of the argument.
const CGROUP_V2: [&str; 2] = ["systemd.unified_cgroup_hierarchy=1", "cgroup_no_v1=\"all\""];

/// Returns how often kubelets report their status under a latency profile; `None` keeps the base's setting.
pub fn latency(profile: &str) -> Option<&'static str> {
    match profile {
        "Default" => Some("10s"),
        "MediumUpdateAverageReaction" => Some("20s"),
        "LowUpdateSlowReaction" => Some("1m0s"),
        _ => None,
    }
}

pub(super) fn check_latency(node: &Node) -> Result<(), KubeletError> {
    let profile = &node.spec.worker_latency_profile;
    if profile.is_empty() || latency(profile).is_some() {
        Ok(())
    } else {
        Err(KubeletError::LatencyProfile(profile.clone()))
    }
}

/// Returns the kernel arguments of a pool's node MachineConfig, based on its existing ones.
pub fn kernel_arguments(node: Option<&Node>, existing: &[String]) -> Result<Vec<String>, KubeletError> {
    let mode = node.map_or("", |node| node.spec.cgroup_mode.as_str());
    if !matches!(mode, "" | "v2") {
        return Err(KubeletError::CgroupMode(mode.to_owned()));
    }
    let mut arguments: Vec<String> = existing
        .iter()
        .filter(|argument| !CGROUP_V1.contains(&argument.as_str()))
        .cloned()
        .collect();
    for argument in CGROUP_V2 {
        if !arguments.iter().any(|existing| existing == argument) {
            arguments.push(argument.to_owned());
        }
    }
    Ok(arguments)
}
