//! Admission: whether a write of an object is allowed. The same decision for `mco validate`, the webhook of a real
//! cluster, and the embedded control plane.
//!
//! An existing object that a write does not make worse is always allowed, so that it can be repaired or deleted.

use std::sync::Arc;

use std::collections::{BTreeMap, BTreeSet};

use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use mco_api::vocabulary::names;
use mco_api::{
    ClusterBase, ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool, PinnedImageSet,
    RolloutPolicy,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{BaseConfigs, ClusterObjects, ClusterStage, GenerationError, GeneratorInputs, run_generator};
use crate::config::node_versions::NodeVersions;
use crate::config::problem::{InvalidObject, Problem};
use crate::config::rendered_configs;
use crate::config::selector::Selector;
use crate::config::validate;
use crate::generators::container_runtime;
use crate::generators::generated::Generator;
use crate::generators::kubelet;
use crate::generators::registries;
use crate::rollout::admit_pool;
use crate::rollout::pinned_images;
use crate::rollout::policy::admit_policy;

/// The API groups whose objects are validated.
pub const OWN_GROUP: &str = "machineconfiguration.openshift.io";
pub const OPERATOR_GROUP: &str = "operator.openshift.io";
pub const CONFIG_GROUP: &str = "config.openshift.io";
/// Kinds that only this implementation has.
pub const PLAIN_GROUP: &str = "mco.dev";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOperation {
    Create,
    Update,
    Delete,
}

/// A requested write.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionWrite<'a> {
    pub operation: WriteOperation,
    pub group: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    /// The object to store; `None` for a deletion.
    pub object: Option<&'a Value>,
    /// The stored object; `None` for a creation.
    pub old: Option<&'a Value>,
}

/// The users of a rendered config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    pub nodes: BTreeSet<String>,
    pub pools: BTreeSet<String>,
    /// MachineOSBuilds.
    pub builds: BTreeSet<String>,
}

/// Whether a rendered config is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigInUse {
    By(Users),
    /// The caches are not synced yet.
    Unknown,
}

/// The cluster that an object is written to, as far as admission depends on it.
#[derive(Debug, Clone, Default)]
pub struct AdmissionContext {
    pub base: ClusterBase,
    pub pools: Vec<MachineConfigPool>,
    pub nodes: Vec<NodeVersions>,
}

impl AdmissionContext {
    /// Rejects an object that its generator cannot use on this base or for the nodes of a pool. The templates' files fit
    /// every node that has them, so there it is always allowed.
    fn admit(
        self,
        generator: Generator,
        add: impl FnOnce(&mut ClusterObjects),
    ) -> Result<Vec<Problem>, Vec<Problem>> {
        if self.base.has_templates() {
            return Ok(Vec::new());
        }
        let mut objects = ClusterObjects {
            pools: self.pools,
            nodes: self.nodes,
            ..ClusterObjects::default()
        };
        add(&mut objects);
        let base = BaseConfigs {
            base: self.base,
            ..BaseConfigs::default()
        };
        let inputs = GeneratorInputs {
            objects: &objects,
            base: &base,
            version: "",
            stage: ClusterStage::Cluster,
        };
        let result = run_generator(generator, &inputs, &BTreeMap::new());
        let refused = result.failures.iter().filter_map(|failure| match &failure.error {
            // It takes effect when such a pool is created.
            GenerationError::NoPool(_) => None,
            error => Some(Problem::new("spec", error.to_string())),
        });
        verdict(refused.collect())?;
        let warnings = result.warnings.into_iter();
        Ok(warnings.map(|warning| Problem::new("spec", warning)).collect())
    }
}

/// Refuses an image build for a pool whose nodes cannot boot images, naming the nodes. `nodes` are those of the pool
/// that the MachineOSConfig references. An existing MachineOSConfig can still be changed and deleted.
pub fn review_image_build(request: &AdmissionWrite<'_>, nodes: &[ImageNode<'_>]) -> Result<(), String> {
    let is_new = request.operation == WriteOperation::Create;
    if !is_new || (request.group, request.kind) != (OWN_GROUP, "MachineOSConfig") {
        return Ok(());
    }
    let unable: Vec<String> = nodes
        .iter()
        .filter(|node| !node.boots_images())
        .map(|node| format!("{} ({:?})", node.name, node.os_image))
        .collect();
    if unable.is_empty() {
        return Ok(());
    }
    let shown = 10;
    let more = unable.len().saturating_sub(shown);
    let mut listed = unable;
    listed.truncate(shown);
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    let listed = listed.join(", ");
    Err(format!(
        "MachineOSConfig {:?}: on-cluster layering is only supported on nodes that boot images: {listed}\n  hint: use a \
         pool of CoreOS or bootc nodes, or annotate nodes that do boot images with {BOOTS_IMAGES}=true",
        request.name
    ))
}

