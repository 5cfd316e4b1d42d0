//! Image references in the grammar of the container tools: `name[:tag][@digest]`.

use super::scope;

/// Maximum length of a repository name, including its host.
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;
const DEFAULT_HOST: &str = "docker.io";
/// A legacy name of the default host, which the tools replace.
const LEGACY_HOST: &str = "index.docker.io";
/// Digest algorithms that the tools accept, with the length of their values.
const ALGORITHMS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// A syntactically valid reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegistryReference<'t> {
    text: &'t str,
    pub name: &'t str,
    digest: Option<&'t str>,
}

impl<'t> RegistryReference<'t> {
    /// Parses a reference whose name may be short, such as `busybox`.
    pub fn parse(text: &'t str) -> Option<Self> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let colon = rest.rfind(':').filter(|colon| !rest[*colon..].contains('/'));
        let (name, tag) = match colon {
            Some(colon) => (&rest[..colon], Some(&rest[colon + 1..])),
            None => (rest, None),
        };
        let is_valid = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
        is_valid.then_some(Self { text, name, digest })
    }

    /// Parses a fully qualified reference, which the tools would neither complete nor change.
    pub fn qualified(text: &'t str) -> Option<Self> {
        let (host, rest) = text.split_once('/')?;
        let is_host = host.contains(['.', ':']) || host == "localhost";
        let is_completed = host == LEGACY_HOST || (host == DEFAULT_HOST && !rest.contains('/'));
        Self::parse(text).filter(|_| is_host && !is_completed)
    }

    pub fn text(&self) -> &'t str {
        self.text
    }

    pub fn has_digest(&self) -> bool {
        self.digest.is_some()
    }
}

/// Whether the tools can complete the text to a full reference.
pub(super) fn is_completable(text: &str) -> bool {
    let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() == 64 && text.bytes().all(lower_hex) {
        return false;
    }
    match text.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => {
            RegistryReference::parse(text).is_some()
        }
        _ => RegistryReference::parse(&format!("{DEFAULT_HOST}/{text}")).is_some(),
    }
}

fn is_name(name: &str) -> bool {
    let is_short = || name.split('/').all(scope::is_path_component);
    name.len() <= LONGEST_NAME && (is_short() || (name.contains('/') && scope::is_valid_mirror(name)))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = tag.bytes();
    tag.len() <= LONGEST_TAG
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(digest: &str) -> bool {
    let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digest.split_once(':').is_some_and(|(algorithm, value)| {
        ALGORITHMS.contains(&(algorithm, value.len())) && value.bytes().all(lower_hex)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn only_full_names_are_qualified() {
        for (text, parsed, qualified) in [
            ("quay.io/a/b", true, true),
            ("quay.io/a/b:v1.0", true, true),
            ("localhost/a", true, true),
            ("host:5000/a", true, true),
            ("docker.io/library/busybox", true, true),
            ("docker.io/busybox", true, false),
            ("index.docker.io/library/busybox", true, false),
            ("busybox", true, false),
            ("mirror/busybox", true, false),
            ("mirror.example:5000", true, false),
            ("quay.io/A", false, false),
            ("quay.io/a:-x", false, false),
            ("quay.io//a", false, false),
            ("quay.io/a@sha256:abc", false, false),
            ("", false, false),
        ] {
            assert_eq!(RegistryReference::parse(text).is_some(), parsed, "{text}");
            assert_eq!(RegistryReference::qualified(text).is_some(), qualified, "{text}");
        }
        let text = format!("quay.io/a:v1@{DIGEST}");
        let full = RegistryReference::qualified(&text).unwrap();
        assert_eq!((full.name, full.has_digest()), ("quay.io/a", true));
        assert!(RegistryReference::qualified(&format!("mirror.example:5000@{DIGEST}")).is_none());
    }

    #[test]
    fn a_short_name_can_be_completed_but_not_one_that_looks_like_an_image_id() {
        for (text, expected) in [
            ("busybox", true),
            ("quay.io/a:tag", true),
            ("quay.io/A", false),
            (&DIGEST[7..], false),
        ] {
            assert_eq!(is_completable(text), expected, "{text}");
        }
    }

    #[test]
    fn an_image_has_a_repository() {
        let digest = "a".repeat(64);
        for (image, expected) in [
            (format!("q.io/ns/img@sha256:{digest}"), Some("q.io/ns/img")),
            ("q.io:5000/img:v1".to_owned(), Some("q.io:5000/img")),
            ("q.io/img".to_owned(), Some("q.io/img")),
            ("img".to_owned(), None),
            ("q.io/img:".to_owned(), None),
            ("q.io/img@sha256:xyz".to_owned(), None),
            (String::new(), None),
        ] {
            let name = RegistryReference::qualified(&image).map(|reference| reference.name);
            assert_eq!(name, expected, "{image}");
        }
    }
}
