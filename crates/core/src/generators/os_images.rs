//! The OS image of a pool whose MachineConfigs do not set one.

use mco_api::{ControllerConfig, MachineConfigPool};
use thiserror::Error;

use crate::config::merge::DefaultImages;
use crate::config::pools;

/// The images of one stream, as the cluster publishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OsImageStreamImages<'a> {
    pub name: &'a str,
    pub images: DefaultImages<'a>,
}

/// All streams of a cluster and its default stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsImageStreams<'a> {
    pub available: Vec<OsImageStreamImages<'a>>,
    pub default: &'a str,
}

/// Why a pool's stream cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StreamError {
    #[error(
        "MachineConfigPool {pool:?}: OS image stream {stream:?}, {}, not found; available are {available}",
        by(.pool, .chosen_by.as_deref())
    )]
    Unknown {
        pool: String,
        stream: String,
        /// The pool that selected the stream; `None` if it is the default.
        chosen_by: Option<String>,
        available: String,
    },
    #[error(
        "MachineConfigPool {pool:?}: OS image stream {stream:?}, {}, not found; this cluster offers no streams. Remove \
         spec.osImageStream, or list the images of the release (ConfigMap machine-config-osimageurl, key \
         image-references)",
        by(.pool, Some(.chosen_by.as_str()))
    )]
    NoneOffered {
        pool: String,
        stream: String,
        chosen_by: String,
    },
}

fn by(pool: &str, chosen_by: Option<&str>) -> String {
    match chosen_by {
        None => "the default of OSImageStream \"cluster\"".to_owned(),
        Some(chooser) if chooser == pool => "chosen in spec.osImageStream".to_owned(),
        Some(chooser) => format!("chosen in spec.osImageStream of pool {chooser:?}"),
    }
}

/// Returns the images of a pool on a cluster without streams.
pub fn from_controller_config(config: &ControllerConfig) -> DefaultImages<'_> {
    DefaultImages {
        os: &config.spec.base_os_container_image,
        extensions: &config.spec.base_os_extensions_container_image,
    }
}

/// Returns the images of a pool on a cluster with streams.
pub fn from_streams<'a>(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
    streams: &OsImageStreams<'a>,
) -> Result<DefaultImages<'a>, StreamError> {
    stream_of(pool, worker, streams).map(|stream| stream.images)
}

/// Returns the stream of a pool: its own selection, else, for a custom pool, the worker pool's, else the default.
pub fn stream_of<'a>(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
    streams: &OsImageStreams<'a>,
) -> Result<OsImageStreamImages<'a>, StreamError> {
    let choice = choice(pool, worker);
    let stream = choice.map_or(streams.default, |choice| choice.stream);
    let mut available = streams.available.iter();
    available
        .find(|one| one.name == stream)
        .copied()
        .ok_or_else(|| StreamError::Unknown {
            pool: name_of(pool).to_owned(),
            stream: stream.to_owned(),
            chosen_by: choice.map(|choice| choice.by.to_owned()),
            available: streams
                .available
                .iter()
                .map(|one| one.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// Rejects a pool that selects a stream on a cluster without streams, instead of rolling out another image.
pub fn refuse_choice(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
) -> Result<(), StreamError> {
    choice(pool, worker).map_or(Ok(()), |choice| {
        Err(StreamError::NoneOffered {
            pool: name_of(pool).to_owned(),
            stream: choice.stream.to_owned(),
            chosen_by: choice.by.to_owned(),
        })
    })
}

#[derive(Debug, Clone, Copy)]
struct OsImageChoice<'p> {
    stream: &'p str,
    /// The pool that selects the stream.
    by: &'p str,
}

fn choice<'p>(
    pool: &'p MachineConfigPool,
    worker: Option<&'p MachineConfigPool>,
) -> Option<OsImageChoice<'p>> {
    let of = |pool: &'p MachineConfigPool| {
        let stream = pool.spec.os_image_stream.as_ref()?.name.as_str();
        let by = name_of(pool);
        (!stream.is_empty()).then_some(OsImageChoice { stream, by })
    };
    let inherited = || worker.filter(|_| !pools::is_built_in(name_of(pool))).and_then(of);
    of(pool).or_else(inherited)
}

fn name_of(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
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
        let streams = OsImageStreams {
            available: vec![
                OsImageStreamImages {
                    name: "rhel-9",
                    images: images("nine"),
                },
                OsImageStreamImages {
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
                "no selection",
                pool("infra", &unset),
                Some(pool("worker", &unset)),
                "ten",
            ),
            ("no worker pool", pool("infra", &unset), None, "ten"),
            (
                "master inherits from no pool",
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
    }

    #[test]
    fn a_refusal_says_who_chose_and_what_there_is() {
        let streams = OsImageStreams {
            available: vec![OsImageStreamImages {
                name: "rhel-9",
                images: DefaultImages::default(),
            }],
            default: "rhel-10",
        };
        let (unset, suse) = (json!(null), json!({"name": "suse"}));
        let worker = pool("worker", &suse);
        let cases = [
            (pool("infra", &suse), "chosen in spec.osImageStream, not found"),
            (
                pool("infra", &unset),
                "chosen in spec.osImageStream of pool \"worker\", not found",
            ),
            (
                pool("master", &unset),
                "the default of OSImageStream \"cluster\", not found; available are rhel-9",
            ),
        ];
        for (pool, expected) in cases {
            let refusal = from_streams(&pool, Some(&worker), &streams)
                .unwrap_err()
                .to_string();
            assert!(refusal.contains(expected), "{refusal}");
        }
        let refusal = refuse_choice(&pool("infra", &unset), Some(&worker)).unwrap_err();
        assert!(refusal.to_string().contains("offers no streams"), "{refusal}");
        assert_eq!(refuse_choice(&pool("master", &unset), Some(&worker)), Ok(()));
    }
}