/// On a Node: "true" if it boots OS images although its name does not say so, "false" if it does not.
pub const BOOTS_IMAGES: &str = "mco.dev/boots-images";
/// Names of operating systems that boot images.
const IMAGE_BASED: [&str; 3] = ["CoreOS", "Fedora Linux", "bootc"];

/// What is known about the operating system of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageNode<'a> {
    pub name: &'a str,
    /// As the kubelet reports it; empty before that.
    pub os_image: &'a str,
    /// The value of the annotation [`BOOTS_IMAGES`].
    pub annotation: Option<&'a str>,
}

impl ImageNode<'_> {
    fn boots_images(&self) -> bool {
        match self.annotation {
            Some(value) => value == "true",
            None => self.os_image.is_empty() || IMAGE_BASED.iter().any(|name| self.os_image.contains(name)),
        }
    }
}

/// Returns whether the write is allowed: its warnings, or why it is rejected. `users` is called only for the deletion
/// of a rendered config, and `peers`, which returns the RolloutPolicies of the cluster, only for the write of one.
pub fn review(
    request: &AdmissionWrite<'_>,
    users: impl FnOnce(&str) -> ConfigInUse,
    peers: impl FnOnce() -> Vec<RolloutPolicy>,
) -> Result<Vec<Problem>, String> {
    review_on(AdmissionContext::default, request, users, peers)
}

/// Like [`review`], for a write to the cluster that `context` returns. It is called only for kinds that depend on it.
pub fn review_on(
    context: impl FnOnce() -> AdmissionContext,
    request: &AdmissionWrite<'_>,
    users: impl FnOnce(&str) -> ConfigInUse,
    peers: impl FnOnce() -> Vec<RolloutPolicy>,
) -> Result<Vec<Problem>, String> {
    match request.operation {
        WriteOperation::Delete => deletion(request, users).map(|()| Vec::new()),
        WriteOperation::Create | WriteOperation::Update => {
            let Some(object) = request.object else {
                return Ok(Vec::new());
            };
            if request.old.is_some_and(|old| means_the_same(old, object)) || is_going(object) {
                return Ok(Vec::new());
            }
            let checked = match (request.group, request.kind) {
                (PLAIN_GROUP, "RolloutPolicy") => Some(rollout_policy(object, &peers())),
                _ => check_on(context, request.group, request.kind, object),
            };
            let problems = match checked {
                None => return Ok(Vec::new()),
                Some(Ok(warnings)) => return Ok(warnings),
                Some(Err(problems)) => problems,
            };
            let refusal = InvalidObject {
                kind: request.kind.to_owned(),
                name: request.name.to_owned(),
                problems,
            };
            Err(refusal.to_string())
        }
    }
}

/// Validates an object of a supported kind as if it were new: returns warnings, or all problems; `None` for other
/// kinds.
pub fn check(group: &str, kind: &str, object: &Value) -> Option<Result<Vec<Problem>, Vec<Problem>>> {
    check_on(AdmissionContext::default, group, kind, object)
}

