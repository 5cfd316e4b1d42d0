//! The disruption that a change causes on a node: none, a reload, a restart, a drain or a reboot, and which item
//! causes it.

mod base_rules;
mod policy;
mod registries_change;

use std::fmt;

use serde::Serialize;

use crate::config::diff::{ChangeKind, ConfigDiff, FileChange};
pub use policy::{DisruptionPolicy, DisruptionRule, PostConfigAction};
pub use registries_change::{RegistriesChange, compare as compare_registries};

/// The file whose changes are analysed to decide whether the node must be drained.
pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";

/// The disruption of applying a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The daemon's actions after writing, in order. `[None]` if none is needed.
    pub actions: Vec<PostConfigAction>,
    /// Whether and why the node is drained first.
    pub drain: Drain,
    /// Each change and the actions it requires, most disruptive first.
    pub causes: Vec<Cause>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Drain {
    NotNeeded,
    Needed { because: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Such as `file /etc/chrony.conf changed`.
    pub change: String,
    pub actions: Vec<PostConfigAction>,
    /// The rule that requires the actions.
    pub rule: String,
}

/// The severity of a change, from none to reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DisruptionLevel {
    None,
    Reload,
    Restart,
    Drain,
    Reboot,
}

impl fmt::Display for DisruptionLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Reload => "reload",
            Self::Restart => "restart",
            Self::Drain => "drain",
            Self::Reboot => "reboot",
        })
    }
}

impl Cost {
    pub fn level(&self) -> DisruptionLevel {
        let drain = match self.drain {
            Drain::Needed { .. } => DisruptionLevel::Drain,
            Drain::NotNeeded => DisruptionLevel::None,
        };
        self.actions
            .iter()
            .map(PostConfigAction::level)
            .max()
            .unwrap_or(DisruptionLevel::None)
            .max(drain)
    }
}

/// Returns the disruption of a change under a policy. `registries` is the analysis of a change of `registries.conf`:
/// whether it can affect running workloads.
pub fn cost(diff: &ConfigDiff, policy: &DisruptionPolicy, registries: &RegistriesChange) -> Cost {
    let mut causes = unconditional_reboots(diff);
    causes.extend(diff.files.iter().map(|file| file_cause(file, policy)));
    causes.extend(diff.units.iter().map(|unit| {
        let change = format!("unit {} {}", unit.name, past_tense(unit.kind));
        cause(change, policy.for_unit(&unit.name), "unit")
    }));
    if !diff.users.is_empty() {
        let names: Vec<&str> = diff.users.iter().map(|user| user.name.as_str()).collect();
        causes.push(Cause {
            change: format!("SSH keys or password of {} changed", names.join(", ")),
            actions: policy.ssh_key().to_vec(),
            rule: "policy for SSH keys".to_owned(),
        });
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.actions.iter().map(PostConfigAction::level).max()));
    let actions = combine(causes.iter().flat_map(|cause| &cause.actions));
    let drain = drain(&actions, &causes, registries);
    Cost {
        actions,
        drain,
        causes,
    }
}

fn unconditional_reboots(diff: &ConfigDiff) -> Vec<Cause> {
    let changes = [
        ("operating system image changed", diff.os_image.is_some()),
        ("kernel arguments changed", diff.kernel_arguments.is_some()),
        ("FIPS mode changed", diff.fips.is_some()),
        ("kernel type changed", diff.kernel_type.is_some()),
        ("extensions changed", diff.extensions.is_some()),
    ];
    changes
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(change, _)| Cause {
            change: change.to_owned(),
            actions: vec![PostConfigAction::Reboot],
            rule: "takes effect at boot".to_owned(),
        })
        .collect()
}

fn file_cause(file: &FileChange, policy: &DisruptionPolicy) -> Cause {
    cause(
        format!("file {} {}", file.path, past_tense(file.kind)),
        policy.for_file(&file.path),
        "file",
    )
}

fn cause(change: String, rule: Option<&DisruptionRule>, kind: &str) -> Cause {
    match rule {
        Some(rule) => Cause {
            change,
            actions: rule.actions.clone(),
            rule: format!("policy for {kind} {}", rule.subject),
        },
        None => Cause {
            change,
            actions: vec![PostConfigAction::Reboot],
            rule: format!("no policy covers this {kind}"),
        },
    }
}

fn past_tense(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Changed => "changed",
    }
}

/// Combines actions into one list: a reboot makes all others redundant, a restart makes a reload of the same service
/// redundant, and daemon-reload comes before any service action.
fn combine<'a>(wanted: impl Iterator<Item = &'a PostConfigAction>) -> Vec<PostConfigAction> {
    let mut actions: Vec<PostConfigAction> = Vec::new();
    for action in wanted {
        if *action == PostConfigAction::Reboot {
            return vec![PostConfigAction::Reboot];
        }
        if *action != PostConfigAction::None && !actions.contains(action) {
            actions.push(action.clone());
        }
    }
    let restarted: Vec<String> = actions
        .iter()
        .filter_map(|action| match action {
            PostConfigAction::Restart(service) => Some(service.clone()),
            _ => None,
        })
        .collect();
    actions
        .retain(|action| !matches!(action, PostConfigAction::Reload(service) if restarted.contains(service)));
    actions.sort_by_key(|action| *action != PostConfigAction::DaemonReload);
    if actions.is_empty() {
        vec![PostConfigAction::None]
    } else {
        actions
    }
}

fn drain(actions: &[PostConfigAction], causes: &[Cause], registries: &RegistriesChange) -> Drain {
    let cause_of = |wanted: fn(&PostConfigAction) -> bool| {
        causes
            .iter()
            .find(|cause| cause.actions.iter().any(wanted))
            .map_or("", |cause| cause.change.as_str())
    };
    for action in actions {
        match (action, registries) {
            (PostConfigAction::Reboot, _) => {
                return Drain::Needed {
                    because: format!(
                        "the node reboots: {}",
                        cause_of(|a| *a == PostConfigAction::Reboot)
                    ),
                };
            }
            (PostConfigAction::Drain, _) => {
                return Drain::Needed {
                    because: format!(
                        "the policy requires it: {}",
                        cause_of(|a| *a == PostConfigAction::Drain)
                    ),
                };
            }
            (PostConfigAction::Special, RegistriesChange::Unsafe { because }) => {
                return Drain::Needed {
                    because: format!("registries.conf: {because}"),
                };
            }
            _ => {}
        }
    }
    Drain::NotNeeded
}

#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "tables of cases are long")]
mod tests;
