//! Node disruption policy: which change requires which action, by the built-in rules and the administrator's.

use std::fmt;

use mco_api::machine_configuration::{
    DisruptionAction, DisruptionActionType, FileDisruptionPolicy, NodeDisruptionPolicies, ServiceName,
    SshKeyDisruptionPolicy, UnitDisruptionPolicy,
};
use serde::{Serialize, Serializer};

use super::DisruptionLevel;

/// An action of the daemon after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostConfigAction {
    None,
    Reboot,
    Drain,
    DaemonReload,
    Reload(String),
    Restart(String),
    /// Reload the container runtime, and drain first if the change can affect running workloads.
    Special,
}

impl PostConfigAction {
    pub(super) fn level(&self) -> DisruptionLevel {
        match self {
            Self::None => DisruptionLevel::None,
            Self::Reload(_) | Self::DaemonReload | Self::Special => DisruptionLevel::Reload,
            Self::Restart(_) => DisruptionLevel::Restart,
            Self::Drain => DisruptionLevel::Drain,
            Self::Reboot => DisruptionLevel::Reboot,
        }
    }
}

impl From<&DisruptionAction> for PostConfigAction {
    /// Maps an unsupported action, or one without its service, to the safest action: a reboot.
    fn from(action: &DisruptionAction) -> Self {
        let service = |name: &Option<ServiceName>| name.as_ref().map(|name| name.service_name.clone());
        match action.type_ {
            DisruptionActionType::None => Self::None,
            DisruptionActionType::Drain => Self::Drain,
            DisruptionActionType::DaemonReload => Self::DaemonReload,
            DisruptionActionType::Special => Self::Special,
            DisruptionActionType::Reload => service(&action.reload).map_or(Self::Reboot, Self::Reload),
            DisruptionActionType::Restart => service(&action.restart).map_or(Self::Reboot, Self::Restart),
            DisruptionActionType::Reboot | DisruptionActionType::Other(_) => Self::Reboot,
        }
    }
}

impl From<&PostConfigAction> for DisruptionAction {
    fn from(action: &PostConfigAction) -> Self {
        Self::plain(match action {
            PostConfigAction::Reload(service) => return Self::reload(service),
            PostConfigAction::Restart(service) => return Self::restart(service),
            PostConfigAction::None => DisruptionActionType::None,
            PostConfigAction::Reboot => DisruptionActionType::Reboot,
            PostConfigAction::Drain => DisruptionActionType::Drain,
            PostConfigAction::DaemonReload => DisruptionActionType::DaemonReload,
            PostConfigAction::Special => DisruptionActionType::Special,
        })
    }
}

impl fmt::Display for PostConfigAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("nothing"),
            Self::Reboot => f.write_str("reboot"),
            Self::Drain => f.write_str("drain"),
            Self::DaemonReload => f.write_str("systemctl daemon-reload"),
            Self::Reload(service) => write!(f, "reload {service}"),
            Self::Restart(service) => write!(f, "restart {service}"),
            Self::Special => f.write_str("reload crio.service"),
        }
    }
}

impl Serialize for PostConfigAction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The actions that a change of a path, a unit or the SSH keys requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionRule {
    /// A path, which includes everything below it, or the name of a unit.
    pub subject: String,
    pub actions: Vec<PostConfigAction>,
}

impl DisruptionRule {
    pub fn new(subject: &str, actions: &[PostConfigAction]) -> Self {
        Self {
            subject: subject.to_owned(),
            actions: actions.to_vec(),
        }
    }
}

/// All disruption rules of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionPolicy {
    files: Vec<DisruptionRule>,
    units: Vec<DisruptionRule>,
    ssh_key: Vec<PostConfigAction>,
}

