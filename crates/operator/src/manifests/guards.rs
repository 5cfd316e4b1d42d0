//! Admission policies and the webhook configuration.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mco_api::vocabulary::names::{self, component};
use serde_json::{Value, json};

use super::object_guards::{OBJECT_GUARDS, ParameterKinds, binding_name, object_guards};
use super::{network_policies, user};
use crate::profile::ClusterProfile;

pub(super) const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const DAEMON_GUARD: &str = "machine-config-daemon-writes-its-own-node";
const DAEMON_EVENT_GUARD: &str = "machine-config-daemon-writes-its-own-events";
pub(super) const WEBHOOK: &str = "machine-config-operator";
/// The names in other implementations, so that switching replaces them.
const POLICY_DELETION_GUARD: &str = "networkpolicy-prevent-deletion";
const POLICY_UPDATE_GUARD: &str = "networkpolicy-prevent-update";
/// The controller that deletes the objects of a deleted namespace.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";
/// The claim of a pod's token with the node it runs on.
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// Returns the names of the policies and bindings that the operator reconciles.
pub(super) fn guard_names() -> Vec<String> {
    let own = [
        DAEMON_GUARD,
        DAEMON_EVENT_GUARD,
        POLICY_DELETION_GUARD,
        POLICY_UPDATE_GUARD,
    ];
    own.into_iter()
        .chain(OBJECT_GUARDS)
        .map(str::to_owned)
        .chain(OBJECT_GUARDS.map(binding_name))
        .collect()
}

/// Returns the validating admission policies of a cluster that serves these kinds of parameters.
pub fn guards(profile: &ClusterProfile, served: ParameterKinds) -> Vec<Value> {
    let mut all = vec![
        daemon_guard(),
        binding(DAEMON_GUARD),
        daemon_event_guard(),
        binding(DAEMON_EVENT_GUARD),
    ];
    all.extend(object_guards(profile, served));
    if profile.network_policies {
        all.extend([
            policy_deletion_guard(),
            binding(POLICY_DELETION_GUARD),
            policy_update_guard(),
            binding(POLICY_UPDATE_GUARD),
        ]);
    }
    all
}

/// Restricts a daemon, which is root on its own machine, to its own node.
fn daemon_guard() -> Value {
    let own = own_node();
    let every = ["CREATE", "UPDATE", "DELETE"];
    policy_for_daemons(
        DAEMON_GUARD,
        &json!([
            guarded("", "v1", &every, &["nodes", "nodes/status"]),
            guarded(
                "machineconfiguration.openshift.io",
                "*",
                &every,
                &["machineconfignodes", "machineconfignodes/status"],
            ),
            guarded("mco.dev", "*", &every, &["nodeadoptions", "nodeadoptions/status"]),
        ]),
        &json!([
            {
                "expression": format!("'{NODE_CLAIM}' in request.userInfo.extra"),
                "message": "the token of a machine-config-daemon must name the node it runs on",
                "reason": "Forbidden",
            },
            {
                "expression": format!("!('{NODE_CLAIM}' in request.userInfo.extra) || request.name == {own}"),
                "messageExpression": format!(
                    "'the machine-config-daemon of node ' + ('{NODE_CLAIM}' in request.userInfo.extra ? {own} : '') + \
                     ' may not change ' + request.name"
                ),
                "reason": "Forbidden",
            },
            {
                // Otherwise a compromised node could make itself a control-plane node and receive its Secrets.
                "expression": format!("request.operation != 'UPDATE' || ({UNCHANGED})"),
                "message": "a machine-config-daemon may not change labels, finalizers, owners or spec of its node",
                "reason": "Forbidden",
            },
        ]),
    )
}

/// Restricts a daemon to Events in the name of its own node, so that a compromised node cannot forge those of others.
fn daemon_event_guard() -> Value {
    let own = own_node();
    let by_itself =
        |event: &str| format!("has({event}.reportingInstance) && {event}.reportingInstance == {own}");
    let written = ["CREATE", "UPDATE"];
    policy_for_daemons(
        DAEMON_EVENT_GUARD,
        &json!([
            guarded("", "v1", &written, &["events"]),
            guarded("events.k8s.io", "v1", &written, &["events"]),
        ]),
        &json!([{
            "expression": format!(
                "'{NODE_CLAIM}' in request.userInfo.extra && {} && (request.operation == 'CREATE' || {})",
                by_itself("object"),
                by_itself("oldObject")
            ),
            "message": "a machine-config-daemon may only write Events whose reportingInstance is its own node",
            "reason": "Forbidden",
        }]),
    )
}

/// Returns the expression of the node that a token names.
fn own_node() -> String {
    format!("request.userInfo.extra['{NODE_CLAIM}'][0]")
}

fn guarded(group: &str, version: &str, operations: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": resources})
}

/// Returns a policy that applies to requests of daemons and fails closed.
fn policy_for_daemons(name: &str, rules: &Value, validations: &Value) -> Value {
    json!({
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{
                "name": "by-a-daemon",
                "expression": format!("request.userInfo.username == '{}'", user(component::DAEMON)),
            }],
            "validations": validations,
        },
    })
}

