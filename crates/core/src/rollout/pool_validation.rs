//! Validation of a MachineConfigPool at admission.

use mco_api::vocabulary::{annotations, labels};
use mco_api::{ClusterBase, MachineConfigPool};

use super::budget;
use super::policy::{DEADLINE_HINT, SHORTEST_DEADLINE, duration_of};
use crate::config::pools;
use crate::config::problem::{InvalidObject, Problem};
use crate::config::selector::Selector;

/// Validates a pool at admission.
pub fn admit_pool(pool: &MachineConfigPool, base: ClusterBase) -> Result<(), InvalidObject> {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let mut problems = Vec::new();
    if name.is_empty() {
        problems.push(Problem::new("metadata.name", "a MachineConfigPool needs a name"));
    }
    let selectors = [
        ("spec.machineConfigSelector", &pool.spec.machine_config_selector),
        ("spec.nodeSelector", &pool.spec.node_selector),
    ];
    for (path, selector) in selectors {
        match selector.as_ref().map(Selector::parse) {
            Some(Err(error)) => problems.push(Problem::new(path, error.to_string())),
            Some(Ok(selector)) if selector.is_empty() => {
                problems.push(
                    Problem::new(path, "A non-empty selector is required.").with_hint(
                        "an empty selector would select everything; name the labels that are meant",
                    ),
                );
            }
            _ => {}
        }
    }
    let selectors_are_sound = problems.is_empty();
    if let Some(objection) = pool.spec.max_unavailable.as_ref().and_then(budget::objection) {
        problems.push(Problem::new("spec.maxUnavailable", objection).with_hint(budget::HINT));
    }
    problems.extend(ssh_user(pool));
    problems.extend(confirm_deadline(pool));
    // Without templates there is nothing to inherit.
    if selectors_are_sound && base.has_templates() && !inherits_from_worker(pool) {
        problems.push(
            Problem::new(
                "spec.machineConfigSelector",
                "All custom MachineConfigPools must inherit from the worker pool and must have a machineConfigSelector \
                 that matches for a 'machineconfiguration.openshift.io/role: worker' label",
            )
            .with_hint(format!(
                "use matchExpressions: [{{key: {}, operator: In, values: [worker, {name}]}}]",
                labels::ROLE
            )),
        );
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(InvalidObject {
            kind: "MachineConfigPool".to_owned(),
            name,
            problems,
        })
    }
}

/// Rejects a deadline that is no duration, or that no node can keep.
fn confirm_deadline(pool: &MachineConfigPool) -> Option<Problem> {
    let all = pool.metadata.annotations.as_ref();
    let text = all.and_then(|all| all.get(annotations::CONFIRM_DEADLINE))?;
    let is_possible = duration_of(text).is_some_and(|deadline| deadline >= SHORTEST_DEADLINE);
    let path = format!("metadata.annotations[{}]", annotations::CONFIRM_DEADLINE);
    (!is_possible).then(|| {
        Problem::new(path, format!("{text:?} is not a duration of at least one minute"))
            .with_hint(format!("{DEADLINE_HINT}; without the annotation it is 15m"))
    })
}

/// Rejects a name that no account can have.
fn ssh_user(pool: &MachineConfigPool) -> Option<Problem> {
    let all = pool.metadata.annotations.as_ref();
    let user = all.and_then(|all| all.get(annotations::SSH_USER))?;
    let first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_name = user.len() <= 32
        && user.bytes().next().is_some_and(first)
        && user
            .bytes()
            .all(|byte| first(byte) || byte.is_ascii_digit() || byte == b'-');
    let path = format!("metadata.annotations[{}]", annotations::SSH_USER);
    (!is_name).then(|| {
        Problem::new(path, format!("{user:?} is not the name of an account"))
            .with_hint("name the account that the SSH keys belong to, such as core, ubuntu or ec2-user")
    })
}

