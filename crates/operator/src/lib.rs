//! The operator: brings everything else into being, keeps certificates fresh, and tells the cluster how it is.
//!
//! [`certificates`], [`controller_config`] and [`cluster_operator`] decide and do nothing else. The steps read, ask them, and write
//! what differs; [`run()`] orders the steps and repeats them when something changes. Knows nothing of how a config is
//! rendered, rolled out or served.

pub mod admission;
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
mod progress;
mod report;
mod run;
mod steps;
mod watches;

pub use cluster::ClusterError;
pub use facts::Facts;
pub use log_levels::LogLevels;
pub use metrics::Metrics;
pub use options::{MetricsAccess, Options, Webhook, Workloads};
pub use progress::{Outcome, Progress, Settled, Step};
pub use run::{OperatorError, prepare, run};
