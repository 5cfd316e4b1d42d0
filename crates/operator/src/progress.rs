//! The operator's steps, their order, and how each of them went.
//!
//! Every step that can be done is done, whatever happened to the others: a step waits only for those it needs.

use std::fmt::Display;
use std::future::Future;

use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};

/// A step, in the order of their execution. The names are part of the ClusterOperator's reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
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
    RequiredPools,
}

impl Step {
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
            Self::RequiredPools => "RequiredPools",
        }
    }

    /// The steps without whose success this one cannot even be tried.
    fn needs(self) -> &'static [Self] {
        match self {
            Self::Namespace | Self::CustomResourceDefinitions | Self::RenderConfig => &[],
            // What is made from facts needs those it is made from, not that all could be read; see `facts::Known`.
            Self::AccessControl
            | Self::Certificates
            | Self::Monitoring
            | Self::NetworkPolicies
            | Self::Admission => &[Self::Namespace],
            Self::MachineConfiguration | Self::MachineConfigPools | Self::MachineConfigController => {
                &[Self::CustomResourceDefinitions]
            }
            Self::UserData => &[Self::MachineConfigPools, Self::Certificates],
            Self::MachineConfigDaemon | Self::MachineConfigServer => &[Self::AccessControl],
            Self::RequiredPools => &[Self::MachineConfigPools],
        }
    }

    /// Whether machines get nothing new while this step fails.
    pub fn is_essential(self) -> bool {
        matches!(
            self,
            Self::CustomResourceDefinitions | Self::MachineConfigPools | Self::MachineConfigController
        )
    }
}

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Done as far as possible; something that is not ours to do is still missing.
    Waiting(String),
    /// All was written, but what should do the work does not run.
    NotRunning(String),
    /// Not tried, because a step it needs failed.
    Skipped(Step),
    Failed(String),
}

/// What a step has to say when nothing failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    Yes,
    /// Not yet: what is missing, in words.
    NotYet(String),
    /// What should do the work does not run: what, in words.
    NotRunning(String),
}

impl From<Settled> for Outcome {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Yes => Self::Done,
            Settled::NotYet(what) => Self::Waiting(what),
            Settled::NotRunning(what) => Self::NotRunning(what),
        }
    }
}

/// How the steps went so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    outcomes: Vec<(Step, Outcome)>,
}

impl Progress {
    /// Does a step whose success is all there is to know.
    pub fn run<'a, E: Display>(
        &'a mut self,
        step: Step,
        work: impl Future<Output = Result<(), E>> + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        self.settle(step, work.map_ok(|()| Settled::Yes))
    }

    /// Does a step that may have to wait for others.
    pub fn settle<'a, E: Display>(
        &'a mut self,
        step: Step,
        work: impl Future<Output = Result<Settled, E>> + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        let work = async move {
            if let Some(settled) = self.find(step, work).await {
                self.forget(step);
                self.outcomes.push((step, settled.into()));
            }
        };
        work.boxed()
    }

    /// Does a step that finds something out.
    pub fn find<'a, T: Send, E: Display>(
        &'a mut self,
        step: Step,
        work: impl Future<Output = Result<T, E>> + Send + 'a,
    ) -> BoxFuture<'a, Option<T>> {
        let work = async move {
            let (outcome, found) = match self.missing(step) {
                Some(missing) => (Outcome::Skipped(missing), None),
                None => match work.await {
                    Ok(found) => (Outcome::Done, Some(found)),
                    Err(error) => (Outcome::Failed(error.to_string()), None),
                },
            };
            self.outcomes.push((step, outcome));
            found
        };
        work.boxed()
    }

    /// Notes that a step was not tried, because what another step should have found is not there.
    pub fn skip(&mut self, step: Step, missing: Step) {
        self.outcomes.push((step, Outcome::Skipped(missing)));
    }

    fn missing(&self, step: Step) -> Option<Step> {
        let needed = step.needs().iter().copied();
        let mut missing = needed
            .filter(|needed| matches!(self.of(*needed), Some(Outcome::Failed(_) | Outcome::Skipped(_))));
        missing.next()
    }

    /// How a step went; none if it was not part of this round.
    pub fn of(&self, step: Step) -> Option<&Outcome> {
        let mut found = self.outcomes.iter().filter(|(other, _)| *other == step);
        found.next().map(|(_, outcome)| outcome)
    }

    /// Every step of this round.
    pub fn all(&self) -> impl Iterator<Item = (Step, &Outcome)> {
        self.outcomes.iter().map(|(step, outcome)| (*step, outcome))
    }

    /// The steps that failed, and why.
    pub fn failures(&self) -> impl Iterator<Item = (Step, &str)> {
        self.outcomes.iter().filter_map(|(step, outcome)| match outcome {
            Outcome::Failed(why) => Some((*step, why.as_str())),
            _ => None,
        })
    }

    /// What is still awaited.
    pub fn waiting(&self) -> impl Iterator<Item = (Step, &str)> {
        self.outcomes.iter().filter_map(|(step, outcome)| match outcome {
            Outcome::Waiting(what) | Outcome::NotRunning(what) => Some((*step, what.as_str())),
            _ => None,
        })
    }

    pub fn has_failed(&self) -> bool {
        self.failures().next().is_some()
    }

    /// Whether everything was done and nothing is awaited.
    pub fn is_complete(&self) -> bool {
        self.outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Done)
    }

    /// Makes room for a step to be done again.
    pub fn forget(&mut self, step: Step) {
        self.outcomes.retain(|(other, _)| *other != step);
    }

    #[cfg(test)]
    pub(crate) fn set(&mut self, step: Step, outcome: Outcome) {
        self.forget(step);
        self.outcomes.push((step, outcome));
        self.outcomes.sort_by_key(|(step, _)| *step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_step_stops_only_those_that_need_it() {
        let mut progress = Progress::default();
        let fine = async || Ok::<_, String>(());
        progress.run(Step::Namespace, async { Err("forbidden") }).await;
        progress.run(Step::CustomResourceDefinitions, fine()).await;
        progress.run(Step::AccessControl, fine()).await;
        progress.run(Step::MachineConfigDaemon, fine()).await;
        progress.run(Step::MachineConfigPools, fine()).await;
        progress
            .settle(Step::RequiredPools, async {
                Ok::<_, String>(Settled::NotYet("master".to_owned()))
            })
            .await;
        for (step, expected) in [
            (Step::Namespace, Some(Outcome::Failed("forbidden".to_owned()))),
            (Step::CustomResourceDefinitions, Some(Outcome::Done)),
            (Step::AccessControl, Some(Outcome::Skipped(Step::Namespace))),
            (
                Step::MachineConfigDaemon,
                Some(Outcome::Skipped(Step::AccessControl)),
            ),
            (Step::MachineConfigPools, Some(Outcome::Done)),
            (Step::RequiredPools, Some(Outcome::Waiting("master".to_owned()))),
            (Step::Certificates, None),
        ] {
            assert_eq!(progress.of(step).cloned(), expected, "{step:?}");
        }
        assert_eq!(
            progress.failures().collect::<Vec<_>>(),
            [(Step::Namespace, "forbidden")],
            "what was skipped is no failure of its own"
        );
        assert!(!progress.is_complete());
    }
}
