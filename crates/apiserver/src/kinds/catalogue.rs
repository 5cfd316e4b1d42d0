//! The built-in kinds, one entry each, in the order discovery lists them.

use super::field::{FieldSource, SelectableField, UnsupportedLabel};
use super::{BuiltIn, KindScope, KindStorage, KindSubresource};

const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Namespaces cannot be deleted as a collection: a mistyped request would take everything with it.
const NO_COLLECTION_DELETE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE_ONLY: &[&str] = &["create"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];

const METADATA: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("metadata.namespace"),
];

const POD_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("metadata.namespace"),
    SelectableField::path("spec.nodeName"),
    SelectableField {
        label: "spec.host",
        source: FieldSource::Path("spec.nodeName"),
    },
    SelectableField::path("spec.restartPolicy"),
    SelectableField::path("spec.schedulerName"),
    SelectableField::path("spec.serviceAccountName"),
    SelectableField {
        label: "spec.hostNetwork",
        source: FieldSource::Flag("spec.hostNetwork"),
    },
    SelectableField::path("status.phase"),
    SelectableField {
        label: "status.podIP",
        source: FieldSource::Either("status.podIPs.0.ip", "status.podIP"),
    },
    SelectableField {
        label: "status.podIPs",
        source: FieldSource::Path("status.podIPs"),
    },
    SelectableField::path("status.nominatedNodeName"),
];

const NODE_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField {
        label: "spec.unschedulable",
        source: FieldSource::Flag("spec.unschedulable"),
    },
];

const NAMESPACE_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("status.phase"),
];

const SECRET_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("metadata.namespace"),
    SelectableField::path("type"),
];

const SERVICE_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("metadata.namespace"),
    SelectableField::path("spec.clusterIP"),
    SelectableField::path("spec.type"),
];

const JOB_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("metadata.namespace"),
    SelectableField {
        label: "status.successful",
        source: FieldSource::Count("status.succeeded"),
    },
];

const CORE_EVENT_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("metadata.namespace"),
    SelectableField::path("involvedObject.kind"),
    SelectableField::path("involvedObject.namespace"),
    SelectableField::path("involvedObject.name"),
    SelectableField::path("involvedObject.uid"),
    SelectableField::path("involvedObject.apiVersion"),
    SelectableField::path("involvedObject.resourceVersion"),
    SelectableField::path("involvedObject.fieldPath"),
    SelectableField::path("reason"),
    SelectableField::path("reportingComponent"),
    SelectableField {
        label: "source",
        source: FieldSource::Either("source.component", "reportingComponent"),
    },
    SelectableField::path("type"),
];

/// The labels of `events.k8s.io`, read from the stored core event.
const EVENT_FIELDS: &[SelectableField] = &[
    SelectableField::path("metadata.name"),
    SelectableField::path("metadata.namespace"),
    SelectableField {
        label: "regarding.kind",
        source: FieldSource::Path("involvedObject.kind"),
    },
    SelectableField {
        label: "regarding.namespace",
        source: FieldSource::Path("involvedObject.namespace"),
    },
    SelectableField {
        label: "regarding.name",
        source: FieldSource::Path("involvedObject.name"),
    },
    SelectableField {
        label: "regarding.uid",
        source: FieldSource::Path("involvedObject.uid"),
    },
    SelectableField {
        label: "regarding.apiVersion",
        source: FieldSource::Path("involvedObject.apiVersion"),
    },
    SelectableField {
        label: "regarding.resourceVersion",
        source: FieldSource::Path("involvedObject.resourceVersion"),
    },
    SelectableField {
        label: "regarding.fieldPath",
        source: FieldSource::Path("involvedObject.fieldPath"),
    },
    SelectableField::path("reason"),
    SelectableField {
        label: "reportingController",
        source: FieldSource::Path("reportingComponent"),
    },
    SelectableField::path("type"),
];

