//! Discovers OS image streams: which of a release's images are operating systems, which are their extensions, and
//! which stream each belongs to.
//!
//! An image's labels decide. Where they are not recorded, the release's metadata of the image does: its tag name and
//! the version of its operating system.

use std::collections::BTreeMap;

use mco_api::os_image_stream::OSImageStreamImages;

use super::labels::{ImageLabels, Labels};
use super::release::{ReleaseImages, Tag};

const STREAM: &str = "io.openshift.os.streamclass";
const OPERATING_SYSTEM: &str = "containers.bootc";
const EXTENSIONS: &str = "io.openshift.os.extensions";
/// Label with the versions of an image's contents, as `name=version,name=version`.
const VERSIONS: &str = "io.openshift.build.versions";
const OPERATING_SYSTEM_VERSION: &str = "machine-os";
/// Label with the repository of an image's source, and the repository of the operating systems.
const SOURCE: &str = "io.openshift.build.source-location";
const OPERATING_SYSTEM_SOURCE: &str = "github.com/openshift/os";

/// The smallest prefix of older OS versions that is a release version, such as 418 for 4.18.
const SMALLEST_RELEASE_PREFIX: u32 = 40;

/// The discovered streams, by name, and the images that were ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovered {
    pub streams: Vec<OSImageStreamImages>,
    pub left_out: Vec<LeftOut>,
}

/// An ignored image or stream, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// An image by its name in the release or its pullspec, or a stream.
    pub what: String,
    pub why: &'static str,
}

/// An OS image and its extensions image, configured outside a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    pub os: &'a str,
    pub extensions: &'a str,
}

