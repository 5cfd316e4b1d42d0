//! How patches and server-side apply merge the lists and maps of built-in kinds.
//!
//! The published schemas lack these rules, so the exceptions are listed here. Every other list is replaced as a whole,
//! every other object is merged member by member.

/// An exception for one member of a definition.
#[derive(Clone, Copy, Debug)]
pub struct MergeRule {
    /// The definition, without the prefix that all of its group share.
    pub definition: &'static str,
    pub member: &'static str,
    pub shape: MergeShape,
    pub patch: MergePatchRule,
}

/// How server-side apply identifies the parts of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeShape {
    Usual,
    Set,
    /// A list of objects identified by these members.
    Keyed(&'static [&'static str]),
    AtomicMap,
}

/// How a strategic merge patch treats a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergePatchRule {
    Usual,
    /// A list is merged, its objects identified by this member; scalars have none.
    Merged(Option<&'static str>),
    /// An object is replaced instead of merged.
    Replaced,
}

/// Members that differ from the default in the module's documentation.
pub const MEMBERS: &[MergeRule] = &[
    on("admissionregistration.v1.MutatingWebhook", "matchConditions")
        .keyed(&["name"])
        .merged(Some("name")),
    on(
        "admissionregistration.v1.MutatingWebhookConfiguration",
        "webhooks",
    )
    .keyed(&["name"])
    .merged(Some("name")),
    on(
        "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec",
        "validationActions",
    )
    .set(),
    on(
        "admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "matchConditions",
    )
    .keyed(&["name"])
    .merged(Some("name")),
    on(
        "admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "variables",
    )
    .keyed(&["name"])
    .merged(Some("name")),
    on(
        "admissionregistration.v1.ValidatingAdmissionPolicyStatus",
        "conditions",
    )
    .keyed(&["type"]),
    on("admissionregistration.v1.ValidatingWebhook", "matchConditions")
        .keyed(&["name"])
        .merged(Some("name")),
    on(
        "admissionregistration.v1.ValidatingWebhookConfiguration",
        "webhooks",
    )
    .keyed(&["name"])
    .merged(Some("name")),
    on("apps.v1.DaemonSetStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("apps.v1.DeploymentStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("apps.v1.ReplicaSetStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("apps.v1.StatefulSetStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("batch.v1.JobStatus", "conditions").merged(Some("type")),
    on("batch.v1.PodFailurePolicyOnExitCodesRequirement", "values").set(),
    on("batch.v1.UncountedTerminatedPods", "failed").set(),
    on("batch.v1.UncountedTerminatedPods", "succeeded").set(),
    on("core.v1.Container", "env")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.Container", "ports")
        .keyed(&["containerPort", "protocol"])
        .merged(Some("containerPort")),
    on("core.v1.Container", "volumeDevices")
        .keyed(&["devicePath"])
        .merged(Some("devicePath")),
    on("core.v1.Container", "volumeMounts")
        .keyed(&["mountPath"])
        .merged(Some("mountPath")),
    on("core.v1.ContainerRestartRuleOnExitCodes", "values").set(),
    on("core.v1.ContainerStatus", "allocatedResourcesStatus")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.ContainerStatus", "volumeMounts")
        .keyed(&["mountPath"])
        .merged(Some("mountPath")),
    on("core.v1.EphemeralContainer", "env")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.EphemeralContainer", "ports")
        .keyed(&["containerPort", "protocol"])
        .merged(Some("containerPort")),
    on("core.v1.EphemeralContainer", "volumeDevices")
        .keyed(&["devicePath"])
        .merged(Some("devicePath")),
    on("core.v1.EphemeralContainer", "volumeMounts")
        .keyed(&["mountPath"])
        .merged(Some("mountPath")),
    on("core.v1.NamespaceStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("core.v1.NodeAllocatableResourceClaimStatus", "containers").set(),
    on("core.v1.NodeSpec", "podCIDRs").set().merged(None),
    on("core.v1.NodeStatus", "addresses")
        .keyed(&["type"])
        .merged(Some("type")),
    on("core.v1.NodeStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("core.v1.PersistentVolumeClaimStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("core.v1.PodSpec", "containers")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.PodSpec", "ephemeralContainers")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.PodSpec", "hostAliases")
        .keyed(&["ip"])
        .merged(Some("ip")),
    on("core.v1.PodSpec", "imagePullSecrets")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.PodSpec", "initContainers")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.PodSpec", "nodeSelector").atomic(),
    on("core.v1.PodSpec", "resourceClaims")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.PodSpec", "schedulingGates")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.PodSpec", "topologySpreadConstraints")
        .keyed(&["topologyKey", "whenUnsatisfiable"])
        .merged(Some("topologyKey")),
    on("core.v1.PodSpec", "volumes")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.PodStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("core.v1.PodStatus", "hostIPs").merged(Some("ip")),
    on("core.v1.PodStatus", "podIPs")
        .keyed(&["ip"])
        .merged(Some("ip")),
    on("core.v1.PodStatus", "resourceClaimStatuses")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.ResourceRequirements", "claims").keyed(&["name"]),
    on("core.v1.ResourceStatus", "resources").keyed(&["resourceID"]),
    on("core.v1.ServiceAccount", "secrets")
        .keyed(&["name"])
        .merged(Some("name")),
    on("core.v1.ServiceSpec", "ports")
        .keyed(&["port", "protocol"])
        .merged(Some("port")),
    on("core.v1.ServiceSpec", "selector").atomic(),
    on("core.v1.ServiceStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("policy.v1.PodDisruptionBudgetSpec", "selector").replaced(),
    on("policy.v1.PodDisruptionBudgetStatus", "conditions")
        .keyed(&["type"])
        .merged(Some("type")),
    on("apiextensions.v1.CustomResourceDefinitionStatus", "conditions").keyed(&["type"]),
    on("apiextensions.v1.JSONSchemaProps", "x-kubernetes-validations")
        .keyed(&["rule"])
        .merged(Some("rule")),
    on("meta.v1.ObjectMeta", "finalizers").set().merged(None),
    on("meta.v1.ObjectMeta", "ownerReferences")
        .keyed(&["uid"])
        .merged(Some("uid")),
];

/// Definitions whose objects are always replaced as a whole by server-side apply.
pub const ATOMIC: &[&str] = &[
    "admissionregistration.v1.MatchResources",
    "admissionregistration.v1.NamedRuleWithOperations",
    "admissionregistration.v1.ParamKind",
    "admissionregistration.v1.ParamRef",
    "admissionregistration.v1.Variable",
    "core.v1.ConfigMapKeySelector",
    "core.v1.EndpointAddress",
    "core.v1.EndpointPort",
    "core.v1.FileKeySelector",
    "core.v1.LocalObjectReference",
    "core.v1.NodeSelector",
    "core.v1.NodeSelectorTerm",
    "core.v1.ObjectFieldSelector",
    "core.v1.ObjectReference",
    "core.v1.ResourceFieldSelector",
    "core.v1.SecretKeySelector",
    "core.v1.TypedLocalObjectReference",
    "rbac.v1.RoleRef",
    "rbac.v1.Subject",
    "meta.v1.LabelSelector",
    "meta.v1.OwnerReference",
];

/// Members with a default that server-side apply needs to identify list items.
pub const KEY_DEFAULTS: &[(&str, &str, &str)] = &[
    ("core.v1.ContainerPort", "protocol", "TCP"),
    ("core.v1.ServicePort", "protocol", "TCP"),
];

/// Returns the name used above for a definition's full name.
pub fn short_name(definition: &str) -> &str {
    [
        "io.k8s.api.",
        "io.k8s.apimachinery.pkg.apis.",
        "io.k8s.apiextensions-apiserver.pkg.apis.",
    ]
    .into_iter()
    .find_map(|prefix| definition.strip_prefix(prefix))
    .unwrap_or(definition)
}

const fn on(definition: &'static str, member: &'static str) -> MergeRule {
    MergeRule {
        definition,
        member,
        shape: MergeShape::Usual,
        patch: MergePatchRule::Usual,
    }
}

impl MergeRule {
    const fn set(mut self) -> Self {
        self.shape = MergeShape::Set;
        self
    }

    const fn keyed(mut self, keys: &'static [&'static str]) -> Self {
        self.shape = MergeShape::Keyed(keys);
        self
    }

    const fn atomic(mut self) -> Self {
        self.shape = MergeShape::AtomicMap;
        self
    }

    const fn merged(mut self, key: Option<&'static str>) -> Self {
        self.patch = MergePatchRule::Merged(key);
        self
    }

    const fn replaced(mut self) -> Self {
        self.patch = MergePatchRule::Replaced;
        self
    }
}
