//! Selection of the pods to evict from a node, with the rules of `kubectl drain`.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use mco_api::vocabulary::{labels, names};

use super::budgets::Obstacle;

/// The annotation of mirror pods, which the kubelet creates from files on the node; only the kubelet can remove them.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Additional time after the grace period, in which a kubelet cleans up.
const OVERSTAYS_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// The drain options. The defaults are the reference's: only pods that would be recreated immediately stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainPolicy {
    /// Unmanaged pods, and those whose DaemonSet is deleted, may be deleted for good.
    pub force: bool,
    /// DaemonSet pods stay, because their controller ignores cordons and would recreate them.
    pub ignore_daemon_sets: bool,
    /// Data in `emptyDir` volumes may be deleted.
    pub delete_empty_dir_data: bool,
}

impl Default for DrainPolicy {
    fn default() -> Self {
        Self {
            force: true,
            ignore_daemon_sets: true,
            delete_empty_dir_data: true,
        }
    }
}

/// The action for one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodFate {
    /// Evict it.
    Evict,
    /// Evict it, with a warning.
    EvictAlthough(Concern),
    /// It is terminating; wait for it.
    Leaving,
    Stay(Excuse),
    /// The policy does not allow its eviction, so the drain cannot succeed.
    Refuse(Concern),
}

/// Why a pod is not evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excuse {
    DaemonSet,
    Mirror,
}

/// What an eviction may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// It belongs to a DaemonSet and the policy does not ignore those.
    DaemonSet,
    /// Its DaemonSet no longer exists.
    OrphanOfDaemonSet,
    /// Data in `emptyDir` volumes.
    LocalStorage,
    /// It has no controller that would recreate it.
    Unmanaged,
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DaemonSet => "it is managed by a DaemonSet",
            Self::OrphanOfDaemonSet => "its DaemonSet no longer exists",
            Self::LocalStorage => "it keeps data in local storage (emptyDir)",
            Self::Unmanaged => "no controller will recreate it",
        })
    }
}

/// Whether a controller is ready on a node other than the one to drain. Only a controller can complete a drain, and the
/// replacement of an evicted pod may be unschedulable while its node is cordoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherController {
    Ready,
    Missing,
}

impl OtherController {
    /// Looks for a controller among all pods, or among those of the controllers.
    pub fn than_on<'a>(node: &str, pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut others = pods
            .into_iter()
            .filter(|pod| is_controller(pod) && node_of(pod) != Some(node));
        if others.any(can_take_over) {
            Self::Ready
        } else {
            Self::Missing
        }
    }
}

/// The pods of a node, grouped by action. Names are `namespace/name`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Eviction<'a> {
    pub evict: Vec<&'a Pod>,
    pub leaving: Vec<&'a Pod>,
    pub refused: Vec<(String, Concern)>,
    pub concerns: Vec<(String, Concern)>,
    /// The controller that stays to complete the drain.
    pub kept_controller: Option<&'a Pod>,
}

impl<'a> Eviction<'a> {
    /// Groups the pods by action. `daemon_set_exists` is called with namespace and name.
    pub fn of_pods(
        pods: impl IntoIterator<Item = &'a Pod>,
        policy: DrainPolicy,
        other_controller: OtherController,
        daemon_set_exists: impl Fn(&str, &str) -> bool,
    ) -> Self {
        let pods: Vec<&Pod> = pods.into_iter().collect();
        let kept_controller = match other_controller {
            OtherController::Ready => None,
            OtherController::Missing => last_controller(&pods),
        };
        let mut eviction = Self {
            kept_controller,
            ..Self::default()
        };
        let is_kept = |pod: &Pod| kept_controller.is_some_and(|kept| std::ptr::eq(kept, pod));
        for pod in pods.into_iter().filter(|pod| !is_kept(pod)) {
            match fate(pod, policy, &daemon_set_exists) {
                PodFate::Stay(_) => {}
                PodFate::Leaving => eviction.leaving.push(pod),
                PodFate::Evict => eviction.evict.push(pod),
                PodFate::EvictAlthough(concern) => {
                    eviction.concerns.push((full_name(pod), concern));
                    eviction.evict.push(pod);
                }
                PodFate::Refuse(concern) => eviction.refused.push((full_name(pod), concern)),
            }
        }
        eviction
    }

    /// Whether every pod to evict is gone.
    pub fn is_finished(&self) -> bool {
        self.evict.is_empty() && self.leaving.is_empty() && self.refused.is_empty()
    }
}

/// Returns the controller of a node to keep if no other node has one: any that is ready, else any that may become it.
fn last_controller<'a>(pods: &[&'a Pod]) -> Option<&'a Pod> {
    let running = pods
        .iter()
        .copied()
        .filter(|pod| is_controller(pod) && !is_finished(pod) && pod.metadata.deletion_timestamp.is_none());
    running.min_by_key(|pod| (!can_take_over(pod), pod.metadata.name.as_deref()))
}

/// Whether the pod is one of our controller.
pub fn is_controller(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let app = labels.and_then(|labels| labels.get(labels::APP));
    pod.metadata.namespace.as_deref() == Some(names::NAMESPACE)
        && app.is_some_and(|app| app == names::component::CONTROLLER)
}

/// Whether the pod is ready and stays.
fn can_take_over(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Returns the action for this pod.
pub fn fate(pod: &Pod, policy: DrainPolicy, daemon_set_exists: impl Fn(&str, &str) -> bool) -> PodFate {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key(MIRROR)) {
        return PodFate::Stay(Excuse::Mirror);
    }
    let finished = is_finished(pod);
    let controller = controller_of(pod);
    let mut concern = None;
    if let Some(owner) = controller.filter(|owner| owner.kind == "DaemonSet" && !finished) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        match (daemon_set_exists(namespace, &owner.name), policy) {
            (false, policy) if policy.force => concern = Some(Concern::OrphanOfDaemonSet),
            (false, _) => return PodFate::Refuse(Concern::OrphanOfDaemonSet),
            (true, policy) if policy.ignore_daemon_sets => return PodFate::Stay(Excuse::DaemonSet),
            (true, _) => return PodFate::Refuse(Concern::DaemonSet),
        }
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return PodFate::Leaving;
    }
    if !finished && has_local_storage(pod) {
        if !policy.delete_empty_dir_data {
            return PodFate::Refuse(Concern::LocalStorage);
        }
        concern = concern.or(Some(Concern::LocalStorage));
    }
    if !finished && controller.is_none() {
        if !policy.force {
            return PodFate::Refuse(Concern::Unmanaged);
        }
        concern = Some(Concern::Unmanaged);
    }
    concern.map_or(PodFate::Evict, PodFate::EvictAlthough)
}

/// Returns what blocks the termination of a pod after its grace period; `None` before that.
pub fn overstays(pod: &Pod, now: Timestamp) -> Option<Obstacle> {
    // The deletion timestamp is the end of the grace period, not the time of the request.
    let end = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    (now.duration_since(end) > OVERSTAYS_AFTER).then(|| Obstacle::Leaving {
        since: end.checked_sub(SignedDuration::from_secs(grace)).unwrap_or(end),
        finalizers: pod.metadata.finalizers.clone().unwrap_or_default(),
    })
}

/// Returns `namespace/name`.
pub fn full_name(pod: &Pod) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name))
}

/// Whether its containers have terminated and will not be restarted.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(super) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn controller_of(pod: &Pod) -> Option<&OwnerReference> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true))
}

fn has_local_storage(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| volume.empty_dir.is_some())
}
