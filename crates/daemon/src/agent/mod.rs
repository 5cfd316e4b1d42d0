//! The agent of one node of a cluster: what the Node object says, what the disk says, and what to do next.
//!
//! Decisions are pure functions over what can be observed, so that a daemon that was restarted goes on exactly where
//! the one before it stopped. Nothing here talks to an API server or touches a machine.

mod decide;
mod progress;
mod report;
mod view;

pub use decide::{
    DecisionError, DrainStep, Observation, Pending, Step, Version, drain_step, next, retry_delay,
};
pub use progress::{Milestone, StepCondition, conditions};
pub use report::{Failure, Report, degraded, done, introduction, request_drain, request_uncordon, working};
pub use view::{NodeView, OnDisk};
