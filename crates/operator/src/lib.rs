//! The operator: installs and updates all other components, renews certificates, and reports through the
//! ClusterOperator.
//!
//! [`certificates`], [`controller_config`] and [`cluster_operator`] are pure decisions. The steps read, call them, and
//! write what differs; [`run()`] orders the steps and repeats them on changes. Rendering, rollout and serving are
//! elsewhere.

pub mod admission;
mod applied;
pub mod bootstrap;
pub mod certificates;
mod cluster;
pub mod cluster_operator;
pub mod controller_config;
mod facts;
mod log_levels;
pub mod manifests;
mod metrics;
mod options;
mod pace;
pub mod profile;
mod progress;
mod report;
mod run;
pub mod secret_files;
mod steps;
mod watches;

pub use cluster::ClusterError;
pub use facts::ObservedFacts;
pub use log_levels::LogLevels;
pub use metrics::OperatorMetrics;
pub use options::{IgnitionTokens, MetricsAccess, OperandMode, OperatorOptions, Webhook};
pub use progress::{SyncOutcome, SyncProgress, SyncResult, SyncStep};
pub use run::{OperatorError, prepare, run};
