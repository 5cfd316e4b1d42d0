//! Admission policies for pools, MachineConfigurations, OSImageStreams and InternalReleaseImages. They have the names of
//! the reference implementation, so that a switch replaces them, and hold while the operator is away.
//!
//! A policy whose parameter kind does not exist rejects every write that it matches. So those are part of an
//! installation only where the kind is served, and a missing parameter object allows the write. A write that does not
//! change the guarded field is allowed, so that an object from before the policy can be repaired.

use mco_api::OSImageStream;
use mco_api::vocabulary::{labels, names};
use serde_json::{Value, json};

use super::guards::ADMISSION;
use crate::facts::ObservedFacts;
use crate::profile::ClusterProfile;

const OWN_GROUP: &str = "machineconfiguration.openshift.io";
const OPERATOR_GROUP: &str = "operator.openshift.io";
const PLAIN_GROUP: &str = "mco.dev";

const SINGLETON: &str = "machine-configuration-guards";
const POOL_SELECTOR: &str = "custom-machine-config-pool-selector";
const POOL_STREAM: &str = "machineconfigpool-osimagestream-reference-validation";
const STREAM_DELETION: &str = "osimagestream-prevent-deletion";
const BOOT_IMAGES: &str = "managed-bootimages-platform-check";
const CONTROL_PLANE_BOOT_IMAGES: &str = "managed-bootimages-cpms-platform-check";
const RELEASE_IMAGE_DELETION: &str = "internalreleaseimage-deletion-guard";

/// The names of these policies. Their bindings have the suffix `-binding`.
pub(super) const OBJECT_GUARDS: [&str; 7] = [
    SINGLETON,
    POOL_SELECTOR,
    POOL_STREAM,
    STREAM_DELETION,
    BOOT_IMAGES,
    CONTROL_PLANE_BOOT_IMAGES,
    RELEASE_IMAGE_DELETION,
];

/// The kinds of policy parameters that a cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterKinds {
    pub infrastructure: bool,
    pub cluster_version: bool,
    pub os_image_stream: bool,
}

impl ParameterKinds {
    /// Returns the kinds of a cluster that is not read: OpenShift serves all of them.
    pub fn of(profile: &ClusterProfile) -> Self {
        Self {
            infrastructure: profile.base.is_openshift(),
            cluster_version: profile.base.is_openshift(),
            os_image_stream: profile.base.has_templates(),
        }
    }

    /// Returns the kinds of which the operator has found an object.
    pub fn observed(facts: &ObservedFacts, streams: Option<&OSImageStream>) -> Self {
        Self {
            infrastructure: facts.infrastructure.is_some(),
            cluster_version: facts.cluster_version.is_some(),
            os_image_stream: streams.is_some(),
        }
    }
}

/// An object that a policy reads.
struct Parameter {
    api_version: &'static str,
    kind: &'static str,
    name: &'static str,
}

const INFRASTRUCTURE: Parameter = Parameter {
    api_version: "config.openshift.io/v1",
    kind: "Infrastructure",
    name: names::SINGLETON,
};
const CLUSTER_VERSION: Parameter = Parameter {
    api_version: "config.openshift.io/v1",
    kind: "ClusterVersion",
    name: names::CLUSTER_VERSION,
};
const STREAMS: Parameter = Parameter {
    api_version: "machineconfiguration.openshift.io/v1",
    kind: "OSImageStream",
    name: names::SINGLETON,
};

/// A policy and what its binding needs.
struct ObjectGuard {
    name: &'static str,
    groups: &'static [&'static str],
    resource: &'static str,
    operations: &'static [&'static str],
    parameter: Option<Parameter>,
    /// The field whose change is validated; `None` for every write.
    field: Option<&'static str>,
    expression: String,
    message: String,
    reason: &'static str,
}

