//! RBAC: one service account per component, with the permissions that it uses.
//!
//! A role cannot restrict a daemon to its own node; [`super::guards`] does. The operator is as powerful as a cluster
//! administrator: it writes the roles of the others and the DaemonSet that is root on every node.

use mco_api::crd::CompanionKinds;
use mco_api::vocabulary::names::{self, component};
use mco_core::generators::registry_pull_secret::SERVICE_ACCOUNT as OS_PULLER;
use serde_json::{Value, json};

use super::guards::{WEBHOOK, guard_names};
use super::{metadata, metrics};
use crate::profile::ClusterProfile;

pub(super) const RBAC: &str = "rbac.authorization.k8s.io/v1";
const OWN_GROUP: &str = "machineconfiguration.openshift.io";
const ADOPTION_GROUP: &str = "mco.dev";
const CONFIG_GROUP: &str = "config.openshift.io";
const OPERATOR_GROUP: &str = "operator.openshift.io";
const PLAIN_GROUP: &str = "mco.dev";
const MACHINE_GROUP: &str = "machine.openshift.io";
/// The service account with which new machines request certificates.
const BOOTSTRAPPER: &str = "node-bootstrapper";
/// The role that allows to pull the images of a namespace from the cluster's registry.
const IMAGE_PULLER: &str = "system:image-puller";
const NODE_BOOTSTRAPPER: &str = "system-bootstrap-node-bootstrapper";
const NODE_RENEWAL: &str = "system-bootstrap-node-renewal";
const SELF_RENEWAL: &str = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";

/// The SecurityContextConstraints for any user but root.
const ANY_USER: &str = "nonroot-v2";
/// The SecurityContextConstraints for the host's network with a user of the namespace's range.
const HOST_NETWORK: &str = "hostnetwork-v2";
const HOST: &str = "privileged";

pub(super) const READ: &[&str] = &["get", "list", "watch"];
/// A watch of a kind of which only some objects may be read one by one.
const LISTED: &[&str] = &["list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch"];

/// Returns all service accounts, roles and bindings.
pub fn access(profile: &ClusterProfile) -> Vec<Value> {
    let mut all = operator_access(profile);
    all.extend(operands_access(profile));
    all
}

/// Returns those of the operator, and the role for clients that read metrics.
pub fn operator_access(profile: &ClusterProfile) -> Vec<Value> {
    let mut all = vec![service_account(component::OPERATOR)];
    all.extend(everywhere(component::OPERATOR, &operator_everywhere()));
    all.extend(at_home(component::OPERATOR, &operator_at_home()));
    if profile.server {
        all.extend(user_data_access());
    }
    all.push(metrics::reader());
    all
}

/// Returns those that the operator reconciles. Its own are excluded, so that it cannot extend its permissions.
pub fn operands_access(profile: &ClusterProfile) -> Vec<Value> {
    let mut accounts = vec![component::CONTROLLER, component::DAEMON, component::OS_BUILDER];
    if profile.server {
        accounts.extend([component::SERVER, BOOTSTRAPPER]);
    }
    let mut all: Vec<Value> = accounts.into_iter().map(service_account).collect();
    all.extend(everywhere(component::CONTROLLER, &controller_everywhere()));
    all.extend(at_home(component::CONTROLLER, &controller_at_home()));
    all.extend(everywhere(component::DAEMON, &daemon_everywhere()));
    if profile.server {
        all.extend(at_home(component::DAEMON, &daemon_at_home()));
    }
    all.extend(everywhere(component::OS_BUILDER, &builder_everywhere()));
    all.extend(at_home(component::OS_BUILDER, &builder_at_home()));
    if profile.server {
        all.extend(everywhere(component::SERVER, &server_everywhere()));
        all.extend(at_home(component::SERVER, &server_at_home()));
        all.extend(bootstrapper());
    }
    if profile.kinds == CompanionKinds::OpenShift {
        all.extend(os_puller());
    }
    all
}

/// Returns the service account with whose credentials nodes pull OS images from the cluster's registry.
fn os_puller() -> Vec<Value> {
    vec![
        service_account(OS_PULLER),
        json!({
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": OS_PULLER, "namespace": names::NAMESPACE},
            "roleRef": role_ref("ClusterRole", IMAGE_PULLER),
            "subjects": [account(OS_PULLER)],
        }),
    ]
}

/// Without labels, because every implementation shares this service account.
fn service_account(name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": names::NAMESPACE});
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
}

