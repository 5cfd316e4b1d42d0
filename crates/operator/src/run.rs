//! The operator's main loop: gather, run the steps, report, wait for a change.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::Client;
use mco_api::crd::{CompanionKinds, CustomResourceDefinition};
use mco_api::vocabulary::names;
use mco_api::{ClusterBase, MachineConfigPool, MachineConfiguration, OSImageStream};
use mco_http::metrics::{ScrapeAccess, serve_metrics};
use mco_http::tls::{CertificateStore, TlsError};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::admission::InUseIndex;
use crate::admission::webhook;
use crate::cluster::{ClusterError, OperatorClient};
use crate::cluster_operator::{self, ReleaseVersions};
use crate::controller_config::release_version;
use crate::facts::{self, FactGroup, KnownFacts, ObservedFacts};
use crate::log_levels::LogLevels;
use crate::manifests::{self, ManifestSettings, ParameterKinds};
use crate::options::{MetricsAccess, OperandMode, OperatorOptions};
use crate::pace::{RoundResult, SyncPace};
use crate::profile::{self, BaseEvidence, ClusterProfile};
use crate::progress::{SyncOutcome, SyncProgress, SyncResult, SyncStep};
use crate::report::{self, Story};
use crate::secret_files::{self, SecretEndpoint};
use crate::steps::own_metrics::OwnMetrics;
use crate::steps::rendering::{RenderingError, Rotation};
use crate::steps::{
    definitions, evaluation, machine_configuration, monitoring, os_builds, pools, rendering, serving,
    user_data, workloads,
};
use crate::watches::{Watches, Work};

