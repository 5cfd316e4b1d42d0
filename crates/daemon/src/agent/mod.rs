//! The agent of one node of a cluster: what the Node object says, what the disk says, and what to do next.
//!
//! Decisions are pure functions over what can be observed, so that a daemon that was restarted goes on exactly where
//! the one before it stopped. [`run`] is the thin shell around them: it watches its own Node, the metadata of its
//! MachineConfigNode and the one ControllerConfig, fetches single objects by name when it needs them, and makes no choices.
//! Beside it, `images` keeps what PinnedImageSets ask for, and `kubelet` counts how often the kubelet is not well.

mod activity;
mod cluster;
mod decide;
mod error;
mod events;
mod health;
mod images;
mod kubelet;
mod metrics;
mod notes;
mod options;
mod progress;
mod report;
mod run;
mod steps;
mod view;
mod wake;
mod work;

pub use activity::{Activity, read as read_activity};
pub(crate) use cluster::{Cluster as OwnNode, FIELD_MANAGER};
pub use decide::{
    DecisionError, DrainStep, Observation, Pending, Step, Version, drain_step, next, retry_delay,
};
pub use error::AgentError;
pub use kubelet::{EndpointError, HealthEndpoint, KubeletCheck};
pub use options::Options;
pub use report::{Failure, Report, degraded, done, introduction, request_drain, request_uncordon, working};
pub use run::run;
pub use view::{NodeView, OnDisk};
