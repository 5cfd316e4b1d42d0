//! The operator's main loop: gather, run the steps, report, wait for a change.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use mco_api::crd::CustomResourceDefinition;
use mco_api::{MachineConfigPool, MachineConfiguration};
use mco_serve_metrics::Door;
use mco_tls::{Certificate, TlsError};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admission::InUse;
use crate::admission::webhook;
use crate::cluster::{Cluster, ClusterError};
use crate::cluster_operator::{self, Release};
use crate::controller_config::release_version;
use crate::facts::{self, Facts, Known, Part};
use crate::log_levels::LogLevels;
use crate::manifests::{self, Settings};
use crate::options::{MetricsAccess, Options, Workloads};
use crate::pace::Pace;
use crate::progress::{Outcome, Progress, Settled, Step};
use crate::report::{self, Story};
use crate::steps::rendering::{RenderingError, Rotation};
use crate::steps::user_data::Upgrade;
use crate::steps::{
    definitions, evaluation, machine_configuration, monitoring, pools, rendering, serving, user_data,
    workloads,
};
use crate::watches::{Watches, Work};

/// Debounce of changes, which come in bursts.
const SETTLE: Duration = Duration::from_millis(100);
/// Polling interval for the required pools, whose configs can change without an event of the pools.
const GLANCE: Duration = Duration::from_secs(15);
/// The facts that a step needs. Until they have been read once the step is skipped, because a default could change the
/// cluster.
const FOR_SERVERS: &[Part] = &[Part::Platform];
const FOR_CERTIFICATES: &[Part] = &[Part::Platform, Part::InstallerAuthority];
const FOR_CONTROLLER_CONFIG: &[Part] = &[
    Part::Platform,
    Part::Release,
    Part::InstallerAuthority,
    Part::Rest,
];
const UNKNOWN_FACTS: &str = "the ControllerConfig is not written until all of its inputs could be read";
const FOR_BOOT_IMAGES: &[Part] = &[Part::Platform, Part::Release];
/// A CRD whose absence means that the cluster is new.
const TELLTALE: &str = "controllerconfigs.machineconfiguration.openshift.io";

#[derive(Debug, Error)]
pub enum OperatorError {
    #[error("cannot listen for {what} on {address}: {source}")]
    Listen {
        what: &'static str,
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot serve metrics over TLS: {0}")]
    Tls(#[from] TlsError),
}

/// Runs the operator until `stop`.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), OperatorError> {
    let ending = stop.child_token();
    let mut tasks = JoinSet::new();
    let mut operator = Operator::new(client.clone(), options);
    if let Some(webhook) = &operator.options.webhook {
        let listener = listen("admission requests", webhook.listen).await?;
        let in_use = Arc::new(InUse::default());
        let certificate = Arc::clone(&operator.certificate);
        let (following, stopping) = (Arc::clone(&in_use), ending.clone());
        let client = client.clone();
        tasks.spawn(async move { following.follow(client, stopping).await });
        let serving = webhook::serve(listener, certificate, in_use, ending.clone());
        tasks.spawn(async move {
            if let Err(error) = serving.await {
                warn!("cannot serve the admission webhook: {error}");
            }
        });
    }
    if let Some(address) = operator.options.metrics_address {
        let listener = listen("scrapers of metrics", address).await?;
        let door = match operator.options.metrics_access {
            MetricsAccess::Open => Door::default(),
            MetricsAccess::Guarded => {
                Door::with_certificate(Arc::clone(&operator.metrics_certificate), client)?
            }
        };
        let metrics = operator.options.metrics.clone();
        let site = move || metrics.encode();
        tasks.spawn(mco_serve_metrics::serve(listener, door, site, ending.clone()));
    }
    tokio::select! {
        () = stop.cancelled() => {}
        () = operator.live() => {}
    }
    ending.cancel();
    while tasks.join_next().await.is_some() {}
    info!("the operator stops");
    Ok(())
}

async fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, OperatorError> {
    let bound = mco_serve_metrics::listen(address).await;
    bound.map_err(|source| OperatorError::Listen {
        what,
        address,
        source,
    })
}

/// Creates the namespace, for objects that must exist before the operator runs.
pub async fn prepare(client: Client) -> Result<(), ClusterError> {
    Cluster::new(client)
        .create_if_absent(&manifests::namespace())
        .await
}

struct Operator {
    cluster: Cluster,
    options: Options,
    watches: Watches,
    /// `None` until the cluster could be read.
    bringup: Option<bool>,
    progress: Progress,
    known: Option<Known>,
    rotation: Rotation,
    /// Deprecated settings, as the ClusterOperator reports them.
    evaluation: Option<String>,
    /// Why boot images block an upgrade.
    boot_images: Option<String>,
    /// The operating system images in the rendered configs that pools report.
    rendered_images: BTreeMap<String, String>,
    /// The webhook's certificate.
    certificate: Arc<Certificate>,
    /// The certificate of the operator's own metrics.
    metrics_certificate: Arc<Certificate>,
}

impl Operator {
    fn new(client: Client, options: Options) -> Self {
        Self {
            watches: Watches::new(client.clone()),
            cluster: Cluster::new(client),
            options,
            bringup: None,
            progress: Progress::default(),
            known: None,
            rotation: Rotation::default(),
            evaluation: None,
            boot_images: None,
            rendered_images: BTreeMap::new(),
            certificate: Arc::default(),
            metrics_certificate: Arc::default(),
        }
    }