fn inherits_from_worker(pool: &MachineConfigPool) -> bool {
    let Some(selector) = &pool.spec.machine_config_selector else {
        return false;
    };
    let exact = selector
        .match_labels
        .as_ref()
        .and_then(|labels| labels.get(labels::ROLE));
    if exact.is_some_and(|role| pools::is_built_in(role)) {
        return true;
    }
    selector
        .match_expressions
        .iter()
        .flatten()
        .filter(|expression| expression.key == labels::ROLE)
        .any(|expression| {
            let names_worker = expression
                .values
                .iter()
                .flatten()
                .any(|value| value == pools::WORKER);
            match expression.operator.as_str() {
                "In" => names_worker,
                "NotIn" => !names_worker,
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_limit_that_would_stop_the_pool_is_refused_with_what_to_use() {
        let admitted = |limit: Value| {
            let pool: MachineConfigPool = serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": {
                "machineConfigSelector": {"matchLabels": {labels::ROLE: "worker"}}, "maxUnavailable": limit}}))
            .unwrap();
            admit_pool(&pool, ClusterBase::OpenShift)
        };
        for good in [json!(0), json!(3), json!("0%"), json!("10%"), json!("100%")] {
            assert!(admitted(good.clone()).is_ok(), "{good}");
        }
        for bad in [
            json!(-1),
            json!("-50%"),
            json!("abc"),
            json!("60"),
            json!("40 %"),
            json!(""),
        ] {
            let invalid = admitted(bad.clone()).expect_err(&bad.to_string());
            let [problem] = invalid.problems.as_slice() else {
                panic!("{invalid}")
            };
            assert_eq!(problem.path, "spec.maxUnavailable");
            assert!(problem.message.contains(&bad.to_string()), "{invalid}");
            assert!(problem.hint.as_ref().unwrap().contains("\"10%\""), "{invalid}");
        }
    }

    #[test]
    fn a_deadline_that_no_node_can_keep_is_refused() {
        for (text, is_possible) in [
            ("10m", true),
            ("1m", true),
            ("59s", false),
            ("30s", false),
            ("0s", false),
            ("-5m", false),
            ("soon", false),
        ] {
            let pool: MachineConfigPool = serde_json::from_value(json!({
                "metadata": {"name": "worker", "annotations": {annotations::CONFIRM_DEADLINE: text}},
                "spec": {"machineConfigSelector": {"matchLabels": {labels::ROLE: "worker"}}}}))
            .unwrap();
            let admitted = admit_pool(&pool, ClusterBase::OpenShift);
            assert_eq!(admitted.is_ok(), is_possible, "{text}: {admitted:?}");
        }
    }

    #[test]
    fn custom_pools_must_build_on_worker() {
        let role = labels::ROLE;
        let cases = [
            ("a built-in role", json!({"matchLabels": {role: "master"}}), true),
            (
                "worker and itself",
                json!({"matchExpressions": [{"key": role, "operator": "In", "values": ["worker", "infra"]}]}),
                true,
            ),
            (
                "everything but infra",
                json!({"matchExpressions": [{"key": role, "operator": "NotIn", "values": ["infra"]}]}),
                true,
            ),
            ("only itself", json!({"matchLabels": {role: "infra"}}), false),
            (
                "only itself, as an expression",
                json!({"matchExpressions": [{"key": role, "operator": "In", "values": ["infra"]}]}),
                false,
            ),
            (
                "everything but worker",
                json!({"matchExpressions": [{"key": role, "operator": "NotIn", "values": ["worker"]}]}),
                false,
            ),
            ("an empty selector", json!({}), false),
        ];
        for (name, selector, accepted) in cases {
            let pool: MachineConfigPool = serde_json::from_value(
                json!({"metadata": {"name": "infra"}, "spec": {"machineConfigSelector": selector}}),
            )
            .unwrap();
            assert_eq!(
                admit_pool(&pool, ClusterBase::OpenShift).is_ok(),
                accepted,
                "{name}"
            );
        }
    }

    #[test]
    fn pools_of_a_plain_cluster_had_to_inherit_from_a_worker_pool() {
        let pool = |user: &str| -> MachineConfigPool {
            serde_json::from_value(json!({
                "metadata": {"name": "gpu", "annotations": {"mco.dev/ssh-user": user}},
                "spec": {
                    "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "gpu"}},
                    "nodeSelector": {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "Exists"}]},
                },
            }))
            .unwrap()
        };
        for base in ClusterBase::ALL {
            assert_eq!(
                admit_pool(&pool("ubuntu"), base).is_ok(),
                !base.has_templates(),
                "{base}"
            );
        }
        for user in ["", "Root User", "../x", "0day"] {
            let refused = admit_pool(&pool(user), ClusterBase::None).unwrap_err();
            assert!(
                refused.to_string().contains("is not the name of an account"),
                "{user:?}"
            );
        }
    }
}