/// What a daemon may not change. MachineConfigNodes have owners and a spec that the controller writes.
const UNCHANGED: &str = "(has(object.spec) ? object.spec : {}) == (has(oldObject.spec) ? oldObject.spec : {}) && \
    (has(object.metadata.labels) ? object.metadata.labels : {}) == \
    (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}) && \
    (has(object.metadata.finalizers) ? object.metadata.finalizers : []) == \
    (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []) && \
    (has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) == \
    (has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : [])";

/// Rejects the deletion of our network policies, unless the whole namespace is deleted.
fn policy_deletion_guard() -> Value {
    policy_guard(
        POLICY_DELETION_GUARD,
        "DELETE",
        NAMESPACE_CONTROLLER,
        &format!("!(oldObject.metadata.name in [{}])", our_policies()),
        "Deletion of MCO-managed NetworkPolicy resources",
    )
}

/// Rejects changes of our network policies by other clients than the operator. Changed labels and identical writes are
/// allowed.
fn policy_update_guard() -> Value {
    policy_guard(
        POLICY_UPDATE_GUARD,
        "UPDATE",
        &user(component::OPERATOR),
        &format!(
            "!(object.metadata.name in [{}]) || object.spec == oldObject.spec",
            our_policies()
        ),
        "Modification of MCO-managed NetworkPolicy resources",
    )
}

fn policy_guard(name: &str, operation: &str, exempt: &str, allowed: &str, what: &str) -> Value {
    json!({
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": names::NAMESPACE}},
                "resourceRules": [{
                    "apiGroups": ["networking.k8s.io"],
                    "apiVersions": ["v1"],
                    "operations": [operation],
                    "resources": ["networkpolicies"],
                    "scope": "Namespaced",
                }],
            },
            "matchConditions": [{
                "name": "by-another-client",
                "expression": format!("request.userInfo.username != '{exempt}'"),
            }],
            "validations": [{
                "expression": allowed,
                "message": format!("{what} in the {} namespace is not allowed", names::NAMESPACE),
                "reason": "Forbidden",
            }],
        },
    })
}

fn our_policies() -> String {
    let policies = network_policies();
    let names = policies
        .iter()
        .filter_map(|policy| policy.pointer("/metadata/name").and_then(Value::as_str));
    names
        .map(|name| format!("'{name}'"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the binding of a policy, for the whole cluster.
fn binding(policy: &str) -> Value {
    json!({
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": policy},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    })
}

/// The address of the webhook for the API server.
#[derive(Clone, Debug)]
pub enum WebhookEndpoint<'a> {
    /// The operator's own Service.
    Service { path: &'a str },
    /// A URL, for an operator outside of the cluster.
    Url(String),
}

/// Returns the webhook configuration. It fails open: an unavailable operator must not block any client, least of all
/// the controllers, and everything is validated again when it is rendered.
pub fn webhook_configuration(endpoint: &WebhookEndpoint<'_>, authorities: &str) -> Value {
    let bundle = BASE64.encode(authorities);
    let client = match endpoint {
        WebhookEndpoint::Service { path } => json!({
            "caBundle": bundle,
            "service": {"name": component::OPERATOR, "namespace": names::NAMESPACE, "path": path, "port": 443},
        }),
        WebhookEndpoint::Url(url) => json!({"caBundle": bundle, "url": url}),
    };
    json!({
        "apiVersion": ADMISSION,
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK},
        "webhooks": [{
            "name": "validation.machineconfiguration.openshift.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": client,
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "matchConditions": [{
                "name": "not-by-the-controller",
                "expression": format!("request.userInfo.username != '{}'", user(component::CONTROLLER)),
            }],
            "rules": [
                {
                    "apiGroups": ["machineconfiguration.openshift.io"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["machineconfigs", "machineconfigpools", "kubeletconfigs", "containerruntimeconfigs", "pinnedimagesets", "machineosconfigs"],
                    "scope": "Cluster",
                },
                {
                    "apiGroups": ["machineconfiguration.openshift.io"],
                    "apiVersions": ["v1"],
                    "operations": ["DELETE"],
                    "resources": ["machineconfigs"],
                    "scope": "Cluster",
                },
                {
                    "apiGroups": ["operator.openshift.io"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["machineconfigurations"],
                    "scope": "Cluster",
                },
                {
                    "apiGroups": ["mco.dev"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["machineconfigurations", "imagedigestmirrorsets", "imagetagmirrorsets"],
                    "scope": "Cluster",
                },
                {
                    "apiGroups": ["config.openshift.io"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["imagedigestmirrorsets", "imagetagmirrorsets", "clusterimagepolicies", "imagepolicies"],
                    "scope": "*",
                },
                {
                    "apiGroups": ["operator.openshift.io"],
                    "apiVersions": ["v1alpha1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["imagecontentsourcepolicies"],
                    "scope": "Cluster",
                },
                {
                    "apiGroups": ["mco.dev"],
                    "apiVersions": ["v1alpha1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["rolloutpolicies"],
                    "scope": "Cluster",
                },
            ],
        }],
    })
}