    async fn live(&mut self) {
        let mut work = Work::Everything;
        let mut pace = Pace::new(Instant::now());
        loop {
            let told = Box::pin(self.round(work)).await;
            if let Err(error) = &told {
                warn!("cannot report: {error}");
            }
            let is_well = told.is_ok() && !self.progress.has_failed();
            pace.done(work, is_well, Instant::now());
            let (pause, next) = if is_well {
                self.rest(pace.since_everything(Instant::now()))
            } else {
                (pace.until_retry(Instant::now()), Work::Everything)
            };
            work = tokio::select! {
                work = self.watches.changed() => {
                    tokio::time::sleep(SETTLE).await;
                    if self.watches.taken() == Work::Everything { Work::Everything } else { work }
                }
                () = tokio::time::sleep(pause) => next,
            };
        }
    }

    /// Returns the time until the next sync without a change, and its extent.
    fn rest(&self, since_all_was_done: Duration) -> (Duration, Work) {
        let left = self.options.resync.saturating_sub(since_all_was_done);
        let waits = matches!(self.progress.of(Step::RequiredPools), Some(Outcome::Waiting(_)));
        if waits && left > GLANCE {
            (GLANCE, Work::Status)
        } else {
            (left, Work::Everything)
        }
    }

    async fn round(&mut self, work: Work) -> Result<(), ClusterError> {
        let started = Instant::now();
        if work == Work::Everything {
            Box::pin(self.steps()).await;
        }
        let release = self.release().await?;
        let pools = self.required_pools(&release).await;
        let story = Story {
            release: &release,
            bringup: self.bringup.unwrap_or_default(),
            progress: &self.progress,
            pools: &pools,
            evaluation: self.evaluation.as_deref(),
            boot_images: self.boot_images.as_deref(),
        };
        report::report(&self.cluster, &self.options, &story).await?;
        self.options.metrics.round(started.elapsed(), &self.progress);
        if self.progress.is_complete() {
            self.bringup = Some(false);
        }
        Ok(())
    }

    fn facts(&self) -> Option<&Facts> {
        self.known.as_ref().map(|known| &known.facts)
    }

