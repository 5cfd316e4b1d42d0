//! Control-plane and arbiter nodes, of which only one may be unavailable.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::client::Body;
use mco_api::{ControllerConfig, MachineConfigPool};
use mco_simulator::{self as fleet, Behaviour, SimulatedNodeSpec};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::cluster::{Cluster, eventually, file_config, target};
use crate::observer::Observer;

const MASTERS: [&str; 2] = ["voter-a", "voter-b"];
const ARBITER: &str = "voter-x";

/// Two control-plane nodes and an arbiter, all up to date, with controllers that use this service.
async fn start(through: impl FnOnce(Client) -> Client) -> Cluster {
    let mut cluster = Cluster::prepare().await;
    let topology = json!({"spec": {"infra": {"status": {"controlPlaneTopology": "HighlyAvailableArbiter"}}}});
    let _: ControllerConfig = cluster.patch("machine-config-controller", topology).await;
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "arbiter"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "arbiter"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/arbiter": ""}},
        },
    }))
    .unwrap();
    cluster.create(&pool).await;
    let client = through(cluster.counted_client());
    cluster.start_controllers_through(client, cluster.options());
    let masters = MASTERS.map(|name| SimulatedNodeSpec::new(name, "master"));
    let machines = [masters.as_slice(), &[SimulatedNodeSpec::new(ARBITER, "arbiter")]].concat();
    fleet::create(&cluster.client, &machines).await.unwrap();
    cluster.start_fleet(Behaviour::default());
    for pool in ["master", "arbiter"] {
        cluster.updated(pool).await;
    }
    cluster.at_rest().await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arbiter_whose_config_was_rendered_first_still_goes_after_the_control_plane() {
    const LATE: Duration = Duration::from_millis(500);
    let cluster = start(|client| {
        let service = tower::service_fn(move |request: Request<Body>| {
            let client = client.clone();
            async move {
                if request.method() == Method::PATCH
                    && request.uri().path().ends_with("/machineconfigpools/master")
                {
                    tokio::time::sleep(LATE).await;
                }
                client.send(request).await
            }
        });
        Client::new(service, "default")
    })
    .await;
    let observer = Observer::start(cluster.api());
    eventually("the observer sees the nodes", || async {
        (!observer.sent(ARBITER).is_empty()).then_some(())
    })
    .await;
    let mut before = Vec::new();
    for pool in ["master", "arbiter"] {
        before.push(target(&cluster.pool(pool).await));
        let name = format!("99-{pool}-a");
        cluster
            .create_config(file_config(&name, pool, "/etc/a", "a"))
            .await;
    }
    for (pool, before) in ["arbiter", "master"].into_iter().zip(before.iter().rev()) {
        cluster.retargeted(pool, before).await;
    }
    for pool in ["master", "arbiter"] {
        cluster.updated(pool).await;
    }
    assert_eq!(observer.order(), [MASTERS[0], MASTERS[1], ARBITER]);
    assert_eq!(observer.worst("voter"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_control_plane_node_is_updated_when_the_arbiter_became_unavailable_during_the_operator_lookup() {
    const OPEN: usize = 1_000;
    let gate = Arc::new(Semaphore::new(OPEN));
    let waiting = Arc::new(Semaphore::new(0));
    let (answer, asked) = (Arc::clone(&gate), Arc::clone(&waiting));
    let cluster = start(|client| {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, answer, asked) = (client.clone(), Arc::clone(&answer), Arc::clone(&asked));
            async move {
                let query = request.uri().query().unwrap_or_default();
                if request.uri().path().ends_with("/pods") && query.contains("machine-config-operator") {
                    asked.add_permits(1);
                    drop(answer.acquire().await.unwrap());
                }
                client.send(request).await
            }
        });
        Client::new(service, "default")
    })
    .await;
    gate.forget_permits(OPEN);
    waiting.forget_permits(OPEN);
    let before = target(&cluster.pool("master").await);
    cluster
        .create_config(file_config("99-master-a", "master", "/etc/a", "a"))
        .await;
    let new = cluster.retargeted("master", &before).await;
    let deadline = crate::cluster::DEADLINE;
    let asked = tokio::time::timeout(deadline, waiting.acquire()).await;
    asked.expect("the operator is looked for").unwrap().forget();
    let _: Node = cluster
        .patch(ARBITER, json!({"spec": {"unschedulable": true}}))
        .await;
    cluster
        .pool_where("arbiter", "counts its node as away", |pool| {
            pool.status
                .as_ref()
                .is_some_and(|status| status.unavailable_machine_count == 1)
        })
        .await;
    gate.add_permits(OPEN);
    let desired = async |name: &str| Cluster::annotation(&cluster.node(name).await, "desiredConfig");
    // Desired configs are written before the taints of waiting nodes.
    for name in MASTERS {
        eventually(&format!("{name} waits"), async || {
            let taints = cluster.node(name).await.spec?.taints?;
            taints
                .iter()
                .any(|taint| taint.key == "UpdateInProgress")
                .then_some(())
        })
        .await;
        assert_eq!(desired(name).await, before, "{name}");
    }
    let _: Node = cluster
        .patch(ARBITER, json!({"spec": {"unschedulable": null}}))
        .await;
    cluster.updated("master").await;
    assert_eq!(desired(MASTERS[0]).await, new);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_of_control_plane_nodes_took_one_each_at_once() {
    const POOLS: [&str; 2] = ["cp-a", "cp-b"];
    let mut cluster = Cluster::prepare().await;
    for name in POOLS {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": name}},
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
                "maxUnavailable": 2,
            },
        }))
        .unwrap();
        cluster.create(&pool).await;
    }
    let client = cluster.counted_client();
    cluster.start_controllers_through(client, cluster.options());
    let machines = ["a", "b", "c", "d"].map(|letter| {
        let pool = if letter < "c" { POOLS[0] } else { POOLS[1] };
        SimulatedNodeSpec {
            roles: vec![pool.to_owned(), "control-plane".to_owned()],
            ..SimulatedNodeSpec::new(format!("voter-{letter}"), pool)
        }
    });
    fleet::create(&cluster.client, &machines).await.unwrap();
    cluster.start_fleet(Behaviour::default());
    for pool in POOLS {
        cluster.updated(pool).await;
    }
    cluster.at_rest().await;
    let observer = Observer::start(cluster.api());
    eventually("the observer sees the nodes", || async {
        (!observer.sent("voter-d").is_empty()).then_some(())
    })
    .await;
    let mut before = Vec::new();
    for pool in POOLS {
        before.push(target(&cluster.pool(pool).await));
        let config = file_config(&format!("99-{pool}-a"), pool, "/etc/a", "a");
        cluster.create_config(config).await;
    }
    for (pool, before) in POOLS.into_iter().zip(&before) {
        cluster.retargeted(pool, before).await;
        cluster.updated(pool).await;
    }
    assert_eq!(observer.order().len(), machines.len());
    assert_eq!(observer.worst("voter"), 1);
}
