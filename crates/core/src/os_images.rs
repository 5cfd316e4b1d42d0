//! Which operating system image a pool runs when none of its MachineConfigs says so.

use mco_api::{ControllerConfig, MachineConfigPool};
use thiserror::Error;

use crate::merge::DefaultImages;
use crate::pools;

/// The images of one stream, as a cluster publishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream<'a> {
    pub name: &'a str,
    pub images: DefaultImages<'a>,
}

/// All streams of a cluster and the one that counts when nobody chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streams<'a> {
    pub available: Vec<Stream<'a>>,
    pub default: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("MachineConfigPool {pool:?}: OS image stream {stream:?} not found; available are {available}")]
pub struct UnknownStream {
    pub pool: String,
    pub stream: String,
    pub available: String,
}

/// The images of a pool on a cluster without streams.
pub fn from_controller_config(config: &ControllerConfig) -> DefaultImages<'_> {
    DefaultImages {
        os: &config.spec.base_os_container_image,
        extensions: &config.spec.base_os_extensions_container_image,
    }
}

/// The images of a pool on a cluster with streams.
pub fn from_streams<'a>(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
    streams: &Streams<'a>,
) -> Result<DefaultImages<'a>, UnknownStream> {
    stream_of(pool, worker, streams).map(|stream| stream.images)
}

/// The stream that a pool follows: its own choice, else, for a custom pool, the worker pool's, else the default.
pub fn stream_of<'a>(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
    streams: &Streams<'a>,
) -> Result<Stream<'a>, UnknownStream> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let choice_of = |pool: &MachineConfigPool| {
        pool.spec
            .os_image_stream
            .as_ref()
            .map(|stream| stream.name.clone())
    };
    let inherited = || worker.filter(|_| !pools::is_built_in(name)).and_then(choice_of);
    let chosen = choice_of(pool)
        .or_else(inherited)
        .filter(|stream| !stream.is_empty());
    let stream = chosen.unwrap_or_else(|| streams.default.to_owned());
    streams
        .available
        .iter()
        .find(|one| one.name == stream)
        .copied()
        .ok_or_else(|| UnknownStream {
            pool: name.to_owned(),
            stream,
            available: streams
                .available
                .iter()
                .map(|one| one.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(name: &str, stream: &Value) -> MachineConfigPool {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"osImageStream": stream}}))
            .unwrap()
    }

    #[test]
    fn a_custom_pool_follows_worker_unless_it_chooses() {
        let images = |os| DefaultImages { os, extensions: "" };
        let streams = Streams {
            available: vec![
                Stream {
                    name: "rhel-9",
                    images: images("nine"),
                },
                Stream {
                    name: "rhel-10",
                    images: images("ten"),
                },
            ],
            default: "rhel-10",
        };
        let (unset, nine) = (json!(null), json!({"name": "rhel-9"}));
        let cases = [
            (
                "its own choice",
                pool("infra", &nine),
                Some(pool("worker", &unset)),
                "nine",
            ),
            (
                "the worker pool's choice",
                pool("infra", &unset),
                Some(pool("worker", &nine)),
                "nine",
            ),
            (
                "nobody's choice",
                pool("infra", &unset),
                Some(pool("worker", &unset)),
                "ten",
            ),
            ("no worker pool", pool("infra", &unset), None, "ten"),
            (
                "master follows nobody",
                pool("master", &unset),
                Some(pool("worker", &nine)),
                "ten",
            ),
        ];
        for (name, pool, worker, expected) in cases {
            assert_eq!(
                from_streams(&pool, worker.as_ref(), &streams).unwrap().os,
                expected,
                "{name}"
            );
        }
        assert!(from_streams(&pool("infra", &json!({"name": "suse"})), None, &streams).is_err());
    }
}
