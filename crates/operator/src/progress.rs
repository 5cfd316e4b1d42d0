//! The operator's steps, their order, and their outcomes.
//!
//! Every step that can run does, independent of unrelated failures: a step depends only on those it needs.

use std::fmt::Display;
use std::future::Future;

use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};

/// A step, in the order of execution. The names are part of the ClusterOperator's reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncStep {
    Namespace,
    CustomResourceDefinitions,
    AccessControl,
    RenderConfig,
    Certificates,
    Monitoring,
    MachineConfiguration,
    MachineConfigPools,
    UserData,
    NetworkPolicies,
    Admission,
    MachineConfigDaemon,
    MachineConfigController,
    MachineConfigServer,
    MachineOSBuilder,
    RequiredPools,
}

impl SyncStep {
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::CustomResourceDefinitions => "CustomResourceDefinitions",
            Self::AccessControl => "AccessControl",
            Self::RenderConfig => "RenderConfig",
            Self::Certificates => "Certificates",
            Self::Monitoring => "Monitoring",
            Self::MachineConfiguration => "MachineConfiguration",
            Self::MachineConfigPools => "MachineConfigPools",
            Self::UserData => "UserData",
            Self::NetworkPolicies => "NetworkPolicies",
            Self::Admission => "Admission",
            Self::MachineConfigDaemon => "MachineConfigDaemon",
            Self::MachineConfigController => "MachineConfigController",
            Self::MachineConfigServer => "MachineConfigServer",
            Self::MachineOSBuilder => "MachineOSBuilder",
            Self::RequiredPools => "RequiredPools",
        }
    }

    /// Returns the steps that must succeed before this one can run.
    fn needs(self) -> &'static [Self] {
        match self {
            Self::Namespace | Self::CustomResourceDefinitions | Self::RenderConfig => &[],
            // A step that derives objects from facts needs only its own group of them; see `facts::Known`.
            Self::AccessControl
            | Self::Certificates
            | Self::Monitoring
            | Self::NetworkPolicies
            | Self::Admission => &[Self::Namespace],
            Self::MachineConfiguration | Self::MachineConfigPools | Self::MachineConfigController => {
                &[Self::CustomResourceDefinitions]
            }
            Self::UserData => &[Self::MachineConfigPools, Self::Certificates],
            Self::MachineConfigDaemon | Self::MachineConfigServer | Self::MachineOSBuilder => {
                &[Self::AccessControl]
            }
            Self::RequiredPools => &[Self::MachineConfigPools],
        }
    }

    /// Returns whether machines get no new configuration while this step fails.
    pub fn is_essential(self) -> bool {
        matches!(
            self,
            Self::CustomResourceDefinitions | Self::MachineConfigPools | Self::MachineConfigController
        )
    }
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    Done,
    /// Complete on our side; waits for other components.
    Waiting(String),
    /// Everything was written, but a workload is not running.
    NotRunning(String),
    /// Skipped, because a step it needs failed.
    Skipped(SyncStep),
    Failed(String),
}

/// The result of a step without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncResult {
    Yes,
    /// Incomplete, with what is missing.
    NotYet(String),
    /// A workload is not running.
    NotRunning(String),
}

impl From<SyncResult> for SyncOutcome {
    fn from(settled: SyncResult) -> Self {
        match settled {
            SyncResult::Yes => Self::Done,
            SyncResult::NotYet(what) => Self::Waiting(what),
            SyncResult::NotRunning(what) => Self::NotRunning(what),
        }
    }
}

/// The outcomes of the steps so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncProgress {
    outcomes: Vec<(SyncStep, SyncOutcome)>,
}

