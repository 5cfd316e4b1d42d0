//! Generators of MachineConfigs: from the template tree, and from KubeletConfigs, ContainerRuntimeConfigs, image
//! policies, registry mirrors and credential providers; boot images and OS image streams.

pub mod base_refusal;
pub mod boot_images;
pub mod container_runtime;
pub mod credential_provider;
pub mod generated;
pub mod kubelet;
pub mod os_builds;
pub mod os_images;
pub mod os_streams;
pub mod pointer;
pub mod quantity;
pub mod registries;
pub mod registry_pull_secret;
pub mod templates;
pub mod tls_profile;
pub mod user_data;
