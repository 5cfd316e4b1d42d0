//! The default ControllerConfig of manifests without one. The parent module documents these values.

use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use serde_json::json;

/// Returns the ControllerConfig of a cluster without any configuration.
pub fn controller_config() -> ControllerConfig {
    let spec = json!({
        "clusterDNSIP": "10.96.0.10",
        "ipFamilies": "IPv4",
        "dns": {
            "apiVersion": "config.openshift.io/v1",
            "kind": "DNS",
            "metadata": {"name": "cluster"},
            "spec": {"baseDomain": "cluster.local"},
        },
        "infra": {
            "apiVersion": "config.openshift.io/v1",
            "kind": "Infrastructure",
            "metadata": {"name": "cluster"},
            "status": {
                "apiServerInternalURI": "https://api-int.cluster.local:6443",
                "apiServerURL": "https://api.cluster.local:6443",
                "infrastructureName": "cluster",
                "controlPlaneTopology": "HighlyAvailable",
                "cpuPartitioning": "None",
                "infrastructureTopology": "HighlyAvailable",
                "platformStatus": {"type": "None"},
            },
        },
    });
    ControllerConfig::new(
        CONTROLLER_CONFIG_NAME,
        serde_json::from_value(spec).unwrap_or_default(),
    )
}