/// Polling interval for the required pools, whose configs can change without an event of the pools.
const GLANCE: Duration = Duration::from_secs(15);
/// The facts that a step needs. Until they have been read once the step is skipped, because a default could change the
/// cluster.
const FOR_SERVERS: &[FactGroup] = &[FactGroup::Platform];
const FOR_CERTIFICATES: &[FactGroup] = &[FactGroup::Platform, FactGroup::InstallerAuthority];
const FOR_CONTROLLER_CONFIG: &[FactGroup] = &[
    FactGroup::Platform,
    FactGroup::Release,
    FactGroup::InstallerAuthority,
    FactGroup::Rest,
];
const UNKNOWN_FACTS: &str = "the ControllerConfig is not written until all of its inputs could be read";
const FOR_BOOT_IMAGES: &[FactGroup] = &[FactGroup::Platform, FactGroup::Release];
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
pub async fn run(
    client: Client,
    options: OperatorOptions,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let ending = stop.child_token();
    let mut tasks = JoinSet::new();
    let mut operator = Operator::new(client.clone(), options);
    if let Some(webhook) = &operator.options.webhook {
        let listener = listen("admission requests", webhook.listen).await?;
        let in_use = Arc::new(InUseIndex::default());
        let certificate = Arc::clone(&operator.certificate);
        let (following, stopping) = (Arc::clone(&in_use), ending.clone());
        let secrets = SecretEndpoint::new(client.clone());
        let client = client.clone();
        tasks.spawn(async move { following.follow(client, stopping).await });
        let serving = webhook::serve(listener, certificate, in_use, secrets, ending.clone());
        tasks.spawn(async move {
            if let Err(error) = serving.await {
                warn!("cannot serve the admission webhook: {error}");
            }
        });
    }
    tasks.spawn(secret_files::publish(client.clone(), ending.clone()));
    if let Some(address) = operator.options.metrics_address {
        let listener = listen("scrapers of metrics", address).await?;
        let access = match operator.options.metrics_access {
            MetricsAccess::Open => ScrapeAccess::default(),
            MetricsAccess::Guarded => {
                let own = OwnMetrics::new(Arc::clone(&operator.metrics_certificate), client)?;
                operator.own_metrics.insert(own).access()
            }
        };
        let metrics = operator.options.metrics.clone();
        let source = move || metrics.encode();
        tasks.spawn(serve_metrics(listener, access, source, ending.clone()));
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
    let bound = mco_http::bind(address).await;
    bound.map_err(|source| OperatorError::Listen {
        what,
        address,
        source,
    })
}

/// Creates the namespace, for objects that must exist before the operator runs.
pub async fn prepare(client: Client) -> Result<(), ClusterError> {
    OperatorClient::new(client)
        .create_if_absent(&manifests::namespace())
        .await
}

struct Operator {
    cluster: OperatorClient,
    options: OperatorOptions,
    watches: Watches,
    /// `None` until the cluster could be read.
    bringup: Option<bool>,
    progress: SyncProgress,
    known: Option<KnownFacts>,
    rotation: Rotation,
    /// Deprecated settings, as the ClusterOperator reports them.
    evaluation: Option<String>,
    /// Why boot images block an upgrade.
    boot_images: Option<String>,
    /// What is installed; the default until the cluster could be read.
    profile: ClusterProfile,
    is_decided: bool,
    /// The last full sync wrote everything, so that a changed state of workloads needs no other step.
    is_applied: bool,
    /// The operating system images in the rendered configs that pools report.
    rendered_images: BTreeMap<String, String>,
    /// The webhook's certificate.
    certificate: Arc<CertificateStore>,
    /// The certificate of the operator's own metrics.
    metrics_certificate: Arc<CertificateStore>,
    own_metrics: Option<OwnMetrics>,
}

impl Operator {
    fn new(client: Client, options: OperatorOptions) -> Self {
        let cluster = OperatorClient::new(client.clone());
        Self {
            watches: Watches::new(client, Arc::clone(cluster.applied())),
            cluster,
            options,
            bringup: None,
            progress: SyncProgress::default(),
            known: None,
            rotation: Rotation::default(),
            evaluation: None,
            boot_images: None,
            profile: ClusterProfile::default(),
            is_decided: false,
            is_applied: false,
            rendered_images: BTreeMap::new(),
            certificate: Arc::default(),
            metrics_certificate: Arc::default(),
            own_metrics: None,
        }
    }

    async fn live(&mut self) {
        let mut work = Work::Everything;
        let mut pace = SyncPace::new(Instant::now());
        loop {
            if work == Work::Workloads && !self.is_applied {
                work = Work::Everything;
            }
            let result = if let Ok(result) = AssertUnwindSafe(Box::pin(self.round(work))).catch_unwind().await
            {
                result
            } else {
                mco_telemetry::count_panic("operator");
                error!(?work, "a sync panicked; retrying with backoff");
                RoundResult::Failed
            };
            let now = Instant::now();
            pace.done(work, result, now);
            let is_applied = result != RoundResult::Failed && !self.progress.has_failed_to_apply();
            let (pause, next) = if !is_applied {
                (pace.until_retry(now), Work::Everything)
            } else if result == RoundResult::NotReported {
                (pace.until_retry(now), Work::Status)
            } else {
                self.rest(pace.since_everything(now))
            };
            work = tokio::select! {
                work = self.watches.changed() => {
                    tokio::time::sleep(pace.quiet_period()).await;
                    work.max(self.watches.taken())
                }
                () = tokio::time::sleep(pause) => {
                    if pace.since_everything(Instant::now()) >= self.options.resync {
                        self.cluster.applied().clear();
                    }
                    next
                }
            };
        }
    }

    /// Returns the time until the next sync without a change, and its extent.
    fn rest(&self, since_all_was_done: Duration) -> (Duration, Work) {
        let left = self.options.resync.saturating_sub(since_all_was_done);
        let waits = matches!(
            self.progress.of(SyncStep::RequiredPools),
            Some(SyncOutcome::Waiting(_) | SyncOutcome::Failed(_))
        );
        if waits && left > GLANCE {
            (GLANCE, Work::Status)
        } else {
            (left, Work::Everything)
        }
    }

    async fn round(&mut self, work: Work) -> RoundResult {
        let started = Instant::now();
        match work {
            Work::Status => {}
            Work::Workloads => self.refresh_workloads().await,
            Work::Everything => {
                if let Err(error) = self.decide_profile().await {
                    warn!("cannot sync: {error}");
                    return RoundResult::Failed;
                }
                Box::pin(self.steps()).await;
            }
        }
        if let Err(error) = self.report(started).await {
            warn!("cannot report: {error}");
            return RoundResult::NotReported;
        }
        if self.progress.is_complete() {
            self.bringup = Some(false);
        }
        if self.progress.has_failed_to_apply() {
            RoundResult::Failed
        } else {
            RoundResult::Complete
        }
    }

    async fn report(&mut self, started: Instant) -> Result<(), ClusterError> {
        let release = self.release().await?;
        let pools = self.required_pools(&release).await;
        let story = Story {
            release: &release,
            bringup: self.bringup.unwrap_or_default(),
            progress: &self.progress,
            pools: &pools,
            evaluation: self.evaluation.as_deref(),
            boot_images: self.boot_images.as_deref(),
            kinds: self.profile.kinds,
        };
        report::report(&self.cluster, &self.options, &story).await?;
        self.options.metrics.round(started.elapsed(), &self.progress);
        Ok(())
    }

    /// Decides what is installed, before anything is written. A decision stays while the cluster cannot be read.
    async fn decide_profile(&mut self) -> Result<(), ClusterError> {
        let options = &self.options.profile;
        let evidence = if options.base.is_some_and(ClusterBase::is_openshift) {
            // Refused on no cluster.
            Ok(BaseEvidence::default())
        } else {
            profile::evidence(self.cluster.client()).await
        };
        let evidence = match evidence {
            Ok(evidence) => evidence,
            Err(error) if self.is_decided => {
                warn!("cannot check the base of the cluster: {error}");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let decided = profile::decide(&evidence, options);
        self.profile = decided.map_err(|error| ClusterError::Profile(error.to_string()))?;
        self.is_decided = true;
        Ok(())
    }

    fn facts(&self) -> Option<&ObservedFacts> {
        self.known.as_ref().map(|known| &known.facts)
    }

    /// Returns the release to report; if the cluster's release cannot be read, the one that was deployed last.
    async fn release(&self) -> Result<String, ClusterError> {
        let known = self.known.as_ref();
        let is_known = known.is_some_and(|known| known.has(&[FactGroup::Release]));
        let is_known = is_known || self.options.release_version.is_some();
        if !is_known && let Some(before) = report::deployed(&self.cluster, self.profile.kinds).await? {
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
        let mut progress = SyncProgress::default();
        self.install_definitions(&mut progress).await;
        let (cluster, options, profile) = (&self.cluster, &self.options, &self.profile);
        if options.workloads == OperandMode::Deployed || options.metrics_access == MetricsAccess::Guarded {
            let certificates = monitoring::certificates(cluster, &self.metrics_certificate, Timestamp::now());
            progress.run(SyncStep::Monitoring, certificates).await;
        }
        self.watches.follow_facts();
        let known = Box::pin(gathered(&mut progress, cluster, self.known.as_ref())).await;
        let facts = &known.facts;
        self.watches.follow_kinds(facts.kinds());
        if let Some(own_metrics) = &mut self.own_metrics {
            own_metrics.follow(facts.tls());
        }
        if profile.server {
            certificates(&mut progress, cluster, options, &known).await;
        }
        let settings = settings(&mut progress, cluster, options, &known, profile.kinds).await;
        if let Some(settings) = &settings {
            self.boot_images = machine_configuration::obstacle(settings);
        }
        let required = async {
            if profile.base.has_templates() {
                pools::required(cluster, facts).await?;
            }
            // Before the first render of the pools.
            os_builds::pre_built_images(cluster).await
        };
        progress.run(SyncStep::MachineConfigPools, required).await;
        if profile.server {
            let user_data = async {
                let pools = pools::all(cluster).await?;
                user_data::user_data(cluster, &pools, facts, options).await
            };
            progress.run(SyncStep::UserData, user_data).await;
        }
        if let Some(webhook) = &options.webhook {
            let admission = workloads::webhook(cluster, webhook, &self.certificate, Timestamp::now());
            progress.run(SyncStep::Admission, admission).await;
        }
        let mut rotation = self.rotation;
        let config = async {
            if known.has(FOR_CONTROLLER_CONFIG) {
                rendering::controller_config(cluster, facts, options, profile.base, &mut rotation).await
            } else {
                Ok(SyncResult::NotYet(UNKNOWN_FACTS.to_owned()))
            }
        };
        let is_rendered = match options.workloads {
            OperandMode::Elsewhere => {
                progress.settle(SyncStep::MachineConfigController, config).await;
                progress
                    .run(SyncStep::AccessControl, workloads::access(cluster, profile))
                    .await;
                progress
                    .run(SyncStep::MachineOSBuilder, os_builds::sync(cluster))
                    .await;
                true
            }
            OperandMode::Deployed => {
                progress
                    .run(SyncStep::AccessControl, workloads::access(cluster, profile))
                    .await;
                Box::pin(self.deploy(&mut progress, &known, config)).await
            }
        };
        self.is_applied = is_rendered && progress.is_applied();
        for (step, why) in progress.failures() {
            warn!("{} failed: {why}", step.name());
        }
        self.watches.follow_applied();
        self.evaluate(&progress).await;
        self.progress = progress;
        self.known = Some(known);
        self.rotation = rotation;
    }

    /// Applies namespaces and CRDs, and starts the watches that need them.
    async fn install_definitions(&mut self, progress: &mut SyncProgress) {
        let (cluster, options, profile) = (&self.cluster, &self.options, &self.profile);
        progress
            .run(SyncStep::Namespace, definitions::namespaces(cluster, profile))
            .await;
        progress
            .run(
                SyncStep::CustomResourceDefinitions,
                definitions::definitions(cluster, profile.kinds),
            )
            .await;
        if progress.of(SyncStep::CustomResourceDefinitions) == Some(&SyncOutcome::Done) {
            if let Err(error) = report::announce(cluster, profile.kinds).await {
                warn!("cannot report: {error}");
            }
            self.watches.follow_own(profile);
            if options.workloads == OperandMode::Deployed {
                self.watches.follow_workloads();
            }
        }
    }

    async fn evaluate(&mut self, progress: &SyncProgress) {
        if progress.of(SyncStep::CustomResourceDefinitions) != Some(&SyncOutcome::Done) {
            return;
        }
        match evaluation::evaluation(&self.cluster).await {
            Ok(found) => self.evaluation = found,
            // The previous result is kept.
            Err(error) => warn!("cannot check for deprecated settings: {error}"),
        }
    }

    /// Reads the states of the deployed workloads again. Nothing is applied: only their status has changed.
    async fn refresh_workloads(&mut self) {
        let (cluster, progress) = (&self.cluster, &mut self.progress);
        if self.options.workloads == OperandMode::Elsewhere {
            return;
        }
        let daemon = workloads::daemon_state(cluster);
        progress.again(SyncStep::MachineConfigDaemon, daemon).await;
        let controller = workloads::controller_state(cluster);
        progress
            .again(SyncStep::MachineConfigController, controller)
            .await;
        let server = workloads::server_state(cluster);
        progress.again(SyncStep::MachineConfigServer, server).await;
    }

    /// Runs the steps for workloads in the cluster. Returns whether the ControllerConfig is complete.
    async fn deploy(
        &self,
        progress: &mut SyncProgress,
        known: &KnownFacts,
        config: impl Future<Output = Result<SyncResult, RenderingError>> + Send,
    ) -> bool {
        let cluster = &self.cluster;
        let profile = &self.profile;
        let settings = &deployment_settings(&known.facts, &self.options, profile);
        let network = async {
            if profile.network_policies {
                workloads::network_policies(cluster).await?;
            }
            let streams = cluster.find::<OSImageStream>(names::SINGLETON).await?;
            let served = ParameterKinds::observed(&known.facts, streams.as_ref());
            workloads::guards(cluster, profile, served).await
        };
        progress.run(SyncStep::NetworkPolicies, network).await;
        let daemon = workloads::daemon(cluster, settings);
        progress.settle(SyncStep::MachineConfigDaemon, daemon).await;
        // The ControllerConfig is written even if the Deployment cannot be, so that certificates keep rotating.
        let mut is_rendered = false;
        let controller = async {
            let single = known.facts.control_plane.is_single;
            let (config, deployed) = (
                config.await,
                workloads::controller(cluster, settings, single).await,
            );
            is_rendered = matches!(config, Ok(SyncResult::Yes));
            match (config?, deployed?) {
                (_, SyncResult::NotRunning(what)) => Ok::<_, RenderingError>(SyncResult::NotRunning(what)),
                (SyncResult::Yes, deployed) => Ok(deployed),
                (config, _) => Ok(config),
            }
        };
        progress
            .settle(SyncStep::MachineConfigController, controller)
            .await;
        if profile.server && known.has(FOR_SERVERS) {
            let server = workloads::server(cluster, settings);
            progress.settle(SyncStep::MachineConfigServer, server).await;
        } else if profile.server {
            progress.skip(SyncStep::MachineConfigServer, SyncStep::RenderConfig);
        }
        let builder = workloads::builder(cluster, settings);
        progress.settle(SyncStep::MachineOSBuilder, builder).await;
        is_rendered
    }

    /// Runs the last step, which checks the required pools.
    async fn required_pools(&mut self, release: &str) -> Vec<MachineConfigPool> {
        self.progress.remove(SyncStep::RequiredPools);
        let mut found = Vec::new();
        let facts = self.facts().cloned().unwrap_or_default();
        let work = async {
            found = pools::all(&self.cluster)
                .await
                .map_err(|error| error.to_string())?;
            let reported = pools::reported(&self.cluster, &found, &mut self.rendered_images)
                .await
                .map_err(|error| error.to_string())?;
            let images = pools::os_images(&self.cluster, &found, &facts, release)
                .await
                .map_err(|error| error.to_string())?;
            let release = ReleaseVersions {
                controller: &self.options.version,
                version: release,
                images: &images.by_pool,
                stale_streams: images.stale_streams.as_deref(),
            };
            let outcome = cluster_operator::required(&found, &reported, release)?;
            cluster_operator::within_deadline(&found, outcome, Timestamp::now())
        };
        self.progress.settle(SyncStep::RequiredPools, work).await;
        found
    }

    async fn is_new(&self) -> Option<bool> {
        let found = self.cluster.find::<CustomResourceDefinition>(TELLTALE).await;
        found.ok().map(|found| found.is_none())
    }
}

/// Returns the facts about the cluster, each at its last successful read.
async fn gathered(
    progress: &mut SyncProgress,
    cluster: &OperatorClient,
    before: Option<&KnownFacts>,
) -> KnownFacts {
    let known = facts::gather(cluster, before).await;
    let heard = std::future::ready(known.problem().map_or(Ok(()), Err));
    progress.run(SyncStep::RenderConfig, heard).await;
    known
}

/// Reconciles the config server's certificates and returns the CAs to trust.
async fn certificates(
    progress: &mut SyncProgress,
    cluster: &OperatorClient,
    options: &OperatorOptions,
    known: &KnownFacts,
) {
    if known.has(FOR_CERTIFICATES) {
        let certificates = serving::config_server(cluster, &known.facts, options, Timestamp::now());
        progress.run(SyncStep::Certificates, certificates).await;
    } else {
        progress.skip(SyncStep::Certificates, SyncStep::RenderConfig);
    }
}

/// Reconciles the MachineConfiguration and returns it with its effect on boot images and logs, or `None` if it could
/// not be read.
async fn settings(
    progress: &mut SyncProgress,
    cluster: &OperatorClient,
    options: &OperatorOptions,
    known: &KnownFacts,
    kinds: CompanionKinds,
) -> Option<MachineConfiguration> {
    let mut settings = None;
    let release = release_version(Some(&known.facts), options);
    let work = async {
        let found = settings.insert(machine_configuration::present(cluster, kinds).await?);
        // Machine templates, which boot images belong to, are OpenShift's.
        if known.has(FOR_BOOT_IMAGES) && kinds == CompanionKinds::OpenShift {
            machine_configuration::boot_images(cluster, &known.facts, &release, found).await
        } else {
            Ok(())
        }
    };
    progress.run(SyncStep::MachineConfiguration, work).await;
    if let Some(settings) = &settings {
        let levels = LogLevels::of(settings);
        options
            .log_levels
            .send_if_modified(|observed| std::mem::replace(observed, levels) != levels);
    }
    settings
}

/// Returns the settings of the workloads, with the API server's address of the ControllerConfig.
fn deployment_settings(
    facts: &ObservedFacts,
    options: &OperatorOptions,
    profile: &ClusterProfile,
) -> ManifestSettings {
    let infrastructure = serving::effective_infrastructure(facts, options);
    let status = infrastructure.and_then(|infrastructure| infrastructure.status);
    ManifestSettings {
        image: options.image.clone(),
        templates_image: options.templates_image.clone(),
        builder_image: options.builder_image.clone(),
        keep_builds: options.keep_builds,
        api_server_url: status
            .map(|status| status.api_server_internal_uri)
            .unwrap_or_default(),
        ignition_tokens: options.ignition_tokens,
        log_level: options.log_levels.borrow().operands,
        profile: ClusterProfile {
            // An installation from before bases exist has the one of OpenShift on every cluster.
            assigns_users: profile.assigns_users && facts.cluster_version.is_some(),
            ..profile.clone()
        },
        chosen_base: options.profile.base,
        tls: facts.tls(),
    }
}
