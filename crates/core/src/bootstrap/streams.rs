//! Streams of operating system images, and which of them a pool follows.

use mco_api::os_image_stream::{OSImageStreamImages, OSImageStreamStatus};
use mco_api::vocabulary::names;
use mco_api::{MachineConfigPool, OSImageStream};

use crate::feature_gates::FeatureGates;
use crate::merge::DefaultImages;

/// Without it, every pool has the ControllerConfig's images.
const GATE: &str = "OSStreams";

/// The streams in force; empty if the cluster has none.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    status: Option<OSImageStreamStatus>,
}

impl Streams {
    pub fn of(object: Option<&OSImageStream>, gates: &FeatureGates) -> Self {
        let status = object.and_then(|object| object.status.clone());
        Self {
            status: status.filter(|_| gates.is_enabled(GATE)),
        }
    }

    /// The stream that a pool follows: its own, else for a custom pool the worker's, else the default.
    pub fn name<'a>(
        &'a self,
        pool: &'a MachineConfigPool,
        pools: &'a [MachineConfigPool],
    ) -> Option<&'a str> {
        let status = self.status.as_ref()?;
        let chosen =
            |pool: &'a MachineConfigPool| pool.spec.os_image_stream.as_ref().map(|s| s.name.as_str());
        let inherited = || {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            let worker = pools
                .iter()
                .find(|pool| pool.metadata.name.as_deref() == Some(names::pool::WORKER))?;
            names::pool::is_custom(name).then(|| chosen(worker)).flatten()
        };
        Some(chosen(pool).or_else(inherited).unwrap_or(&status.default_stream))
    }

    /// The images of the stream that a pool follows; none leaves the ControllerConfig's.
    pub fn images<'a>(
        &'a self,
        pool: &MachineConfigPool,
        pools: &[MachineConfigPool],
    ) -> Option<DefaultImages<'a>> {
        let name = self.name(pool, pools)?;
        let mut available = self.status.iter().flat_map(|status| &status.available_streams);
        let OSImageStreamImages {
            os_image,
            os_extensions_image,
            ..
        } = available.find(|stream| stream.name == name)?;
        Some(DefaultImages {
            os: os_image,
            extensions: os_extensions_image,
        })
    }
}