/// Returns a component's ClusterRole with its binding.
fn everywhere(component: &str, rules: &[Value]) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": RBAC,
            "kind": "ClusterRole",
            "metadata": {"name": component},
            "rules": rules,
        }),
        json!({
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": component},
            "roleRef": role_ref("ClusterRole", component),
            "subjects": [account(component)],
        }),
    ]
}

/// Returns a component's Role in our namespace with its binding.
fn at_home(component: &str, rules: &[Value]) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": RBAC,
            "kind": "Role",
            "metadata": metadata(component, component),
            "rules": rules,
        }),
        json!({
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": metadata(component, component),
            "roleRef": role_ref("Role", component),
            "subjects": [account(component)],
        }),
    ]
}

pub(super) fn role_ref(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": names::NAMESPACE})
}

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&[&str]]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs.concat()})
}

fn named(group: &str, resources: &[&str], names: &[&str], verbs: &[&[&str]]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs.concat()})
}

/// Returns the rule to use SecurityContextConstraints, which OpenShift requires and other clusters ignore.
fn pod_security(constraints: &str) -> Value {
    named(
        "security.openshift.io",
        &["securitycontextconstraints"],
        &[constraints],
        &[&["use"]],
    )
}

/// Our recorder never changes an Event, so no component may overwrite those of others.
fn events() -> Vec<Value> {
    vec![
        rule("", &["events"], &[&["create"]]),
        rule("events.k8s.io", &["events"], &[&["create"]]),
    ]
}

fn operator_everywhere() -> Vec<Value> {
    [
        operator_installs(),
        operator_guards(),
        operator_writes(),
        operator_reads(),
        metrics::reviews(),
        vec![pod_security(ANY_USER)],
    ]
    .concat()
}

/// Rules for CRDs and for the service accounts of the other components. Without `escalate` and `bind` the operator
/// could not grant permissions that it does not have. They are limited to roles by name, which prevents mistakes and
/// not misuse: one of these roles could be extended and bound to the operator.
fn operator_installs() -> Vec<Value> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let components = [
        component::CONTROLLER,
        component::DAEMON,
        component::SERVER,
        component::OS_BUILDER,
    ];
    let bindings = [&components[..], &[NODE_BOOTSTRAPPER, NODE_RENEWAL]].concat();
    vec![
        rule("", &["namespaces"], &[READ, &["create"]]),
        named(
            "",
            &["namespaces"],
            &[names::NAMESPACE, names::MACHINE_API_NAMESPACE],
            &[&["patch"]],
        ),
        rule(
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &[READ, &["create", "patch"]],
        ),
        // Watched, so that an unchanged one is not read again. None of them is secret.
        rule(
            GROUP,
            &["clusterroles", "clusterrolebindings"],
            &[LISTED, &["create"]],
        ),
        rule(GROUP, &["roles", "rolebindings"], &[LISTED]),
        named(
            GROUP,
            &["clusterroles"],
            &components,
            &[&["get", "patch", "escalate", "bind"]],
        ),
        named(
            GROUP,
            &["clusterroles"],
            &["system:node-bootstrapper", SELF_RENEWAL, IMAGE_PULLER],
            &[&["bind"]],
        ),
        named(GROUP, &["clusterrolebindings"], &bindings, &[&["get", "patch"]]),
    ]
}

fn operator_guards() -> Vec<Value> {
    const GROUP: &str = "admissionregistration.k8s.io";
    let kinds = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    ];
    let policies = guard_names();
    let ours: Vec<&str> = policies.iter().map(String::as_str).chain([WEBHOOK]).collect();
    vec![
        rule(GROUP, &kinds, &[LISTED, &["create"]]),
        named(GROUP, &kinds, &ours, &[&["get", "patch"]]),
    ]
}

fn operator_writes() -> Vec<Value> {
    vec![
        rule(
            OWN_GROUP,
            &["controllerconfigs", "machineconfigpools"],
            &[READ, WRITE],
        ),
        rule(OPERATOR_GROUP, &["machineconfigurations"], &[READ, WRITE]),
        rule(PLAIN_GROUP, &["rolloutpolicies"], &[READ]),
        rule(OPERATOR_GROUP, &["machineconfigurations/status"], &[&["patch"]]),
        rule(
            PLAIN_GROUP,
            &[
                "machineconfigoperators",
                "machineconfigoperators/status",
                "machineconfigurations",
            ],
            &[READ, WRITE],
        ),
        rule(
            CONFIG_GROUP,
            &["clusteroperators", "clusteroperators/status"],
            &[READ, WRITE],
        ),
    ]
}

