//! The content of a cluster's OSImageStream: the streams it offers, and the default stream.
//!
//! Pure decisions. Without any source of streams there is no object, and an object of another owner is left unchanged
//! except for the annotation with the version that processed it last.

use std::collections::BTreeMap;

use mco_api::OSImageStream;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::os_image_stream::{OSImageStreamImages, OSImageStreamSpec, OSImageStreamStatus};
use mco_api::vocabulary::{annotations, names};
use serde_json::Value;
use thiserror::Error;

use super::discovery::{self, Discovered, Pair};
use super::labels::{ImageLabels, LabelsError};
use super::release::{ReleaseError, ReleaseImages};
use crate::config::manifest;

/// Keys of the ConfigMap `machine-config-osimageurl`: the release's OS image, its extensions image, and the release
/// version.
const OS_IMAGE: &str = "baseOSContainerImage";
const EXTENSIONS_IMAGE: &str = "baseOSExtensionsContainerImage";
const VERSION: &str = "releaseVersion";
/// Keys of the sources of streams: the release's list of images, and the labels of its images.
const IMAGES: &str = "image-references";
const LABELS: &str = "image-labels";
/// The version in a ConfigMap that no release process has filled in.
const UNRELEASED: &str = "0.0.1-snapshot";

const RHEL_9: &str = "rhel-9";
const RHEL_10: &str = "rhel-10";
const CENTOS_10: &str = "centos-10";
/// Clusters installed with such a release stay on the operating system they were installed with.
const RELEASES_WITH_RHEL_9: &str = "4";

/// The sources of streams among the cluster's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamSources {
    pub discovered: Discovered,
    /// The OS image of pools without streams.
    os_image: String,
    /// The release versions that these sources name: of the ConfigMap, and of its list of images.
    versions: Vec<String>,
}

/// The cluster's release; empty on plain Kubernetes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamRelease<'a> {
    /// The release that the cluster runs or is updating to, and its image.
    pub version: Option<&'a str>,
    pub image: Option<&'a str>,
    /// The release that the cluster was installed with.
    pub installed: Option<&'a str>,
}

