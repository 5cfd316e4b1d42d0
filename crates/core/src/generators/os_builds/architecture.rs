//! The architecture of a pool's nodes, which selects the Containerfile of its image.

use k8s_openapi::api::core::v1::Node;
use mco_api::machine_os_config::{EVERY_ARCHITECTURE, MachineOSConfigSpec};

/// A CPU architecture that images are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    Amd64,
    Arm64,
    Ppc64le,
    S390x,
}

impl Architecture {
    /// Parses the name that a kubelet or an image index uses.
    pub fn from_node(text: &str) -> Option<Self> {
        match text {
            "amd64" | "x86_64" => Some(Self::Amd64),
            "arm64" | "aarch64" => Some(Self::Arm64),
            "ppc64le" => Some(Self::Ppc64le),
            "s390x" => Some(Self::S390x),
            _ => None,
        }
    }

    /// Returns the name in labels of nodes and in image indexes.
    pub fn node_name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Ppc64le => "ppc64le",
            Self::S390x => "s390x",
        }
    }

    /// Returns the name in a MachineOSConfig.
    pub fn containerfile_arch(self) -> &'static str {
        match self {
            Self::Amd64 => "AMD64",
            Self::Arm64 => "ARM64",
            Self::Ppc64le => "PPC64LE",
            Self::S390x => "S390X",
        }
    }
}

/// Returns the architectures of nodes, each once.
pub fn of_nodes<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<Architecture> {
    let reported = nodes.into_iter().filter_map(|node| {
        let info = node.status.as_ref()?.node_info.as_ref()?;
        Architecture::from_node(&info.architecture)
    });
    let mut architectures: Vec<Architecture> = reported.collect();
    architectures.sort_unstable();
    architectures.dedup();
    architectures
}

/// Returns the Containerfile for nodes of this architecture: its own, else the one for every architecture. The first
/// value names it.
pub fn content_for(spec: &MachineOSConfigSpec, architecture: Option<Architecture>) -> Option<(&str, &str)> {
    let pieces = spec.container_file.as_deref().unwrap_or_default();
    let of = |name: &str| {
        let piece = pieces.iter().find(|piece| piece.containerfile_arch == name)?;
        Some((piece.containerfile_arch.as_str(), piece.content.as_str()))
    };
    architecture
        .and_then(|architecture| of(architecture.containerfile_arch()))
        .or_else(|| of(EVERY_ARCHITECTURE))
}
