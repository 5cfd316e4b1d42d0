//! Image references in canonical form: a registry host, a repository, and a tag or digest.

use std::fmt;

use thiserror::Error;

/// The longest tag that registries accept.
const LONGEST_TAG: usize = 128;
/// The longest host and repository that registries accept.
const LONGEST_NAME: usize = 255;
/// The shortest digest of any algorithm, in hexadecimal digits.
const SHORTEST_DIGEST: usize = 32;

/// A reference with a registry host. Short names, whose registry depends on the settings of the host, are rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    /// Host, port and repository.
    pub name: String,
    pub tag: Option<String>,
    pub digest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReferenceError {
    #[error("{0:?} is not an image reference; use host[:port]/repository:tag")]
    Malformed(String),
    #[error("{0:?} has no registry host; use host[:port]/repository:tag")]
    Unqualified(String),
    #[error("tag {tag:?} has {} characters, but registries accept at most {LONGEST_TAG}; use a shorter name", .tag.len())]
    TagTooLong { tag: String },
}

impl ImageReference {
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let malformed = || ReferenceError::Malformed(text.to_owned());
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(malformed());
        }
        let path_start = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[path_start..].split_once(':') {
            Some((last, tag)) => (&rest[..path_start + last.len()], Some(tag)),
            None => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(malformed());
        }
        let (host, repository) = name
            .split_once('/')
            .ok_or_else(|| ReferenceError::Unqualified(text.to_owned()))?;
        let is_qualified =
            host.contains(['.', ':']) || host == "localhost" || host.contains(char::is_uppercase);
        let is_short_for_another =
            host == "index.docker.io" || (host == "docker.io" && !repository.contains('/'));
        if !is_qualified || is_short_for_another {
            return Err(ReferenceError::Unqualified(text.to_owned()));
        }
        if !is_host(host) || !repository.split('/').all(is_path_component) || name.len() > LONGEST_NAME {
            return Err(malformed());
        }
        Ok(Self {
            name: name.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// Replaces the tag.
    pub fn with_tag(&self, tag: &str) -> Result<Self, ReferenceError> {
        if tag.len() > LONGEST_TAG {
            return Err(ReferenceError::TagTooLong { tag: tag.to_owned() });
        }
        if !is_tag(tag) {
            return Err(ReferenceError::Malformed(format!("{}:{tag}", self.name)));
        }
        Ok(Self {
            tag: Some(tag.to_owned()),
            ..self.clone()
        })
    }

    /// Replaces the tag by a digest.
    pub fn with_digest(&self, digest: &str) -> Result<Self, ReferenceError> {
        if !is_digest(digest) {
            return Err(ReferenceError::Malformed(format!("{}@{digest}", self.name)));
        }
        Ok(Self {
            name: self.name.clone(),
            tag: None,
            digest: Some(digest.to_owned()),
        })
    }

    /// Returns the registry's host with its port.
    pub fn host(&self) -> &str {
        self.name.split_once('/').map_or("", |(host, _)| host)
    }

    /// Returns the repository within the registry.
    pub fn repository(&self) -> &str {
        self.name.split_once('/').map_or("", |(_, repository)| repository)
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= LONGEST_TAG
        && text.starts_with(is_word)
        && text.chars().all(|c| is_word(c) || c == '.' || c == '-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else {
        return false;
    };
    let is_hex = hex.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let is_known_length = algorithm != "sha256" || hex.len() == 64;
    algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
        && algorithm
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+.-_".contains(c))
        && is_hex
        && is_known_length
        && hex.len() >= SHORTEST_DIGEST
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let is_label = |label: &str| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty() && label.chars().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_v6 = name.starts_with('[')
        && name.ends_with(']')
        && name[1..name.len() - 1]
            .chars()
            .all(|c| c.is_ascii_hexdigit() || c == ':');
    let is_port = |port: &str| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit());
    (is_v6 || name.split('.').all(is_label)) && port.is_none_or(is_port)
}

/// Letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_path_component(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separator = String::new();
    for c in text.chars() {
        if is_alphanumeric(c) {
            separator.clear();
            continue;
        }
        separator.push(c);
        let is_dashes = separator.chars().all(|c| c == '-');
        if !is_dashes && !matches!(separator.as_str(), "." | "_" | "__") {
            return false;
        }
    }
    text.starts_with(is_alphanumeric) && separator.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_replaced() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, expected) in [
            ("localhost/x:1", "localhost/x:new"),
            ("quay.io/org/deep/er/repo", "quay.io/org/deep/er/repo:new"),
            (
                "registry.example.com:5000/org/repo:v1",
                "registry.example.com:5000/org/repo:new",
            ),
            ("[::1]:5000/repo:v1", "[::1]:5000/repo:new"),
        ] {
            let parsed = ImageReference::parse(text).unwrap();
            assert_eq!(parsed.to_string(), text);
            assert_eq!(parsed.with_tag("new").unwrap().to_string(), expected);
            let name = &parsed.name;
            assert_eq!(
                parsed.with_digest(&digest).unwrap().to_string(),
                format!("{name}@{digest}")
            );
        }
    }

    #[test]
    fn short_names_and_malformed_references_are_rejected() {
        for text in [
            "",
            "repo",
            "repo:tag",
            "org/repo:tag",
            "docker.io/repo:tag",
            "index.docker.io/a/b:tag",
        ] {
            assert!(
                matches!(ImageReference::parse(text), Err(ReferenceError::Unqualified(_))),
                "{text}"
            );
        }
        for text in [
            "a.example/Repo:tag",
            "a.example/re..po:tag",
            "a.example/repo:",
            "a.example/repo:-x",
            "a.example//repo",
            "a.example/repo@sha256:abc",
            "a.example:port/repo",
            "a.example/repo:t/x:",
        ] {
            assert!(
                matches!(ImageReference::parse(text), Err(ReferenceError::Malformed(_))),
                "{text}"
            );
        }
        let parsed = ImageReference::parse("a.example/repo:1").unwrap();
        assert!(parsed.with_tag(&"m".repeat(128)).is_ok());
        assert!(matches!(
            parsed.with_tag(&"m".repeat(129)),
            Err(ReferenceError::TagTooLong { .. })
        ));
    }
}
