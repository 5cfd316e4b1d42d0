//! The operator's life: look, do what is to be done, tell, wait for a change.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use mco_api::MachineConfigPool;
use mco_api::crd::CustomResourceDefinition;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cluster::{Cluster, ClusterError};
use crate::cluster_operator;
use crate::controller_config::release_version;
use crate::facts::{self, Facts};
use crate::options::Options;
use crate::progress::{Outcome, Progress, Step};
use crate::report::{self, Story};
use crate::steps::{definitions, machine_configuration, pools, rendering, serving, user_data};
use crate::watches::{Watches, Work};

/// Changes come in groups; one round for all of them is enough.
const SETTLE: Duration = Duration::from_millis(100);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Its absence tells that this cluster is new to us.
const TELLTALE: &str = "controllerconfigs.machineconfiguration.openshift.io";

#[derive(Debug, Error)]
pub enum OperatorError {
    #[error("cannot listen for admission requests on {address}: {source}")]
    Listen {
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

/// Looks after the cluster until `stop`.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), OperatorError> {
    let mut operator = Operator::new(client, options);
    tokio::select! {
        () = stop.cancelled() => {}
        () = operator.live() => {}
    }
    info!("the operator stops");
    Ok(())
}

struct Operator {
    cluster: Cluster,
    options: Options,
    watches: Watches,
    /// Unknown until the cluster could be asked.
    bringup: Option<bool>,
    progress: Progress,
    facts: Option<Facts>,
}

impl Operator {
    fn new(client: Client, options: Options) -> Self {
        Self {
            watches: Watches::new(client.clone()),
            cluster: Cluster::new(client),
            options,
            bringup: None,
            progress: Progress::default(),
            facts: None,
        }
    }

    async fn live(&mut self) {
        let mut work = Work::Everything;
        let mut retry = FIRST_RETRY;
        loop {
            let told = Box::pin(self.round(work)).await;
            if let Err(error) = &told {
                warn!("cannot report: {error}");
            }
            let is_well = told.is_ok() && !self.progress.has_failed();
            let pause = if is_well { self.options.resync } else { retry };
            retry = if is_well {
                FIRST_RETRY
            } else {
                (retry * 2).min(LAST_RETRY)
            };
            work = tokio::select! {
                work = self.watches.changed() => {
                    tokio::time::sleep(SETTLE).await;
                    if self.watches.taken() == Work::Everything { Work::Everything } else { work }
                }
                () = tokio::time::sleep(pause) => Work::Everything,
            };
        }
    }

    async fn round(&mut self, work: Work) -> Result<(), ClusterError> {
        if work == Work::Everything {
            Box::pin(self.steps()).await;
        }
        let pools = self.required_pools().await;
        let release = release_version(self.facts.as_ref(), &self.options);
        let story = Story {
            release: &release,
            bringup: self.bringup.unwrap_or_default(),
            progress: &self.progress,
            pools: &pools,
        };
        report::report(&self.cluster, &self.options, &story).await?;
        if self.progress.is_complete() {
            self.bringup = Some(false);
        }
        Ok(())
    }

    /// Does all steps but the last, which depends on others' progress.
    async fn steps(&mut self) {
        self.bringup = match self.bringup {
            None => self.is_new().await,
            known => known,
        };
        let (cluster, options) = (&self.cluster, &self.options);
        let mut progress = Progress::default();
        progress
            .run(Step::Namespace, definitions::namespaces(cluster))
            .await;
        progress
            .run(Step::CustomResourceDefinitions, definitions::definitions(cluster))
            .await;
        if progress.of(Step::CustomResourceDefinitions) == Some(&Outcome::Done) {
            if let Err(error) = report::announce(cluster).await {
                warn!("cannot report: {error}");
            }
            self.watches.follow_own();
        }
        let facts = progress.find(Step::RenderConfig, facts::gather(cluster)).await;
        let known = facts.clone().unwrap_or_default();
        self.watches.follow_kinds(known.kinds());
        progress
            .run(
                Step::Certificates,
                serving::config_server(cluster, &known, options, Timestamp::now()),
            )
            .await;
        progress
            .run(
                Step::MachineConfiguration,
                machine_configuration::machine_configuration(cluster),
            )
            .await;
        progress
            .run(Step::MachineConfigPools, pools::required(cluster, facts.as_ref()))
            .await;
        progress
            .settle(
                Step::MachineConfigController,
                rendering::controller_config(cluster, &known, options),
            )
            .await;
        progress
            .run(Step::UserData, async {
                let pools = pools::all(cluster).await?;
                user_data::user_data(cluster, &pools, &known, options).await
            })
            .await;
        for (step, why) in progress.failures() {
            warn!("{} failed: {why}", step.name());
        }
        self.progress = progress;
        self.facts = facts.or_else(|| self.facts.take());
    }

    /// Asks the pools how they are.
    async fn required_pools(&mut self) -> Vec<MachineConfigPool> {
        self.progress.forget(Step::RequiredPools);
        let mut found = Vec::new();
        let work = async {
            found = pools::all(&self.cluster)
                .await
                .map_err(|error| error.to_string())?;
            cluster_operator::required(&found)
        };
        self.progress.settle(Step::RequiredPools, work).await;
        found
    }

    async fn is_new(&self) -> Option<bool> {
        let found = self.cluster.find::<CustomResourceDefinition>(TELLTALE).await;
        found.ok().map(|found| found.is_none())
    }
}
