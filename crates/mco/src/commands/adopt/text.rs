//! The output of `mco adopt` and `mco release` for people.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Node;
use mco_api::node_adoption::{AdoptionDifference, AdoptionFile};
use mco_client::text::escape_control_chars;
use mco_core::rollout::NodeAnnotations;

use super::NodeAnswer;

pub(super) fn comparison(answers: &[NodeAnswer], adopted: bool) -> String {
    let mut text = String::new();
    if answers.is_empty() {
        return "Every node that a pool selects is adopted.\n".to_owned();
    }
    for answer in answers {
        describe(answer, &mut text);
    }
    if !adopted {
        let names: Vec<&str> = answers.iter().map(|answer| answer.node.as_str()).collect();
        let _ = writeln!(
            text,
            "\nNothing was changed. To adopt, keeping everything that is there now: mco adopt --yes {}",
            names.join(" ")
        );
    }
    text
}

pub(super) fn released(answers: &[NodeAnswer]) -> String {
    let line = |answer: &NodeAnswer| {
        let message = escape_control_chars(&answer.status.message);
        format!("node {}: {} ({message})\n", answer.node, answer.status.phase)
    };
    answers.iter().map(line).collect()
}

/// Returns why a node may not have answered: what it reports itself.
pub(super) fn delay(node: Option<&Node>) -> String {
    let Some(node) = node else {
        return "it was deleted".to_owned();
    };
    let seen = NodeAnnotations::of_node(node);
    let (state, reason) = (
        escape_control_chars(seen.state),
        escape_control_chars(seen.reason),
    );
    match (state.as_str(), reason.trim_end_matches('.')) {
        ("", _) => "is its machine-config-daemon running?".to_owned(),
        (state, "") => format!("its state is {state}"),
        (state, reason) => format!("its state is {state}: {reason}"),
    }
}

fn describe(answer: &NodeAnswer, text: &mut String) {
    let status = &answer.status;
    let pool = match status.pool.as_str() {
        "" => String::new(),
        pool => format!(" (pool {})", escape_control_chars(pool)),
    };
    let message = escape_control_chars(&status.message);
    let _ = writeln!(text, "{}{pool}: {}, {message}", answer.node, status.phase);
    for difference in &status.differences {
        let _ = writeln!(text, "  {}", line(difference));
    }
    for change in &status.os_changes {
        let _ = writeln!(text, "  {:8}{}", "os", escape_control_chars(change));
    }
    if status.omitted > 0 {
        let _ = writeln!(text, "  and {} more", status.omitted);
    }
    let summary = status.summary;
    if !status.config.is_empty() {
        let _ = writeln!(
            text,
            "  {} to create, {} to replace, {} to remove, {} already as configured",
            summary.create, summary.replace, summary.remove, summary.equal
        );
        let _ = writeln!(text, "  cost: {}", cost(answer));
    }
    for agent in &status.agents {
        let _ = writeln!(
            text,
            "  {} {}",
            escape_control_chars(&agent.name),
            escape_control_chars(&agent.effect)
        );
    }
}

fn cost(answer: &NodeAnswer) -> String {
    let cost = &answer.status.cost;
    let mut parts = Vec::new();
    if cost.drain {
        parts.push("drain".to_owned());
    }
    if cost.reboot {
        parts.push("reboot".to_owned());
    }
    parts.extend(cost.actions.iter().map(|action| escape_control_chars(action)));
    if parts.is_empty() {
        return "none".to_owned();
    }
    parts.join(", ")
}

fn line(difference: &AdoptionDifference) -> String {
    let path = escape_control_chars(&difference.path);
    let mut text = format!("{:8}{path}", difference.action);
    let shown: Vec<String> = [&difference.found, &difference.wanted]
        .into_iter()
        .flatten()
        .map(file)
        .filter(|text| !text.is_empty())
        .collect();
    if !shown.is_empty() {
        let _ = write!(text, "  {}", shown.join(" -> "));
    }
    if let Some(package) = &difference.package {
        let _ = write!(text, "  package {}", escape_control_chars(package));
    }
    if let Some(why) = &difference.guarded {
        let _ = write!(text, "  GUARDED: {}", escape_control_chars(why));
    }
    text
}

fn file(file: &AdoptionFile) -> String {
    let mut parts = Vec::new();
    if let Some(target) = &file.target {
        parts.push(format!("link to {}", escape_control_chars(target)));
    }
    if let Some(size) = file.size {
        parts.push(format!("{size} bytes"));
    }
    if let Some(hash) = &file.sha256 {
        parts.push(format!("sha256 {}", hash.get(..12).unwrap_or(hash)));
    }
    if let Some(mode) = &file.mode {
        parts.push(format!("mode {}", escape_control_chars(mode)));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use mco_api::node_adoption::NodeAdoptionStatus;
    use serde_json::json;

    use super::super::would_change;
    use super::*;

    #[test]
    fn a_config_with_kernel_arguments_alone_changes_nothing_in_the_preview() {
        let status = NodeAdoptionStatus {
            phase: "Compared".to_owned(),
            message: "compared; nothing was changed".to_owned(),
            config: "rendered-worker-1".to_owned(),
            os_changes: vec!["kernelArguments: add hugepages=64".to_owned()],
            ..NodeAdoptionStatus::default()
        };
        assert!(would_change(&status));
        assert!(!would_change(&NodeAdoptionStatus::default()));
        let answer = NodeAnswer {
            node: "worker-1".to_owned(),
            status,
        };
        let text = comparison(&[answer], false);
        assert!(
            text.contains("\n  os      kernelArguments: add hugepages=64\n"),
            "{text}"
        );
    }

    #[test]
    fn a_node_that_does_not_answer_is_shown_with_its_state_and_reason() {
        let node = |annotations: serde_json::Value| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).unwrap()
        };
        let degraded = node(json!({
            "machineconfiguration.openshift.io/state": "Degraded",
            "machineconfiguration.openshift.io/reason": "disk is full.",
        }));
        let done = node(json!({"machineconfiguration.openshift.io/state": "Done"}));
        for (node, expected) in [
            (Some(&degraded), "its state is Degraded: disk is full"),
            (Some(&done), "its state is Done"),
            (Some(&node(json!({}))), "is its machine-config-daemon running?"),
            (None, "it was deleted"),
        ] {
            assert_eq!(delay(node), expected);
        }
    }
}
