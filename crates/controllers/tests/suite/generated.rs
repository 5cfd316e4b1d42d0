//! Generated MachineConfigs: enforced against edits, and updated with their sources.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::foreign::mirrors::ImageContentSourcePolicy;
use mco_api::machine_configuration::MachineConfigurationSpec;
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration,
};
use mco_simulator::Behaviour;
use serde_json::{Value, json};

use crate::cluster::{Cluster, VERSION, eventually, file_config, holds, message, target};
use crate::observer::Observer;

pub fn kubelet_config(name: &str, label: &str, value: &Value) -> KubeletConfig {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"kubeletConfig": value, "machineConfigPoolSelector": {"matchLabels": {"custom-kubelet": label}}},
    }))
    .unwrap()
}

pub async fn settled(cluster: &Cluster, name: &str) -> KubeletConfig {
    eventually(&format!("KubeletConfig {name} is reported"), || async {
        let object: KubeletConfig = cluster.api().get(name).await.unwrap();
        let status = object.status.clone().unwrap_or_default();
        let current = Some(status.observed_generation) == object.metadata.generation;
        (current && !status.conditions.is_empty()).then_some(object)
    })
    .await
}

pub async fn file(cluster: &Cluster, config: &str, path: &str) -> String {
    let config: MachineConfig = cluster.api().get(config).await.unwrap();
    file_of(&config, path).unwrap()
}

