//! One candidate for a Lease, with the rules of Kubernetes' own components.
//!
//! Timestamps in the lease are never compared with the local clock: a lease has expired when it has not changed for
//! its whole duration while this candidate observed it. The holder gives up well before that, whether its renewals
//! fail with an error, get no response, or its clock runs differently.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::jitter::random_per_mille;
use crate::patch::FieldManager;

const MANAGER: FieldManager = FieldManager::new("leader-election");

/// Between attempts to release the lease.
const RELEASE_RETRY: Duration = Duration::from_millis(50);

pub(super) struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
    duration: Duration,
    observed: ObservedLease,
}

/// The lease as it was last observed with another holder.
#[derive(Debug, Default)]
struct ObservedLease {
    holder: String,
    version: String,
    /// When it expires unless it changes.
    expires: Option<Instant>,
}

/// The start of the request that acquired or renewed the lease; the response may have come later.
pub(super) type HeldSince = Instant;

/// The result of one attempt to acquire or renew the lease.
#[derive(Debug, PartialEq, Eq)]
enum LeaseAttempt {
    Held,
    HeldBy(String),
    /// Another candidate wrote it at the same time.
    Conflict,
}

impl Candidate {
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, duration: Duration) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            duration,
            observed: ObservedLease::default(),
        }
    }

    /// Retries until this candidate holds the lease.
    pub async fn acquire(&mut self) -> HeldSince {
        let mut holder = None;
        loop {
            let began = Instant::now();
            match timeout(self.request_timeout(), self.attempt()).await {
                Ok(Ok(LeaseAttempt::Held)) => return began,
                Ok(Ok(LeaseAttempt::HeldBy(other))) => {
                    if holder.as_ref() != Some(&other) {
                        info!("{other} is the leader");
                    }
                    holder = Some(other);
                }
                Ok(Ok(LeaseAttempt::Conflict)) => {}
                Ok(Err(problem)) => warn!("cannot acquire the lease {}: {problem}", self.name),
                Err(_) => warn!("cannot acquire the lease {}: request timed out", self.name),
            }
            sleep(self.pause()).await;
        }
    }

    /// Renews the lease until that is no longer possible, and returns why.
    pub async fn keep(&mut self, mut held: HeldSince) -> String {
        loop {
            sleep_until(held + self.duration / 3).await;
            let deadline = held + self.renew_deadline();
            held = loop {
                let began = Instant::now();
                let timeout = deadline.min(began + self.request_timeout());
                let problem = match timeout_at(timeout, self.attempt()).await {
                    Ok(Ok(LeaseAttempt::Held)) => break began,
                    Ok(Ok(LeaseAttempt::HeldBy(other))) => return format!("{other} holds it"),
                    Ok(Ok(LeaseAttempt::Conflict)) => "another candidate wrote it".to_owned(),
                    Ok(Err(problem)) => problem.to_string(),
                    Err(_) => "request timed out".to_owned(),
                };
                // The leader retries sooner than candidates do: it has a deadline and rarely a conflict.
                let next = Instant::now() + self.pause() / 3;
                if next >= deadline {
                    return format!("it could not be renewed in time: {problem}");
                }
                debug!("renewing the lease {}: {problem}; retrying", self.name);
                sleep_until(next).await;
            };
        }
    }

    /// Releases the lease if this candidate holds it, so that another one need not wait for its expiry.
    pub async fn release(&mut self) {
        loop {
            match self.try_release().await {
                Ok(()) => return,
                // A request sent earlier may have been processed only now.
                Err(kube::Error::Api(status)) if status.is_conflict() => sleep(RELEASE_RETRY).await,
                Err(problem) => {
                    debug!("cannot release the lease {}: {problem}", self.name);
                    return;
                }
            }
        }
    }

    async fn try_release(&self) -> Result<(), kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.leases
            .replace(&self.name, &MANAGER.post_params(), &lease)
            .await
            .map(|_| ())
    }

    async fn attempt(&mut self) -> Result<LeaseAttempt, kube::Error> {
        let written = match self.leases.get_opt(&self.name).await? {
            // Its holder may not have noticed yet that it was deleted.
            None if self.observed.is_valid(Instant::now()) => {
                return Ok(LeaseAttempt::HeldBy(self.observed.holder.clone()));
            }
            None => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.name.clone());
                lease.spec = Some(self.claim(&LeaseSpec::default()));
                self.leases.create(&MANAGER.post_params(), &lease).await
            }
            Some(mut lease) => {
                let spec = lease.spec.take().unwrap_or_default();
                let holder = spec.holder_identity.as_deref().unwrap_or_default();
                let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
                if holder != self.identity && !holder.is_empty() {
                    let now = Instant::now();
                    self.observed
                        .update(holder, version, now + self.duration_of(&spec));
                    if self.observed.is_valid(now) {
                        return Ok(LeaseAttempt::HeldBy(holder.to_owned()));
                    }
                }
                lease.spec = Some(self.claim(&spec));
                // The resource version makes sure that only one of several candidates succeeds.
                let options = MANAGER.post_params();
                self.leases.replace(&self.name, &options, &lease).await
            }
        };
        match written {
            Ok(_) => {
                self.observed = ObservedLease::default();
                Ok(LeaseAttempt::Held)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(LeaseAttempt::Conflict)
            }
            Err(problem) => Err(problem),
        }
    }

    /// Returns the lease as held by this candidate.
    fn claim(&self, before: &LeaseSpec) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let renewed = before.holder_identity.as_deref() == Some(&self.identity);
        let transitions = before.lease_transitions.unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs().max(1)).ok(),
            acquire_time: before
                .acquire_time
                .clone()
                .filter(|_| renewed)
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if renewed {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }
    }

    /// Returns how long other candidates wait for its holder.
    fn duration_of(&self, spec: &LeaseSpec) -> Duration {
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(self.duration, Duration::from_secs)
    }

    /// Returns how long the holder retries before it stops. The rest of the duration is for stopping.
    fn renew_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// Returns the timeout of one request, short enough to retry over another connection.
    fn request_timeout(&self) -> Duration {
        self.duration / 6
    }

    /// Returns the time between two attempts, with jitter so that candidates do not conflict again and again.
    fn pause(&self) -> Duration {
        let part = self.duration / 10;
        part + part * random_per_mille() / 1_000
    }
}

impl ObservedLease {
    /// Records the lease. An unchanged lease keeps its expiry.
    fn update(&mut self, holder: &str, version: &str, expires: Instant) {
        if self.expires.is_none() || self.version != version {
            *self = Self {
                holder: holder.to_owned(),
                version: version.to_owned(),
                expires: Some(expires),
            };
        }
    }

    /// Returns true if the lease has not expired.
    fn is_valid(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| now < expires)
    }
}

#[cfg(test)]
mod tests;
