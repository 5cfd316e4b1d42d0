//! Kubernetes resource types of the Machine Config Operator and the vocabulary around them.
//!
//! One module per kind of ours, [`foreign`] for the kinds of others, [`vocabulary`] for labels, annotations and
//! conditions. There is no client here, and no decision about what an object means.

pub mod controller_config;
pub mod foreign;
pub mod machine_config;
pub mod machine_config_pool;
pub mod vocabulary;

mod resource;
mod schema;
mod wire;

pub use controller_config::ControllerConfig;
pub use machine_config::MachineConfig;
pub use machine_config_pool::MachineConfigPool;
