//! Draining of nodes on behalf of their daemons: requests, cordon ownership, pods to evict, blockers and retries.
//!
//! No eviction and no waiting here. A restart of the controller must not reset a timeout, so every duration is
//! counted from a time recorded on the Node.

pub mod budgets;
pub mod cordon;
mod decide;
pub mod pods;
mod preparation;
mod reason;
pub mod request;
pub mod timing;

pub use budgets::{Blocker, Budgets, Obstacle};
pub use cordon::{Cordon, CordonOrigin, DrainRecord};
pub use decide::{Completion, DrainDecision, Lift, complete, decide};
pub use pods::{DrainPolicy, Eviction, OtherController, PodFate};
pub use preparation::{DrainMarks, DrainPreparation};
pub use reason::{reason_patch, with_obstacle};
pub use request::{DrainVerb, RequestError};
pub use timing::{DrainPace, pace};
