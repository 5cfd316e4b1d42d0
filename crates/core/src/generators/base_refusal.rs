//! Why an object cannot take effect on the base of a cluster, or on the nodes of a pool.

use mco_api::ClusterBase;
use thiserror::Error;

use crate::config::node_versions::MinorVersion;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BaseRefusal {
    #[error(
        "the base of this cluster is none, on which a {kind} has no effect\n  hint: write the node's own files in a \
         MachineConfig, or install with --base kubeadm, k3s or rke2, whichever has set up the nodes"
    )]
    NoBase { kind: &'static str },
    #[error(
        "pool {pool}: a KubeletConfig is a drop-in, which kubelets older than {oldest} do not read on base {base}: {}",
        .nodes.join(", ")
    )]
    OldKubelet {
        base: ClusterBase,
        pool: String,
        oldest: MinorVersion,
        nodes: Vec<String>,
    },
    #[error(
        "pool {pool}: servers and agents of {base} restart different services, so one pool cannot have both: servers {}\n  \
         hint: give the servers a pool of their own",
        .servers.join(", ")
    )]
    ServersAndAgents {
        base: ClusterBase,
        pool: String,
        servers: Vec<String>,
    },
    #[error("{field} cannot be set on base {base}\n  hint: {hint}")]
    Field {
        field: &'static str,
        base: ClusterBase,
        hint: &'static str,
    },
    #[error("pool {pool}: {needs}: {}", .nodes.join(", "))]
    Runtime {
        pool: String,
        needs: String,
        nodes: Vec<String>,
    },
    #[error(
        "{object}: source {mirrored:?} cannot be mirrored by containerd, which mirrors whole registries\n  hint: name the \
         registry alone, such as quay.io or registry.example.com:5000"
    )]
    MirrorSource { object: String, mirrored: String },
}