/// The operations that store an object.
const STORES: &[&str] = &["CREATE", "UPDATE"];
const CONFIGURATION_GROUPS: &[&str] = &[OPERATOR_GROUP, PLAIN_GROUP];

/// Returns the policies for the objects of a cluster, each followed by its binding.
pub(super) fn object_guards(profile: &ClusterProfile, served: ParameterKinds) -> Vec<Value> {
    let mut all = vec![singleton()];
    if profile.base.has_templates() {
        all.push(pool_selector());
    }
    if served.os_image_stream {
        all.extend([pool_stream(), stream_deletion()]);
    }
    if served.infrastructure {
        all.extend([boot_images(), control_plane_boot_images()]);
    }
    if served.cluster_version {
        all.push(release_image_deletion());
    }
    all.iter().flat_map(ObjectGuard::manifests).collect()
}

fn singleton() -> ObjectGuard {
    ObjectGuard {
        name: SINGLETON,
        groups: CONFIGURATION_GROUPS,
        resource: "machineconfigurations",
        operations: STORES,
        parameter: None,
        field: None,
        expression: format!("object.metadata.name == '{}'", names::SINGLETON),
        message: "Only a single object of MachineConfiguration is allowed and it must be named cluster."
            .to_owned(),
        reason: "Forbidden",
    }
}

/// Built-in pools select their own role; others must also select the worker role, whose base configs they need.
fn pool_selector() -> ObjectGuard {
    let (selector, role) = ("object.spec.machineConfigSelector", labels::ROLE);
    let built_in = format!(
        "has({selector}.matchLabels) && '{role}' in {selector}.matchLabels && \
         {selector}.matchLabels['{role}'] in ['master', 'worker', 'arbiter']"
    );
    let inherits = format!(
        "has({selector}.matchExpressions) && {selector}.matchExpressions.exists(e, e.key == '{role}' && \
         ((e.operator == 'In' && has(e.values) && 'worker' in e.values) || \
         (e.operator == 'NotIn' && !(has(e.values) && 'worker' in e.values))))"
    );
    ObjectGuard {
        name: POOL_SELECTOR,
        groups: &[OWN_GROUP],
        resource: "machineconfigpools",
        operations: STORES,
        parameter: None,
        field: Some("machineConfigSelector"),
        expression: format!("has({selector}) && (({built_in}) || ({inherits}))"),
        message: format!(
            "All custom MachineConfigPools must inherit from the worker pool and must have a machineConfigSelector that \
             matches for a '{role}: worker' label"
        ),
        reason: "Forbidden",
    }
}

fn pool_stream() -> ObjectGuard {
    ObjectGuard {
        name: POOL_STREAM,
        groups: &[OWN_GROUP],
        resource: "machineconfigpools",
        operations: STORES,
        parameter: Some(STREAMS),
        field: Some("osImageStream"),
        expression: "!has(object.spec.osImageStream) || !has(object.spec.osImageStream.name) || \
                     object.spec.osImageStream.name == '' || (has(params.status) && \
                     has(params.status.availableStreams) && \
                     params.status.availableStreams.exists(s, s.name == object.spec.osImageStream.name))"
            .to_owned(),
        message: "The specified osImageStream name must reference a valid stream from the cluster OSImageStream resource"
            .to_owned(),
        reason: "Forbidden",
    }
}

fn stream_deletion() -> ObjectGuard {
    ObjectGuard {
        name: STREAM_DELETION,
        groups: &[OWN_GROUP],
        resource: "osimagestreams",
        operations: &["DELETE"],
        parameter: None,
        field: None,
        expression: "false".to_owned(),
        message: "Deletion of OSImageStream resources is not allowed".to_owned(),
        reason: "Forbidden",
    }
}

/// Whether the Infrastructure names one of these platforms.
fn platform_in(platforms: &str) -> String {
    format!(
        "(has(params.status) && has(params.status.platformStatus) && params.status.platformStatus.type in [{platforms}])"
    )
}

