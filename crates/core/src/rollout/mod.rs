//! Rollout of a config to the nodes of a pool: which nodes are updated next, which are held, and why.
//!
//! [`View`] gathers the state, [`plan()`] decides, and the [`Plan`] is a value that a controller executes and `mco
//! plan` prints. No I/O, no waiting, no clock.

pub mod budget;
pub mod changes;
pub mod control_plane;
mod decide;
pub mod drain;
mod drift_policy;
pub mod first_boot;
pub mod kept_images;
pub mod messages;
mod node;
mod node_annotations;
pub mod node_progress;
pub mod patch;
pub mod pinned_images;
mod plan;
pub mod pool_status;
mod pool_validation;
pub mod target;
mod view;
mod waves;

pub use decide::{plan, plan_pool};
pub use drift_policy::DriftPolicy;
pub use node::NodeView;
pub use node_annotations::NodeAnnotations;
pub use plan::{
    Action, Because, Budget, ContestedNode, Event, EventKind, Held, HeldReason, Plan, PoolPlan, Taken,
    TakenBy,
};
pub use pool_validation::admit_pool;
pub use target::Target;
pub use view::{PoolView, TargetState, View};
pub use waves::{PoolWaves, waves};