impl Default for DisruptionPolicy {
    /// Returns the built-in rules.
    fn default() -> Self {
        let crio = "crio.service".to_owned();
        let reload_crio = [PostConfigAction::Reload(crio.clone())];
        let update_trust = PostConfigAction::Restart("coreos-update-ca-trust.service".to_owned());
        let restart_kubelet = PostConfigAction::Restart("kubelet.service".to_owned());
        let restart_registry = PostConfigAction::Restart("iri-registry.service".to_owned());
        let anchors = "/etc/pki/ca-trust/source/anchors";
        Self {
            files: vec![
                DisruptionRule::new(
                    "/etc/machine-config-daemon/no-reboot/containers-gpg.pub",
                    &reload_crio,
                ),
                DisruptionRule::new("/etc/containers/policy.json", &reload_crio),
                DisruptionRule::new("/etc/containers/registries.d", &reload_crio),
                DisruptionRule::new("/etc/crio/policies", &reload_crio),
                DisruptionRule::new(super::REGISTRIES_CONF, &[PostConfigAction::Special]),
                DisruptionRule::new("/var/lib/kubelet/config.json", &[PostConfigAction::None]),
                DisruptionRule::new("/etc/nmstate/openshift", &[PostConfigAction::None]),
                DisruptionRule::new(
                    &format!("{anchors}/openshift-config-user-ca-bundle.crt"),
                    &[update_trust.clone(), PostConfigAction::Restart(crio)],
                ),
                DisruptionRule::new(
                    "/etc/kubernetes/credential-providers",
                    std::slice::from_ref(&restart_kubelet),
                ),
                DisruptionRule::new(
                    "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
                    &[PostConfigAction::DaemonReload, restart_kubelet.clone()],
                ),
                DisruptionRule::new("/etc/iri-registry", std::slice::from_ref(&restart_registry)),
                DisruptionRule::new(
                    "/usr/local/bin/load-registry-image.sh",
                    std::slice::from_ref(&restart_registry),
                ),
                DisruptionRule::new(&format!("{anchors}/iri-root-ca.crt"), &[update_trust]),
            ],
            units: vec![DisruptionRule::new(
                "iri-registry.service",
                &[PostConfigAction::DaemonReload, restart_registry],
            )],
            ssh_key: vec![PostConfigAction::None],
        }
    }
}

impl DisruptionPolicy {
    /// Returns a policy with these rules for files; SSH keys require no action.
    pub(super) fn built_in(files: Vec<DisruptionRule>) -> Self {
        Self {
            files,
            units: Vec::new(),
            ssh_key: vec![PostConfigAction::None],
        }
    }

    /// Merges the administrator's rules into the built-in ones: a rule for the same path or unit replaces the
    /// built-in one, others are added, and a rule for SSH keys replaces the built-in one.
    #[must_use]
    pub fn with(
        mut self,
        files: Vec<DisruptionRule>,
        units: Vec<DisruptionRule>,
        ssh_key: Option<Vec<PostConfigAction>>,
    ) -> Self {
        replace_or_add(&mut self.files, files);
        replace_or_add(&mut self.units, units);
        if let Some(actions) = ssh_key.filter(|actions| !actions.is_empty()) {
            self.ssh_key = actions;
        }
        self
    }

    /// Merges the rules of the cluster's MachineConfiguration into the built-in ones.
    #[must_use]
    pub fn with_cluster_policies(self, policies: &NodeDisruptionPolicies) -> Self {
        let actions =
            |actions: &[DisruptionAction]| actions.iter().map(PostConfigAction::from).collect::<Vec<_>>();
        let files = policies.files.iter();
        let files = files.map(|file| DisruptionRule {
            subject: file.path.clone(),
            actions: actions(&file.actions),
        });
        let units = policies.units.iter();
        let units = units.map(|unit| DisruptionRule {
            subject: unit.name.clone(),
            actions: actions(&unit.actions),
        });
        let ssh_key = policies.sshkey.as_ref().map(|ssh_key| actions(&ssh_key.actions));
        self.with(files.collect(), units.collect(), ssh_key)
    }

    /// Returns all rules in the format of a MachineConfiguration's status.
    pub fn to_cluster_policies(&self) -> NodeDisruptionPolicies {
        let actions = |actions: &[PostConfigAction]| actions.iter().map(DisruptionAction::from).collect();
        let files = self.files.iter().map(|rule| FileDisruptionPolicy {
            path: rule.subject.clone(),
            actions: actions(&rule.actions),
        });
        let units = self.units.iter().map(|rule| UnitDisruptionPolicy {
            name: rule.subject.clone(),
            actions: actions(&rule.actions),
        });
        NodeDisruptionPolicies {
            files: files.collect(),
            units: units.collect(),
            sshkey: Some(SshKeyDisruptionPolicy {
                actions: actions(&self.ssh_key),
            }),
        }
    }

    /// Returns the rule with the longest path that is the file or one of its parent directories. `/` matches nothing,
    /// because it would match everything by accident.
    pub fn for_file(&self, path: &str) -> Option<&DisruptionRule> {
        let covers = |rule: &&DisruptionRule| {
            let subject = rule.subject.trim_end_matches('/');
            !subject.is_empty()
                && path
                    .strip_prefix(subject)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.files
            .iter()
            .filter(covers)
            .max_by_key(|rule| rule.subject.len())
    }

    pub fn for_unit(&self, name: &str) -> Option<&DisruptionRule> {
        self.units.iter().find(|rule| rule.subject == name)
    }

    pub fn ssh_key(&self) -> &[PostConfigAction] {
        &self.ssh_key
    }
}

fn replace_or_add(rules: &mut Vec<DisruptionRule>, own: Vec<DisruptionRule>) {
    for rule in own {
        match rules.iter_mut().find(|existing| existing.subject == rule.subject) {
            Some(existing) => *existing = rule,
            None => rules.push(rule),
        }
    }
}
