//! What a cluster's OSImageStream says: the streams it offers, and the one that pools follow unless they choose.
//!
//! Decides only. Without anything that tells of streams there is no object, and one that somebody else has made is left
//! as it is but for the version of whoever looked at it last.

use std::collections::BTreeMap;

use mco_api::OSImageStream;
use mco_api::os_image_stream::{OSImageStreamImages, OSImageStreamSpec, OSImageStreamStatus};
use mco_api::vocabulary::{annotations, names};
use serde_json::Value;
use thiserror::Error;

use super::discovery::{self, Discovered, Pair};
use super::labels::{ImageLabels, LabelsError};
use super::release::{ReleaseError, ReleaseImages};
use crate::config::manifest;

/// Entries of the ConfigMap `machine-config-osimageurl`: the operating system of the release, its extensions, and the
/// version of the release.
const OS_IMAGE: &str = "baseOSContainerImage";
const EXTENSIONS_IMAGE: &str = "baseOSExtensionsContainerImage";
const VERSION: &str = "releaseVersion";
/// And those that tell of streams: the release's list of images, and what its images say about themselves.
const IMAGES: &str = "image-references";
const LABELS: &str = "image-labels";
/// A ConfigMap that no release process has filled in has this version.
const UNRELEASED: &str = "0.0.1-snapshot";

const RHEL_9: &str = "rhel-9";
const RHEL_10: &str = "rhel-10";
const CENTOS_10: &str = "centos-10";
/// Clusters that were installed as this stay on the operating system they were installed with.
const RELEASES_WITH_RHEL_9: &str = "4";

/// What a cluster's own objects say about streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    pub discovered: Discovered,
    /// The operating system that pools have without streams.
    os_image: String,
    /// The release that all this is about; empty if it does not say.
    version: String,
}

/// What a cluster says about its release; nothing on a plain Kubernetes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Release<'a> {
    /// The release that the cluster runs or goes to, and the image it comes in.
    pub version: Option<&'a str>,
    pub image: Option<&'a str>,
    /// The release that the cluster was installed as.
    pub installed: Option<&'a str>,
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

/// Why the streams that were found cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PublishError {
    #[error(
        "could not find the requested {wanted} default stream in the list of OSImageStreams [{available}]"
    )]
    NoDefault { wanted: String, available: String },
    #[error(
        "nothing says which of the streams {available} is the default; create OSImageStream \"cluster\" with \
         spec.defaultStream"
    )]
    Undecided { available: String },
}

/// What is to be done about the OSImageStream.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// The cluster offers no streams, or it is all as it should be.
    Nothing,
    /// It should be like this. Only the name, our annotations, spec and status are set.
    Publish(Box<OSImageStream>),
    /// What is known belongs to another release.
    Wait(String),
}

impl Sources {
    /// Reads the entries of the ConfigMap `machine-config-osimageurl`.
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
        let is_complete = !pair.os.is_empty() && !pair.extensions.is_empty();
        let pairs: &[Pair<'_>] = if is_complete { &[pair] } else { &[] };
        Ok(Self {
            discovered: discovery::discover(pairs, release.as_ref(), &labels),
            os_image: pair.os.to_owned(),
            version: text(VERSION).to_owned(),
        })
    }

    /// What a release's list of images says by itself.
    pub fn of_release(images: &ReleaseImages) -> Self {
        Self {
            discovered: discovery::discover(&[], Some(images), &ImageLabels::default()),
            ..Self::default()
        }
    }

    /// Whether they are known to be about another release than the cluster's.
    fn are_of_another(&self, release: Release<'_>) -> bool {
        let known = !self.version.is_empty() && self.version != UNRELEASED;
        known && release.version.is_some_and(|version| version != self.version)
    }
}

fn document(entries: &BTreeMap<String, String>, entry: &'static str) -> Result<Option<Value>, SourcesError> {
    let text = entries.get(entry).filter(|text| !text.trim().is_empty());
    text.map(|text| manifest::value(text).map_err(|message| SourcesError::Unreadable { entry, message }))
        .transpose()
}

/// What the OSImageStream should say. `us` is the source revision of whoever decides, without which no pool believes it.
pub fn decide(
    existing: Option<&OSImageStream>,
    sources: &Sources,
    release: Release<'_>,
    us: &str,
) -> Result<Decision, PublishError> {
    let status = existing.and_then(|object| object.status.as_ref());
    let found = &sources.discovered.streams;
    let streams = match status {
        None if found.is_empty() => return Ok(Decision::Nothing),
        Some(status) if found.is_empty() => {
            if let Some(image) = existing.and_then(|object| made_from_another(object, release)) {
                return Ok(Decision::Wait(format!(
                    "the streams in OSImageStream \"cluster\" are those of {image}, and nothing tells of the present \
                     release's; put its {IMAGES} into ConfigMap {}",
                    names::config_map::OS_IMAGE_URL
                )));
            }
            &status.available_streams
        }
        _ if sources.are_of_another(release) => {
            return Ok(Decision::Wait(format!(
                "ConfigMap {} is about release {}, but the cluster goes to {}",
                names::config_map::OS_IMAGE_URL,
                sources.version,
                release.version.unwrap_or_default()
            )));
        }
        _ => found,
    };
    let default = default_stream(existing, streams, &sources.os_image, release.installed)?;
    let wanted = object(existing, streams, default, release, us);
    let is_there = existing.is_some_and(|existing| says_the_same(existing, &wanted));
    Ok(if is_there {
        Decision::Nothing
    } else {
        Decision::Publish(Box::new(wanted))
    })
}

/// An OSImageStream for whoever asks without a cluster.
pub fn offline(
    discovered: &Discovered,
    installed: Option<&str>,
    us: &str,
) -> Result<Option<OSImageStream>, PublishError> {
    if discovered.streams.is_empty() {
        return Ok(None);
    }
    let default = default_stream(None, &discovered.streams, "", installed)?;
    let release = Release::default();
    Ok(Some(object(None, &discovered.streams, default, release, us)))
}

/// The image of the release that the object was made from, if it is not the cluster's. One that says nothing is believed.
fn made_from_another<'a>(object: &'a OSImageStream, release: Release<'_>) -> Option<&'a str> {
    let annotations = object.metadata.annotations.as_ref();
    let made_from = annotations.and_then(|all| all.get(annotations::RELEASE_PAYLOAD_IMAGE))?;
    let present = release.image?;
    (made_from != present).then_some(made_from)
}

/// What the user says, else what was in force, else the only one there is, else what fits to where the cluster comes
/// from.
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
        // A cluster that comes from no release goes on with what it has.
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
    release: Release<'_>,
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

fn says_the_same(existing: &OSImageStream, wanted: &OSImageStream) -> bool {
    let annotated = wanted.metadata.annotations.iter().flatten().all(|(key, value)| {
        let found = existing.metadata.annotations.as_ref();
        found.and_then(|all| all.get(key)) == Some(value)
    });
    annotated && existing.spec == wanted.spec && existing.status == wanted.status
}

#[cfg(test)]
mod tests;
