//! Streams of operating system images, as a cluster publishes them.

use mco_api::os_image_stream::OSImageStreamStatus;
use mco_api::{MachineConfigPool, OSImageStream};

use crate::feature_gates::FeatureGates;
use crate::merge::DefaultImages;
use crate::os_images::{self, Stream, UnknownStream};

/// Without it, every pool has the ControllerConfig's images.
const GATE: &str = "OSStreams";

/// The streams in force; empty if the cluster has none.
#[derive(Debug, Clone, Default)]
pub struct Streams {
    status: Option<OSImageStreamStatus>,
}

impl Streams {
    pub fn of(object: Option<&OSImageStream>, gates: &FeatureGates) -> Self {
        let status = object.and_then(|object| object.status.clone());
        Self {
            status: status.filter(|_| gates.is_enabled(GATE)),
        }
    }

    /// The stream that a pool follows; none if the cluster has no streams.
    pub fn of_pool(
        &self,
        pool: &MachineConfigPool,
        worker: Option<&MachineConfigPool>,
    ) -> Result<Option<Stream<'_>>, UnknownStream> {
        let Some(status) = &self.status else {
            return Ok(None);
        };
        let available = status.available_streams.iter().map(|stream| Stream {
            name: &stream.name,
            images: DefaultImages {
                os: &stream.os_image,
                extensions: &stream.os_extensions_image,
            },
        });
        let streams = os_images::Streams {
            available: available.collect(),
            default: &status.default_stream,
        };
        os_images::stream_of(pool, worker, &streams).map(Some)
    }
}