impl<'a> StreamRelease<'a> {
    pub fn of(version: Option<&'a ClusterVersion>) -> Self {
        let Some(status) = version.and_then(|version| version.status.as_ref()) else {
            return Self::default();
        };
        let known = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        Self {
            version: known(&status.desired.version),
            image: known(&status.desired.image),
            installed: status.history.last().and_then(|first| known(&first.version)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SourcesError {
    #[error("entry {entry:?} cannot be read: {message}")]
    Unreadable { entry: &'static str, message: String },
    #[error("entry {IMAGES:?}: {0}")]
    Images(#[from] ReleaseError),
    #[error("entry {LABELS:?}: {0}")]
    Labels(#[from] LabelsError),
}

/// Why the discovered streams cannot be published.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PublishError {
    #[error(
        "could not find the requested {wanted} default stream in the list of OSImageStreams [{available}]"
    )]
    NoDefault { wanted: String, available: String },
    #[error(
        "no default is set for the streams {available}; create OSImageStream \"cluster\" with \
         spec.defaultStream"
    )]
    Undecided { available: String },
}

/// The action for the OSImageStream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamDecision {
    /// The cluster offers no streams, or the object is up to date.
    Nothing,
    /// Write this object. Only the name, our annotations, spec and status are set.
    Publish(Box<OSImageStream>),
    /// The sources belong to another release.
    Wait(String),
}

impl StreamSources {
    /// Parses the keys of the ConfigMap `machine-config-osimageurl`.
    pub fn read(entries: &BTreeMap<String, String>) -> Result<Self, SourcesError> {
        let text = |key: &str| entries.get(key).map(String::as_str).unwrap_or_default().trim();
        let release = document(entries, IMAGES)?
            .map(|document| ReleaseImages::read(&document))
            .transpose()?;
        let mut labels = ImageLabels::default();
        if let Some(document) = document(entries, LABELS)? {
            labels.read(&document)?;
        }
        let pair = Pair {
            os: text(OS_IMAGE),
            extensions: text(EXTENSIONS_IMAGE),
        };
        let listed = release.as_ref().map(|release| release.version.as_str());
        let versions = [Some(text(VERSION)), listed].into_iter().flatten();
        let is_complete = !pair.os.is_empty() && !pair.extensions.is_empty();
        let pairs: &[Pair<'_>] = if is_complete { &[pair] } else { &[] };
        Ok(Self {
            discovered: discovery::discover(pairs, release.as_ref(), &labels),
            os_image: pair.os.to_owned(),
            versions: versions
                .filter(|version| !version.is_empty() && *version != UNRELEASED)
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Returns the sources in a release's list of images.
    pub fn of_release(images: &ReleaseImages) -> Self {
        Self {
            discovered: discovery::discover(&[], Some(images), &ImageLabels::default()),
            ..Self::default()
        }
    }

    /// Returns the release that the sources belong to, if that is definitely another one than the cluster's. A list of
    /// images may name its architecture as well: `4.21.0-multi`.
    fn of_another(&self, release: StreamRelease<'_>) -> Option<&str> {
        let wanted = release.version?;
        let is_wanted = |found: &str| {
            let suffix = found.strip_prefix(wanted);
            suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
        };
        let mut versions = self.versions.iter().map(String::as_str);
        versions.find(|version| !is_wanted(version))
    }
}

fn document(entries: &BTreeMap<String, String>, entry: &'static str) -> Result<Option<Value>, SourcesError> {
    let text = entries.get(entry).filter(|text| !text.trim().is_empty());
    text.map(|text| manifest::value(text).map_err(|message| SourcesError::Unreadable { entry, message }))
        .transpose()
}

/// Decides the content of the OSImageStream. `us` is the source revision of the controller, without which no pool
/// uses the object.
pub fn decide(
    existing: Option<&OSImageStream>,
    sources: &StreamSources,
    release: StreamRelease<'_>,
    us: &str,
) -> Result<StreamDecision, PublishError> {
    let status = existing.and_then(|object| object.status.as_ref());
    let found = &sources.discovered.streams;
    let streams = match status {
        None if found.is_empty() => return Ok(StreamDecision::Nothing),
        Some(status) if found.is_empty() => {
            if let Some(image) = existing.and_then(|object| made_from_another(object, release)) {
                return Ok(StreamDecision::Wait(format!(
                    "the streams in OSImageStream \"cluster\" are those of {image}, and those of the current \
                     release are not recorded; add its {IMAGES} to ConfigMap {}",
                    names::config_map::OS_IMAGE_URL
                )));
            }
            &status.available_streams
        }
        _ => match sources.of_another(release) {
            None => found,
            Some(other) => {
                return Ok(StreamDecision::Wait(format!(
                    "ConfigMap {} is for release {other}, but the cluster is updating to {}",
                    names::config_map::OS_IMAGE_URL,
                    release.version.unwrap_or_default()
                )));
            }
        },
    };
    let default = default_stream(existing, streams, &sources.os_image, release.installed)?;
    let wanted = object(existing, streams, default, release, us);
    let is_there = existing.is_some_and(|existing| is_equivalent(existing, &wanted));
    Ok(if is_there {
        StreamDecision::Nothing
    } else {
        StreamDecision::Publish(Box::new(wanted))
    })
}

/// Returns an OSImageStream for use without a cluster.
pub fn offline(
    discovered: &Discovered,
    installed: Option<&str>,
    us: &str,
) -> Result<Option<OSImageStream>, PublishError> {
    if discovered.streams.is_empty() {
        return Ok(None);
    }
    let default = default_stream(None, &discovered.streams, "", installed)?;
    let release = StreamRelease::default();
    Ok(Some(object(None, &discovered.streams, default, release, us)))
}

/// Returns why the object's streams must not be rendered for `rendered`, the release that configs are rendered for:
/// they are those of another release image. Until the operator is of the release that the cluster is updated to, the
/// streams of the release before are right.
pub fn stale(object: &OSImageStream, release: StreamRelease<'_>, rendered: Option<&str>) -> Option<String> {
    let made_from = made_from_another(object, release)?;
    let is_awaited = |rendered: &str| release.version.is_none_or(|version| version == rendered);
    rendered.is_none_or(is_awaited).then(|| {
        format!(
            "the streams in OSImageStream \"cluster\" are those of {made_from}, and the cluster is updating to {}",
            release.image.unwrap_or_default()
        )
    })
}

/// Returns the release image that the object was generated from, if it differs from the cluster's. An object without
/// this record is accepted.
fn made_from_another<'a>(object: &'a OSImageStream, release: StreamRelease<'_>) -> Option<&'a str> {
    let annotations = object.metadata.annotations.as_ref();
    let made_from = annotations.and_then(|all| all.get(annotations::RELEASE_PAYLOAD_IMAGE))?;
    let present = release.image?;
    (made_from != present).then_some(made_from)
}

/// Returns the default stream: the user's choice, else the one in force, else the only one, else the one that matches
/// the installed release.
fn default_stream<'a>(
    existing: Option<&'a OSImageStream>,
    streams: &'a [OSImageStreamImages],
    os_image: &str,
    installed: Option<&str>,
) -> Result<&'a str, PublishError> {
    let asked_for = existing.map(|object| object.spec.default_stream.as_str());
    let in_force = existing.and_then(|object| Some(object.status.as_ref()?.default_stream.as_str()));
    let known = [asked_for, in_force].into_iter().flatten();
    let wanted = match (known.into_iter().find(|name| !name.is_empty()), streams) {
        (Some(name), _) => name,
        (None, [only]) => return Ok(&only.name),
        (None, _) => usual_stream(streams, os_image, installed).ok_or_else(|| PublishError::Undecided {
            available: list(streams),
        })?,
    };
    let mut available = streams.iter().map(|stream| stream.name.as_str());
    available
        .find(|name| *name == wanted)
        .ok_or_else(|| PublishError::NoDefault {
            wanted: wanted.to_owned(),
            available: list(streams),
        })
}

fn usual_stream<'a>(
    streams: &'a [OSImageStreamImages],
    os_image: &str,
    installed: Option<&str>,
) -> Option<&'a str> {
    if streams.iter().all(|stream| !stream.name.starts_with("rhel-")) {
        let okd = streams.iter().find(|stream| stream.name == CENTOS_10);
        if let Some(okd) = okd {
            return Some(&okd.name);
        }
    }
    let major = installed.and_then(|version| version.trim_start_matches('v').split('.').next());
    match major.filter(|major| major.parse::<u32>().is_ok()) {
        Some(RELEASES_WITH_RHEL_9) => Some(RHEL_9),
        Some(_) => Some(RHEL_10),
        // A cluster that was not installed from a release keeps its current stream.
        None => streams
            .iter()
            .find(|stream| stream.os_image == os_image)
            .map(|stream| stream.name.as_str()),
    }
}

fn list(streams: &[OSImageStreamImages]) -> String {
    let names = streams.iter().map(|stream| stream.name.as_str());
    names.collect::<Vec<_>>().join(" ")
}

fn object(
    existing: Option<&OSImageStream>,
    streams: &[OSImageStreamImages],
    default: &str,
    release: StreamRelease<'_>,
    us: &str,
) -> OSImageStream {
    let spec = existing.map_or_else(
        || OSImageStreamSpec {
            default_stream: default.to_owned(),
        },
        |existing| existing.spec.clone(),
    );
    let mut object = OSImageStream::new(names::SINGLETON, spec);
    object.status = Some(OSImageStreamStatus {
        available_streams: streams.to_vec(),
        default_stream: default.to_owned(),
    });
    let version = (annotations::RELEASE_IMAGE_VERSION, us);
    let image = release
        .image
        .map(|image| (annotations::RELEASE_PAYLOAD_IMAGE, image));
    let all = [Some(version), image].into_iter().flatten();
    object.metadata.annotations = Some(
        all.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    );
    object
}

fn is_equivalent(existing: &OSImageStream, wanted: &OSImageStream) -> bool {
    let annotated = wanted.metadata.annotations.iter().flatten().all(|(key, value)| {
        let found = existing.metadata.annotations.as_ref();
        found.and_then(|all| all.get(key)) == Some(value)
    });
    annotated && existing.spec == wanted.spec && existing.status == wanted.status
}

#[cfg(test)]
mod tests;
