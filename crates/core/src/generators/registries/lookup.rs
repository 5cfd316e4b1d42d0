//! Lookup in a registries.conf with the rules of the container tools: which entry applies to an image, and where the
//! image is pulled from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::conf::{RegistriesConf, RegistryConf, RegistryEndpoint};
use super::reference::RegistryReference;
use super::scope;

const DIGEST_ONLY: &str = "digest-only";
const TAG_ONLY: &str = "tag-only";

/// The entries of a registries.conf, normalised as the tools do.
#[derive(Debug)]
pub(super) struct Lookup {
    entries: Vec<RegistryConf>,
}

/// A location that an image is pulled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PullSource {
    /// The repository at that location.
    pub name: String,
    /// Whether it is the location that an entry for a wildcard domain leaves open: the image's own.
    pub is_own_place: bool,
}

impl Lookup {
    /// Parses the entries; returns an error if the tools would reject the file.
    pub fn of(conf: &RegistriesConf) -> Result<Self, String> {
        let mut entries = Vec::new();
        let mut flags: BTreeMap<String, (bool, bool)> = BTreeMap::new();
        for registry in &conf.registries {
            let entry = read(registry)?;
            let place = if entry.endpoint.location.is_empty() {
                &entry.prefix
            } else {
                &entry.endpoint.location
            };
            let given = (entry.endpoint.insecure, entry.blocked);
            if *flags.entry(place.clone()).or_insert(given) != given {
                return Err(format!(
                    "registry {place:?} is defined several times with different settings"
                ));
            }
            entries.push(entry);
        }
        let mut known = BTreeSet::new();
        entries.retain(|entry| known.insert(entry.prefix.clone()));
        Ok(Self { entries })
    }

    /// Returns the entry with the longest matching prefix.
    pub fn find(&self, image: &str) -> Option<&RegistryConf> {
        let matching = self
            .entries
            .iter()
            .filter(|entry| matched(image, &entry.prefix).is_some());
        // Of equally long prefixes the alphabetically first wins.
        matching.min_by_key(|entry| (Reverse(entry.prefix.len()), &entry.prefix))
    }
}

impl RegistryConf {
    /// Returns the locations an image is pulled from by this entry, in order; an error if a location is not a valid
    /// reference.
    pub fn pull_sources(&self, image: RegistryReference<'_>) -> Result<Vec<PullSource>, String> {
        let mirrors = self
            .mirrors
            .iter()
            .filter(|mirror| match mirror.pull_from_mirror.as_str() {
                _ if self.mirror_by_digest_only => image.has_digest(),
                DIGEST_ONLY => image.has_digest(),
                TAG_ONLY => !image.has_digest(),
                _ => true,
            });
        mirrors
            .chain([&self.endpoint])
            .map(|endpoint| self.rewritten(endpoint, image))
            .collect()
    }

    fn rewritten(
        &self,
        endpoint: &RegistryEndpoint,
        image: RegistryReference<'_>,
    ) -> Result<PullSource, String> {
        let Some(length) = matched(image.text(), &self.prefix) else {
            return Err(format!("{:?} is not within {:?}", image.text(), self.prefix));
        };
        if endpoint.location.is_empty() {
            return Ok(PullSource {
                name: image.name.to_owned(),
                is_own_place: true,
            });
        }
        let place = format!("{}{}", endpoint.location, &image.text()[length..]);
        let rewritten = RegistryReference::qualified(&place).ok_or_else(|| {
            format!(
                "{:?} through {:?} would be {place:?}, which is not a full image reference",
                image.name, endpoint.location
            )
        })?;
        Ok(PullSource {
            name: rewritten.name.to_owned(),
            is_own_place: false,
        })
    }
}

fn read(registry: &RegistryConf) -> Result<RegistryConf, String> {
    let mut entry = registry.clone();
    entry.endpoint.location = place(&entry.endpoint.location)?;
    entry.prefix = place(&entry.prefix)?;
    if entry.prefix.is_empty() {
        entry.prefix.clone_from(&entry.endpoint.location);
    }
    if entry.endpoint.location.is_empty() && !scope::is_wildcard(&entry.prefix) {
        return Err(format!("registry {:?} has no location", entry.prefix));
    }
    for mirror in &mut entry.mirrors {
        mirror.location = place(&mirror.location)?;
    }
    Ok(entry)
}

fn place(given: &str) -> Result<String, String> {
    let trimmed = given.trim_end_matches('/');
    if trimmed.starts_with("http://") || trimmed.starts_with("https://") {
        return Err(format!(
            "invalid location {given:?}: URI schemes are not supported"
        ));
    }
    Ok(trimmed.to_owned())
}

/// Returns the length of the image's text that a prefix matches, if it matches.
fn matched(image: &str, prefix: &str) -> Option<usize> {
    let end = if scope::is_wildcard(prefix) {
        let domain = &prefix[1..];
        let at = image.find(domain)?;
        if image[..at].contains('/') {
            return None;
        }
        at + domain.len()
    } else if image.starts_with(prefix) {
        prefix.len()
    } else {
        return None;
    };
    (end == image.len() || image[end..].starts_with([':', '/', '@'])).then_some(end)
}