/// Returns the streams of individual images and of a release. Where both define a stream, the release's wins.
pub fn discover(pairs: &[Pair<'_>], release: Option<&ReleaseImages>, labels: &ImageLabels) -> Discovered {
    let mut streams = BTreeMap::new();
    let mut left_out = Vec::new();
    for pair in pairs {
        streams.extend(of_pair(*pair, labels, &mut left_out));
    }
    if let Some(release) = release {
        let mut images = Vec::new();
        for tag in release.tags.iter().filter(|tag| is_candidate(tag)) {
            match classify_tag(tag, release, labels) {
                Ok(class) => images.push((class, tag.image.as_str())),
                Err(why) => left_out.push(LeftOut {
                    what: tag.name.clone(),
                    why,
                }),
            }
        }
        streams.extend(group(images, &mut left_out));
    }
    Discovered {
        streams: streams.into_values().collect(),
        left_out,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPart {
    OperatingSystem,
    Extensions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageClass {
    stream: String,
    part: StreamPart,
}

const NO_STREAM: &str = "its labels name no stream";
const NO_PART: &str = "its labels identify it neither as an operating system nor as extensions of one";
const UNKNOWN: &str =
    "its stream cannot be determined from its labels or from the version of its operating system";
const NOT_BY_DIGEST: &str = "it is not named as host/name@sha256:<digest>";
const INCOMPLETE: &str = "it has only one of the two images it needs, an operating system and its extensions";
const BAD_NAME: &str = "a stream is named like a DNS subdomain";

fn of_pair(
    pair: Pair<'_>,
    labels: &ImageLabels,
    left_out: &mut Vec<LeftOut>,
) -> BTreeMap<String, OSImageStreamImages> {
    let mut images = Vec::new();
    for image in [pair.os, pair.extensions] {
        let class = labels.of(image).ok_or(UNKNOWN).and_then(classify);
        match class {
            Ok(class) => images.push((class, image)),
            Err(why) => left_out.push(LeftOut {
                what: image.to_owned(),
                why,
            }),
        }
    }
    group(images, left_out)
}

/// Groups OS images and extensions by stream. Of several images for one slot the last wins.
fn group(
    images: Vec<(ImageClass, &str)>,
    left_out: &mut Vec<LeftOut>,
) -> BTreeMap<String, OSImageStreamImages> {
    let mut streams: BTreeMap<String, OSImageStreamImages> = BTreeMap::new();
    let mut leave_out = |what: &str, why| {
        left_out.push(LeftOut {
            what: what.to_owned(),
            why,
        });
    };
    for (ImageClass { stream, part }, image) in images {
        if !is_stream_name(&stream) {
            leave_out(&stream, BAD_NAME);
            continue;
        }
        if !is_by_digest(image) {
            leave_out(image, NOT_BY_DIGEST);
            continue;
        }
        let entry = streams.entry(stream.clone()).or_default();
        entry.name = stream;
        match part {
            StreamPart::OperatingSystem => image.clone_into(&mut entry.os_image),
            StreamPart::Extensions => image.clone_into(&mut entry.os_extensions_image),
        }
    }
    streams.retain(|name, stream| {
        let complete = !stream.os_image.is_empty() && !stream.os_extensions_image.is_empty();
        if !complete {
            leave_out(name, INCOMPLETE);
        }
        complete
    });
    streams
}

/// Classifies an image by its labels.
fn classify(labels: &Labels) -> Result<ImageClass, &'static str> {
    let stream = labels
        .get(STREAM)
        .filter(|name| !name.is_empty())
        .ok_or(NO_STREAM)?;
    Ok(ImageClass {
        stream: stream.clone(),
        part: part(labels).ok_or(NO_PART)?,
    })
}

fn part(labels: &Labels) -> Option<StreamPart> {
    let is = |key: &str, values: &[&str]| {
        let found = labels.get(key);
        found.is_some_and(|found| values.iter().any(|value| found.eq_ignore_ascii_case(value)))
    };
    if is(OPERATING_SYSTEM, &["true", "1"]) {
        Some(StreamPart::OperatingSystem)
    } else if is(EXTENSIONS, &["true"]) {
        Some(StreamPart::Extensions)
    } else {
        None
    }
}

/// Whether the release's metadata of an image suggest an operating system or its extensions.
fn is_candidate(tag: &Tag) -> bool {
    let from_source = tag
        .annotations
        .get(SOURCE)
        .is_some_and(|source| source.contains(OPERATING_SYSTEM_SOURCE));
    let plain = |name: &str| {
        name.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
    };
    let named = ["rhel", "stream"].iter().any(|family| {
        let rest = tag.name.strip_prefix(family);
        rest.is_some_and(|rest| rest.contains("-coreos"))
    });
    from_source || (named && plain(&tag.name))
}

fn classify_tag(
    tag: &Tag,
    release: &ReleaseImages,
    labels: &ImageLabels,
) -> Result<ImageClass, &'static str> {
    if let Some(labels) = labels.of(&tag.image) {
        return classify(labels);
    }
    let (part, base) = match tag.name.split_once("-extensions") {
        Some((base, _)) => (StreamPart::Extensions, base),
        None => (StreamPart::OperatingSystem, tag.name.as_str()),
    };
    // A release may repeat an image's labels beside its name.
    if let Some(stream) = tag.annotations.get(STREAM) {
        return Ok(ImageClass {
            stream: stream.clone(),
            part: self::part(&tag.annotations).unwrap_or(part),
        });
    }
    // Extensions belong to the operating system of the same name.
    let versioned = [Some(tag), release.find(base)].into_iter().flatten();
    let major = versioned
        .filter_map(|tag| tag.annotations.get(VERSIONS))
        .find_map(|versions| major_version(versions))
        .or_else(|| base.rsplit_once("-coreos-")?.1.parse().ok())
        .ok_or(UNKNOWN)?;
    let family = if base.starts_with("stream") {
        "centos"
    } else {
        "rhel"
    };
    Ok(ImageClass {
        stream: format!("{family}-{major}"),
        part,
    })
}

/// Returns the major version of the operating system in an image: 9 for `9.6.20250514-0` and for the older
/// `418.94.202501071621-0`.
fn major_version(versions: &str) -> Option<u32> {
    let mut versions = versions.split(',').filter_map(|entry| entry.split_once('='));
    let (_, version) = versions.find(|(name, _)| name.trim() == OPERATING_SYSTEM_VERSION)?;
    let mut fields = version.trim().split('.');
    let first: u32 = fields.next()?.parse().ok()?;
    if first < SMALLEST_RELEASE_PREFIX {
        return Some(first);
    }
    let second: u32 = fields.next()?.parse().ok()?;
    Some(second / 10)
}

fn is_stream_name(name: &str) -> bool {
    const LONGEST: usize = 253;
    let is_label = |label: &str| {
        let inside = label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        inside && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= LONGEST && name.split('.').all(is_label)
}

/// Whether the image is referenced by digest, as the OSImageStream CRD requires.
fn is_by_digest(image: &str) -> bool {
    const LONGEST: usize = 447;
    const DIGITS: usize = 64;
    let Some((name, digest)) = image.split_once("@sha256:") else {
        return false;
    };
    let is_digest = digest.len() == DIGITS
        && digest
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let mut parts = name.split('/');
    let host = parts.next().unwrap_or_default();
    let host_is_qualified = host.split(':').next().is_some_and(|host| host.contains('.'));
    let path: Vec<&str> = parts.collect();
    let is_word = |word: &&str| {
        word.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    is_digest
        && image.len() <= LONGEST
        && host_is_qualified
        && matches!(path.len(), 1 | 2)
        && path.iter().all(is_word)
}

#[cfg(test)]
mod tests;
