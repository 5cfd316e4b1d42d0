//! The agent of one node of a cluster: what the Node object says, what the disk says, and what to do next.
//!
//! Decisions are pure functions over what can be observed, so that a daemon that was restarted goes on exactly where
//! the one before it stopped. [`Agent`] is the thin shell around them: it watches its own Node and nothing else,
//! fetches single objects by name when it needs them, and makes no choices.

mod cluster;
mod decide;
mod error;
mod progress;
mod report;
mod run;
mod sentry;
mod view;
mod work;

pub use decide::{
    DecisionError, DrainStep, Observation, Pending, Step, Version, drain_step, next, retry_delay,
};
pub use error::AgentError;
pub use progress::{Milestone, StepCondition, conditions};
pub use report::{Failure, Report, degraded, done, introduction, request_drain, request_uncordon, working};
pub use run::{Agent, Exit};
pub use view::{NodeView, OnDisk};