fn boot_images() -> ObjectGuard {
    ObjectGuard {
        name: BOOT_IMAGES,
        groups: &[OPERATOR_GROUP],
        resource: "machineconfigurations",
        operations: STORES,
        parameter: Some(INFRASTRUCTURE),
        field: Some("managedBootImages"),
        expression: format!(
            "!has(object.spec.managedBootImages) || {}",
            platform_in("'GCP', 'AWS', 'VSphere', 'Azure'")
        ),
        message: "This feature is only supported on these platforms: GCP, AWS, VSphere, Azure".to_owned(),
        reason: "Forbidden",
    }
}

fn control_plane_boot_images() -> ObjectGuard {
    ObjectGuard {
        name: CONTROL_PLANE_BOOT_IMAGES,
        groups: &[OPERATOR_GROUP],
        resource: "machineconfigurations",
        operations: STORES,
        parameter: Some(INFRASTRUCTURE),
        field: Some("managedBootImages"),
        expression: format!(
            "!has(object.spec.managedBootImages) || !has(object.spec.managedBootImages.machineManagers) || \
             !object.spec.managedBootImages.machineManagers.exists(m, m.resource == 'controlplanemachinesets') || {}",
            platform_in("'GCP', 'AWS', 'Azure'")
        ),
        message: "The control plane machineset boot image update feature is only supported on these platforms: GCP, AWS, \
                  Azure"
            .to_owned(),
        reason: "Forbidden",
    }
}

/// Keeps the registry from which a cluster's own release is pulled.
fn release_image_deletion() -> ObjectGuard {
    ObjectGuard {
        name: RELEASE_IMAGE_DELETION,
        groups: &[OWN_GROUP],
        resource: "internalreleaseimages",
        operations: &["DELETE"],
        parameter: Some(CLUSTER_VERSION),
        field: None,
        expression: "!has(oldObject.status) || !has(oldObject.status.releases) || !has(params.status) || \
                     !has(params.status.desired) || !params.status.desired.image.contains('@') || \
                     !oldObject.status.releases.exists(r, has(r.image) && \
                     r.image.endsWith('@' + params.status.desired.image.split('@')[1]))"
            .to_owned(),
        message: "Cannot delete InternalReleaseImage while the cluster is using a release bundle from this resource. \
                  Update the cluster to another release first."
            .to_owned(),
        reason: "Invalid",
    }
}

impl ObjectGuard {
    fn manifests(&self) -> [Value; 2] {
        [self.policy(), self.binding()]
    }

    fn policy(&self) -> Value {
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": self.groups,
                "apiVersions": ["*"],
                "operations": self.operations,
                "resources": [self.resource],
                "scope": "Cluster",
            }]},
            "validations": [{
                "expression": self.expression,
                "message": self.message,
                "reason": self.reason,
            }],
        });
        if let Some(parameter) = &self.parameter {
            spec["paramKind"] = json!({"apiVersion": parameter.api_version, "kind": parameter.kind});
        }
        if let Some(field) = self.field {
            let of = |object: &str| {
                format!("(has({object}.spec) && has({object}.spec.{field}) ? {object}.spec.{field} : {{}})")
            };
            let changes = format!("oldObject == null || {} != {}", of("object"), of("oldObject"));
            spec["matchConditions"] = json!([{"name": "the-field-changes", "expression": changes}]);
        }
        json!({
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": self.name},
            "spec": spec,
        })
    }

    fn binding(&self) -> Value {
        let mut spec = json!({"policyName": self.name, "validationActions": ["Deny"]});
        if let Some(parameter) = &self.parameter {
            spec["paramRef"] = json!({"name": parameter.name, "parameterNotFoundAction": "Allow"});
        }
        json!({
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": binding_name(self.name)},
            "spec": spec,
        })
    }
}

/// Returns the name of a policy's binding.
pub(super) fn binding_name(policy: &str) -> String {
    format!("{policy}-binding")
}
