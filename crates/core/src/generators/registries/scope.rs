//! Scopes: a registry, a repository, or `*.domain`, and their containment.

/// Whether everything in `inner` is also in `outer`.
///
/// A registry without a port does not contain the one with a port, and `*.d` contains hosts below `d` only.
pub(super) fn is_within(inner: &str, outer: &str) -> bool {
    if inner == outer {
        return true;
    }
    if let Some(domain) = outer.strip_prefix('*').filter(|domain| domain.starts_with('.')) {
        return match inner.split_once(':') {
            Some((before, _)) => before.ends_with(domain) && !before.contains('/'),
            None => inner.split('/').next().unwrap_or_default().ends_with(domain),
        };
    }
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.starts_with('/'))
}

pub(super) fn is_wildcard(scope: &str) -> bool {
    scope.starts_with("*.")
}

/// Returns the part of `inner` after `outer`, which is appended to a mirror of `outer`. A wildcard matches a whole
/// host, so the part after it is the path.
pub(super) fn remainder<'s>(inner: &'s str, outer: &str) -> &'s str {
    if is_wildcard(outer) {
        return inner.find('/').map_or("", |slash| &inner[slash..]);
    }
    inner.strip_prefix(outer).unwrap_or_default()
}

/// Whether an entry of a list of registries is valid.
pub(super) fn is_valid_entry(entry: &str) -> bool {
    if !entry.contains('*') {
        return !entry.is_empty();
    }
    entry
        .strip_prefix("*.")
        .is_some_and(|domain| !domain.contains(['/', '@', ':', '*']))
}

/// Whether the text has the form `host[:port][/path]`.
pub(super) fn is_valid_mirror(mirror: &str) -> bool {
    let (host, path) = match mirror.find('/') {
        Some(slash) => mirror.split_at(slash),
        None => (mirror, ""),
    };
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (host, None),
    };
    let digits = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    is_host(host)
        && port.is_none_or(digits)
        && (path.is_empty() || path[1..].split('/').all(is_path_component))
}

/// Whether the text has the form `host[:port][/path]` or `*.domain`.
pub(super) fn is_valid_source(source: &str) -> bool {
    match source.strip_prefix("*.") {
        Some(domain) => is_host(domain),
        None => is_valid_mirror(source),
    }
}

fn is_host(host: &str) -> bool {
    host.split('.').all(|label| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    })
}

/// Whether the text consists of lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
pub(super) fn is_path_component(component: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators: Vec<&str> = component.split(alphanumeric).collect();
    let ends_well = component.starts_with(alphanumeric) && component.ends_with(alphanumeric);
    ends_well
        && separators
            .iter()
            .all(|s| matches!(*s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_contains_what_is_below_it() {
        for (inner, outer, expected) in [
            ("example.com", "example.com", true),
            ("example.com/a", "example.com", true),
            ("example.com:5000", "example.com", false),
            ("example.com:5000/a", "example.com:5000", true),
            ("example.comma/a", "example.com", false),
            ("x.foo", "*.foo", true),
            ("x.foo/repo", "*.foo", true),
            ("x.foo:5000/repo", "*.foo", true),
            ("foo", "*.foo", false),
            ("quay/bar.foo", "*.foo", false),
            ("x.d/repo@sha256:abc", "*.d", false),
            ("*.blocked.insecure-example.com", "*.insecure-example.com", true),
        ] {
            assert_eq!(is_within(inner, outer), expected, "{inner} in {outer}");
        }
    }

    #[test]
    fn sources_and_mirrors_have_a_format() {
        for (text, source, mirror) in [
            ("q.io", true, true),
            ("q.io:5000/a/b-c__d.e", true, true),
            ("localhost", true, true),
            ("*.x.com", true, false),
            ("*.x.com/ns", false, false),
            ("other.com/ns-o1  ", false, false),
            ("q.io/Upper", false, false),
            ("q.io/", false, false),
            ("q.io//a", false, false),
            ("q.io:/a", false, false),
            ("-q.io", false, false),
            ("", false, false),
            ("q.io/a._b", false, false),
            ("q.io/a---b", true, true),
        ] {
            assert_eq!(is_valid_source(text), source, "source {text:?}");
            assert_eq!(is_valid_mirror(text), mirror, "mirror {text:?}");
        }
    }
}
