//! A large fleet of machines that only pretend: they follow the protocol of a daemon and touch nothing.

use kube::Client;
use mco_testkit::fleet::{self, Behaviour, Blueprint};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const MASTERS: usize = 3;
const ZONES: usize = 3;

/// Slow enough to watch.
const APPLY: Duration = Duration::from_secs(1);
const REBOOT: Duration = Duration::from_secs(2);

pub async fn run(client: Client, number: usize, stop: CancellationToken) -> anyhow::Result<()> {
    let masters = (0..MASTERS).map(|index| blueprint("master", index));
    let workers = (0..number.saturating_sub(MASTERS)).map(|index| blueprint("worker", index));
    let machines: Vec<Blueprint> = masters.chain(workers).take(number).collect();
    fleet::create(&client, &machines).await?;
    let behaviour = Behaviour {
        apply: APPLY,
        reboot: Some(REBOOT),
        report_steps: true,
        ..Behaviour::default()
    };
    fleet::run(client, behaviour, stop).await;
    Ok(())
}

fn blueprint(role: &str, index: usize) -> Blueprint {
    Blueprint::new(format!("{role}-{index}"), role).in_zone(format!("zone-{}", index % ZONES))
}