/// Like [`check`], for an object of the cluster that `context` returns.
pub fn check_on(
    context: impl FnOnce() -> AdmissionContext,
    group: &str,
    kind: &str,
    object: &Value,
) -> Option<Result<Vec<Problem>, Vec<Problem>>> {
    let checked = match (group, kind) {
        (OWN_GROUP, "MachineConfig") => decode(object).and_then(|config| machine_config(&Arc::new(config))),
        (OWN_GROUP, "MachineConfigPool") => decode(object).and_then(|pool: MachineConfigPool| {
            let admitted = admit_pool(&pool, context().base);
            admitted.map(|()| Vec::new()).map_err(|invalid| invalid.problems)
        }),
        (OWN_GROUP, "KubeletConfig") => decode(object).and_then(|config| {
            kubelet_config(&config)?;
            let kubelet_configs = vec![config];
            context().admit(Generator::Kubelet, |objects| {
                objects.kubelet_configs = kubelet_configs
            })
        }),
        (OWN_GROUP, "ContainerRuntimeConfig") => decode(object).and_then(|config| {
            runtime_config(&config)?;
            let configs = vec![config];
            context().admit(Generator::ContainerRuntime, |objects| {
                objects.runtime_configs = configs
            })
        }),
        (OWN_GROUP, "PinnedImageSet") => {
            decode(object).and_then(|set: PinnedImageSet| verdict(pinned_images::validate(&set)))
        }
        (PLAIN_GROUP, "RolloutPolicy") => rollout_policy(object, &[]),
        (OPERATOR_GROUP | PLAIN_GROUP, "MachineConfiguration") => machine_configuration(object),
        (OPERATOR_GROUP, "ImageContentSourcePolicy") => {
            decode(object).and_then(|set| registries::admit_content_policy(&set))
        }
        (CONFIG_GROUP | PLAIN_GROUP, "ImageDigestMirrorSet") => decode(object).and_then(|set| {
            let warnings = registries::admit_digest_mirrors(&set)?;
            let sets = vec![set];
            let more = context().admit(Generator::Registries, |objects| objects.digest_mirrors = sets)?;
            Ok([warnings, more].concat())
        }),
        (CONFIG_GROUP | PLAIN_GROUP, "ImageTagMirrorSet") => decode(object).and_then(|set| {
            let warnings = registries::admit_tag_mirrors(&set)?;
            let sets = vec![set];
            let more = context().admit(Generator::Registries, |objects| objects.tag_mirrors = sets)?;
            Ok([warnings, more].concat())
        }),
        (CONFIG_GROUP, "ClusterImagePolicy") => {
            decode(object).and_then(|policy: ClusterImagePolicy| registries::admit_policy(&policy.spec))
        }
        (CONFIG_GROUP, "ImagePolicy") => {
            decode(object).and_then(|policy: ImagePolicy| registries::admit_policy(&policy.spec))
        }
        _ => return None,
    };
    Some(checked)
}

fn decode<T: DeserializeOwned>(object: &Value) -> Result<T, Vec<Problem>> {
    let decoded = serde_path_to_error::deserialize(object);
    decoded.map_err(|error| vec![Problem::new(error.path().to_string(), error.inner().to_string())])
}

fn rollout_policy(object: &Value, peers: &[RolloutPolicy]) -> Result<Vec<Problem>, Vec<Problem>> {
    let policy: RolloutPolicy = decode(object)?;
    let admitted = admit_policy(&policy, peers);
    admitted.map(|()| Vec::new()).map_err(|invalid| invalid.problems)
}

fn machine_config(config: &Arc<MachineConfig>) -> Result<Vec<Problem>, Vec<Problem>> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if rendered_configs::is_name(name) {
        // Labels select the sources of a render; rendered configs have none.
        let checked = validate::check_applicable(config);
        return checked.map(|_| Vec::new()).map_err(|invalid| invalid.problems);
    }
    let admitted = validate::admit(config);
    admitted
        .map(|checked| checked.warnings)
        .map_err(|invalid| invalid.problems)
}

fn kubelet_config(config: &KubeletConfig) -> Result<Vec<Problem>, Vec<Problem>> {
    let mut problems: Vec<Problem> = kubelet::validate(config)
        .err()
        .map(|error| Problem::new("spec.kubeletConfig", error.to_string()))
        .into_iter()
        .collect();
    problems.extend(selector(config.spec.machine_config_pool_selector.as_ref()));
    verdict(problems)
}

fn runtime_config(config: &ContainerRuntimeConfig) -> Result<Vec<Problem>, Vec<Problem>> {
    let found = container_runtime::validate(config).err().unwrap_or_default();
    let mut problems: Vec<Problem> = found
        .iter()
        .map(|problem| Problem::new("spec.containerRuntimeConfig", problem.to_string()))
        .collect();
    problems.extend(selector(config.spec.machine_config_pool_selector.as_ref()));
    verdict(problems)
}

/// Rejects any other name than that of the singleton, because such an object would have no effect.
fn machine_configuration(object: &Value) -> Result<Vec<Problem>, Vec<Problem>> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    if name == Some(names::SINGLETON) {
        return Ok(Vec::new());
    }
    let problem = Problem::new(
        "metadata.name",
        "Only a single object of MachineConfiguration is allowed and it must be named cluster.",
    );
    Err(vec![problem.with_hint("edit the one named cluster")])
}