/// Every kind served without a CRD.
pub const BUILT_IN: &[BuiltIn] = &[
    // core
    kind("", "Binding", "bindings", "io.k8s.api.core.v1.Binding").not_stored(),
    kind("", "ConfigMap", "configmaps", "io.k8s.api.core.v1.ConfigMap").short(&["cm"]),
    kind("", "Endpoints", "endpoints", "io.k8s.api.core.v1.Endpoints").short(&["ep"]),
    kind("", "Event", "events", "io.k8s.api.core.v1.Event")
        .short(&["ev"])
        .selects(CORE_EVENT_FIELDS, UnsupportedLabel::Plain),
    kind("", "Namespace", "namespaces", "io.k8s.api.core.v1.Namespace")
        .cluster()
        .short(&["ns"])
        .verbs(NO_COLLECTION_DELETE)
        .selects(NAMESPACE_FIELDS, UnsupportedLabel::Plain)
        .with(&[
            own("finalize", "Namespace", &["update"]),
            own("status", "Namespace", READ_WRITE),
        ]),
    kind("", "Node", "nodes", "io.k8s.api.core.v1.Node")
        .cluster()
        .short(&["no"])
        .selects(NODE_FIELDS, UnsupportedLabel::Plain)
        .with(&[own("status", "Node", READ_WRITE)]),
    kind("", "Pod", "pods", "io.k8s.api.core.v1.Pod")
        .short(&["po"])
        .in_all()
        .selects(POD_FIELDS, UnsupportedLabel::Plain)
        .with(&[
            own("binding", "Binding", CREATE_ONLY),
            foreign("eviction", "policy", "v1", "Eviction", CREATE_ONLY),
            own("status", "Pod", READ_WRITE),
        ]),
    kind("", "Secret", "secrets", "io.k8s.api.core.v1.Secret")
        .selects(SECRET_FIELDS, UnsupportedLabel::Plain),
    kind(
        "",
        "ServiceAccount",
        "serviceaccounts",
        "io.k8s.api.core.v1.ServiceAccount",
    )
    .short(&["sa"])
    .with(&[foreign(
        "token",
        "authentication.k8s.io",
        "v1",
        "TokenRequest",
        CREATE_ONLY,
    )]),
    kind("", "Service", "services", "io.k8s.api.core.v1.Service")
        .short(&["svc"])
        .in_all()
        .selects(SERVICE_FIELDS, UnsupportedLabel::Plain)
        .with(&[own("status", "Service", READ_WRITE)]),
    // admissionregistration.k8s.io
    kind(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
    )
    .cluster()
    .extends_api(),
    kind(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
    )
    .cluster()
    .extends_api()
    .with(&[own("status", "ValidatingAdmissionPolicy", READ_WRITE)]),
    kind(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
    )
    .cluster()
    .extends_api(),
    kind(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
    )
    .cluster()
    .extends_api(),
    // apiextensions.k8s.io
    kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    )
    .cluster()
    .short(&["crd", "crds"])
    .extends_api()
    .with(&[own("status", "CustomResourceDefinition", READ_WRITE)]),
    // apps
    kind(
        "apps",
        "ControllerRevision",
        "controllerrevisions",
        "io.k8s.api.apps.v1.ControllerRevision",
    ),
    kind("apps", "DaemonSet", "daemonsets", "io.k8s.api.apps.v1.DaemonSet")
        .short(&["ds"])
        .in_all()
        .with(&[own("status", "DaemonSet", READ_WRITE)]),
    kind(
        "apps",
        "Deployment",
        "deployments",
        "io.k8s.api.apps.v1.Deployment",
    )
    .short(&["deploy"])
    .in_all()
    .with(&[SCALE, own("status", "Deployment", READ_WRITE)]),
    kind(
        "apps",
        "ReplicaSet",
        "replicasets",
        "io.k8s.api.apps.v1.ReplicaSet",
    )
    .short(&["rs"])
    .in_all()
    .with(&[SCALE, own("status", "ReplicaSet", READ_WRITE)]),
    kind(
        "apps",
        "StatefulSet",
        "statefulsets",
        "io.k8s.api.apps.v1.StatefulSet",
    )
    .short(&["sts"])
    .in_all()
    .with(&[SCALE, own("status", "StatefulSet", READ_WRITE)]),
    // authentication.k8s.io
    kind(
        "authentication.k8s.io",
        "SelfSubjectReview",
        "selfsubjectreviews",
        "io.k8s.api.authentication.v1.SelfSubjectReview",
    )
    .cluster()
    .not_stored(),
    kind(
        "authentication.k8s.io",
        "TokenReview",
        "tokenreviews",
        "io.k8s.api.authentication.v1.TokenReview",
    )
    .cluster()
    .not_stored(),
    // authorization.k8s.io
    kind(
        "authorization.k8s.io",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    )
    .not_stored(),
    kind(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    )
    .cluster()
    .not_stored(),
    kind(
        "authorization.k8s.io",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    )
    .cluster()
    .not_stored(),
    kind(
        "authorization.k8s.io",
        "SubjectAccessReview",
        "subjectaccessreviews",
        "io.k8s.api.authorization.v1.SubjectAccessReview",
    )
    .cluster()
    .not_stored(),
    // batch
    kind("batch", "Job", "jobs", "io.k8s.api.batch.v1.Job")
        .in_all()
        .selects(JOB_FIELDS, UnsupportedLabel::NamesKind("Job"))
        .with(&[own("status", "Job", READ_WRITE)]),
    // coordination.k8s.io
    kind(
        "coordination.k8s.io",
        "Lease",
        "leases",
        "io.k8s.api.coordination.v1.Lease",
    ),
    // events.k8s.io
    kind("events.k8s.io", "Event", "events", "io.k8s.api.events.v1.Event")
        .short(&["ev"])
        .stored_with("", "events")
        .selects(EVENT_FIELDS, UnsupportedLabel::Plain),
    // policy
    kind(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "io.k8s.api.policy.v1.PodDisruptionBudget",
    )
    .short(&["pdb"])
    .with(&[own("status", "PodDisruptionBudget", READ_WRITE)]),
    // rbac.authorization.k8s.io
    kind(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        "clusterrolebindings",
        "io.k8s.api.rbac.v1.ClusterRoleBinding",
    )
    .cluster(),
    kind(
        "rbac.authorization.k8s.io",
        "ClusterRole",
        "clusterroles",
        "io.k8s.api.rbac.v1.ClusterRole",
    )
    .cluster(),
    kind(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        "rolebindings",
        "io.k8s.api.rbac.v1.RoleBinding",
    ),
    kind(
        "rbac.authorization.k8s.io",
        "Role",
        "roles",
        "io.k8s.api.rbac.v1.Role",
    ),
    // scheduling.k8s.io
    kind(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        "io.k8s.api.scheduling.v1.PriorityClass",
    )
    .cluster()
    .short(&["pc"]),
];