/// Returns the file of a MachineConfig with this path.
pub fn file_of(config: &MachineConfig, path: &str) -> Option<String> {
    let parsed = mco_core::config::parsed_config::ParsedConfig::applicable(config.clone()).ok()?;
    parsed.text_of(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_configs_get_their_names_reach_the_pool_and_leave_without_a_trace() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let _: MachineConfigPool = cluster
        .patch(
            "worker",
            json!({"metadata": {"labels": {"custom-kubelet": "small"}}}),
        )
        .await;
    cluster
        .create(&kubelet_config("first", "small", &json!({"maxPods": 11})))
        .await;
    let first = settled(&cluster, "first").await;
    assert_eq!(
        first.metadata.finalizers.unwrap(),
        ["99-worker-generated-kubelet"]
    );
    let suffix = |object: &KubeletConfig| {
        object.metadata.annotations.clone().unwrap_or_default()["machineconfiguration.openshift.io/mc-name-suffix"]
            .clone()
    };
    let conditions = first.status.clone().unwrap().conditions;
    assert_eq!(
        (
            conditions.last().unwrap().type_.as_str(),
            conditions.last().unwrap().message.as_str()
        ),
        ("Success", "Success")
    );
    let with_first = cluster.retargeted("worker", &before).await;
    assert!(
        file(&cluster, &with_first, "/etc/kubernetes/kubelet.conf")
            .await
            .contains("maxPods: 11\n"),
        "the whole way into the rendered config"
    );
    cluster
        .create(&kubelet_config("second", "small", &json!({"maxPods": 22})))
        .await;
    let second = settled(&cluster, "second").await;
    assert_eq!(
        second.metadata.finalizers.clone().unwrap(),
        ["99-worker-generated-kubelet-1"]
    );
    assert_eq!(suffix(&second), "1");
    let with_second = cluster.retargeted("worker", &with_first).await;
    assert!(
        file(&cluster, &with_second, "/etc/kubernetes/kubelet.conf")
            .await
            .contains("maxPods: 22\n")
    );
    // An invalid one reports it and changes nothing.
    cluster
        .create(&kubelet_config("third", "small", &json!({"clusterDomain": "x"})))
        .await;
    let third = settled(&cluster, "third").await;
    let last = third.status.unwrap().conditions.last().cloned().unwrap();
    assert_eq!(
        (last.type_.as_str(), last.message.as_str()),
        (
            "Failure",
            "Error: KubeletConfiguration: clusterDomain is not allowed to be set, but contains: x"
        )
    );
    for name in ["third", "second"] {
        cluster
            .api::<KubeletConfig>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }
    let back = cluster.retargeted("worker", &with_second).await;
    assert_eq!(
        back, with_first,
        "content that was there before has the name it had before"
    );
    eventually("the objects and what was made from them are gone", || async {
        let gone = cluster
            .api::<KubeletConfig>()
            .get_opt("second")
            .await
            .unwrap()
            .is_none()
            && cluster
                .api::<MachineConfig>()
                .get_opt("99-worker-generated-kubelet-1")
                .await
                .unwrap()
                .is_none();
        gone.then_some(())
    })
    .await;
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_a_generated_config_is_undone_and_nothing_rolls_out() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let observer = Observer::start(cluster.api());
    let original: MachineConfig = cluster.api().get("00-worker").await.unwrap();
    let rendered = || async {
        let all = cluster
            .api::<MachineConfig>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let names = all.items.into_iter().filter_map(|config| config.metadata.name);
        names
            .filter(|name| name.starts_with("rendered-"))
            .collect::<Vec<_>>()
    };
    let rendered_before = rendered().await;
    let edits = [
        json!({"spec": {"kernelArguments": ["evil=1"]}}),
        json!({"metadata": {"labels": {"machineconfiguration.openshift.io/role": "master"}}}),
        json!({"spec": {"config": {"storage": {"files": []}}}}),
    ];
    for edit in edits {
        let edited: MachineConfig = cluster.patch("00-worker", edit.clone()).await;
        eventually(&format!("the edit {edit} is undone"), || async {
            let config: MachineConfig = cluster.api().get("00-worker").await.unwrap();
            let later = config.metadata.resource_version != edited.metadata.resource_version;
            (later && config.spec == original.spec && config.metadata.labels == original.metadata.labels)
                .then_some(())
        })
        .await;
    }
    for deleted in ["00-worker", "98-worker-generated-kubelet"] {
        cluster.delete_config(deleted).await;
        eventually(&format!("{deleted} is back"), || async {
            cluster.api::<MachineConfig>().get_opt(deleted).await.unwrap()
        })
        .await;
    }
    // Renders that the edits have enqueued run before what comes next.
    let mut expected: BTreeSet<String> = rendered_before.into_iter().collect();
    for pool in ["worker", "master"] {
        let _: MachineConfigPool = cluster.patch(pool, json!({"spec": {"paused": true}})).await;
        let unmarked = target(&cluster.pool(pool).await);
        let marker = format!("99-{pool}-marker");
        cluster
            .create_config(file_config(&marker, pool, "/etc/marker", "x"))
            .await;
        expected.insert(cluster.retargeted(pool, &unmarked).await);
        cluster.delete_config(&marker).await;
        cluster
            .pool_where(pool, "is what it was", |pool| target(pool) == unmarked)
            .await;
    }
    assert_eq!(
        rendered().await.into_iter().collect::<BTreeSet<_>>(),
        expected,
        "no other config was ever rendered"
    );
    assert_eq!(target(&cluster.pool("worker").await), before);
    assert_eq!(observer.ever(), [""; 0]);
    assert_eq!(observer.sent("worker-0"), std::slice::from_ref(&before));
    // The rendered config is restored as well.
    let _: MachineConfig = cluster
        .patch(&before, json!({"spec": {"kernelArguments": ["evil=1"]}}))
        .await;
    eventually("the rendered config is put back", || async {
        let config: MachineConfig = cluster.api().get(&before).await.unwrap();
        config
            .spec
            .kernel_arguments
            .iter()
            .all(|argument| argument != "evil=1")
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_and_runtime_settings_reach_their_pools() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let policy: ImageContentSourcePolicy = serde_json::from_value(json!({
        "metadata": {"name": "mirror"},
        "spec": {"repositoryDigestMirrors": [{"source": "quay.io/release", "mirrors": ["mirror.example/release"]}]},
    }))
    .unwrap();
    cluster.create(&policy).await;
    let with_mirror = cluster.retargeted("worker", &before).await;
    let conf = file(
        &cluster,
        "99-worker-generated-registries",
        "/etc/containers/registries.conf",
    )
    .await;
    assert!(
        conf.contains("location = \"mirror.example/release\"") && conf.contains("digest-only"),
        "{conf}"
    );
    let pool = cluster.pool("worker").await;
    let sources: Vec<String> = pool
        .spec
        .configuration
        .source
        .into_iter()
        .filter_map(|s| s.name)
        .collect();
    assert_eq!(
        sources,
        [
            "00-worker",
            "01-worker-container-runtime",
            "01-worker-kubelet",
            "97-worker-generated-kubelet",
            "98-worker-generated-kubelet",
            "99-worker-generated-registries",
        ]
    );
    let runtime: ContainerRuntimeConfig = serde_json::from_value(json!({
        "metadata": {"name": "limits"},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}},
            "containerRuntimeConfig": {"pidsLimit": 2048},
        },
    }))
    .unwrap();
    cluster.create(&runtime).await;
    let with_both = cluster.retargeted("worker", &with_mirror).await;
    let dropin = file(&cluster, &with_both, "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit").await;
    assert!(dropin.contains("pids_limit = 2048"), "{dropin}");
    let runtime: ContainerRuntimeConfig = cluster.api().get("limits").await.unwrap();
    assert_eq!(
        runtime.metadata.finalizers.unwrap(),
        ["99-worker-generated-containerruntime"]
    );
    cluster
        .api::<ImageContentSourcePolicy>()
        .delete("mirror", &DeleteParams::default())
        .await
        .unwrap();
    cluster.retargeted("worker", &with_both).await;
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_cannot_be_used_is_named_and_spoils_no_other() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let policy = |name: &str, source: &str| -> ImageContentSourcePolicy {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"repositoryDigestMirrors": [{"source": source, "mirrors": ["mirror.example/x"]}]},
        }))
        .unwrap()
    };
    cluster.create(&policy("bad", "*.x.example/ns")).await;
    cluster.create(&policy("good", "quay.io/release")).await;
    cluster.retargeted("worker", &before).await;
    let conf = file(
        &cluster,
        "99-worker-generated-registries",
        "/etc/containers/registries.conf",
    )
    .await;
    assert!(conf.contains("quay.io/release"), "{conf}");
    assert!(!conf.contains("x.example"), "{conf}");
    let events: Api<Event> = Api::all(cluster.client.clone());
    let event = eventually("an event reports the problem", || async {
        let events = events.list(&ListParams::default()).await.ok()?.items;
        events
            .into_iter()
            .find(|event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some("bad"))
    })
    .await;
    assert_eq!(event.reason.as_deref(), Some("InvalidRegistrySettings"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.note.unwrap_or_default().contains("*.x.example/ns"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_config_degrades_its_pool_and_no_other_and_its_deletion_heals() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let good = target(&cluster.pool("worker").await);
    let bad = json!({
        "metadata": {"name": "99-worker-bad", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "9.9.9"}}},
    });
    cluster.create_config(bad).await;
    let pool = cluster
        .pool_where("worker", "reports that rendering fails", |pool| {
            holds(pool, "RenderDegraded") && holds(pool, "Degraded")
        })
        .await;
    let why = message(&pool, "RenderDegraded");
    assert!(
        why.starts_with("Failed to render configuration for pool worker: ") && why.contains("99-worker-bad"),
        "{why}"
    );
    assert_eq!(message(&pool, "Degraded"), why);
    assert_eq!(target(&pool), good, "machines keep what they have");
    let master = cluster.pool("master").await;
    assert!(!holds(&master, "RenderDegraded") && !holds(&master, "Degraded"));
    // The other pool is not affected.
    let before = target(&master);
    cluster
        .create_config(file_config("99-master-a", "master", "/etc/a", "a"))
        .await;
    cluster.retargeted("master", &before).await;
    cluster.delete_config("99-worker-bad").await;
    let healed = cluster
        .pool_where("worker", "is healed", |pool| {
            !holds(pool, "RenderDegraded") && !holds(pool, "Degraded") && holds(pool, "Updated")
        })
        .await;
    assert_eq!(target(&healed), good);
    cluster.updated("master").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_for_new_machines_only_is_rendered_as_soon_as_it_is_accepted() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let disk = json!({
        "metadata": {"name": "99-worker-disk", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {
            "ignition": {"version": "3.4.0"},
            "storage": {"disks": [{"device": "/dev/sdb", "wipeTable": true}]},
        }},
    });
    cluster.create_config(disk).await;
    let refused = cluster
        .pool_where("worker", "refuses the change", |pool| {
            holds(pool, "RenderDegraded")
        })
        .await;
    let why = message(&refused, "RenderDegraded");
    assert!(why.contains("ignition disks section contains changes"), "{why}");
    assert_eq!(target(&refused), before);
    let accepting: MachineConfigurationSpec = serde_json::from_value(json!({
        "irreconcilableValidationOverrides": {"storage": ["Disks"]},
    }))
    .unwrap();
    cluster
        .create(&MachineConfiguration::new("cluster", accepting))
        .await;
    cluster.retargeted("worker", &before).await;
    let pool = cluster.updated("worker").await;
    assert!(!holds(&pool, "RenderDegraded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_of_another_version_is_rendered_once_its_version_annotation_is_removed() {
    let mut cluster = Cluster::prepare().await;
    let made_by = "machineconfiguration.openshift.io/generated-by-controller-version";
    let mut old = file_config("99-worker-a", "worker", "/etc/a", "a");
    old["metadata"]["annotations"] = json!({made_by: "v-older"});
    cluster.create_config(old).await;
    cluster.start_controllers();
    // Both pools are rendered after the base configs; the one without such a config shows when.
    cluster.updated("master").await;
    cluster.at_rest().await;
    assert_eq!(target(&cluster.pool("worker").await), "");
    let _: MachineConfig = cluster
        .patch(
            "99-worker-a",
            json!({"metadata": {"annotations": {made_by: null}}}),
        )
        .await;
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_pull_secret_reaches_the_nodes() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let without = target(&cluster.pool("worker").await);
    let namespace = json!({"metadata": {"name": "openshift-config"}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    cluster.create(&namespace).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "openshift-config");
    let credentials = |auth: &str| {
        let auths = json!({"auths": {"registry.example.com": {"auth": auth}}}).to_string();
        json!({"data": {".dockerconfigjson": ByteString(auths.into_bytes())}})
    };
    let mut secret = credentials("one");
    secret["metadata"] = json!({"name": "pull-secret"});
    secret["type"] = json!("kubernetes.io/dockerconfigjson");
    let secret: Secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let reference = json!({"spec": {"pullSecret": {"namespace": "openshift-config", "name": "pull-secret"}}});
    let _: ControllerConfig = cluster.patch("machine-config-controller", reference).await;
    let first = cluster.retargeted("worker", &without).await;
    let contents = async |rendered: &str| file(&cluster, rendered, "/var/lib/kubelet/config.json").await;
    assert_eq!(
        contents(&first).await.trim(),
        r#"{"auths":{"registry.example.com":{"auth":"one"}}}"#
    );

    secrets
        .patch(
            "pull-secret",
            &PatchParams::default(),
            &Patch::Merge(credentials("two")),
        )
        .await
        .unwrap();
    let second = cluster.retargeted("worker", &first).await;
    assert_eq!(
        contents(&second).await.trim(),
        r#"{"auths":{"registry.example.com":{"auth":"two"}}}"#
    );
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_controllers_render_is_what_the_command_line_renders() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let config = cluster.controller_config().await;
    let conditions = config.status.unwrap().conditions;
    let mut completed = conditions
        .iter()
        .filter(|one| one.type_ == "TemplateControllerCompleted");
    assert_eq!(
        completed.next().unwrap().message,
        format!("sync completed towards (1) generation using controller version {VERSION}")
    );
    let mut offline = mco_api::ControllerConfig::new("machine-config-controller", config.spec);
    offline.metadata.annotations = config.metadata.annotations;
    let mut manifest = serde_json::to_value(&offline).unwrap();
    manifest["apiVersion"] = json!("machineconfiguration.openshift.io/v1");
    manifest["kind"] = json!("ControllerConfig");
    let manifests = mco_core::config::manifest::read("c.json", manifest.to_string().as_bytes()).unwrap();
    let settings = mco_core::pipeline::bootstrap::BootstrapSettings {
        templates: None,
        pull_secret: None,
        controller_version: VERSION,
        payload_version: None,
        stage: None,
        base: None,
    };
    let assembled = mco_core::pipeline::bootstrap::assemble(manifests, &settings).unwrap();
    let identity = mco_core::config::render::RenderIdentity {
        controller_version: VERSION,
        release_version: "1.0",
    };
    for outcome in assembled.render(identity) {
        let rendered = outcome.rendered().unwrap().name().to_owned();
        assert_eq!(target(&cluster.pool(outcome.name()).await), rendered);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_has_its_object_and_policies_are_published() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let target_now = target(&cluster.pool("worker").await);
    let shown = eventually("the MachineConfigNode has the desired config", || async {
        let node: MachineConfigNode = cluster.api().get_opt("worker-0").await.unwrap()?;
        (node.spec.config_version.desired == target_now).then_some(node)
    })
    .await;
    assert_eq!(shown.spec.pool.name, "worker");
    assert_eq!(shown.metadata.owner_references.unwrap()[0].kind, "Node");
    cluster
        .api::<k8s_openapi::api::core::v1::Node>()
        .delete("worker-0", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the object goes with its node", || async {
        let gone = cluster
            .api::<MachineConfigNode>()
            .get_opt("worker-0")
            .await
            .unwrap()
            .is_none();
        gone.then_some(())
    })
    .await;
    let spec: MachineConfigurationSpec = serde_json::from_value(json!({
        "managementState": "Managed",
        "nodeDisruptionPolicy": {"files": [
            {"path": "/etc/chrony.conf", "actions": [{"type": "Restart", "restart": {"serviceName": "chronyd.service"}}]},
            {"path": "/etc/containers/policy.json", "actions": [{"type": "None"}]},
        ]},
    }))
    .unwrap();
    cluster.create(&MachineConfiguration::new("cluster", spec)).await;
    let status = eventually("the policies are published", || async {
        let settings: MachineConfiguration = cluster.api().get("cluster").await.unwrap();
        settings.status?.node_disruption_policy_status
    })
    .await;
    let files = status.cluster_policies.files;
    let actions = |path: &str| {
        let file = files.iter().find(|file| file.path == path).unwrap();
        serde_json::to_value(&file.actions).unwrap()
    };
    assert_eq!(
        actions("/etc/chrony.conf"),
        json!([{"type": "Restart", "restart": {"serviceName": "chronyd.service"}}])
    );
    assert_eq!(actions("/etc/containers/policy.json"), json!([{"type": "None"}]));
    assert_eq!(
        actions("/etc/containers/registries.conf"),
        json!([{"type": "Special"}])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_rendered_configs_are_deleted_and_used_ones_are_protected() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let options = mco_controllers::Options {
        kept_configs: 2,
        ..cluster.options()
    };
    cluster.start_controllers_with(options);
    let first = target(&cluster.pool("worker").await);
    let (mut unused, mut last) = (String::new(), first.clone());
    for index in 0..4 {
        cluster
            .create_config(file_config(
                &format!("99-worker-{index}"),
                "worker",
                &format!("/etc/{index}"),
                "x",
            ))
            .await;
        let next = cluster.retargeted("worker", &last).await;
        unused = std::mem::replace(&mut last, next);
        cluster.updated("worker").await;
    }
    eventually("only the last two are left", || async {
        let all = cluster
            .api::<MachineConfig>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let left = all
            .items
            .iter()
            .filter(|config| {
                config
                    .metadata
                    .name
                    .as_deref()
                    .unwrap()
                    .starts_with("rendered-worker-")
            })
            .count();
        (left == 2).then_some(())
    })
    .await;
    assert!(
        cluster
            .api::<MachineConfig>()
            .get_opt(&first)
            .await
            .unwrap()
            .is_none()
    );
    let marks = eventually("the one in use is marked", || async {
        let config: MachineConfig = cluster.api().get(&last).await.unwrap();
        config.metadata.finalizers.filter(|marks| !marks.is_empty())
    })
    .await;
    cluster.delete_config(&last).await;
    // Garbage collection handles all configs in one reconcile: when another one is deleted, this one was considered.
    let _: MachineConfig = cluster
        .patch(&unused, json!({"metadata": {"finalizers": marks}}))
        .await;
    cluster.delete_config(&unused).await;
    eventually("an unused one is deleted", || async {
        let found = cluster.api::<MachineConfig>().get_opt(&unused).await.unwrap();
        found.is_none().then_some(())
    })
    .await;
    let kept: MachineConfig = cluster.api().get(&last).await.unwrap();
    assert!(
        kept.metadata.deletion_timestamp.is_some(),
        "it is marked, and stays while nodes use it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_providers_follow_the_cluster_and_leave_without_a_trace() {
    const NAME: &str = "97-worker-generated-credentialproviderconfig";
    const FILE: &str = "/etc/kubernetes/credential-providers/generic-credential-provider.yaml";
    let mut cluster = Cluster::prepare().await;
    cluster
        .define(
            "CRIOCredentialProviderConfig",
            "criocredentialproviderconfigs",
            "v1",
            "Cluster",
        )
        .await;
    let asked = |images: &[&str]| -> CRIOCredentialProviderConfig {
        serde_json::from_value(json!({"metadata": {"name": "cluster"}, "spec": {"matchImages": images}}))
            .unwrap()
    };
    cluster.create(&asked(&["quay.io", "docker.io"])).await;
    cluster.start_controllers();
    let config = eventually("the MachineConfig", || async {
        cluster.api::<MachineConfig>().get_opt(NAME).await.unwrap()
    })
    .await;
    let owner = config.metadata.owner_references.unwrap().remove(0);
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("CRIOCredentialProviderConfig", "cluster")
    );
    let text = file(&cluster, NAME, FILE).await;
    assert!(
        text.contains("  matchImages:\n  - docker.io\n  - quay.io\n  name: crio-credential-provider\n"),
        "{text}"
    );
    let reported = |type_: &'static str| {
        let objects = cluster.api::<CRIOCredentialProviderConfig>();
        async move {
            let status = objects.get("cluster").await.unwrap().status?;
            let condition = status.conditions.into_iter().find(|one| one.type_ == type_)?;
            Some((condition.status, condition.reason))
        }
    };
    let applied = ("True".to_owned(), "MachineConfigRenderingSucceeded".to_owned());
    eventually("it is reported", || async {
        (reported("MachineConfigRendered").await? == applied).then_some(())
    })
    .await;
    let rendered = cluster
        .pool_where("worker", "has a target", |pool| !pool.target_name().is_empty())
        .await;
    assert_eq!(
        file(&cluster, rendered.target_name(), FILE).await,
        text,
        "the whole way into the rendered config"
    );

    let wrong = json!({"spec": {"matchImages": ["*"]}});
    let _: CRIOCredentialProviderConfig = cluster.patch("cluster", wrong).await;
    let refused = ("False".to_owned(), "ValidationFailed".to_owned());
    eventually("the problem is reported", || async {
        (reported("Validated").await? == refused).then_some(())
    })
    .await;
    assert_eq!(file(&cluster, NAME, FILE).await, text, "what was in force stays");

    let objects = cluster.api::<CRIOCredentialProviderConfig>();
    objects.delete("cluster", &DeleteParams::default()).await.unwrap();
    eventually("the MachineConfig is gone", || async {
        let found = cluster.api::<MachineConfig>().get_opt(NAME).await.unwrap();
        found.is_none().then_some(())
    })
    .await;
    let with = rendered.target_name().to_owned();
    let without = cluster.retargeted("worker", &with).await;
    let config: MachineConfig = cluster.api().get(&without).await.unwrap();
    assert!(
        !config
            .spec
            .config
            .unwrap()
            .to_string()
            .contains("generic-credential-provider")
    );
}
