//! One candidate for a Lease, with the rules of Kubernetes' own components.
//!
//! Times that others wrote are never compared with our clock: a lease is free when it has not changed for its whole
//! duration while we looked on. Who holds it stops counting on it well before that, whatever keeps it from renewing: an
//! error, a connection that never answers, or a clock that runs differently.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

/// Between attempts to give it back.
const RELEASE_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
    duration: Duration,
    seen: Seen,
}

/// The lease as it was last seen in another's hands.
#[derive(Debug, Default)]
struct Seen {
    holder: String,
    version: String,
    /// Until when its holder may count on it.
    until: Option<Instant>,
}

/// The moment from which on the lease is known to be ours: when it was asked for, not when the answer came.
pub(super) type HeldSince = Instant;

/// How one attempt to get or renew the lease ended.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Held,
    HeldBy(String),
    /// Somebody wrote it at the same time.
    Collided,
}

impl Candidate {
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, duration: Duration) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            duration,
            seen: Seen::default(),
        }
    }

    /// Asks until the lease is ours.
    pub async fn acquire(&mut self) -> HeldSince {
        let mut holder = None;
        loop {
            let began = Instant::now();
            match timeout(self.answer_within(), self.attempt()).await {
                Ok(Ok(Attempt::Held)) => return began,
                Ok(Ok(Attempt::HeldBy(other))) => {
                    if holder.as_ref() != Some(&other) {
                        info!("{other} leads");
                    }
                    holder = Some(other);
                }
                Ok(Ok(Attempt::Collided)) => {}
                Ok(Err(problem)) => warn!("cannot ask for the lease {}: {problem}", self.name),
                Err(_) => warn!("nobody answers who holds the lease {}", self.name),
            }
            sleep(self.pause()).await;
        }
    }

    /// Renews the lease until that is no longer possible, and says why.
    pub async fn keep(&mut self, mut held: HeldSince) -> String {
        loop {
            sleep_until(held + self.duration / 3).await;
            let deadline = held + self.patience();
            held = loop {
                let began = Instant::now();
                let answered = deadline.min(began + self.answer_within());
                let problem = match timeout_at(answered, self.attempt()).await {
                    Ok(Ok(Attempt::Held)) => break began,
                    Ok(Ok(Attempt::HeldBy(other))) => return format!("{other} holds it"),
                    Ok(Ok(Attempt::Collided)) => "somebody else wrote it".to_owned(),
                    Ok(Err(problem)) => problem.to_string(),
                    Err(_) => "nobody answers".to_owned(),
                };
                // Whoever leads has no time to lose, and nobody to collide with.
                let next = Instant::now() + self.pause() / 3;
                if next >= deadline {
                    return format!("it could not be renewed in time: {problem}");
                }
                debug!("the lease {} is not renewed yet: {problem}", self.name);
                sleep_until(next).await;
            };
        }
    }

    /// Lets others have it at once, if it is ours.
    pub async fn release(&mut self) {
        loop {
            match self.try_release().await {
                Ok(()) => return,
                // An earlier request of ours may have arrived only now.
                Err(kube::Error::Api(status)) if status.is_conflict() => sleep(RELEASE_AGAIN).await,
                Err(problem) => {
                    debug!("the lease {} is not given back: {problem}", self.name);
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
            .replace(&self.name, &PostParams::default(), &lease)
            .await
            .map(|_| ())
    }

    async fn attempt(&mut self) -> Result<Attempt, kube::Error> {
        let written = match self.leases.get_opt(&self.name).await? {
            // Whoever held it does not know yet that it is gone.
            None if self.seen.counts(Instant::now()) => {
                return Ok(Attempt::HeldBy(self.seen.holder.clone()));
            }
            None => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.name.clone());
                lease.spec = Some(self.claim(&LeaseSpec::default()));
                self.leases.create(&PostParams::default(), &lease).await
            }
            Some(mut lease) => {
                let spec = lease.spec.take().unwrap_or_default();
                let holder = spec.holder_identity.as_deref().unwrap_or_default();
                let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
                if holder != self.identity && !holder.is_empty() {
                    let now = Instant::now();
                    self.seen.look(holder, version, now + self.lasts(&spec));
                    if self.seen.counts(now) {
                        return Ok(Attempt::HeldBy(holder.to_owned()));
                    }
                }
                lease.spec = Some(self.claim(&spec));
                // The version that was read guards it: of two who find it free, one gets it.
                let options = PostParams::default();
                self.leases.replace(&self.name, &options, &lease).await
            }
        };
        match written {
            Ok(_) => {
                self.seen = Seen::default();
                Ok(Attempt::Held)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(Attempt::Collided)
            }
            Err(problem) => Err(problem),
        }
    }

    /// The lease in our hands.
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

    /// How long others count on its holder.
    fn lasts(&self, spec: &LeaseSpec) -> Duration {
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(self.duration, Duration::from_secs)
    }

    /// How long a holder counts on a lease that it cannot renew. The rest is for stopping.
    fn patience(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// How long one answer is waited for: a connection that leads nowhere must leave time for another one.
    fn answer_within(&self) -> Duration {
        self.duration / 6
    }

    /// Between attempts; never the same for two candidates, so that they do not collide for ever.
    fn pause(&self) -> Duration {
        let random = RandomState::new().build_hasher().finish() % 1_000;
        let part = self.duration / 10;
        part + part * u32::try_from(random).unwrap_or_default() / 1_000
    }
}

impl Seen {
    /// Takes note of the lease; one that is as it was before lasts no longer for that.
    fn look(&mut self, holder: &str, version: &str, until: Instant) {
        if self.until.is_none() || self.version != version {
            *self = Self {
                holder: holder.to_owned(),
                version: version.to_owned(),
                until: Some(until),
            };
        }
    }

    /// Whether its holder may still count on it.
    fn counts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
