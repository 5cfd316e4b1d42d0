//! References to operating system images, as written by users and as reported by tools.

/// Returns the image of a deployment's `container-image-reference`, without the signature scheme and the transport.
pub fn reference_url(reference: &str) -> Option<&str> {
    let (scheme, rest) = reference.split_once(':')?;
    let with_transport = match scheme {
        "ostree-unverified-registry" => return Some(rest),
        "ostree-remote-registry" => return rest.split_once(':').map(|(_, url)| url),
        "ostree-image-signed" | "ostree-unverified-image" => rest,
        "ostree-remote-image" => rest.split_once(':')?.1,
        _ => return None,
    };
    let (_, url) = with_transport.split_once(':')?;
    Some(url.strip_prefix("//").unwrap_or(url))
}

/// Returns whether two references mean the same image: equal text, or the same digest from any registry.
pub fn same_image(left: &str, right: &str) -> bool {
    left == right || matches!((digest(left), digest(right)), (Some(left), Some(right)) if left == right)
}

/// Returns whether a deployment is of the wanted image: the same digest from any registry, or the same tag.
pub(super) fn is_deployed(image: Option<&str>, digest_of_image: Option<&str>, wanted: &str) -> bool {
    match (digest(wanted), digest_of_image) {
        (Some(wanted), Some(deployed)) => wanted == deployed,
        _ => image.is_some_and(|image| same_image(image, wanted)),
    }
}

/// Returns the digest of a reference that has one.
pub(super) fn digest(reference: &str) -> Option<&str> {
    let (_, digest) = reference.rsplit_once('@')?;
    digest.starts_with("sha256:").then_some(digest)
}

/// Returns a reference without its tag and digest.
pub(super) fn repository(reference: &str) -> &str {
    let name = reference.split('@').next().unwrap_or_default();
    match name.rfind(':') {
        Some(at) if !name[at..].contains('/') => &name[..at],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_leads_to_the_image() {
        for (reference, url) in [
            (
                "ostree-unverified-registry:quay.io/os@sha256:12",
                Some("quay.io/os@sha256:12"),
            ),
            (
                "ostree-remote-registry:fedora:quay.io/fcos:stable",
                Some("quay.io/fcos:stable"),
            ),
            ("ostree-image-signed:docker://quay.io/os:1", Some("quay.io/os:1")),
            (
                "ostree-unverified-image:containers-storage:quay.io/os:1",
                Some("quay.io/os:1"),
            ),
            (
                "ostree-remote-image:fedora:docker://quay.io/os:1",
                Some("quay.io/os:1"),
            ),
            ("something-else:x", None),
            ("plain", None),
        ] {
            assert_eq!(reference_url(reference), url, "{reference}");
        }
    }

    #[test]
    fn a_repository_has_neither_tag_nor_digest() {
        for (reference, expected) in [
            ("quay.io/os:1", "quay.io/os"),
            ("quay.io:5000/os", "quay.io:5000/os"),
            ("quay.io:5000/os:1@sha256:12", "quay.io:5000/os"),
        ] {
            assert_eq!(repository(reference), expected);
        }
    }

    #[test]
    fn a_mirror_of_the_same_digest_is_the_same_image() {
        assert!(same_image(
            "a.example/os@sha256:12",
            "mirror.example/os@sha256:12"
        ));
        assert!(!same_image("a.example/os@sha256:12", "a.example/os@sha256:13"));
        assert!(!same_image("a.example/os:1", "a.example/os:2"));
    }
}
