//! Whole directories: with and without a base, duplicate pools, pre-built images.

use mco_core::config::render::RenderIdentity;
use mco_core::generators::templates::TemplateTree;
use serde_json::json;

use crate::fixture::{assemble, pool};

#[test]
fn a_directory_without_a_base_is_rendered_alone_and_with_one_in_full() {
    let user = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-user", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"kernelArguments": ["quiet"]},
    });
    let alone = assemble(std::slice::from_ref(&user), None).unwrap();
    assert_eq!(alone.inventory.configs.len(), 1);
    assert!(alone.controller_config.is_none());
    let embedded = TemplateTree::embedded();
    let full = assemble(&[user], Some(&embedded)).unwrap();
    let identity = RenderIdentity {
        controller_version: "test",
        release_version: "",
    };
    for outcome in full.render(identity) {
        let rendered = outcome.result.unwrap().rendered;
        let kubelet = mco_ignition::MergedItem::Unit("kubelet.service".to_owned());
        let by = rendered.provenance.contributors(&kubelet);
        assert_eq!(by.len(), 1, "{}", outcome.pool.metadata.name.unwrap());
        let origin = full.origins.of_item(by[0], &kubelet).unwrap();
        assert!(
            origin.starts_with("template ") && origin.ends_with("kubelet.service.yaml"),
            "{origin}"
        );
    }
    assert_eq!(full.controller_config.unwrap().spec.cluster_dns_ip, "10.96.0.10");
}

#[test]
fn pools_that_come_twice_and_pre_built_images() {
    let mut built_in = pool("worker");
    built_in["spec"] = json!({
        "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
    });
    // The user's own pool (from the list of every test) is kept, although the built-in one comes later.
    let cluster = assemble(&[built_in], None).unwrap();
    let worker = cluster
        .inventory
        .pools
        .iter()
        .find(|pool| pool.metadata.name.as_deref() == Some("worker"))
        .unwrap();
    assert!(
        worker
            .spec
            .machine_config_selector
            .as_ref()
            .unwrap()
            .match_expressions
            .is_some()
    );

    let os_config = |image: &str, pool: &str| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
               "metadata": {"name": "layered", "annotations": {"machineconfiguration.openshift.io/pre-built-image": image}},
               "spec": {"machineConfigPool": {"name": pool}}})
    };
    let digest = "a".repeat(64);
    let good = format!("q.io/os@sha256:{digest}");
    let cluster = assemble(&[os_config(&good, "worker")], None).unwrap();
    let outcomes = cluster.render(RenderIdentity {
        controller_version: "test",
        release_version: "",
    });
    let worker = outcomes
        .iter()
        .find(|outcome| outcome.name() == "worker")
        .unwrap();
    assert_eq!(worker.rendered().unwrap().config.spec().os_image_url, good);
    for image in [
        "q.io/os:latest".to_owned(),
        "q.io/os@sha256:abc".to_owned(),
        format!("q.io/os@sha256:{}", digest.to_uppercase()),
        format!("q.io/os@md5:{digest}"),
    ] {
        let error = assemble(&[os_config(&image, "worker")], None).unwrap_err();
        assert!(
            error.contains("MachineOSConfig \"layered\"") && error.contains("by digest"),
            "{error}"
        );
    }
    let error = assemble(&[os_config(&good, "nobody")], None).unwrap_err();
    assert!(
        error.contains("there is no MachineConfigPool \"nobody\""),
        "{error}"
    );
}

#[test]
fn a_release_beside_an_installers_streams_says_which_images_they_have() {
    let image = |digit: &str| format!("quay.example.com/release/os@sha256:{}", digit.repeat(64));
    let tag = |name: &str, digit: &str| json!({"name": name, "from": {"kind": "DockerImage", "name": image(digit)}});
    let release = json!({
        "apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "4.21.0"},
        "spec": {"tags": [
            tag("machine-config-operator", "0"),
            tag("rhel-coreos-9", "1"), tag("rhel-coreos-9-extensions", "2"),
            tag("rhel-coreos-10", "3"), tag("rhel-coreos-10-extensions", "4"),
        ]},
    });
    let streams = |default: &str| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
               "metadata": {"name": "cluster"}, "spec": {"defaultStream": default}})
    };
    let gate = |state: &str| {
        json!({"apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
               "status": {"featureGates": [{"version": "4.21.0", state: [{"name": "OSStreams"}]}]}})
    };
    let mut infra = pool("infra");
    infra["spec"]["osImageStream"] = json!({"name": "rhel-10"});
    let images = |objects: &[serde_json::Value]| {
        let cluster = assemble(objects, None)?;
        let outcomes = cluster.render(RenderIdentity {
            controller_version: "test",
            release_version: "",
        });
        let mut images = std::collections::BTreeMap::new();
        for outcome in outcomes {
            let rendered = outcome.rendered().map_err(ToString::to_string)?;
            images.insert(
                outcome.name().to_owned(),
                rendered.config.spec().os_image_url.clone(),
            );
        }
        let config = cluster.controller_config.unwrap_or_default().spec;
        Ok::<_, String>((images, config.base_os_container_image))
    };

    let (found, default) =
        images(&[release.clone(), streams("rhel-9"), gate("enabled"), infra.clone()]).unwrap();
    assert_eq!((&found["worker"], &found["infra"]), (&image("1"), &image("3")));
    assert_eq!(default, image("1"));
    let (found, _) = images(&[
        release.clone(),
        streams("rhel-9"),
        gate("disabled"),
        infra.clone(),
    ])
    .unwrap();
    assert_eq!((found["worker"].as_str(), found["infra"].as_str()), ("", ""));
    let error = images(&[gate("enabled"), infra]).unwrap_err();
    assert!(error.contains("this cluster offers no streams"), "{error}");
    let error = images(&[release, streams("suse"), gate("enabled")]).unwrap_err();
    assert!(
        error.contains("could not find the requested suse default stream"),
        "{error}"
    );
}
