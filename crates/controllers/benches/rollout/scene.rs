//! The fleet, its pools and configs, and one change of all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_apiserver::{ApiServer, ApiServerOptions};
use mco_simulator::{self as fleet, Behaviour, SimulatedNodeSpec};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::child::{Controllers, VERSION};
use crate::measure::Measured;
use crate::timeline::Timeline;

const ROLE: &str = "machineconfiguration.openshift.io/role";
/// maxUnavailable of each pool, in percent.
const PERCENT: usize = 10;
const PATIENCE: Duration = Duration::from_mins(30);

pub struct Scale {
    pub nodes: usize,
    pub pools: usize,
    pub configs: usize,
    /// How long the update of a node takes.
    pub each: Duration,
}

impl Scale {
    pub fn from_environment() -> Self {
        let number = |key: &str, usual: usize| {
            let set = std::env::var(key).ok().and_then(|text| text.parse().ok());
            set.unwrap_or(usual)
        };
        Self {
            nodes: number("FLEET_NODES", 5_000),
            pools: number("FLEET_POOLS", 20),
            configs: number("FLEET_CONFIGS", 200),
            each: Duration::from_secs(number("FLEET_SECONDS", 20) as u64),
        }
    }

    fn of_each_pool(&self) -> usize {
        self.nodes.div_ceil(self.pools)
    }

    pub fn at_once(&self) -> usize {
        // Some pools have one node less than others.
        (self.nodes / self.pools * PERCENT / 100).max(1)
    }

    /// Returns the lower bound: the time that the nodes need.
    pub fn possible(&self) -> Duration {
        let waves = self.of_each_pool().div_ceil(self.at_once());
        self.each * u32::try_from(waves).unwrap()
    }

    fn pool_of(&self, node: &str) -> String {
        let index = node.rsplit('-').next().and_then(|number| number.parse().ok());
        self.pool_name(index.unwrap_or_default())
    }

    fn pool_name(&self, index: usize) -> String {
        match index % self.pools {
            0 => "worker".to_owned(),
            index => format!("pool-{index:02}"),
        }
    }
}

pub async fn play(scale: &Scale) -> Measured {
    let directory = tempfile::tempdir().unwrap();
    let server = Arc::new(
        ApiServer::open(directory.path(), ApiServerOptions::default())
            .await
            .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let kubeconfig = server.write_kubeconfig(&url).unwrap();
    let serving = Arc::clone(&server);
    tokio::spawn(async move { serving.serve(listener, &url).await });
    let client = Client::new(server.service(), "default");
    fleet::setup::prepare(&client, VERSION).await.unwrap();
    furnish(&client, scale).await;
    let mut controllers = Controllers::start(&kubeconfig);
    let stop = CancellationToken::new();
    let half = scale.each / 2;
    let behaviour = Behaviour {
        apply: half,
        reboot: Some(half),
        ..Behaviour::default()
    };
    tokio::spawn(fleet::run(client.clone(), behaviour, stop.clone()));
    let machines: Vec<SimulatedNodeSpec> = (0..scale.nodes)
        .map(|index| {
            let mut machine = SimulatedNodeSpec::new(format!("node-{index:05}"), "worker");
            let pool = scale.pool_name(index);
            if pool != "worker" {
                machine.roles.push(pool);
            }
            machine.in_zone(format!("zone-{}", index % 3))
        })
        .collect();
    println!("the fleet is being installed");
    fleet::create(&client, &machines).await.unwrap();
    settled(&client, scale, "").await;
    let old = target_of_worker(&client).await;
    // The last writes of the setup do not count.
    tokio::time::sleep(Duration::from_secs(3)).await;
    controllers.writes().await;
    let timeline = Timeline::follow(client.clone()).await;
    println!("the change");
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let started = Instant::now();
    configs
        .create(
            &PostParams::default(),
            &config("99-worker-change", "worker", "change"),
        )
        .await
        .unwrap();
    let to_first_target = timeline.first_sent().await.duration_since(started);
    settled(&client, scale, &old).await;
    let rollout = started.elapsed();
    let measured = Measured {
        to_first_target,
        rollout,
        peak_megabytes: controllers.peak_megabytes(),
        writes: controllers.writes().await,
    };
    timeline.print(|node| scale.pool_of(node));
    controllers.stop().await;
    stop.cancel();
    measured
}

/// Pools and configs.
async fn furnish(client: &Client, scale: &Scale) {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let limit = format!("{PERCENT}%");
    let patch = json!({"spec": {"maxUnavailable": limit}});
    pools
        .patch("worker", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    for index in 1..scale.pools {
        let name = scale.pool_name(index);
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "machineConfigSelector": {"matchExpressions": [
                    {"key": ROLE, "operator": "In", "values": ["worker", name]},
                ]},
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
                "maxUnavailable": limit,
            },
        }))
        .unwrap();
        pools.create(&PostParams::default(), &pool).await.unwrap();
    }
    let configs: Api<MachineConfig> = Api::all(client.clone());
    for index in 0..scale.configs {
        let role = scale.pool_name(index);
        let name = format!("50-{role}-{index:03}");
        configs
            .create(&PostParams::default(), &config(&name, &role, &"x".repeat(2_000)))
            .await
            .unwrap();
    }
}

fn config(name: &str, role: &str, text: &str) -> MachineConfig {
    let value: Value = json!({
        "metadata": {"name": name, "labels": {ROLE: role}},
        "spec": {"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [
                {"path": format!("/etc/bench/{name}"), "mode": 420, "contents": {"source": format!("data:,{text}")}},
            ]},
        }},
    });
    serde_json::from_value(value).unwrap()
}

async fn target_of_worker(client: &Client) -> String {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pool = pools.get("worker").await.unwrap();
    pool.target_name().to_owned()
}

/// Waits until every node has its pool's target, and the worker pool's target differs from `old`.
async fn settled(client: &Client, scale: &Scale, old: &str) {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let start = Instant::now();
    loop {
        let all = pools.list(&ListParams::default()).await.unwrap().items;
        let mut machines = 0;
        let settled = all.iter().all(|pool| {
            let status = pool.status.clone().unwrap_or_default();
            let target = pool.target_name();
            machines += usize::try_from(status.machine_count).unwrap_or_default();
            let moved = pool.metadata.name.as_deref() != Some("worker") || target != old;
            moved
                && status.configuration.name() == target
                && condition::holds(&status.conditions, condition::UPDATED)
        });
        if settled && machines == scale.nodes {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "not settled: {machines} machines");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
