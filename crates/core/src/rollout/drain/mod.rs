//! Draining nodes for their daemons: what a request asks for, whose cordon it is, which pods go, what is in their way,
//! and when to try again.
//!
//! Nothing here evicts or waits. The controller's start must not start any clock again, so every duration is counted
//! from what is written on the Node.

pub mod budgets;
pub mod cordon;
mod decide;
pub mod pods;
mod reason;
pub mod request;
pub mod timing;

pub use budgets::{Blocker, Budgets, Obstacle};
pub use cordon::{Cordon, CordonOrigin, DrainRecord};
pub use decide::{Completion, Decision, Lift, complete, decide};
pub use pods::{Eviction, Fate, Policy};
pub use reason::{reason_patch, with_obstacle};
pub use request::{DrainVerb, RequestError};
pub use timing::{Pace, pace};