/// Rules to read the cluster's configuration, mostly single objects by name.
fn operator_reads() -> Vec<Value> {
    vec![
        rule("", &["nodes"], &[READ]),
        rule(
            OWN_GROUP,
            &[
                "kubeletconfigs",
                "containerruntimeconfigs",
                "machineosconfigs",
                "machineosbuilds",
            ],
            &[READ],
        ),
        // The release of a pool is recorded on its rendered configs and on their sources.
        // It creates those of images that came with the installation, and deletes them with their MachineOSConfig. Their
        // names contain those of pools, so that they cannot be listed here.
        rule(
            OWN_GROUP,
            &["machineconfigs"],
            &[&["get", "list", "create", "delete"]],
        ),
        rule(OWN_GROUP, &["osimagestreams"], &[&["get"]]),
        rule(
            CONFIG_GROUP,
            &[
                "apiservers",
                "infrastructures",
                "networks",
                "proxies",
                "dnses",
                "clusterversions",
                "featuregates",
                "images",
            ],
            &[READ],
        ),
        // Image, Proxy and Infrastructure reference the ConfigMaps of their CAs and cloud configuration. Any name is
        // possible, and a Role cannot be installed where their namespace does not exist.
        rule("", &["configmaps"], &[READ]),
        named(
            "",
            &["configmaps"],
            &[names::config_map::MERGED_TRUSTED_IMAGE_REGISTRY_CA],
            &[&["create", "patch"]],
        ),
        named(
            "",
            &["secrets"],
            &[names::secret::PULL_SECRET, names::secret::ENTITLEMENT],
            &[READ],
        ),
        named("", &["services"], &["kube-dns"], &[&["get"]]),
        // Whether the OS of new machines is downloaded.
        named(
            "metal3.io",
            &["provisionings"],
            &["provisioning-configuration"],
            &[&["get"]],
        ),
    ]
}

fn operator_at_home() -> Vec<Value> {
    let mut rules = vec![
        rule("", &["configmaps", "secrets"], &[READ, WRITE, &["delete"]]),
        rule("", &["serviceaccounts", "services"], &[READ, WRITE]),
        rule("apps", &["deployments", "daemonsets"], &[READ, WRITE]),
        named("apps", &["deployments"], &[component::OS_BUILDER], &[&["delete"]]),
        rule("policy", &["poddisruptionbudgets"], &[READ, WRITE, &["delete"]]),
        rule("networking.k8s.io", &["networkpolicies"], &[READ, WRITE]),
        rule(
            "rbac.authorization.k8s.io",
            &["roles", "rolebindings"],
            &[&["create"]],
        ),
        named(
            "rbac.authorization.k8s.io",
            &["roles", "rolebindings"],
            &[
                component::CONTROLLER,
                component::DAEMON,
                component::SERVER,
                component::OS_BUILDER,
            ],
            &[&["get", "patch", "escalate", "bind"]],
        ),
        named(
            "rbac.authorization.k8s.io",
            &["rolebindings"],
            &[OS_PULLER],
            &[&["get", "patch"]],
        ),
    ];
    rules.extend(lease());
    rules.extend(events());
    rules
}

/// Rules for leader election.
fn lease() -> Vec<Value> {
    vec![rule(
        "coordination.k8s.io",
        &["leases"],
        &[&["get", "list", "watch"], WRITE],
    )]
}

/// Rules of the image builder: builds and their configs, and the cluster's own registry.
fn builder_everywhere() -> Vec<Value> {
    [
        vec![
            rule(
                OWN_GROUP,
                &[
                    "machineosconfigs",
                    "machineosconfigs/status",
                    "machineosbuilds",
                    "machineosbuilds/status",
                ],
                &[READ, WRITE],
            ),
            rule(OWN_GROUP, &["machineosbuilds"], &[&["delete"]]),
            // Builds are owned by MachineOSConfigs and own their Jobs, whose deletion they block.
            rule(
                OWN_GROUP,
                &["machineosconfigs/finalizers", "machineosbuilds/finalizers"],
                &[&["update"]],
            ),
            rule(OWN_GROUP, &["machineconfigpools"], &[READ]),
            rule(OWN_GROUP, &["machineconfigs", "controllerconfigs"], &[&["get"]]),
            rule("", &["nodes"], &[READ]),
            rule("", &["services"], &[&["list"]]),
            rule("route.openshift.io", &["routes"], &[&["list"]]),
            rule("image.openshift.io", &["imagestreamtags"], &[&["delete"]]),
        ],
        metrics::reviews(),
        vec![pod_security("anyuid")],
    ]
    .concat()
}

