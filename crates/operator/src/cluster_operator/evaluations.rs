//! Settings that are still allowed but deprecated: they have to change before a release forbids them.

use mco_api::{ContainerRuntimeConfig, KubeletConfig};
use serde_json::Value;

/// Fleet-wide searches match these texts, so they are those of the reference.
const SWAP: &str = "failswapon: KubeletConfig setting is currently unsupported by OpenShift";
const RUNC: &str = "runc: transition to default crun";
const SEPARATOR: &str = "::";

/// Returns the deprecated settings of a cluster as the reason of the condition, or `None` if there are none.
pub fn reason(kubelets: &[KubeletConfig], runtimes: &[ContainerRuntimeConfig]) -> Option<String> {
    // Sorted by text.
    let findings = [
        (kubelets.iter().any(tolerates_swap), SWAP),
        (runtimes.iter().any(uses_runc), RUNC),
    ];
    let found: Vec<&str> = findings
        .iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, text)| *text)
        .collect();
    (!found.is_empty()).then(|| found.join(SEPARATOR))
}

fn tolerates_swap(config: &KubeletConfig) -> bool {
    let settings = config.spec.kubelet_config.as_ref();
    settings.and_then(|settings| settings.get("failSwapOn")) == Some(&Value::Bool(false))
}

fn uses_runc(config: &ContainerRuntimeConfig) -> bool {
    config.spec.container_runtime_config.default_runtime == "runc"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kubelet(settings: &Value) -> KubeletConfig {
        serde_json::from_value(json!({"metadata": {"name": "k"}, "spec": {"kubeletConfig": settings}}))
            .unwrap()
    }

    fn runtime(name: &str) -> ContainerRuntimeConfig {
        let spec = json!({"containerRuntimeConfig": {"defaultRuntime": name}});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).unwrap()
    }

    #[test]
    fn settings_that_will_be_forbidden_are_found_and_others_are_not() {
        let (swap, strict) = (
            kubelet(&json!({"failSwapOn": false})),
            kubelet(&json!({"failSwapOn": true})),
        );
        let (runc, crun) = (runtime("runc"), runtime("crun"));
        let cases = [
            (vec![], vec![], None),
            (
                vec![strict.clone(), kubelet(&Value::Null)],
                vec![crun.clone()],
                None,
            ),
            (
                vec![strict.clone(), swap.clone()],
                vec![crun],
                Some(SWAP.to_owned()),
            ),
            (vec![strict], vec![runc.clone()], Some(RUNC.to_owned())),
            (vec![swap], vec![runc], Some(format!("{SWAP}::{RUNC}"))),
        ];
        for (kubelets, runtimes, expected) in cases {
            assert_eq!(reason(&kubelets, &runtimes), expected);
        }
    }
}