fn selector(
    given: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
) -> Option<Problem> {
    let error = given.map(Selector::parse)?.err()?;
    Some(Problem::new("spec.machineConfigPoolSelector", error.to_string()))
}

fn verdict(problems: Vec<Problem>) -> Result<Vec<Problem>, Vec<Problem>> {
    if problems.is_empty() {
        Ok(Vec::new())
    } else {
        Err(problems)
    }
}

/// Whether two versions of an object are equivalent here: only spec, labels and the user of a pool's SSH keys matter.
fn means_the_same(old: &Value, new: &Value) -> bool {
    [
        "/spec",
        "/metadata/labels",
        "/metadata/annotations/mco.dev~1ssh-user",
    ]
    .iter()
    .all(|part| old.pointer(part) == new.pointer(part))
}

/// Whether an object is being deleted; it only changes to remove its finalizers.
fn is_going(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

fn deletion(request: &AdmissionWrite<'_>, users: impl FnOnce(&str) -> ConfigInUse) -> Result<(), String> {
    let is_rendered = request.group == OWN_GROUP
        && request.kind == "MachineConfig"
        && rendered_configs::is_name(request.name);
    if !is_rendered || request.old.is_some_and(is_going) {
        return Ok(());
    }
    let name = request.name;
    let users = match users(name) {
        ConfigInUse::By(users) => users,
        ConfigInUse::Unknown => {
            return Err(format!(
                "MachineConfig {name:?}: it is not yet determined whether this rendered config is in use\n  \
                 hint: retry in a moment"
            ));
        }
    };
    let list = |what: &str, several: &str, names: &BTreeSet<String>| match names.len() {
        0 => None,
        1 => Some(format!("{what} {}", joined(names))),
        _ => Some(format!("{several} {}", joined(names))),
    };
    let by: Vec<String> = [
        list("node", "nodes", &users.nodes),
        list("pool", "pools", &users.pools),
        list("MachineOSBuild", "MachineOSBuilds", &users.builds),
    ]
    .into_iter()
    .flatten()
    .collect();
    if by.is_empty() {
        return Ok(());
    }
    Err(format!(
        "MachineConfig {name:?}: this rendered config is in use by {} and cannot be deleted\n  \
         hint: it is garbage-collected some time after its last use",
        by.join(" and ")
    ))
}

fn joined(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_build_for_nodes_that_cannot_boot_images_is_refused_when_it_is_created() {
        let node = |name, os_image, annotation| ImageNode {
            name,
            os_image,
            annotation,
        };
        let write = |operation| AdmissionWrite {
            operation,
            group: OWN_GROUP,
            kind: "MachineOSConfig",
            name: "worker",
            object: None,
            old: None,
        };
        let able = [
            node("a", "Red Hat Enterprise Linux CoreOS 9.6", None),
            node("b", "Debian GNU/Linux 12", Some("true")),
            node("new", "", None),
        ];
        assert_eq!(review_image_build(&write(WriteOperation::Create), &able), Ok(()));
        let unable = [
            able[0],
            node("c", "Debian GNU/Linux 12 (bookworm)", None),
            node("d", "Fedora Linux 42", Some("false")),
        ];
        let refusal = review_image_build(&write(WriteOperation::Create), &unable).unwrap_err();
        assert!(
            refusal.contains("c (\"Debian GNU/Linux 12 (bookworm)\"), d (\"Fedora Linux 42\")"),
            "{refusal}"
        );
        assert!(!refusal.contains("a ("), "{refusal}");
        assert_eq!(
            review_image_build(&write(WriteOperation::Update), &unable),
            Ok(()),
            "an existing one can be repaired"
        );
    }

    fn unused(_: &str) -> ConfigInUse {
        ConfigInUse::By(Users::default())
    }

    fn write(kind: &str, old: Option<&Value>, object: &Value) -> Result<Vec<Problem>, String> {
        let request = AdmissionWrite {
            operation: if old.is_some() {
                WriteOperation::Update
            } else {
                WriteOperation::Create
            },
            group: OWN_GROUP,
            kind,
            name: object["metadata"]["name"].as_str().unwrap(),
            object: Some(object),
            old,
        };
        review(&request, unused, Vec::new)
    }

    fn config(mode: i64) -> Value {
        json!({
            "metadata": {"name": "50-x", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/x", "mode": mode, "contents": {"source": "data:,"}},
            ]}}},
        })
    }

    #[test]
    fn what_is_wrong_is_refused_with_place_and_remedy() {
        let refusal = write("MachineConfig", None, &config(0o4755)).unwrap_err();
        assert_eq!(
            refusal,
            "MachineConfig \"50-x\": spec.config.storage.files[0].mode (\"/etc/x\"): invalid mode 04755 for /etc/x, cannot exceed 0777\n  hint: use a mode up to 0777 (511 in decimal); setuid, setgid and sticky bits are not allowed"
        );
        let cases = [
            (
                "KubeletConfig",
                json!({"metadata": {"name": "k"}, "spec": {"kubeletConfig": {"clusterDomain": "x"}}}),
                "KubeletConfig \"k\": spec.kubeletConfig: KubeletConfiguration: clusterDomain is not allowed to be set, but contains: x",
            ),
            (
                "ContainerRuntimeConfig",
                json!({"metadata": {"name": "c"}, "spec": {"containerRuntimeConfig": {"pidsLimit": 3, "logLevel": "loud"}}}),
                "ContainerRuntimeConfig \"c\": spec.containerRuntimeConfig: invalid PidsLimit 3\nContainerRuntimeConfig \"c\": spec.containerRuntimeConfig: invalid LogLevel \"loud\", must be one of error, fatal, panic, warn, info, debug, or trace",
            ),
            (
                "MachineConfigPool",
                json!({"metadata": {"name": "p"}, "spec": {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}}),
                "MachineConfigPool \"p\": spec.nodeSelector: matchExpressions[0]: \"Like\" is not a valid label selector operator; use In, NotIn, Exists or DoesNotExist",
            ),
            (
                "PinnedImageSet",
                json!({"metadata": {"name": "s"}, "spec": {"pinnedImages": [{"name": "quay.io/x:latest"}]}}),
                "PinnedImageSet \"s\": spec.pinnedImages[0].name (\"quay.io/x:latest\"): the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' is 64 characters long",
            ),
            (
                "MachineConfig",
                json!({"metadata": {"name": "m"}, "spec": {"kernelArguments": "quiet"}}),
                "MachineConfig \"m\": spec.kernelArguments: invalid type: string \"quiet\", expected a sequence",
            ),
        ];
        for (kind, object, expected) in cases {
            assert_eq!(write(kind, None, &object).unwrap_err(), expected);
        }
        assert_eq!(write("MachineConfig", None, &config(0o755)), Ok(Vec::new()));
        assert_eq!(write("Unknown", None, &config(0o4755)), Ok(Vec::new()));
    }

    #[test]
    fn what_exists_can_be_repaired_and_removed_but_not_made_worse() {
        let bad = config(0o4755);
        let mut finalized = bad.clone();
        finalized["metadata"]["finalizers"] = json!(["example.com/x"]);
        assert_eq!(write("MachineConfig", Some(&bad), &finalized), Ok(Vec::new()));
        let mut going = config(0o2755);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(write("MachineConfig", Some(&bad), &going), Ok(Vec::new()));
        assert_eq!(write("MachineConfig", Some(&bad), &config(0o755)), Ok(Vec::new()));
        assert!(write("MachineConfig", Some(&bad), &config(0o2755)).is_err());
        let mut relabelled = bad.clone();
        relabelled["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "master"});
        assert!(
            write("MachineConfig", Some(&bad), &relabelled).is_err(),
            "it would break another pool"
        );
    }

    #[test]
    fn rendered_configs_need_no_labels() {
        let mut rendered = config(0o644);
        rendered["metadata"] = json!({"name": "rendered-worker-1"});
        assert_eq!(write("MachineConfig", None, &rendered), Ok(Vec::new()));
        rendered["metadata"] = json!({"name": "worker-1"});
        assert!(write("MachineConfig", None, &rendered).is_err());
    }

    #[test]
    fn a_rendered_config_in_use_stays_and_its_users_are_named() {
        let delete = |name: &str, users: ConfigInUse| {
            let request = AdmissionWrite {
                operation: WriteOperation::Delete,
                group: OWN_GROUP,
                kind: "MachineConfig",
                name,
                object: None,
                old: None,
            };
            review(&request, |_| users, Vec::new).map(|_| ())
        };
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let users = |nodes: &[&str], pools: &[&str]| {
            ConfigInUse::By(Users {
                nodes: set(nodes),
                pools: set(pools),
                ..Users::default()
            })
        };
        let build = ConfigInUse::By(Users {
            builds: set(&["worker-abc"]),
            ..Users::default()
        });
        for (users, expected) in [
            (
                users(&["w-2", "w-1"], &["worker"]),
                "in use by nodes w-1, w-2 and pool worker and cannot be deleted",
            ),
            (users(&["w-1"], &[]), "in use by node w-1 and cannot be deleted"),
            (build, "in use by MachineOSBuild worker-abc and cannot be deleted"),
            (ConfigInUse::Unknown, "not yet determined whether"),
        ] {
            let refusal = delete("rendered-worker-1", users).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
        assert_eq!(delete("rendered-worker-1", users(&[], &[])), Ok(()));
        assert_eq!(
            delete("50-mine", users(&["w-1"], &[])),
            Ok(()),
            "only rendered ones are used by nodes"
        );
    }

    #[test]
    fn registry_objects_that_cannot_be_used_were_accepted() {
        let policy = |identity: Value, scopes: &[&str]| {
            json!({"metadata": {"name": "p"}, "spec": {"scopes": scopes, "policy": {
                "rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": "a2V5"}}, "signedIdentity": identity}}})
        };
        let remap = |prefix: &str| {
            policy(
                json!({"matchPolicy": "RemapIdentity", "remapIdentity": {"prefix": prefix, "signedPrefix": "q.io"}}),
                &["q.io"],
            )
        };
        let set = |source: &str, mirror: &str| {
            let mirrors = json!([{"source": source, "mirrors": [mirror]}]);
            json!({"metadata": {"name": "s"}, "spec": {
                "imageDigestMirrors": mirrors, "imageTagMirrors": mirrors, "repositoryDigestMirrors": mirrors}})
        };
        let mirror_sets = [
            (CONFIG_GROUP, "ImageDigestMirrorSet"),
            (CONFIG_GROUP, "ImageTagMirrorSet"),
            (OPERATOR_GROUP, "ImageContentSourcePolicy"),
        ];
        let policies = [
            (CONFIG_GROUP, "ClusterImagePolicy"),
            (CONFIG_GROUP, "ImagePolicy"),
        ];
        let texts = |problems: &[Problem]| problems.iter().map(ToString::to_string).collect::<String>();
        for (kinds, object, rejected, expected) in [
            (
                &policies[..],
                remap("q.io/a:tag"),
                true,
                "remapIdentity.prefix \"q.io/a:tag\"",
            ),
            (&policies[..], remap("q.io/a"), false, ""),
            (
                &policies[..],
                policy(json!({"matchPolicy": "MatchRepository"}), &["*.q.io", "q.io/A"]),
                false,
                "spec.scopes[1] (\"q.io/A\")",
            ),
            (
                &mirror_sets[..],
                set("q.io/A", "m.io/a"),
                true,
                "invalid format for source \"q.io/A\"",
            ),
            (
                &mirror_sets[..],
                set("*.q.io", "m.io"),
                false,
                "[0].source (\"*.q.io\")",
            ),
            (
                &mirror_sets[..],
                set("q.io/a", "m.io:5000"),
                false,
                "[0].mirrors[0] (\"m.io:5000\")",
            ),
            (
                &mirror_sets[..],
                set("q.io", "short/a"),
                false,
                "[0].mirrors[0] (\"short/a\")",
            ),
            (&mirror_sets[..], set("q.io", "m.io:5000"), false, ""),
        ] {
            for (group, kind) in kinds {
                match (check(group, kind, &object).unwrap(), rejected) {
                    (Ok(found), false) | (Err(found), true) => {
                        let found = texts(&found);
                        assert!(
                            found.contains(expected) && (found.is_empty() == expected.is_empty()),
                            "{kind} {expected}: {found}"
                        );
                    }
                    (other, _) => panic!("{kind} {expected}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn there_is_one_machine_configuration() {
        let check = |name: &str| {
            let object = json!({"metadata": {"name": name}});
            check(OPERATOR_GROUP, "MachineConfiguration", &object).unwrap()
        };
        assert!(check("cluster").is_ok());
        assert!(check("mine").is_err());
    }
}
