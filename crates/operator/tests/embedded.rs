//! The operator on the embedded control plane: from an empty cluster to everything that controllers need.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Running, eventually};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use mco_api::foreign::cluster_operator::ClusterOperator;
use mco_api::machine_configuration::LogLevel;
use mco_api::vocabulary::annotations;
use mco_api::{ContainerRuntimeConfig, ControllerConfig, MachineConfigPool, MachineConfiguration};
use mco_core::pipeline::bootstrap::default_controller_config;
use mco_http::pool_tokens::{PoolTokens, TokenDenial};
use mco_operator::{IgnitionTokens, LogLevels, OperatorOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn a_bare_cluster_gets_everything_that_rendering_needs() {
    let running = Running::start().await;
    let configs: Api<ControllerConfig> = Api::all(running.client());
    let config = eventually("the ControllerConfig", || async {
        configs.get_opt("machine-config-controller").await.ok().flatten()
    })
    .await;
    let mut spec = config.spec.clone();
    let authority = String::from_utf8(std::mem::take(&mut spec.root_ca_data.0)).unwrap();
    assert_eq!(
        spec,
        default_controller_config().spec,
        "beside the certificates, what the offline render assumes"
    );
    assert_eq!(
        config.metadata.annotations.unwrap()[annotations::GENERATED_BY_VERSION],
        "0.1.0"
    );

    let pools: Api<MachineConfigPool> = Api::all(running.client());
    let names = || async {
        let found = pools.list(&ListParams::default()).await.ok()?;
        let names: Vec<String> = found
            .items
            .into_iter()
            .filter_map(|pool| pool.metadata.name)
            .collect();
        (names == ["master", "worker"]).then_some(())
    };
    eventually("both pools", names).await;

    let machines: Api<Secret> = Api::namespaced(running.client(), "openshift-machine-api");
    for name in ["master", "worker"] {
        for secret in [format!("{name}-user-data-managed"), format!("{name}-user-data")] {
            let secret = eventually(&secret, || async {
                machines.get_opt(&secret).await.ok().flatten()
            })
            .await;
            let document: Value = serde_json::from_slice(&secret.data.unwrap()["userData"].0).unwrap();
            assert_eq!(
                document["ignition"]["config"]["merge"][0]["source"],
                format!("https://api-int.cluster.local:22623/config/{name}")
            );
        }
    }
    let own: Api<Secret> = Api::namespaced(running.client(), "openshift-machine-config-operator");
    let tls = own.get("machine-config-server-tls").await.unwrap();
    assert_eq!(tls.type_.as_deref(), Some("kubernetes.io/tls"));
    let maps: Api<ConfigMap> = Api::namespaced(running.client(), "openshift-machine-config-operator");
    let bundle = maps.get("machine-config-server-ca").await.unwrap().data.unwrap();
    assert_eq!(bundle["ca-bundle.crt"], authority, "machines trust who signs");

    let settings: Api<MachineConfiguration> = Api::all(running.client());
    let settings = eventually("the settings", || async {
        settings.get_opt("cluster").await.ok().flatten()
    })
    .await;
    assert_eq!(settings.spec.management_state, "Managed");
    running.stop().await;
}

#[tokio::test]
async fn changed_objects_are_reverted_and_the_users_part_stays() {
    let running = Running::start().await;
    let pools: Api<MachineConfigPool> = Api::all(running.client());
    eventually("the worker pool", || async {
        pools.get_opt("worker").await.ok().flatten()
    })
    .await;
    let patch = json!({"spec": {"maxUnavailable": 3}, "metadata": {"labels": {"custom-kubelet": "sysctl"}}});
    pools
        .patch("worker", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let configs: Api<ControllerConfig> = Api::all(running.client());
    eventually("the ControllerConfig", || async {
        configs.get_opt("machine-config-controller").await.ok().flatten()
    })
    .await;
    let patch = json!({"spec": {"clusterDNSIP": "192.0.2.1"}});
    configs
        .patch(
            "machine-config-controller",
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .unwrap();
    eventually("the right DNS address", || async {
        let config = configs.get("machine-config-controller").await.unwrap();
        (config.spec.cluster_dns_ip == "10.96.0.10").then_some(())
    })
    .await;
    let worker = pools.get("worker").await.unwrap();
    assert!(worker.spec.max_unavailable.is_some());
    assert!(worker.metadata.labels.unwrap().contains_key("custom-kubelet"));
    running.stop().await;
}

#[tokio::test]
async fn what_others_say_about_the_cluster_is_followed_at_once() {
    let running = Running::start().await;
    let configs: Api<ControllerConfig> = Api::all(running.client());
    let trusted = |authority: &'static str| {
        let configs = configs.clone();
        async move {
            let config = configs.get_opt("machine-config-controller").await.ok()??;
            let trusted = config.spec.kube_api_server_serving_ca_data.0;
            (trusted == authority.as_bytes()).then_some(())
        }
    };
    eventually("the ControllerConfig", || trusted("")).await;
    let namespaces: Api<Namespace> = Api::all(running.client());
    for (namespace, name, key, authority) in [
        (
            "kube-system",
            "extension-apiserver-authentication",
            "client-ca-file",
            "first",
        ),
        (
            "openshift-config-managed",
            "kube-apiserver-client-ca",
            "ca-bundle.crt",
            "second",
        ),
    ] {
        if namespaces.get_opt(namespace).await.unwrap().is_none() {
            let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
            namespaces.create(&PostParams::default(), &object).await.unwrap();
        }
        let map = json!({"metadata": {"name": name}, "data": {key: authority}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(running.client(), namespace);
        maps.create(&PostParams::default(), &map).await.unwrap();
        eventually(name, || trusted(authority)).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_rotation_of_the_api_servers_ca_is_announced_to_the_machines() {
    let running = Running::start().await;
    let configs: Api<ControllerConfig> = Api::all(running.client());
    let reported = |value: &'static str| {
        let configs = configs.clone();
        async move {
            let config = configs.get_opt("machine-config-controller").await.ok()??;
            let reported = config
                .metadata
                .annotations?
                .remove(annotations::SERVICE_CA_ROTATE)?;
            (reported == value).then_some(())
        }
    };
    eventually("a cluster where nothing rotates", || reported("false")).await;
    let namespaces: Api<Namespace> = Api::all(running.client());
    let namespace =
        serde_json::from_value(json!({"metadata": {"name": "openshift-config-managed"}})).unwrap();
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let map = json!({"metadata": {"name": "kube-apiserver-server-ca"}, "data": {"ca-bundle.crt": "another"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(running.client(), "openshift-config-managed");
    maps.create(&PostParams::default(), &map).await.unwrap();
    eventually("the rotation", || reported("true")).await;
    let own: Api<ConfigMap> = Api::namespaced(running.client(), "openshift-machine-config-operator");
    let published = own.get("kubeconfig-data").await.unwrap().binary_data.unwrap();
    assert_eq!(published["ca-bundle.crt"].0, b"another");
    running.stop().await;
}

/// Waits for an event about the ClusterOperator.
async fn was_told(running: &Running, type_: &str, reason: &str, note: &str) {
    let events: Api<Event> = Api::namespaced(running.client(), "openshift-machine-config-operator");
    eventually(reason, || async {
        let found = events.list(&ListParams::default()).await.unwrap().items;
        let mut found = found.into_iter();
        found.find(|event| {
            let about = event.regarding.clone().unwrap_or_default();
            event.type_.as_deref() == Some(type_)
                && event.reason.as_deref() == Some(reason)
                && event.note.as_deref() == Some(note)
                && about.kind.as_deref() == Some("ClusterOperator")
        })
    })
    .await;
}

#[tokio::test]
async fn the_cluster_operator_follows_the_pools() {
    let running = Running::start().await;
    let operators: Api<ClusterOperator> = Api::all(running.client());
    let condition = |type_: &'static str| {
        let operators = operators.clone();
        async move {
            let found = operators.get_opt("machine-config").await.ok().flatten()?;
            let conditions = found.status?.conditions;
            let condition = conditions.into_iter().find(|one| one.type_ == type_)?;
            Some((condition.status, condition.message))
        }
    };
    eventually("a cluster that starts", || async {
        let (status, message) = condition("Progressing").await?;
        (status == "True" && message == "Cluster is bootstrapping 0.1.0").then_some(())
    })
    .await;
    running.play_controllers().await;
    eventually("a cluster that runs", || async {
        let (status, message) = condition("Available").await?;
        (status == "True" && message == "Cluster has deployed [{operator 0.1.0}]").then_some(())
    })
    .await;
    eventually("and is not on its way", || async {
        (condition("Progressing").await? == ("False".to_owned(), "Cluster version is 0.1.0".to_owned()))
            .then_some(())
    })
    .await;
    let failing = json!({"status": {"conditions": [
        {"type": "NodeDegraded", "status": "True", "reason": "1 nodes are reporting degraded status on sync",
         "message": "Node worker-1 is reporting: \"disk is full\"", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}});
    running.patch_pool_status("worker", failing).await;
    let message = eventually("Degraded", || async {
        let (status, message) = condition("Degraded").await?;
        (status == "True").then_some(message)
    })
    .await;
    for part in [
        "Failed to resync 0.1.0 because:",
        "MachineConfigPool worker",
        "worker-1",
        "disk is full",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let changed = "clusteroperator/machine-config version changed from none to 0.1.0";
    was_told(&running, "Normal", "OperatorVersionChanged", changed).await;
    was_told(
        &running,
        "Warning",
        "OperatorDegraded: RequiredPoolsFailed",
        &message,
    )
    .await;
    running.play_controllers().await;
    eventually("no longer degraded", || async {
        (condition("Degraded").await?.0 == "False").then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn an_update_that_takes_too_long_degrades_the_operator_unless_it_is_held_back() {
    let running = Running::start().await;
    running.play_controllers().await;
    let operators: Api<ClusterOperator> = Api::all(running.client());
    let updating = |reason: &str| {
        json!({"status": {"updatedMachineCount": 1, "conditions": [
            {"type": "Updating", "status": "True", "reason": reason, "message": "All nodes are updating to rendered-master-1",
             "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ]}})
    };
    for (reason, degraded) in [("", "True"), ("RolloutHeld", "False"), ("", "True")] {
        running.patch_pool_status("master", updating(reason)).await;
        let message = eventually(&format!("Degraded={degraded} with reason {reason:?}"), || async {
            let found = operators.get_opt("machine-config").await.ok().flatten()?;
            let conditions = found.status?.conditions;
            let condition = conditions.into_iter().find(|one| one.type_ == "Degraded")?;
            (condition.status == degraded).then_some(condition.message)
        })
        .await;
        assert_eq!(
            message.contains("context deadline exceeded"),
            degraded == "True",
            "{message}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changes() {
    let running = Running::start().await;
    running.play_controllers().await;
    let revision = || running.server.registry().store.revision();
    let mut quiet = 0;
    let mut last = revision();
    eventually("quiet", || {
        let now = revision();
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        std::future::ready((quiet > 40).then_some(()))
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn deprecated_settings_are_reported_until_they_are_gone() {
    let running = Running::start().await;
    running.play_controllers().await;
    let operators: Api<ClusterOperator> = Api::all(running.client());
    let evaluated = || async {
        let found = operators.get_opt("machine-config").await.ok().flatten()?;
        let mut conditions = found.status?.conditions.into_iter();
        let condition = conditions.find(|one| one.type_ == "EvaluationConditionsDetected")?;
        Some((condition.status, condition.reason))
    };
    let nothing = ("False".to_owned(), "AsExpected".to_owned());
    eventually("nothing to report", || async {
        (evaluated().await? == nothing).then_some(())
    })
    .await;
    let runtimes: Api<ContainerRuntimeConfig> = Api::all(running.client());
    let runc = serde_json::from_value(json!({
        "metadata": {"name": "old"}, "spec": {"containerRuntimeConfig": {"defaultRuntime": "runc"}},
    }))
    .unwrap();
    runtimes.create(&PostParams::default(), &runc).await.unwrap();
    let runc = ("True".to_owned(), "runc: transition to default crun".to_owned());
    eventually("the old runtime", || async {
        (evaluated().await? == runc).then_some(())
    })
    .await;
    runtimes.delete("old", &DeleteParams::default()).await.unwrap();
    eventually("nothing to report any more", || async {
        (evaluated().await? == nothing).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn user_data_that_others_made_trusts_the_present_authority() {
    let running = Running::start().await;
    let machines: Api<Secret> = Api::namespaced(running.client(), "openshift-machine-api");
    let source = |secret: &Secret, place: &str| {
        let text = secret.data.as_ref().unwrap()["userData"].0.clone();
        let document: Value = serde_json::from_slice(&text).unwrap();
        document.pointer(place).cloned().unwrap_or_default()
    };
    let authority = "/ignition/security/tls/certificateAuthorities/0/source";
    let managed = eventually("the managed user data", || async {
        machines.get_opt("worker-user-data-managed").await.ok().flatten()
    })
    .await;
    let present = source(&managed, authority);
    let old = json!({"ignition": {
        "version": "2.2.0",
        "config": {"append": [{"source": "https://elsewhere:22623/config/worker"}]},
        "security": {"tls": {"certificateAuthorities": [{"source": "data:,old"}]}},
    }});
    let old = ByteString(old.to_string().into_bytes());
    let mut theirs = Secret {
        data: Some([("userData".to_owned(), old)].into()),
        ..Secret::default()
    };
    theirs.metadata.name = Some("theirs".to_owned());
    machines.create(&PostParams::default(), &theirs).await.unwrap();
    let theirs = eventually("the present authority", || async {
        let secret = machines.get("theirs").await.ok()?;
        (source(&secret, authority) == present).then_some(secret)
    })
    .await;
    assert_eq!(
        source(&theirs, "/ignition/version"),
        "2.2.0",
        "old images need the old version"
    );
    assert_eq!(
        source(&theirs, "/ignition/config/append/0/source"),
        "https://elsewhere:22623/config/worker"
    );
    running.stop().await;
}

#[tokio::test]
async fn new_machines_get_a_token_that_the_servers_accept() {
    let options = OperatorOptions {
        ignition_tokens: IgnitionTokens::Required,
        ..OperatorOptions::new("0.1.0")
    };
    let running = Running::with(options).await;
    let machines: Api<Secret> = Api::namespaced(running.client(), "openshift-machine-api");
    let own: Api<Secret> = Api::namespaced(running.client(), "openshift-machine-config-operator");
    let value = |secret: &Secret, key: &str| secret.data.as_ref().unwrap()[key].0.clone();
    let managed = eventually("the managed user data", || async {
        machines.get_opt("worker-user-data-managed").await.ok().flatten()
    })
    .await;
    let pointer: Value = serde_json::from_slice(&value(&managed, "userData")).unwrap();
    let entry = &pointer["ignition"]["config"]["merge"][0];
    let header = entry["httpHeaders"][0]["value"].as_str().unwrap().to_owned();
    let token = header.strip_prefix("Bearer ").unwrap();
    let records = own.get("machine-config-server-tokens").await.unwrap();
    let records = PoolTokens::parse(&value(&records, "tokens.json")).unwrap();
    let now = Timestamp::now();
    assert_eq!(records.check(Some(token), "worker", now), Ok(()));
    assert_eq!(
        records.check(Some(token), "master", now),
        Err(TokenDenial::OtherPool)
    );

    // An installer's user data without a token, of a cluster that ran another implementation before.
    let theirs =
        json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": entry["source"]}]}}});
    let theirs = ByteString(theirs.to_string().into_bytes());
    let mut secret = Secret {
        data: Some([("userData".to_owned(), theirs)].into()),
        ..Secret::default()
    };
    secret.metadata.name = Some("installers".to_owned());
    machines.create(&PostParams::default(), &secret).await.unwrap();
    eventually("the token in the user data of others", || async {
        let secret = machines.get("installers").await.ok()?;
        let text = String::from_utf8(value(&secret, "userData")).unwrap();
        text.contains(&header).then_some(())
    })
    .await;

    own.delete("machine-config-server-tokens", &DeleteParams::default())
        .await
        .unwrap();
    eventually("another token after a revocation", || async {
        let secret = machines.get("installers").await.ok()?;
        let text = String::from_utf8(value(&secret, "userData")).unwrap();
        (text.contains("Bearer ") && !text.contains(&header)).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn what_is_said_about_logs_is_passed_on_while_the_operator_runs() {
    let options = OperatorOptions::new("0.1.0");
    let mut levels = options.log_levels.subscribe();
    let running = Running::with(options).await;
    let settings = running.settings().await;
    for (spec, expected) in [
        (
            json!({"operatorLogLevel": "Debug"}),
            (LogLevel::Debug, LogLevel::Normal),
        ),
        (json!({"logLevel": "Trace"}), (LogLevel::Debug, LogLevel::Trace)),
        (
            json!({"operatorLogLevel": null, "logLevel": null}),
            (LogLevel::Normal, LogLevel::Normal),
        ),
    ] {
        let patch = Patch::Merge(json!({ "spec": spec }));
        settings
            .patch("cluster", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let (operator, operands) = expected;
        let expected = LogLevels { operator, operands };
        let reported = levels.wait_for(|levels| *levels == expected);
        tokio::time::timeout(common::DEADLINE, reported)
            .await
            .expect("the levels are set")
            .unwrap();
    }
    running.stop().await;
}

#[tokio::test]
async fn boot_images_that_are_too_old_keep_the_cluster_from_upgrading() {
    let running = Running::start().await;
    running.play_controllers().await;
    let operators: Api<ClusterOperator> = Api::all(running.client());
    let settings = running.settings().await;
    let upgradeable = || async {
        let found = operators.get_opt("machine-config").await.ok().flatten()?;
        let mut conditions = found.status?.conditions.into_iter();
        let condition = conditions.find(|one| one.type_ == "Upgradeable")?;
        Some((condition.status, condition.reason, condition.message))
    };
    let old = json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": "4.12.0"}});
    for (asked, expected, why) in [
        (Value::Null, ("True", "AsExpected"), ""),
        (
            old,
            ("False", "ClusterBootImageSkewError"),
            "OCP boot image version 4.12.0",
        ),
        (
            json!({"mode": "None", "manual": null}),
            ("True", "AsExpected"),
            "",
        ),
    ] {
        let patch = Patch::Merge(json!({"spec": {"bootImageSkewEnforcement": asked}}));
        settings
            .patch("cluster", &PatchParams::default(), &patch)
            .await
            .unwrap();
        eventually(expected.1, || async {
            let (status, reason, message) = upgradeable().await?;
            let reported = (status.as_str(), reason.as_str()) == expected && message.contains(why);
            let enforced = settings.get("cluster").await.unwrap().status.unwrap_or_default();
            let mode = enforced
                .boot_image_skew_enforcement_status
                .map(|status| status.mode);
            (reported && mode.as_deref() == asked["mode"].as_str()).then_some(())
        })
        .await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_scraper_sees_steps_and_conditions() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let running = Running::with(OperatorOptions {
        metrics_address: Some(address),
        ..OperatorOptions::new("0.1.0")
    })
    .await;
    running.play_controllers().await;
    let scrape = || async {
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    };
    let expected = [
        "mco_operator_condition{condition=\"Available\"} 1",
        "mco_operator_condition{condition=\"Degraded\"} 0",
        "mco_operator_step{step=\"RequiredPools\",outcome=\"done\"} 1",
        "mco_operator_round_seconds_count",
    ];
    let text = eventually("the metrics of a cluster that runs", || async {
        let text = scrape().await?;
        expected.iter().all(|line| text.contains(line)).then_some(text)
    })
    .await;
    assert!(text.contains("application/openmetrics-text"), "{text}");
    assert!(!text.contains("outcome=\"failed\""), "{text}");
    running.stop().await;
}