    /// Returns the release to report; if the cluster's release cannot be read, the one that was deployed last.
    async fn release(&self) -> Result<String, ClusterError> {
        let known = self.known.as_ref();
        let is_known = known.is_some_and(|known| known.has(&[Part::Release]));
        let is_known = is_known || self.options.release_version.is_some();
        if !is_known && let Some(before) = report::deployed(&self.cluster).await? {
            return Ok(before);
        }
        Ok(release_version(self.facts(), &self.options))
    }

    /// Runs all steps but the last, which depends on the progress of other components.
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
            if options.workloads == Workloads::Deployed {
                self.watches.follow_workloads();
            }
        }
        if options.workloads == Workloads::Deployed || options.metrics_access == MetricsAccess::Guarded {
            let certificates = monitoring::certificates(cluster, &self.metrics_certificate, Timestamp::now());
            progress.run(Step::Monitoring, certificates).await;
        }
        self.watches.follow_facts();
        let known = Box::pin(gathered(&mut progress, cluster, self.known.as_ref())).await;
        let facts = &known.facts;
        self.watches.follow_kinds(facts.kinds());
        certificates(&mut progress, cluster, options, &known).await;
        let settings = settings(&mut progress, cluster, options, &known).await;
        if let Some(settings) = &settings {
            self.boot_images = machine_configuration::obstacle(settings);
        }
        let upgrade = settings
            .as_ref()
            .map_or(Upgrade::Never, machine_configuration::upgrade);
        let required = pools::required(cluster, facts);
        progress.run(Step::MachineConfigPools, required).await;
        let user_data = async {
            let pools = pools::all(cluster).await?;
            user_data::user_data(cluster, &pools, facts, options, upgrade).await
        };
        progress.run(Step::UserData, user_data).await;
        if let Some(webhook) = &options.webhook {
            let admission = workloads::webhook(cluster, webhook, &self.certificate, Timestamp::now());
            progress.run(Step::Admission, admission).await;
        }
        let mut rotation = self.rotation;
        let config = async {
            if known.has(FOR_CONTROLLER_CONFIG) {
                rendering::controller_config(cluster, facts, options, &mut rotation).await
            } else {
                Ok(Settled::NotYet(UNKNOWN_FACTS.to_owned()))
            }
        };
        match options.workloads {
            Workloads::Elsewhere => {
                progress.settle(Step::MachineConfigController, config).await;
                progress
                    .run(Step::AccessControl, workloads::access(cluster))
                    .await;
            }
            Workloads::Deployed => {
                progress
                    .run(Step::AccessControl, workloads::access(cluster))
                    .await;
                Box::pin(self.deploy(&mut progress, &known, config)).await;
            }
        }
        for (step, why) in progress.failures() {
            warn!("{} failed: {why}", step.name());
        }
        self.evaluate(&progress).await;
        self.progress = progress;
        self.known = Some(known);
        self.rotation = rotation;
    }

    async fn evaluate(&mut self, progress: &Progress) {
        if progress.of(Step::CustomResourceDefinitions) != Some(&Outcome::Done) {
            return;
        }
        match evaluation::evaluation(&self.cluster).await {
            Ok(found) => self.evaluation = found,
            // The previous result is kept.
            Err(error) => warn!("cannot check for deprecated settings: {error}"),
        }
    }

    /// Runs the steps for workloads in the cluster.
    async fn deploy(
        &self,
        progress: &mut Progress,
        known: &Known,
        config: impl Future<Output = Result<Settled, RenderingError>> + Send,
    ) {
        let cluster = &self.cluster;
        let settings = &deployment_settings(&known.facts, &self.options);
        let network = async {
            workloads::network_policies(cluster).await?;
            workloads::guards(cluster).await
        };
        progress.run(Step::NetworkPolicies, network).await;
        let daemon = workloads::daemon(cluster, settings);
        progress.settle(Step::MachineConfigDaemon, daemon).await;
        // The ControllerConfig is written even if the Deployment cannot be, so that certificates keep rotating.
        let controller = async {
            let (config, deployed) = (config.await, workloads::controller(cluster, settings).await);
            match (config?, deployed?) {
                (_, Settled::NotRunning(what)) => Ok::<_, RenderingError>(Settled::NotRunning(what)),
                (Settled::Yes, deployed) => Ok(deployed),
                (config, _) => Ok(config),
            }
        };
        progress.settle(Step::MachineConfigController, controller).await;
        if known.has(FOR_SERVERS) {
            let server = workloads::server(cluster, settings);
            progress.settle(Step::MachineConfigServer, server).await;
        } else {
            progress.skip(Step::MachineConfigServer, Step::RenderConfig);
        }
    }

    /// Runs the last step, which checks the required pools.
    async fn required_pools(&mut self, release: &str) -> Vec<MachineConfigPool> {
        self.progress.forget(Step::RequiredPools);
        let mut found = Vec::new();
        let facts = self.facts().cloned().unwrap_or_default();
        let work = async {
            found = pools::all(&self.cluster)
                .await
                .map_err(|error| error.to_string())?;
            let reported = pools::reported(&self.cluster, &found, &mut self.rendered_images)
                .await
                .map_err(|error| error.to_string())?;
            let images = pools::os_images(&self.cluster, &found, &facts)
                .await
                .map_err(|error| error.to_string())?;
            let release = Release {
                controller: &self.options.version,
                version: release,
                images: &images,
            };
            cluster_operator::required(&found, &reported, release)
        };
        self.progress.settle(Step::RequiredPools, work).await;
        found
    }

    async fn is_new(&self) -> Option<bool> {
        let found = self.cluster.find::<CustomResourceDefinition>(TELLTALE).await;
        found.ok().map(|found| found.is_none())
    }
}

