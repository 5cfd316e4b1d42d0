//! Rollout of a config to the nodes of a pool: which nodes are updated next, which are held, and why.
//!
//! [`View`] gathers the state, [`plan()`] decides, and the [`Plan`] is a value that a controller executes and `mco
//! plan` prints. No I/O, no waiting, no clock.

pub mod adoption;
pub mod budget;
pub mod changes;
pub mod control_plane;
mod decide;
pub mod drain;
mod drift_policy;
pub mod first_boot;
pub mod holds;
pub mod hooks;
pub mod image_mode_status;
pub mod messages;
mod node;
mod node_annotations;
mod node_health;
pub mod node_progress;
pub mod patch;
pub mod pinned_images;
pub mod pinned_images_on_node;
mod plan;
pub mod policy;
pub mod pool_status;
mod pool_validation;
mod reboot_lock;
pub mod stage_ahead;
pub mod target;
mod view;
mod voters;
mod waves;

pub use decide::{plan, plan_pool};
pub use drift_policy::DriftPolicy;
pub use node::NodeView;
pub use node_annotations::NodeAnnotations;
pub use node_health::NodeHealth;
pub use plan::{
    Because, ContestedNode, Held, HeldReason, NodeAction, PlannedEvent, PlannedEventKind, PoolPlan,
    RolloutPlan, Taken, TakenBy, UnavailableBudget,
};
pub use pool_validation::admit_pool;
pub use target::RolloutTarget;
pub use view::{PoolView, RolloutView, TargetState};
pub use waves::{PoolWaves, waves};
