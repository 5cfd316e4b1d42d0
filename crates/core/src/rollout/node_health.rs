//! Whether a node is of use after a boot, according to its kubelet.

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::conditions::status;

/// The health of a node in its present boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NodeHealth {
    /// The kubelet of this boot is ready, or nothing reports.
    #[default]
    Healthy,
    Unhealthy {
        why: String,
    },
}

impl NodeHealth {
    /// Returns the health of a node that has booted with this boot ID. A kubelet that reports another one has not started
    /// since, so that its conditions are outdated.
    pub fn of_node(node: &Node, boot_id: &str) -> Self {
        let status = node.status.as_ref();
        let conditions = status
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        let Some(ready) = conditions.iter().find(|condition| condition.type_ == "Ready") else {
            return Self::Healthy;
        };
        let reported = status
            .and_then(|status| status.node_info.as_ref())
            .map_or("", |info| &info.boot_id);
        if !reported.is_empty() && reported != boot_id {
            return Self::Unhealthy {
                why: "the kubelet has not reported since the boot".to_owned(),
            };
        }
        if ready.status == status::TRUE {
            return Self::Healthy;
        }
        let message = ready.message.as_deref().filter(|message| !message.is_empty());
        Self::Unhealthy {
            why: match message {
                Some(message) => format!("the kubelet is not ready: {message}"),
                None => format!("the kubelet is reporting Ready={}", ready.status),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_kubelet_of_this_boot_decides() {
        let node = |boot: &str, ready: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {
                "nodeInfo": {"bootID": boot, "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                    "systemUUID": ""},
                "conditions": [{"type": "Ready", "status": ready, "message": "CNI is missing"}],
            }}))
            .unwrap()
        };
        assert_eq!(
            NodeHealth::of_node(&Node::default(), "b"),
            NodeHealth::Healthy,
            "no kubelet"
        );
        assert_eq!(NodeHealth::of_node(&node("b", "True"), "b"), NodeHealth::Healthy);
        assert_eq!(NodeHealth::of_node(&node("", "True"), "b"), NodeHealth::Healthy);
        let why = |node: &Node| match NodeHealth::of_node(node, "b") {
            NodeHealth::Healthy => String::new(),
            NodeHealth::Unhealthy { why } => why,
        };
        assert_eq!(
            why(&node("a", "True")),
            "the kubelet has not reported since the boot"
        );
        assert_eq!(
            why(&node("b", "False")),
            "the kubelet is not ready: CNI is missing"
        );
    }
}
