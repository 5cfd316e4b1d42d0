//! OS image streams: which of them a cluster offers, and which one a pool follows.
//!
//! [`release`] lists the images of a release, [`labels`] holds their labels, [`discovery`] pairs them up, and
//! [`published`] decides the content of the cluster's OSImageStream. Rendering uses [`Streams`]. No image is fetched:
//! only recorded metadata is used.

pub mod discovery;
pub mod labels;
pub mod published;
pub mod release;

use mco_api::os_image_stream::OSImageStreamStatus;
use mco_api::{MachineConfigPool, OSImageStream};

use crate::config::feature_gates::FeatureGates;
use crate::config::merge::DefaultImages;
use crate::generators::os_images::{self, OsImageStreamImages, StreamError};

/// The feature gate without which every pool has the ControllerConfig's images.
const GATE: &str = "OSStreams";

/// Whether streams are enabled. The release must have the gate; a cluster without any feature gates supports streams.
pub fn are_on(gates: &FeatureGates) -> bool {
    gates.is_enabled(GATE) || gates.is_empty()
}

/// The streams in force.
#[derive(Debug, Clone, Default)]
pub struct ReleaseStreams {
    state: StreamState,
}

#[derive(Debug, Clone, Default)]
enum StreamState {
    /// Streams are disabled: the pools' selections are ignored.
    #[default]
    Off,
    Unpublished,
    Published(OSImageStreamStatus),
}

impl ReleaseStreams {
    pub fn of(object: Option<&OSImageStream>, gates: &FeatureGates) -> Self {
        if !are_on(gates) {
            return Self::default();
        }
        let status = object.and_then(|object| object.status.clone());
        Self {
            state: status.map_or(StreamState::Unpublished, StreamState::Published),
        }
    }

    /// Whether pools get their images from streams.
    pub fn are_published(&self) -> bool {
        matches!(self.state, StreamState::Published(_))
    }

    /// Returns the name of the stream that an image belongs to, by its digest; `None` if no stream has it.
    pub fn of_image(&self, image: &str) -> Option<&str> {
        let StreamState::Published(status) = &self.state else {
            return None;
        };
        let wanted = by_digest(image);
        let mut available = status.available_streams.iter();
        let found = available.find(|stream| by_digest(&stream.os_image) == wanted);
        found.map(|stream| stream.name.as_str())
    }

    /// Returns the stream of pools that do not select one.
    pub fn default_stream(&self) -> Option<OsImageStreamImages<'_>> {
        let StreamState::Published(status) = &self.state else {
            return None;
        };
        let mut available = status.available_streams.iter().map(as_stream);
        available.find(|stream| stream.name == status.default_stream)
    }

    /// Returns the stream that a pool follows; `None` if the cluster has no streams.
    pub fn of_pool(
        &self,
        pool: &MachineConfigPool,
        worker: Option<&MachineConfigPool>,
    ) -> Result<Option<OsImageStreamImages<'_>>, StreamError> {
        match &self.state {
            StreamState::Off => Ok(None),
            StreamState::Unpublished => os_images::refuse_choice(pool, worker).map(|()| None),
            StreamState::Published(status) => {
                let streams = os_images::OsImageStreams {
                    available: status.available_streams.iter().map(as_stream).collect(),
                    default: &status.default_stream,
                };
                os_images::stream_of(pool, worker, &streams).map(Some)
            }
        }
    }
}

/// Returns the digest of an image, which a mirrored copy shares; of an image by tag its whole name.
fn by_digest(image: &str) -> &str {
    image.rsplit_once('@').map_or(image, |(_, digest)| digest)
}

fn as_stream(stream: &mco_api::os_image_stream::OSImageStreamImages) -> OsImageStreamImages<'_> {
    OsImageStreamImages {
        name: &stream.name,
        images: DefaultImages {
            os: &stream.os_image,
            extensions: &stream.os_extensions_image,
        },
    }
}

#[cfg(test)]
mod tests {
    use mco_api::foreign::feature_gate::FeatureGate;
    use serde_json::{Value, json};

    use super::*;

    fn gates(details: &Value) -> FeatureGates {
        let object: FeatureGate = serde_json::from_value(json!({
            "metadata": {"name": "cluster"},
            "status": {"featureGates": [details]},
        }))
        .unwrap();
        FeatureGates::of_only_version(&object).unwrap()
    }

    fn published() -> OSImageStream {
        serde_json::from_value(json!({
            "metadata": {"name": "cluster"},
            "spec": {"defaultStream": "rhel-9"},
            "status": {
                "defaultStream": "rhel-9",
                "availableStreams": [
                    {"name": "rhel-9", "osImage": "nine", "osExtensionsImage": "nine-extensions"},
                    {"name": "rhel-10", "osImage": "ten", "osExtensionsImage": "ten-extensions"},
                ],
            },
        }))
        .unwrap()
    }

    fn pool(stream: &Value) -> MachineConfigPool {
        serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": {"osImageStream": stream}}))
            .unwrap()
    }

    #[test]
    fn a_mirrored_image_is_still_of_its_stream() {
        let mut object = published();
        let status = object.status.as_mut().unwrap();
        status.available_streams[1].os_image = "quay.io/os@sha256:10".to_owned();
        let streams = ReleaseStreams::of(Some(&object), &FeatureGates::default());
        for (image, expected) in [
            ("mirror.example.com:5000/copy@sha256:10", Some("rhel-10")),
            ("quay.io/os@sha256:11", None),
            ("nine", Some("rhel-9")),
            ("", None),
        ] {
            assert_eq!(streams.of_image(image), expected, "{image}");
        }
        assert_eq!(ReleaseStreams::default().of_image("nine"), None);
    }

    #[test]
    fn what_a_pool_gets_depends_on_the_gate_the_cluster_and_its_choice() {
        let on = gates(&json!({"version": "1", "enabled": [{"name": "OSStreams"}]}));
        let off = gates(&json!({"version": "1", "disabled": [{"name": "OSStreams"}]}));
        let unknown = gates(&json!({"version": "1", "enabled": [{"name": "Other"}]}));
        let absent = FeatureGates::default();
        let (object, ten) = (published(), json!({"name": "rhel-10"}));
        let cases = [
            ("the choice", &on, Some(&object), &ten, Ok(Some("ten"))),
            ("the default", &on, Some(&object), &Value::Null, Ok(Some("nine"))),
            ("the gate is off", &off, Some(&object), &ten, Ok(None)),
            ("an older release", &unknown, Some(&object), &ten, Ok(None)),
            ("no gates at all", &absent, Some(&object), &ten, Ok(Some("ten"))),
            ("nothing offered or chosen", &absent, None, &Value::Null, Ok(None)),
            ("nothing offered", &absent, None, &ten, Err(())),
        ];
        for (name, gates, object, choice, expected) in cases {
            let streams = ReleaseStreams::of(object, gates);
            let found = streams.of_pool(&pool(choice), None);
            let found = found.map(|stream| stream.map(|stream| stream.images.os.to_owned()));
            let expected = expected.map(|os| os.map(str::to_owned));
            assert_eq!(found.map_err(|_| ()), expected, "{name}");
        }
    }
}