const SCALE: KindSubresource = foreign("scale", "autoscaling", "v1", "Scale", READ_WRITE);

/// A namespaced kind of version v1 with every verb; the methods below set what differs.
const fn kind(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    definition: &'static str,
) -> BuiltIn {
    BuiltIn {
        group,
        version: "v1",
        kind,
        plural,
        short_names: &[],
        categories: &[],
        scope: KindScope::Namespaced,
        verbs: ALL_VERBS,
        subresources: &[],
        storage: KindStorage::Own,
        selectable: METADATA,
        unsupported_label: UnsupportedLabel::OnlyMetadata,
        definition,
    }
}

const fn own(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> KindSubresource {
    foreign(name, "", "", kind, verbs)
}

const fn foreign(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
) -> KindSubresource {
    KindSubresource {
        name,
        group,
        version,
        kind,
        verbs,
    }
}

impl BuiltIn {
    const fn cluster(mut self) -> Self {
        self.scope = KindScope::Cluster;
        self
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    /// Part of `kubectl get all`.
    const fn in_all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    const fn extends_api(mut self) -> Self {
        self.categories = &["api-extensions"];
        self
    }

    const fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    const fn with(mut self, subresources: &'static [KindSubresource]) -> Self {
        self.subresources = subresources;
        self
    }

    const fn selects(mut self, fields: &'static [SelectableField], refusal: UnsupportedLabel) -> Self {
        self.selectable = fields;
        self.unsupported_label = refusal;
        self
    }

    const fn stored_with(mut self, group: &'static str, plural: &'static str) -> Self {
        self.storage = KindStorage::SharedWith { group, plural };
        self
    }

    const fn not_stored(mut self) -> Self {
        self.storage = KindStorage::Virtual;
        self.verbs = CREATE_ONLY;
        self
    }
}
