//! The agent of one node of a cluster: reconciles the machine with the Node's desired config.
//!
//! Decisions are pure functions over what can be observed, so that a restarted daemon resumes exactly where the
//! previous one stopped. [`run`] is the thin shell around them: it watches its own Node, the metadata of its
//! MachineConfigNode and the one ControllerConfig, fetches single objects by name when it needs them, and makes no
//! choices. In parallel, `images` pulls and pins the images of PinnedImageSets, and `kubelet` polls the kubelet's
//! health.

mod activity;
mod adopt;
mod boot;
mod cluster;
mod decide;
mod drift_watch;
mod error;
mod events;
mod health;
pub mod hosted;
mod images;
mod isolation;
mod kubelet;
mod metrics;
mod node_files;
mod notes;
mod on_disk;
mod options;
mod progress;
mod report;
mod run;
mod safety;
mod stage_ahead;
mod steps;
mod wake;
mod work;

pub use activity::{Activity, read as read_activity};
pub(crate) use cluster::{AgentClient as OwnNode, FIELD_MANAGER};
pub use decide::{
    AgentStep, ConfigVersion, DrainStep, Observation, PendingChange, drain_step, next, retry_delay,
};
pub use error::AgentError;
pub(crate) use kubelet::probe_kubelet;
pub use kubelet::{EndpointError, HealthEndpoint, KubeletCheck};
pub use node_files::{SecretEndpoint, SecretError};
pub use on_disk::OnDisk;
pub use options::AgentOptions;
pub use report::{
    NodeFailure, NodeReport, degraded, done, introduction, request_drain, request_uncordon, working,
};
pub use run::run;
