//! The agent's state machine: computes the next step of a node from what can be observed.

use std::time::Duration;

use mco_api::vocabulary::annotations::node::drain;
use mco_core::config::disruption::Drain;
use mco_core::rollout::NodeAnnotations;

use super::on_disk::OnDisk;

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The maximum backoff: an administrator who repairs a node should not have to wait longer for it to recover.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// Everything the next step depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    pub node: NodeAnnotations,
    pub disk: OnDisk,
    pub pending: PendingChange,
    /// The annotations that a new node registers with are still on disk: the node has not registered with its cluster
    /// yet.
    pub introduces_itself: bool,
    pub forced: bool,
    /// Values of the node's files have changed, and the node has its turn to write them.
    pub renews_files: bool,
}

impl Observation {
    /// Returns whether a config was ever applied to the machine, or declared for it. Without that nothing on the machine
    /// or its Node is ours.
    pub fn is_managed(&self) -> bool {
        self.is_recorded() || self.node.current_config.is_some()
    }

    /// Returns whether the disk has a record of a config. A declared config has none.
    pub fn is_recorded(&self) -> bool {
        self.disk.config.is_some() || self.introduces_itself || self.pending != PendingChange::Nothing
    }

    /// Returns the version the machine has. The disk outlives the API server's database: after a restore of the
    /// database, the disk is right. On a newly installed node the disk holds only the config's name, not the complete
    /// config.
    fn version(&self, annotated: &str) -> ConfigVersion {
        match &self.disk.config {
            Some(config) if !self.introduces_itself => ConfigVersion {
                config: config.clone(),
                image: self.disk.image.clone(),
            },
            _ => ConfigVersion {
                config: annotated.to_owned(),
                image: self.node.current_image.clone(),
            },
        }
    }
}

/// The change recorded in the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PendingChange {
    #[default]
    Nothing,
    /// All files are in place and a reboot is due.
    AwaitingBoot { because: String },
    /// The boot id differs from the one before the requested reboot.
    Booted,
    /// The services were restarted with the change; the node's health is waited for.
    Restarted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStep {
    /// The machine existed before and no config was applied to it: change nothing until it is adopted.
    AwaitAdoption,
    /// The Node has no current config; register the one on disk.
    Introduce,
    /// Wait: the controller has not set a desired config yet.
    AwaitDesired,
    /// Reboot: the boot that was due has not happened.
    Reboot {
        because: String,
    },
    /// After the reboot: validate the machine against its config, then discard the old state.
    ProveBoot,
    /// After services were restarted: wait until the node is healthy, then discard the old state.
    ProveRestart,
    /// Wait for the controller to complete a drain or uncordon request. A request for an outdated target is not waited
    /// for.
    AwaitController {
        request: String,
    },
    /// Update from one config to another. Both may be the same: then everything is validated and written again.
    Update {
        from: ConfigVersion,
        to: ConfigVersion,
    },
    /// All changes are in place: request an uncordon.
    RequestUncordon {
        config: String,
    },
    /// Nothing is left to do but to report Done.
    ReportDone {
        config: String,
    },
    Idle,
}

/// A config and, in layered pools, the OS image that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigVersion {
    pub config: String,
    pub image: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    Proceed,
    Ask,
}

/// Returns the next step. `verified` is the version on disk that this process has already validated and applied, if
/// any.
pub fn next(seen: &Observation, verified: Option<&ConfigVersion>) -> AgentStep {
    let node = &seen.node;
    match &seen.pending {
        PendingChange::AwaitingBoot { because } => {
            return AgentStep::Reboot {
                because: because.clone(),
            };
        }
        // A forced update goes ahead even if the boot cannot be proven.
        PendingChange::Booted if !seen.forced => return AgentStep::ProveBoot,
        PendingChange::Restarted if !seen.forced => return AgentStep::ProveRestart,
        PendingChange::Booted | PendingChange::Restarted | PendingChange::Nothing => {}
    }
    let Some(annotated) = &node.current_config else {
        return if seen.introduces_itself || seen.disk.config.is_some() {
            AgentStep::Introduce
        } else {
            AgentStep::AwaitAdoption
        };
    };
    let Some(desired) = &node.desired_config else {
        return AgentStep::AwaitDesired;
    };
    if let Some(request) = node.open_request()
        && [drain::drain(desired), drain::uncordon(desired)].contains(&request.to_owned())
    {
        return AgentStep::AwaitController {
            request: request.to_owned(),
        };
    }
    let has = seen.version(annotated);
    let wants = ConfigVersion {
        config: desired.clone(),
        image: node.desired_image.clone(),
    };
    let agrees = has == wants && *annotated == wants.config;
    let starts_over = seen.forced || seen.introduces_itself || seen.renews_files;
    if agrees && node.is_done() && !starts_over {
        return AgentStep::Idle;
    }
    if has != wants || verified != Some(&wants) || seen.forced || seen.renews_files {
        return AgentStep::Update { from: has, to: wants };
    }
    // The latest request decides whether the uncordon was already granted.
    let allowed = drain::uncordon(&wants.config);
    if node.last_applied_drain.as_deref() == Some(allowed.as_str()) && node.open_request().is_none() {
        AgentStep::ReportDone { config: wants.config }
    } else {
        AgentStep::RequestUncordon { config: wants.config }
    }
}

