//! Why a node could not be brought further, and whether trying again may help.

use mco_core::problem::InvalidObject;
use thiserror::Error;

use super::decide::DecisionError;
use super::report::Failure;
use crate::apply::ApplyError;
use crate::disk::DiskError;
use crate::drift::DriftError;
use crate::once::OnceError;
use crate::status::StatusError;
use crate::validate::ValidateError;

#[derive(Debug, Error)]
pub enum AgentError {
    #[error("could not {attempted}: {source}")]
    Api {
        attempted: String,
        source: Box<kube::Error>,
    },
    #[error("machineconfig.machineconfiguration.openshift.io {0:?} not found")]
    NoSuchConfig(String),
    #[error(
        "NodeDisruptionPolicyStatus was not ready: the operator has not looked at generation {generation} yet"
    )]
    PolicyNotReady { generation: i64 },
    #[error(transparent)]
    InvalidConfig(#[from] Box<InvalidObject>),
    #[error(transparent)]
    Decision(#[from] DecisionError),
    #[error("{0}")]
    UnexpectedState(String),
    #[error(
        "can't reconcile config {old} with {new}: configs {old}, {new} are not reconcilable: new machineconfig {new:?} is \
         not reconcilable against {old:?}: {cause}"
    )]
    Unreconcilable { old: String, new: String, cause: String },
    #[error(transparent)]
    Apply(Box<ApplyError>),
    #[error(transparent)]
    Once(Box<OnceError>),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error(transparent)]
    Validate(#[from] ValidateError),
    #[error(transparent)]
    Drift(#[from] DriftError),
    #[error("the work on the machine was cut off: {0}")]
    Cut(#[from] tokio::task::JoinError),
    #[error("the watch of this node has ended")]
    WatchEnded,
}

impl AgentError {
    pub fn failure(&self) -> Failure {
        match self {
            Self::Unreconcilable { .. } => Failure::Unreconcilable,
            _ => Failure::Degraded,
        }
    }
}

impl From<ApplyError> for AgentError {
    fn from(error: ApplyError) -> Self {
        Self::Apply(Box::new(error))
    }
}

impl From<OnceError> for AgentError {
    fn from(error: OnceError) -> Self {
        Self::Once(Box::new(error))
    }
}
