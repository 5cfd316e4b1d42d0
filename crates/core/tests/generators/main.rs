//! The output, rejections and error messages of KubeletConfigs, ContainerRuntimeConfigs and registry settings.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "a table of cases is as long as it has cases"
)]

mod container_runtime;
mod directory;
mod fixture;
mod kubelet;
mod registries;