/// Rules of the image builder and of its Jobs in our namespace.
fn builder_at_home() -> Vec<Value> {
    let mut rules = vec![
        rule("", &["configmaps", "secrets"], &[READ, WRITE, &["delete"]]),
        rule("batch", &["jobs"], &[READ, WRITE, &["delete"]]),
    ];
    rules.extend(lease());
    rules.extend(events());
    rules
}

/// Rules of the controller, which renders, rolls out and drains.
fn controller_everywhere() -> Vec<Value> {
    let mut rules = vec![
        rule(
            OWN_GROUP,
            &[
                "machineconfigs",
                "machineconfigpools",
                "machineconfigpools/status",
                "machineconfignodes",
                "machineconfignodes/status",
                "controllerconfigs/status",
                "kubeletconfigs",
                "kubeletconfigs/status",
                "containerruntimeconfigs",
                "containerruntimeconfigs/status",
                "osimagestreams",
                "osimagestreams/status",
            ],
            &[READ, WRITE],
        ),
        rule(
            OWN_GROUP,
            &["machineconfigs", "machineconfignodes"],
            &[&["delete"]],
        ),
        rule(OWN_GROUP, &["machineosconfigs"], &[&["patch"]]),
        rule(PLAIN_GROUP, &["rolloutpolicies"], &[READ]),
        rule(PLAIN_GROUP, &["rolloutpolicies/status"], &[&["update", "patch"]]),
        // The addresses of the API servers, for the control-plane gate.
        rule("discovery.k8s.io", &["endpointslices"], &[&["get", "list"]]),
        rule(
            OPERATOR_GROUP,
            &["machineconfigurations/status"],
            &[&["update", "patch"]],
        ),
        rule(
            PLAIN_GROUP,
            &["machineconfigurations/status"],
            &[&["update", "patch"]],
        ),
        rule(
            CONFIG_GROUP,
            &[
                "imagepolicies/status",
                "clusterimagepolicies/status",
                "criocredentialproviderconfigs/status",
            ],
            &[&["update", "patch"]],
        ),
        rule("", &["nodes"], &[READ, &["update", "patch"]]),
        rule("", &["pods"], &[&["get", "list"]]),
        rule("", &["pods/eviction"], &[&["create"]]),
        rule("apps", &["daemonsets"], &[&["get"]]),
        rule("policy", &["poddisruptionbudgets"], &[&["get", "list"]]),
        named("", &["secrets"], &[names::secret::PULL_SECRET], &[READ]),
    ];
    rules.extend(controller_owners());
    rules.extend(controller_reads());
    rules.extend(metrics::reviews());
    rules.push(pod_security(ANY_USER));
    // Events about namespaced objects, such as evicted pods, are written to the namespaces of these objects.
    rules.extend(events());
    rules
}

/// Rules for the owners of the configs that the controller generates. Their deletion waits for the configs, and where
/// the API server enforces permissions on owner references (OpenShift's does), that requires permission to update an
/// owner's finalizers.
fn controller_owners() -> Vec<Value> {
    vec![
        rule(
            OWN_GROUP,
            &[
                "controllerconfigs/finalizers",
                "machineconfigpools/finalizers",
                "kubeletconfigs/finalizers",
                "containerruntimeconfigs/finalizers",
            ],
            &[&["update"]],
        ),
        rule(
            CONFIG_GROUP,
            &["images/finalizers", "criocredentialproviderconfigs/finalizers"],
            &[&["update"]],
        ),
    ]
}

/// Rules for the inputs of configurations.
fn controller_reads() -> Vec<Value> {
    vec![
        rule(
            OWN_GROUP,
            &[
                "controllerconfigs",
                "machineosconfigs",
                "machineosbuilds",
                "pinnedimagesets",
            ],
            &[READ],
        ),
        rule(
            OPERATOR_GROUP,
            &["machineconfigurations", "imagecontentsourcepolicies"],
            &[READ],
        ),
        rule(
            PLAIN_GROUP,
            &[
                "machineconfigurations",
                "imagedigestmirrorsets",
                "imagetagmirrorsets",
            ],
            &[READ],
        ),
        rule(
            CONFIG_GROUP,
            &[
                "apiservers",
                "clusterimagepolicies",
                "criocredentialproviderconfigs",
                "featuregates",
                "imagedigestmirrorsets",
                "imagepolicies",
                "images",
                "imagetagmirrorsets",
                "nodes",
                "schedulers",
                "clusterversions",
            ],
            &[READ],
        ),
        rule(
            MACHINE_GROUP,
            &["machinesets", "controlplanemachinesets"],
            &[READ, &["patch"]],
        ),
    ]
}