/// Returns the facts about the cluster, each at its last successful read.
async fn gathered(progress: &mut Progress, cluster: &Cluster, before: Option<&Known>) -> Known {
    let known = facts::gather(cluster, before).await;
    let heard = std::future::ready(known.problem().map_or(Ok(()), Err));
    progress.run(Step::RenderConfig, heard).await;
    known
}

/// Reconciles the config server's certificates and returns the CAs to trust.
async fn certificates(progress: &mut Progress, cluster: &Cluster, options: &Options, known: &Known) {
    if known.has(FOR_CERTIFICATES) {
        let certificates = serving::config_server(cluster, &known.facts, options, Timestamp::now());
        progress.run(Step::Certificates, certificates).await;
    } else {
        progress.skip(Step::Certificates, Step::RenderConfig);
    }
}

/// Reconciles the MachineConfiguration and returns it with its effect on boot images and logs, or `None` if it could
/// not be read.
async fn settings(
    progress: &mut Progress,
    cluster: &Cluster,
    options: &Options,
    known: &Known,
) -> Option<MachineConfiguration> {
    let mut settings = None;
    let release = release_version(Some(&known.facts), options);
    let work = async {
        let found = settings.insert(machine_configuration::present(cluster).await?);
        if known.has(FOR_BOOT_IMAGES) {
            machine_configuration::boot_images(cluster, &known.facts, &release, found).await
        } else {
            Ok(())
        }
    };
    progress.run(Step::MachineConfiguration, work).await;
    if let Some(settings) = &settings {
        let levels = LogLevels::of(settings);
        options
            .log_levels
            .send_if_modified(|told| std::mem::replace(told, levels) != levels);
    }
    settings
}

/// Returns the settings of the workloads, with the API server's address of the ControllerConfig.
fn deployment_settings(facts: &Facts, options: &Options) -> Settings {
    let infrastructure = serving::effective_infrastructure(facts, options);
    let status = infrastructure.and_then(|infrastructure| infrastructure.status);
    Settings {
        image: options.image.clone(),
        templates_image: options.templates_image.clone(),
        api_server_url: status
            .map(|status| status.api_server_internal_uri)
            .unwrap_or_default(),
        log_level: options.log_levels.borrow().operands,
    }
}