/// Returns whether the node has to be drained before a change. A single-node control plane cannot be drained.
pub fn drain_step(node: &NodeAnnotations, cost: &Drain, desired: &str) -> DrainStep {
    let request = drain::drain(desired);
    let drained =
        node.last_applied_drain.as_deref() == Some(request.as_str()) && node.open_request().is_none();
    match cost {
        Drain::Needed { .. } if !node.single_replica && !drained => DrainStep::Ask,
        Drain::Needed { .. } | Drain::NotNeeded => DrainStep::Proceed,
    }
}

/// Returns the backoff after this many consecutive failures.
pub fn retry_delay(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_RETRY.saturating_mul(factor).min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node described by its annotations current, desired and state, and by its disk.
    fn seen(current: &str, desired: &str, state: &str, disk: Option<&str>) -> Observation {
        let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        Observation {
            node: NodeAnnotations {
                current_config: text(current),
                desired_config: text(desired),
                state: state.to_owned(),
                ..NodeAnnotations::default()
            },
            disk: OnDisk {
                config: disk.map(str::to_owned),
                image: None,
            },
            ..Observation::default()
        }
    }

    fn update(from: &str, to: &str) -> AgentStep {
        let version = |config: &str| ConfigVersion {
            config: config.to_owned(),
            image: None,
        };
        AgentStep::Update {
            from: version(from),
            to: version(to),
        }
    }

    #[test]
    fn the_decision_table() {
        let cases = [
            (
                "the disk is ahead of the annotation",
                seen("test1", "test2", "Done", Some("test3")),
                update("test3", "test2"),
            ),
            (
                "the disk already has it but it was not reported",
                seen("a", "b", "Working", Some("b")),
                update("b", "b"),
            ),
            (
                "no config on disk: the annotation counts",
                seen("a", "b", "Done", None),
                update("a", "b"),
            ),
            (
                "nothing to do",
                seen("a", "a", "Done", Some("a")),
                AgentStep::Idle,
            ),
            (
                "nothing to do without a disk",
                seen("a", "a", "Done", None),
                AgentStep::Idle,
            ),
            (
                "a degraded node applies its config again",
                seen("a", "a", "Degraded", Some("a")),
                update("a", "a"),
            ),
            (
                "so does one that was interrupted",
                seen("a", "a", "Working", Some("a")),
                update("a", "a"),
            ),
            (
                "so does one without a state",
                seen("a", "a", "", Some("a")),
                update("a", "a"),
            ),
            (
                "so does an unreconcilable one",
                seen("a", "a", "Unreconcilable", Some("a")),
                update("a", "a"),
            ),
            (
                "a plain update",
                seen("a", "b", "Done", Some("a")),
                update("a", "b"),
            ),
            (
                "a new target while failing",
                seen("a", "c", "Degraded", Some("a")),
                update("a", "c"),
            ),
            (
                "no target yet",
                seen("a", "", "Done", Some("a")),
                AgentStep::AwaitDesired,
            ),
            (
                "a node that lost its annotations",
                seen("", "a", "", Some("a")),
                AgentStep::Introduce,
            ),
        ];
        for (name, seen, expected) in cases {
            assert_eq!(next(&seen, None), expected, "{name}");
        }
        let foreign = seen("", "a", "", None);
        assert_eq!(next(&foreign, None), AgentStep::AwaitAdoption);
        assert!(!foreign.is_managed());
    }

    #[test]
    fn built_images_count_like_configs_and_the_disk_knows_them() {
        let mut node = seen("a", "a", "", Some("a"));
        node.disk.image = Some("image2".to_owned());
        node.node.desired_image = Some("image1".to_owned());
        node.node.current_image = Some("image1".to_owned());
        let version = |image: &str| ConfigVersion {
            config: "a".to_owned(),
            image: Some(image.to_owned()),
        };
        assert_eq!(
            next(&node, None),
            AgentStep::Update {
                from: version("image2"),
                to: version("image1")
            }
        );
        node.disk.image = Some("image1".to_owned());
        node.node.state = "Done".to_owned();
        assert_eq!(next(&node, None), AgentStep::Idle);
        node.node.state = String::new();
        assert_eq!(
            next(&node, None),
            AgentStep::Update {
                from: version("image1"),
                to: version("image1")
            }
        );
    }

    #[test]
    fn a_boot_that_is_due_comes_before_everything() {
        let mut node = seen("a", "b", "Working", Some("b"));
        node.pending = PendingChange::AwaitingBoot {
            because: "x".to_owned(),
        };
        node.node.desired_drain = Some("drain-b".to_owned());
        assert_eq!(
            next(&node, None),
            AgentStep::Reboot {
                because: "x".to_owned()
            }
        );
        node.pending = PendingChange::Booted;
        assert_eq!(next(&node, None), AgentStep::ProveBoot);
        node.pending = PendingChange::Restarted;
        assert_eq!(next(&node, None), AgentStep::ProveRestart);
    }

    #[test]
    fn an_open_request_is_waited_for() {
        let mut node = seen("a", "b", "Working", Some("a"));
        node.node.desired_drain = Some("drain-b".to_owned());
        let waits = AgentStep::AwaitController {
            request: "drain-b".to_owned(),
        };
        assert_eq!(next(&node, None), waits);
        node.node.last_applied_drain = Some("drain-b".to_owned());
        assert_eq!(next(&node, None), update("a", "b"));
    }

    #[test]
    fn what_was_asked_for_an_earlier_target_is_not_waited_for() {
        let mut node = seen("a", "c", "Working", Some("a"));
        node.node.desired_drain = Some("drain-b".to_owned());
        assert_eq!(next(&node, None), update("a", "c"));
        node.node.desired_drain = Some("uncordon-a".to_owned());
        assert_eq!(next(&node, None), update("a", "c"));
    }

    #[test]
    fn a_drain_for_a_target_that_was_given_up_is_taken_back() {
        let mut node = seen("a", "a", "Working", Some("a"));
        node.node.last_applied_drain = Some("uncordon-a".to_owned());
        node.node.desired_drain = Some("drain-b".to_owned());
        let verified = ConfigVersion {
            config: "a".to_owned(),
            image: None,
        };
        let step = AgentStep::RequestUncordon {
            config: "a".to_owned(),
        };
        assert_eq!(next(&node, Some(&verified)), step);
    }

    #[test]
    fn a_new_node_is_compared_with_its_config_before_it_is_idle() {
        let mut node = seen("a", "a", "Done", Some("a"));
        node.introduces_itself = true;
        assert_eq!(next(&node, None), update("a", "a"));
        // The config that a first boot has written to disk does not count yet.
        node.disk.config = Some("b".to_owned());
        assert_eq!(next(&node, None), update("a", "a"));
    }

    #[test]
    fn after_the_update_work_comes_back_and_then_the_node_is_done() {
        let mut node = seen("a", "b", "Working", Some("b"));
        let verified = ConfigVersion {
            config: "b".to_owned(),
            image: None,
        };
        let step = |node: &Observation| next(node, Some(&verified));
        assert_eq!(
            step(&node),
            AgentStep::RequestUncordon {
                config: "b".to_owned()
            }
        );
        node.node.desired_drain = Some("uncordon-b".to_owned());
        assert_eq!(
            step(&node),
            AgentStep::AwaitController {
                request: "uncordon-b".to_owned()
            }
        );
        node.node.last_applied_drain = Some("uncordon-b".to_owned());
        assert_eq!(
            step(&node),
            AgentStep::ReportDone {
                config: "b".to_owned()
            }
        );
        node.node.current_config = Some("b".to_owned());
        node.node.state = "Done".to_owned();
        assert_eq!(step(&node), AgentStep::Idle);
    }

    #[test]
    fn a_target_that_moves_while_work_comes_back_is_followed() {
        let mut node = seen("a", "c", "Working", Some("b"));
        node.node.desired_drain = Some("uncordon-b".to_owned());
        node.node.last_applied_drain = Some("uncordon-b".to_owned());
        let verified = ConfigVersion {
            config: "b".to_owned(),
            image: None,
        };
        assert_eq!(next(&node, Some(&verified)), update("b", "c"));
    }

    #[test]
    fn the_force_file_applies_everything_again() {
        let mut node = seen("a", "a", "Done", Some("a"));
        node.forced = true;
        assert_eq!(next(&node, None), update("a", "a"));
        node.pending = PendingChange::Booted;
        assert_eq!(next(&node, None), update("a", "a"));
    }

    #[test]
    fn nodes_are_emptied_only_if_needed_and_possible() {
        let needed = Drain::Needed {
            because: "x".to_owned(),
        };
        let mut node = NodeAnnotations::default();
        assert_eq!(drain_step(&node, &Drain::NotNeeded, "b"), DrainStep::Proceed);
        assert_eq!(drain_step(&node, &needed, "b"), DrainStep::Ask);
        node.last_applied_drain = Some("drain-a".to_owned());
        assert_eq!(drain_step(&node, &needed, "b"), DrainStep::Ask);
        node.last_applied_drain = Some("drain-b".to_owned());
        assert_eq!(drain_step(&node, &needed, "b"), DrainStep::Proceed);
        // An uncordon has just been requested.
        node.desired_drain = Some("uncordon-a".to_owned());
        assert_eq!(drain_step(&node, &needed, "b"), DrainStep::Ask);
        node = NodeAnnotations {
            single_replica: true,
            ..NodeAnnotations::default()
        };
        assert_eq!(drain_step(&node, &needed, "b"), DrainStep::Proceed);
    }

    #[test]
    fn retries_slow_down_to_a_minute() {
        let seconds: Vec<u64> = [1, 2, 3, 6, 7, 8, 40]
            .iter()
            .map(|it| retry_delay(*it).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 32, 60, 60, 60]);
    }
}