fn controller_at_home() -> Vec<Value> {
    let mut rules = vec![named(
        "",
        &["configmaps"],
        &[
            names::config_map::OS_IMAGE_URL,
            names::config_map::BOOT_IMAGES,
            names::config_map::SECRET_VERSIONS,
        ],
        &[READ],
    )];
    // Fetched contents, whose names are hashes.
    rules.push(rule("", &["configmaps"], &[&["get", "create", "delete"]]));
    rules.extend(lease());
    rules.extend(events());
    rules
}

/// Rules of the daemon. It may read any Node but write only its own, which the guard enforces.
fn daemon_everywhere() -> Vec<Value> {
    let mut rules = vec![
        rule("", &["nodes"], &[READ, &["patch"]]),
        rule(OWN_GROUP, &["machineconfigs"], &[&["get"]]),
        rule(OWN_GROUP, &["machineconfignodes/status"], &[&["patch"]]),
        rule(CONFIG_GROUP, &["featuregates"], &[&["get"]]),
        rule(ADOPTION_GROUP, &["nodeadoptions"], &[&["get", "create"]]),
        rule(ADOPTION_GROUP, &["nodeadoptions/status"], &[&["patch"]]),
        rule(
            OWN_GROUP,
            &[
                "controllerconfigs",
                "machineconfignodes",
                "machineconfigpools",
                "pinnedimagesets",
            ],
            &[READ],
        ),
        rule(OPERATOR_GROUP, &["machineconfigurations"], &[READ]),
        rule(PLAIN_GROUP, &["machineconfigurations"], &[READ]),
        pod_security(HOST),
    ];
    // A kubelet may create both reviews as well, so a daemon gets nothing that root on its node does not have.
    rules.extend(metrics::reviews());
    rules.extend(events());
    rules
}

/// Machines that were installed from a config server have kubeconfigs that trust the CA of the API server.
fn daemon_at_home() -> Vec<Value> {
    vec![named(
        "",
        &["configmaps"],
        &[names::config_map::KUBECONFIG_DATA],
        &[&["get"]],
    )]
}

/// Rules of the config server, which never writes.
fn server_everywhere() -> Vec<Value> {
    let mut rules = vec![
        rule(
            OWN_GROUP,
            &[
                "machineconfigs",
                "machineconfigpools",
                "controllerconfigs",
                "machineosconfigs",
                "machineosbuilds",
            ],
            &[READ],
        ),
        rule(CONFIG_GROUP, &["apiservers"], &[READ]),
        rule("route.openshift.io", &["routes"], &[READ]),
        rule("", &["services"], &[READ]),
        pod_security(HOST_NETWORK),
    ];
    rules.extend(metrics::reviews());
    rules
}

fn server_at_home() -> Vec<Value> {
    vec![named(
        "",
        &["configmaps"],
        &[names::config_map::KUBECONFIG_DATA],
        &[READ],
    )]
}

/// Rules of the operator for user data in the namespace of the machines.
fn user_data_access() -> Vec<Value> {
    let namespace = names::MACHINE_API_NAMESPACE;
    let mut all = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
    for (component, verbs) in [
        // The Secret's owner is its pool, and setting an owner may require permission to delete the object.
        (component::OPERATOR, [READ, WRITE, &["delete"]].concat()),
        // Machines with a new boot image need a current pointer config, and templates name Secrets as they like.
        (component::CONTROLLER, vec!["get", "patch"]),
    ] {
        let metadata = json!({"name": component, "namespace": namespace, "labels": {"k8s-app": component}});
        all.push(json!({
            "apiVersion": RBAC,
            "kind": "Role",
            "metadata": metadata,
            "rules": [rule("", &["secrets"], &[&verbs])],
        }));
        all.push(json!({
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role_ref("Role", component),
            "subjects": [account(component)],
        }));
    }
    all
}

/// Returns the binding with which new machines may request a certificate.
pub fn bootstrapper_binding() -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NODE_BOOTSTRAPPER},
        "roleRef": role_ref("ClusterRole", "system:node-bootstrapper"),
        "subjects": [account(BOOTSTRAPPER)],
    })
}

/// Returns the bindings for new machines, which request a certificate with this account's token.
fn bootstrapper() -> Vec<Value> {
    vec![
        bootstrapper_binding(),
        // A machine that has a certificate renews it by itself.
        json!({
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NODE_RENEWAL},
            "roleRef": role_ref("ClusterRole", SELF_RENEWAL),
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": names::secret::NODE_BOOTSTRAPPER_TOKEN,
                "namespace": names::NAMESPACE,
                "annotations": {"kubernetes.io/service-account.name": BOOTSTRAPPER},
            },
            "type": "kubernetes.io/service-account-token",
        }),
    ]
}
