//! Simulates a fleet of workers in the cluster of a kubeconfig, for benchmarks of controllers that run elsewhere.
//!
//! Usage: `fleet KUBECONFIG NODES SECONDS`. Creates the Nodes, prints "created", and updates each of them, whenever its
//! desired config changes, in so many seconds. Ends with its standard input.
#![allow(clippy::print_stdout, reason = "its output is what e2e/bench/run waits for")]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use mco_simulator::{Behaviour, SimulatedNodeSpec};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, nodes, seconds] = arguments.as_slice() else {
        return Err("usage: fleet KUBECONFIG NODES SECONDS".into());
    };
    let half = Duration::try_from_secs_f64(seconds.parse::<f64>()? / 2.0)?;
    let behaviour = Behaviour {
        apply: half,
        reboot: Some(half),
        ..Behaviour::default()
    };
    let client = client(Path::new(kubeconfig)).await?;
    let machines: Vec<SimulatedNodeSpec> = (0..nodes.parse::<usize>()?)
        .map(|index| {
            let zone = format!("zone-{}", index % 3);
            SimulatedNodeSpec::new(format!("node-{index:05}"), "worker").in_zone(zone)
        })
        .collect();
    mco_simulator::create(&client, &machines).await?;
    println!("created");
    let stop = CancellationToken::new();
    let daemons = tokio::spawn(mco_simulator::run(client, behaviour, stop.clone()));
    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await??;
    stop.cancel();
    daemons.await?;
    Ok(())
}

async fn client(kubeconfig: &Path) -> Result<Client, Box<dyn Error>> {
    // The process has no default provider, and kube does not choose one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
