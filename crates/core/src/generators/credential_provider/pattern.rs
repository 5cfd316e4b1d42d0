//! Image patterns, with the matching rules of the kubelet: label by label, with an equal port, and a prefix of the
//! path.

use std::sync::LazyLock;

use regex::Regex;

#[derive(Debug, Clone, Copy)]
pub(super) struct ImagePattern<'a> {
    host: &'a str,
    port: &'a str,
    path: &'a str,
}

impl<'a> ImagePattern<'a> {
    /// Whether the API accepts the pattern.
    pub fn is_valid(text: &str) -> bool {
        text.len() <= 512 && text != "*" && VALID.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }

    pub fn parse(text: &'a str) -> Self {
        let (host, path) = text.find('/').map_or((text, ""), |slash| text.split_at(slash));
        let (host, port) = host.split_once(':').unwrap_or((host, ""));
        Self { host, port, path }
    }

    /// Whether one of the patterns matches everything that the other matches.
    pub fn overlaps(self, other: &Self) -> bool {
        self.matches(other) || other.matches(&self)
    }

    fn matches(&self, target: &Self) -> bool {
        self.port == target.port
            && target.path.starts_with(self.path)
            && self.host.split('.').count() == target.host.split('.').count()
            && self
                .host
                .split('.')
                .zip(target.host.split('.'))
                .all(|(glob, label)| fits(glob, label))
    }
}

/// Whether a label matches a glob in which `*` matches any text.
fn fits(glob: &str, label: &str) -> bool {
    let Some((beginning, rest)) = glob.split_once('*') else {
        return glob == label;
    };
    let Some(mut label) = label.strip_prefix(beginning) else {
        return false;
    };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return label.ends_with(piece);
        }
        let Some((_, after)) = label.split_once(piece) else {
            return false;
        };
        label = after;
    }
    true
}

/// The pattern in the CRD. `None` only if the regex does not compile, which a test rules out.
static VALID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const LABEL: &str = r"(\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?)";
    Regex::new(&format!(r"^{LABEL}(\.{LABEL})*(:[0-9]+)?(/[-a-z0-9._/]*)?$")).ok()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_when_one_stands_for_the_other() {
        for (one, other, expected) in [
            ("gcr.io", "gcr.io", true),
            ("gcr.io", "gcr.io/team", true),
            ("gcr.io/team", "gcr.io/other", false),
            ("*.gcr.io", "eu.gcr.io", true),
            ("*.gcr.io", "gcr.io", false),
            ("*.gcr.io", "a.b.gcr.io", false),
            ("*.io", "gcr.*", false),
            (
                "*.dkr.ecr.*.amazonaws.com",
                "1.dkr.ecr.eu-west-1.amazonaws.com",
                true,
            ),
            ("*.dkr-ecr.amazonaws.com", "1.dkr.amazonaws.com", false),
            ("a*b*c.io", "a-b-b-c.io", true),
            ("a*b*c.io", "a-c-b.io", false),
            ("quay.io:443", "quay.io", false),
            ("quay.io:443", "quay.io:443/x", true),
        ] {
            let (a, b) = (ImagePattern::parse(one), ImagePattern::parse(other));
            assert_eq!(a.overlaps(&b), expected, "{one} and {other}");
            assert_eq!(b.overlaps(&a), expected, "{other} and {one}");
        }
    }

    #[test]
    fn labels_are_wild_as_a_whole() {
        for (text, expected) in [
            ("quay.io", true),
            ("*.quay.io", true),
            ("quay.*", true),
            ("localhost:5000/a/b_c", true),
            ("localhost:5000/a/b.c-d", true),
            ("*", false),
            ("f*o.io", false),
            ("Quay.io", false),
            ("quay.io:port", false),
            ("quay..io", false),
            ("https://quay.io", false),
            ("", false),
        ] {
            assert_eq!(ImagePattern::is_valid(text), expected, "{text}");
        }
        assert!(!ImagePattern::is_valid(&"a".repeat(513)));
    }
}
