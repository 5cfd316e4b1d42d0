//! Kubernetes resource types of the Machine Config Operator and the vocabulary around them.
//!
//! One module per kind of ours, [`foreign`] for foreign kinds, [`vocabulary`] for labels, annotations and conditions,
//! [`crd`] for the CustomResourceDefinitions. There is no client here, and no business logic.

pub mod cluster_base;
pub mod container_runtime_config;
pub mod controller_config;
pub mod crd;
pub mod foreign;
pub mod kubelet_config;
pub mod machine_config;
pub mod machine_config_node;
pub mod machine_config_pool;
pub mod machine_configuration;
pub mod machine_os_build;
pub mod machine_os_config;
pub mod node_adoption;
pub mod os_image_stream;
pub mod pinned_image_set;
pub mod plain;
pub mod rollout_policy;
pub mod vocabulary;

mod resource;
mod schema;
mod wire;

pub use cluster_base::ClusterBase;
pub use container_runtime_config::ContainerRuntimeConfig;
pub use controller_config::ControllerConfig;
pub use crd::{crds, crds_yaml};
pub use kubelet_config::KubeletConfig;
pub use machine_config::MachineConfig;
pub use machine_config_node::MachineConfigNode;
pub use machine_config_pool::MachineConfigPool;
pub use machine_configuration::MachineConfiguration;
pub use machine_os_build::MachineOSBuild;
pub use machine_os_config::MachineOSConfig;
pub use node_adoption::NodeAdoption;
pub use os_image_stream::OSImageStream;
pub use pinned_image_set::PinnedImageSet;
pub use rollout_policy::RolloutPolicy;