impl SyncProgress {
    /// Runs a step that either succeeds or fails.
    pub fn run<'a, E: Display>(
        &'a mut self,
        step: SyncStep,
        work: impl Future<Output = Result<(), E>> + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        self.settle(step, work.map_ok(|()| SyncResult::Yes))
    }

    /// Runs a step that may have to wait for other components.
    pub fn settle<'a, E: Display>(
        &'a mut self,
        step: SyncStep,
        work: impl Future<Output = Result<SyncResult, E>> + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        let work = async move {
            if let Some(settled) = self.find(step, work).await {
                self.remove(step);
                self.outcomes.push((step, settled.into()));
            }
        };
        work.boxed()
    }

    /// Runs a step again if it was part of this sync.
    pub async fn again<E: Display>(
        &mut self,
        step: SyncStep,
        work: impl Future<Output = Result<SyncResult, E>> + Send,
    ) {
        if self.of(step).is_some() {
            self.remove(step);
            self.settle(step, work).await;
        }
    }

    /// Runs a step that returns a value.
    pub fn find<'a, T: Send, E: Display>(
        &'a mut self,
        step: SyncStep,
        work: impl Future<Output = Result<T, E>> + Send + 'a,
    ) -> BoxFuture<'a, Option<T>> {
        let work = async move {
            let (outcome, found) = match self.missing(step) {
                Some(missing) => (SyncOutcome::Skipped(missing), None),
                None => match work.await {
                    Ok(found) => (SyncOutcome::Done, Some(found)),
                    Err(error) => (SyncOutcome::Failed(error.to_string()), None),
                },
            };
            self.outcomes.push((step, outcome));
            found
        };
        work.boxed()
    }

    /// Records that a step was skipped, because the result of another step is missing.
    pub fn skip(&mut self, step: SyncStep, missing: SyncStep) {
        self.outcomes.push((step, SyncOutcome::Skipped(missing)));
    }

    fn missing(&self, step: SyncStep) -> Option<SyncStep> {
        let needed = step.needs().iter().copied();
        let mut missing = needed.filter(|needed| {
            matches!(
                self.of(*needed),
                Some(SyncOutcome::Failed(_) | SyncOutcome::Skipped(_))
            )
        });
        missing.next()
    }

    /// Returns the outcome of a step, or `None` if it was not part of this sync.
    pub fn of(&self, step: SyncStep) -> Option<&SyncOutcome> {
        let mut found = self.outcomes.iter().filter(|(other, _)| *other == step);
        found.next().map(|(_, outcome)| outcome)
    }

    /// Returns every step of this sync.
    pub fn all(&self) -> impl Iterator<Item = (SyncStep, &SyncOutcome)> {
        self.outcomes.iter().map(|(step, outcome)| (*step, outcome))
    }

    /// Returns the failed steps with their errors.
    pub fn failures(&self) -> impl Iterator<Item = (SyncStep, &str)> {
        self.outcomes.iter().filter_map(|(step, outcome)| match outcome {
            SyncOutcome::Failed(why) => Some((*step, why.as_str())),
            _ => None,
        })
    }

    /// Returns the steps that wait, with what they wait for.
    pub fn waiting(&self) -> impl Iterator<Item = (SyncStep, &str)> {
        self.outcomes.iter().filter_map(|(step, outcome)| match outcome {
            SyncOutcome::Waiting(what) | SyncOutcome::NotRunning(what) => Some((*step, what.as_str())),
            _ => None,
        })
    }

    pub fn has_failed(&self) -> bool {
        self.failures().next().is_some()
    }

    /// Returns whether a step that writes failed. The last one only reads the pools.
    pub fn has_failed_to_apply(&self) -> bool {
        self.failures().any(|(step, _)| step != SyncStep::RequiredPools)
    }

    /// Returns whether all steps wrote what they write; some may wait.
    pub fn is_applied(&self) -> bool {
        let is_missing =
            |outcome: &SyncOutcome| matches!(outcome, SyncOutcome::Failed(_) | SyncOutcome::Skipped(_));
        !self.outcomes.iter().any(|(_, outcome)| is_missing(outcome))
    }

    /// Returns whether all steps succeeded and none waits.
    pub fn is_complete(&self) -> bool {
        self.outcomes
            .iter()
            .all(|(_, outcome)| *outcome == SyncOutcome::Done)
    }

    /// Removes the outcome of a step, so that it can run again.
    pub fn remove(&mut self, step: SyncStep) {
        self.outcomes.retain(|(other, _)| *other != step);
    }

    #[cfg(test)]
    pub(crate) fn set(&mut self, step: SyncStep, outcome: SyncOutcome) {
        self.remove(step);
        self.outcomes.push((step, outcome));
        self.outcomes.sort_by_key(|(step, _)| *step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_step_stops_only_those_that_need_it() {
        let mut progress = SyncProgress::default();
        let fine = async || Ok::<_, String>(());
        progress
            .run(SyncStep::Namespace, async { Err("forbidden") })
            .await;
        progress.run(SyncStep::CustomResourceDefinitions, fine()).await;
        progress.run(SyncStep::AccessControl, fine()).await;
        progress.run(SyncStep::MachineConfigDaemon, fine()).await;
        progress.run(SyncStep::MachineConfigPools, fine()).await;
        progress
            .settle(SyncStep::RequiredPools, async {
                Ok::<_, String>(SyncResult::NotYet("master".to_owned()))
            })
            .await;
        for (step, expected) in [
            (
                SyncStep::Namespace,
                Some(SyncOutcome::Failed("forbidden".to_owned())),
            ),
            (SyncStep::CustomResourceDefinitions, Some(SyncOutcome::Done)),
            (
                SyncStep::AccessControl,
                Some(SyncOutcome::Skipped(SyncStep::Namespace)),
            ),
            (
                SyncStep::MachineConfigDaemon,
                Some(SyncOutcome::Skipped(SyncStep::AccessControl)),
            ),
            (SyncStep::MachineConfigPools, Some(SyncOutcome::Done)),
            (
                SyncStep::RequiredPools,
                Some(SyncOutcome::Waiting("master".to_owned())),
            ),
            (SyncStep::Certificates, None),
        ] {
            assert_eq!(progress.of(step).cloned(), expected, "{step:?}");
        }
        assert_eq!(
            progress.failures().collect::<Vec<_>>(),
            [(SyncStep::Namespace, "forbidden")],
            "what was skipped is no failure of its own"
        );
        assert!(!progress.is_complete());
    }
}
