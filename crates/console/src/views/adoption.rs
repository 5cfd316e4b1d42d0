//! The adoption page of a node: what its pool's config would change on it, and the forms to adopt and release it.

use askama::Template;
use mco_api::node_adoption::{AdoptionDifference, AdoptionFile, NodeAdoptionStatus};

use super::{Frame, Text, link};

#[derive(Debug, Template)]
#[template(path = "adoption.html")]
pub struct AdoptionPage {
    pub frame: Frame,
    pub name: Text,
    pub href: String,
    pub csrf: String,
    /// Whether this user may make requests.
    pub may_ask: bool,
    /// Whether a config was applied to the node.
    pub is_managed: bool,
    /// The request that the node has not answered yet.
    pub pending: Option<Text>,
    pub phase: Text,
    pub message: Text,
    pub summary: String,
    pub cost: Text,
    pub rows: Vec<DifferenceRow>,
    pub omitted: u32,
    pub os_changes: Vec<Text>,
    pub agents: Vec<(Text, Text)>,
}

#[derive(Debug, Clone)]
pub struct DifferenceRow {
    pub action: Text,
    pub path: Text,
    pub found: Text,
    pub wanted: Text,
    pub remark: Text,
}

/// What is known about the adoption of a node.
#[derive(Debug, Clone, Default)]
pub struct AdoptionState {
    pub status: Option<NodeAdoptionStatus>,
    pub pending: Option<String>,
    pub is_managed: bool,
}

pub fn adoption(frame: Frame, name: &str, state: &AdoptionState) -> AdoptionPage {
    let status = state.status.clone().unwrap_or_default();
    let viewer = frame.viewer.clone().unwrap_or_default();
    let summary = if status.config.is_empty() {
        String::new()
    } else {
        let counts = status.summary;
        format!(
            "{} to create, {} to replace, {} to remove, {} already as configured",
            counts.create, counts.replace, counts.remove, counts.equal
        )
    };
    AdoptionPage {
        name: Text::new(name),
        href: link::node(name),
        csrf: viewer.csrf,
        may_ask: viewer.may_steer,
        is_managed: state.is_managed,
        pending: state.pending.as_ref().map(Text::new),
        phase: Text::new(&status.phase),
        message: Text::new(&status.message),
        summary,
        cost: Text::new(cost(&status)),
        rows: status.differences.iter().map(row).collect(),
        omitted: status.omitted,
        os_changes: status.os_changes.iter().map(Text::new).collect(),
        agents: status
            .agents
            .iter()
            .map(|agent| (Text::new(&agent.name), Text::new(&agent.effect)))
            .collect(),
        frame,
    }
}

fn cost(status: &NodeAdoptionStatus) -> String {
    let drain = status.cost.drain.then(|| "drain".to_owned());
    let reboot = status.cost.reboot.then(|| "reboot".to_owned());
    let parts: Vec<String> = drain
        .into_iter()
        .chain(reboot)
        .chain(status.cost.actions.iter().cloned())
        .collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn row(difference: &AdoptionDifference) -> DifferenceRow {
    let package = difference
        .package
        .as_ref()
        .map(|package| format!("package {package}"));
    let guarded = difference.guarded.as_ref().map(|why| format!("guarded: {why}"));
    let remarks: Vec<String> = package.into_iter().chain(guarded).collect();
    DifferenceRow {
        action: Text::new(&difference.action),
        path: Text::new(&difference.path),
        found: Text::new(difference.found.as_ref().map(file).unwrap_or_default()),
        wanted: Text::new(difference.wanted.as_ref().map(file).unwrap_or_default()),
        remark: Text::new(remarks.join(", ")),
    }
}

fn file(file: &AdoptionFile) -> String {
    let target = file.target.as_ref().map(|target| format!("link to {target}"));
    let size = file.size.map(|size| format!("{size} bytes"));
    let hash = file
        .sha256
        .as_ref()
        .map(|hash| format!("sha256 {}", hash.get(..12).unwrap_or(hash)));
    let mode = file.mode.as_ref().map(|mode| format!("mode {mode}"));
    let parts: Vec<String> = [target, size, hash, mode].into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use mco_api::node_adoption::AdoptionSummary;

    use super::*;

    #[test]
    fn foreign_files_are_shown_by_size_and_hash_and_escaped() {
        let difference = AdoptionDifference {
            path: "/etc/<b>".to_owned(),
            action: "replace".to_owned(),
            found: Some(AdoptionFile {
                size: Some(16),
                sha256: Some("a".repeat(64)),
                mode: Some("0644".to_owned()),
                target: None,
            }),
            package: Some("chrony".to_owned()),
            ..AdoptionDifference::default()
        };
        let status = NodeAdoptionStatus {
            phase: "Compared".to_owned(),
            config: "rendered-worker-1".to_owned(),
            summary: AdoptionSummary {
                replace: 1,
                ..AdoptionSummary::default()
            },
            differences: vec![difference],
            os_changes: vec!["kernelArguments: add hugepages=64".to_owned()],
            ..NodeAdoptionStatus::default()
        };
        let state = AdoptionState {
            status: Some(status),
            ..AdoptionState::default()
        };
        let page = crate::views::html(&adoption(Frame::default(), "worker-1", &state));
        assert!(
            page.contains("16 bytes, sha256 aaaaaaaaaaaa, mode 0644"),
            "{page}"
        );
        assert!(page.contains("package chrony") && page.contains("1 to replace"));
        assert!(page.contains("kernelArguments: add hugepages=64"), "{page}");
        assert!(!page.contains("<b>"));
        assert!(
            !page.contains("<form method=\"post\" action=\"/nodes/worker-1"),
            "no permission, no form"
        );
    }
}
